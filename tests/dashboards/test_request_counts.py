"""Queries that count requests aggregate over the endpoint, which no rule, alert or panel shows."""

import re
from pathlib import Path

import pytest

from exporters import signals

ROOT = Path(__file__).resolve().parents[2]
GENERATED = [*sorted(ROOT.glob("dashboards/generated/*.json")), ROOT / "alerts/generated/rules.yaml"]
AGGREGATED = re.compile(r"sum (by \([^)]*\) )?\((rate|increase)\($")


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: str(path.stem))
def test_each_count_of_requests_is_a_sum_without_the_endpoint(path: Path) -> None:
    text = path.read_text()
    for match in re.finditer(signals.REQUESTS.name, text):
        before = AGGREGATED.search(text, max(0, match.start() - 100), match.start())
        assert before is not None, text[match.start() - 100 : match.end()]
        assert "endpoint" not in before[0]
