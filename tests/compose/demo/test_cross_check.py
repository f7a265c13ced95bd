"""The cross-check passes when the sources agree and finds every difference."""

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from compose.demo import cross_check
from compose.demo.cross_check import Comparison, RequestFacts
from exporters.requestlog.entry import LogEntry
from exporters.vocabulary.signals import Outcome, Verdict
from loadgen.results.record import ClientOutcome
from tests.loadgen import load_records

BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0)
LOAD = [RequestFacts("siso", n < 90, n < 80, 0.06 + n / 1000, 100, 10) for n in range(100)]
LOG = [
    LogEntry(
        time=datetime.fromtimestamp(n, UTC),
        request_class="siso",
        stream=True,
        outcome=Outcome.OK if n < 90 else Outcome.CLIENT_ABORT,
        prompt_tokens=50,
        completion_tokens=100,
        cached_tokens=10,
        ttft_ms=60.0 + n,
        tpot_ms=20.0 if n else None,
        queue_ms=n * 2.0,
        e2e_ms=2000.0 if n < 90 else 500.0,  # the dashboards have the mean of `ok` only
        slo={"ttft": Verdict.GOOD if n < 80 else Verdict.BAD},
    )
    for n in range(100)
]
DASHBOARD: Mapping[str, Mapping[str, float]] = {
    "offered": {"siso": 100.3},
    "ok": {"siso": 90.2},
    "goodput": {"siso": 0.8},
    "ttft_p50": {"siso": cross_check.bucketed_quantile(0.5, [each.ttft or 0 for each in LOAD], BOUNDS) or 0},
    "tokens_out": {"siso": 10_020},
    "cached_tokens": {"siso": 1_001},
    "failed": {"siso": 10.1},
    "bad_events": {"siso": 20.0},
    "prompt_tokens": {"siso": 5_010},
    "tpot_mean": {"siso": 0.0199},
    "e2e_mean": {"siso": 2.01},
    "queue_mean": {"siso": 0.099},
}


def broken(dashboard: Mapping[str, Mapping[str, float]], load: list[RequestFacts]) -> list[str]:
    checks = cross_check.checks(cross_check.compare(dashboard, LOG, load, ["siso"], BOUNDS))
    assert len(checks) == 14
    return [check.claim.removeprefix("cross-check: ").split(" agrees")[0] for check in checks if not check.passed]


def test_equal_sources_agree() -> None:
    assert broken(DASHBOARD, LOAD) == []


@pytest.mark.parametrize("figure", cross_check.FIGURES)
def test_a_dashboard_that_is_off_by_more_than_2_percent_is_found(figure: str) -> None:
    wrong = {**DASHBOARD, figure: {"siso": DASHBOARD[figure]["siso"] * 1.03}}
    assert broken(wrong, LOAD) == [figure]


@pytest.mark.parametrize("figure", cross_check.FIGURES)
def test_a_figure_that_the_dashboard_does_not_have_is_found(figure: str) -> None:
    assert broken({**DASHBOARD, figure: {}}, LOAD) == [figure]


def test_requests_that_only_the_load_has_seen_are_found() -> None:
    assert broken(DASHBOARD, LOAD + LOAD[:5]) == ["offered", "ok", "tokens_out", "cached_tokens"]


@pytest.mark.parametrize("delay, found", [(0.009, []), (0.02, [cross_check.EXACT_MEDIAN])])
def test_a_greater_ttft_at_the_client_is_found(delay: float, found: list[str]) -> None:
    assert broken(DASHBOARD, [replace(each, ttft=(each.ttft or 0) + delay) for each in LOAD]) == found


def test_a_stream_whose_token_only_the_log_has_seen_is_found() -> None:
    load = [replace(each, ttft=math.inf) if number % 40 == 0 else each for number, each in enumerate(LOAD)]
    assert broken(DASHBOARD, load) == [cross_check.UNSERVED]


def test_a_missing_value_never_agrees_with_a_value() -> None:
    assert Comparison("ok", "siso", {"dashboard": None, "log": 0.0}, slack=9).agrees is False
    assert Comparison("ok", "siso", {"dashboard": 0.0, "log": 0.0}).agrees is True


@pytest.mark.parametrize(
    "values, expected",
    [
        pytest.param([0.01, 0.02], 0.025, id="first bucket begins at zero"),
        pytest.param([0.2, 0.2, 0.3, 0.4], 0.25, id="at a bound"),
        pytest.param([0.06, 0.07, 0.08, 0.09], 0.075, id="linear inside"),
        pytest.param([5.0, 6.0], 1.0, id="above all bounds"),
        pytest.param([], None, id="nothing"),
    ],
)
def test_a_bucketed_median_is_interpolated_as_in_prometheus(values: list[float], expected: float | None) -> None:
    median = cross_check.bucketed_quantile(0.5, values, BOUNDS)
    assert median == (None if expected is None else pytest.approx(expected))


@given(st.lists(st.floats(0.001, 0.999), min_size=1))
def test_a_bucketed_median_is_in_the_bucket_of_the_exact_median(values: list[float]) -> None:
    exact = sorted(values)[(len(values) - 1) // 2]
    median = cross_check.bucketed_quantile(0.5, values, BOUNDS)
    assert median is not None
    high = min(bound for bound in BOUNDS if bound >= exact)
    low = max((bound for bound in BOUNDS if bound < exact), default=0.0)
    assert low <= median <= high * (1 + 1e-12)  # the last digit is not exact


@pytest.mark.parametrize(
    "entry, client, ttft",
    [
        pytest.param({"outcome": Outcome.TRUNCATED}, {"outcome": ClientOutcome.TRUNCATED}, math.inf, id="no token"),
        pytest.param({"outcome": Outcome.CLIENT_ABORT}, {"outcome": ClientOutcome.TIMEOUT}, math.inf, id="timeout"),
        pytest.param({"outcome": Outcome.OK}, {"outcome": ClientOutcome.OK}, None, id="empty response"),
        pytest.param({"outcome": Outcome.CLIENT_ERROR}, {"outcome": ClientOutcome.CLIENT_ERROR}, None, id="invalid"),
        pytest.param({"ttft_ms": 250.0}, {"ttft": 0.25}, 0.25, id="a first token"),
        pytest.param({"stream": False}, {"stream": False}, None, id="unary"),
    ],
)
def test_log_and_load_agree_that_a_stream_without_a_token_is_slower_than_any(
    entry: dict[str, Any], client: dict[str, Any], ttft: float | None
) -> None:
    (of_log,) = cross_check.of_log([structs.replace(LOG[0], **({"ttft_ms": None} | entry))])
    (of_load,) = cross_check.of_load([load_records.record(**client)])
    assert of_log.ttft == of_load.ttft == ttft


def test_a_median_without_a_token_differs_from_any_other() -> None:
    assert Comparison("ttft_p50", "siso", {"log": math.inf, "load": math.inf}).agrees
    assert Comparison("ttft_p50", "siso", {"log": math.inf, "load": 0.2}).difference == math.inf
