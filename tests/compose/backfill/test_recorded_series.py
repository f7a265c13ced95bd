"""The queries that evaluate a recording rule, and failures of the temporary Prometheus and of promtool."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from alerts.promql.build import call
from alerts.rules.groups import Recording
from compose.backfill import recorded_series
from compose.backfill.block_files import BlockMaker, block_length
from compose.backfill.recorded_series import results, temporary_prometheus
from compose.backfill.rule_order import TimedRule
from exporters.analysis.prometheus_api import Prometheus, Series
from exporters.text.errors import UsageError
from exporters.vocabulary.signals import SLO_OBJECTIVE

START = 1_800_000_000_000
RULE = TimedRule(Recording(SLO_OBJECTIVE, call("vector", 0.95)), interval=60.0, offset=1.5)


@dataclass(frozen=True, slots=True)
class Queried(Prometheus):
    """Has one series with a sample at each time of a query."""

    queries: list[tuple[float, float]] = field(default_factory=list)

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Series]:
        self.queries.append((start, end))
        return [Series({}, [(start + n * step, 1.0) for n in range(int((end - start) // step) + 1)])]


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_a_rule_is_evaluated_once_at_each_of_its_times(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Prometheus limits the number of times of one query."""
    monkeypatch.setattr(recorded_series, "MOST_POINTS", most)
    server = Queried("")
    times = [at for series in results(server, RULE, (START + 1, START + 3_600_000)) for at, _ in series.points]
    assert times == [START / 1000 + 1.5 + minute * 60 for minute in range(60)]
    assert len(server.queries) == -(-60 // most)


def test_a_rule_without_a_time_in_a_span_is_not_queried() -> None:
    server = Queried("")
    assert not list(results(server, RULE, (START + 2_000, START + 61_000)))
    assert not server.queries


def test_a_failed_query_names_the_rule() -> None:
    with pytest.raises(UsageError) as failed:
        list(results(Prometheus("http://127.0.0.1:9"), RULE, (START, START + 60_000)))
    assert str(failed.value) == "llm_slo:objective:ratio: the query has failed: connection refused"


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return path


def test_a_prometheus_that_does_not_start_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    failing = program(tmp_path / "prometheus", "echo 'opening storage failed' >&2; exit 1")
    with pytest.raises(UsageError) as failed, temporary_prometheus(failing, tmp_path / "data", tmp_path):
        pytest.fail("it has started")
    assert str(failed.value) == (
        f"{failing}: the temporary Prometheus is not ready; the end of its log:\n    opening storage failed"
    )


@pytest.mark.parametrize("longest, length", [(2, 2), (5.9, 2), (6, 6), (24, 18), (54, 54), (744, 486)])
def test_a_block_is_as_long_as_promtool_makes_it(longest: float, length: float) -> None:
    assert block_length(longest * 3600) == length * 3600


def test_a_failure_of_promtool_is_an_error_with_its_reason(tmp_path: Path) -> None:
    failing = program(tmp_path / "promtool", "echo 'no space left' >&2; exit 1")
    with pytest.raises(UsageError) as refused:
        BlockMaker(failing, 7200).make(tmp_path / "in.om", tmp_path)
    assert str(refused.value) == "promtool has failed: no space left"
    failing.chmod(0o600)
    with pytest.raises(UsageError) as refused:
        BlockMaker(failing, 7200).make(tmp_path / "in.om", tmp_path)
    assert str(refused.value) == f"{failing}: cannot be started: permission denied"
    assert os.listdir(tmp_path) == ["promtool"]  # noqa: PTH208 - one name
