"""The steady-state test on simulated queues with fixed seeds: it finds overload, and rarely invents it."""

import math
from collections import Counter
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.results.steady_state import (
    FEWEST,
    State,
    SteadyState,
    Timed,
    steady_state,
    trend,
    truncation,
)
from tests.loadgen.queues import queue, seeded

RUNS = 20


def verdicts(load: float, count: int, slots: int) -> Counter[State]:
    random = seeded(18)
    return Counter(steady_state(queue(load, count, random, slots=slots)).state for _ in range(RUNS))


@pytest.mark.slow
@pytest.mark.parametrize("slots", [pytest.param(1, id="M/M/1"), pytest.param(32, id="M/M/32")])
@pytest.mark.parametrize(
    "load, count, state, least, most_wrong",
    [
        pytest.param(0.5, 1000, State.STEADY, 20, 0, id="half loaded"),
        pytest.param(0.9, 3000, State.STEADY, 19, 0, id="nine tenths"),
        pytest.param(1.1, 8000, State.DRIFTING, 19, 0, id="a tenth too much", marks=pytest.mark.long),
        pytest.param(1.3, 1000, State.DRIFTING, 19, 0, id="three tenths too much"),
        pytest.param(3.0, 1000, State.DRIFTING, 20, 0, id="three times too much"),
    ],
)
def test_of_twenty_queues(load: float, count: int, slots: int, state: State, least: int, most_wrong: int) -> None:
    found = verdicts(load, count, slots)
    opposite = State.DRIFTING if state is State.STEADY else State.STEADY
    assert found[state] >= least
    assert found[opposite] <= most_wrong


@pytest.mark.parametrize("load", [0.5, 0.7])
def test_a_short_run_of_a_server_that_keeps_up_rarely_counts_as_overload(load: float) -> None:
    assert verdicts(load, 300, 1)[State.DRIFTING] <= 1
    assert verdicts(load, 300, 32)[State.DRIFTING] <= 1


def test_few_requests_decide_nothing() -> None:
    assert steady_state([]) == SteadyState(state=State.SHORT)
    assert steady_state(queue(5, FEWEST - 1, seeded(1))) == SteadyState(state=State.SHORT)


def test_requests_that_were_rejected_at_once_show_no_queue() -> None:
    rejected = [Timed(float(at), None, at + 0.01) for at in range(10 * FEWEST)]
    assert steady_state(rejected).state is State.SHORT


def test_open_requests_that_rise_while_the_first_ones_are_served_are_no_overload() -> None:
    """Each response takes 60 s: for 60 s the number of open requests rises, whatever the server can do."""
    arrivals = queue(0.5, 4000, seeded(3), rate=10)
    responses = [Timed(due, wait, closed + 60) for due, wait, closed in arrivals]
    assert steady_state(responses).state is State.STEADY
    assert steady_state(responses[:900]).state is State.SHORT


def test_the_stable_window_starts_after_the_cold_requests() -> None:
    """A server that starts cold: 10 s for the first 100 requests, then as usual."""
    random = seeded(5)
    usual = queue(0.5, 2000, random, rate=10)
    cold = [
        Timed(due, (wait or 0) + 10, closed + 10) if number < 100 else Timed(due, wait, closed)
        for number, (due, wait, closed) in enumerate(usual)
    ]
    start = steady_state(cold).start
    assert start is not None
    assert usual[100].due <= start < usual[400].due


@given(st.floats(0, 10), st.integers(0, 40))
def test_mser_5_leaves_out_exactly_the_part_that_differs(level: float, cold: int) -> None:
    alternating = [level + (number % 2) for number in range(100 * 5)]
    assert truncation([*repeat(level + 100, cold * 5), *alternating]) == cold * 5


@given(st.floats(-5, 5), st.floats(-100, 100))
def test_the_trend_of_a_line_is_its_slope(slope: float, level: float) -> None:
    found = trend([(float(x), level + slope * x) for x in range(200)])
    assert found.slope == pytest.approx(slope, abs=1e-6)
    assert found.margin == pytest.approx(0, abs=1e-6)


def test_the_margin_grows_with_the_autocorrelation_of_the_values() -> None:
    random = seeded(2)
    noise = [random.gauss(0, 1) for _ in range(400)]
    walk = [sum(noise[:at]) for at in range(400)]
    independent = trend(list(zip(map(float, range(400)), noise, strict=True)))
    dependent = trend(list(zip(map(float, range(400)), walk, strict=True)))
    assert dependent.margin > 10 * independent.margin
    assert trend([(1.0, 2.0)] * 100).margin == math.inf
