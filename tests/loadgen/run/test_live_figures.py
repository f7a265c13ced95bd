"""The figures of a running load are those of its records, and the number of requests does not change their cost."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.results.record import ClientOutcome
from loadgen.results.summary import quantiles
from loadgen.run.live_figures import WINDOW, Distribution, LiveFigures
from tests.loadgen.load_records import record


@given(st.lists(st.floats(1e-6, 1e4) | st.none()))
def test_a_percentile_is_the_exact_one_within_its_step(values: list[float | None]) -> None:
    distribution = Distribution()
    for value in values:
        distribution.add(value)
    known = [value for value in values if value is not None]
    exact = quantiles(known, missing=len(values) - len(known))
    for percent, expected in ((50, exact.p50), (95, exact.p95), (99, exact.p99)):
        shown = distribution.percentile(percent)
        assert shown == (expected and pytest.approx(expected, rel=0.0011))


def test_figures_count_by_class_and_for_the_last_seconds() -> None:
    figures = LiveFigures(["siso", "liso"])
    for at in range(20):
        figures.offer("siso")
        figures.dispatch("siso", 0.001 if at else 0.2, at)
        figures.end(record(due=at, closed=at + 0.5, ttft=0.1, e2e=0.5, good=at >= 15, completion_tokens=10))
    figures.offer("siso")
    figures.offer("liso")
    figures.end(record(request_class="liso", closed=19.5, outcome=ClientOutcome.NOT_SENT, stream=False))
    siso, liso, total = figures.rows
    assert (siso.name, siso.offered, siso.open, siso.ended, siso.ok) == ("siso", 21, 1, 20, 20)
    assert (siso.goodput, siso.tokens, siso.worst_lag) == (0.25, 200, 0.2)
    assert (liso.offered, liso.open, liso.ok, liso.not_sent, liso.goodput) == (1, 0, 0, 1, None)
    assert (total.name, total.offered, total.ended) == ("all", 22, 21)
    recent = siso.recent(20.0)
    assert (recent.goodput, recent.worst_lag) == (5 / 9, 0.001)  # 11 to 19: the tenth second has just begun
    assert recent.tokens_per_second == 9
    assert recent.ttft_p50 == pytest.approx(0.1, rel=0.01)


def test_one_class_has_no_row_for_all() -> None:
    assert [row.name for row in LiveFigures(["siso"]).rows] == ["siso"]


def _lines_run(work: Callable[[], object]) -> int:
    """How many lines of Python a call runs: its cost, without a clock."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    work()  # the first call fills caches of the library
    before = sys.gettrace()
    gc.disable()  # a collection runs the callbacks of other libraries
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


@pytest.mark.slow
def test_the_cost_of_reading_does_not_grow_with_the_requests() -> None:
    def filled(count: int) -> LiveFigures:
        figures = LiveFigures(["siso"])
        for index in range(count):
            at = 100 * index / count
            figures.offer("siso")
            figures.dispatch("siso", 0.001, at)
            figures.end(record(closed=at, ttft=0.1 * (1 + index % 7), e2e=0.5))
        return figures

    few, many = (filled(count) for count in (2_000, 40_000))
    (row_of_few,), (row_of_many,) = few.rows, many.rows
    assert _lines_run(lambda: row_of_few.recent(100)) == _lines_run(lambda: row_of_many.recent(100)) > WINDOW
    assert _lines_run(lambda: row_of_few.ttft.percentile(95)) == _lines_run(lambda: row_of_many.ttft.percentile(95))
