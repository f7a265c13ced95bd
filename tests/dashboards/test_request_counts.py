"""Queries that count requests aggregate over the route, which no rule or alert and only its own panels show."""

import re
from pathlib import Path

import pytest

from exporters.vocabulary import signals

ROOT = Path(__file__).resolve().parents[2]
GENERATED = [*sorted(ROOT.glob("dashboards/generated/*.json")), ROOT / "alerts/generated/rules.yaml"]
BY_ROUTE = re.compile(r"sumby\(route(,outcome)?\)\((rate|increase)\($")
AGGREGATED = re.compile(r"sum(by\([^)]*\))?\((rate|increase)\($")


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: str(path.stem))
def test_each_count_of_requests_is_a_sum_without_the_route(path: Path) -> None:
    # texts of empty panels name a series
    queries = re.sub(r"(?:no series|no result from|Series:) [\w:]+", "", path.read_text())
    text = re.sub(r"\s+", "", queries)
    for match in re.finditer(signals.REQUESTS.name, text):
        before = AGGREGATED.search(text, max(0, match.start() - 100), match.start())
        assert before is not None, text[match.start() - 100 : match.end()]
        if path.stem == "slo-workload" and BY_ROUTE.search(before[0]):
            continue
        assert "route" not in before[0]
