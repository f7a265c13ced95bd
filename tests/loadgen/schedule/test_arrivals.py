"""Every law under every course of the rate gives the planned arrivals; they depend on the seed and their class only."""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.results.arrival_check import check, gamma_share, kolmogorov_smirnov
from loadgen.schedule.arrivals import Arrival, arrivals, expected_arrivals
from loadgen.schedule.phases import (
    CYCLE_PIECES,
    AtOnce,
    ClosedLoop,
    Diurnal,
    Law,
    OpenLoop,
    Phase,
    Piece,
    Ramp,
    Replay,
    Steady,
    Steps,
    scale_rates,
    stored_phase,
    with_duration,
)

SEEDS = st.integers(0, 2**32)
LAWS: list[dict[str, Any]] = [
    {"arrivals": Law.CONSTANT},
    {},
    {"arrivals": Law.GAMMA, "burstiness": 0.25},
    {"arrivals": Law.GAMMA, "burstiness": 8.0},
]
COURSES: list[Callable[..., OpenLoop]] = [
    partial(Steady, rate=8.0),
    partial(Ramp, rate=2.0, end_rate=14.0),
    partial(Ramp, rate=16.0, end_rate=0.0),
    partial(Diurnal, rate=2.0, peak_rate=14.0, cycle=100.0),
    partial(Steps, steps=(2.0, 0.0, 8.0, 22.0)),
]
IDLE: Callable[..., OpenLoop] = partial(Steady, rate=0.0)
ANY_COURSE: list[Callable[..., Phase]] = [
    partial(AtOnce, requests=30),
    partial(ClosedLoop, users=4),
    *(partial(course, **law) for course in (IDLE, *COURSES) for law in LAWS),
]
PHASES = st.lists(
    st.builds(
        lambda name, duration, course: course(name, duration),
        st.sampled_from(["calm", "busy", "quiet"]),
        st.floats(0.1, 30),
        st.sampled_from(ANY_COURSE),
    ),
    min_size=1,
    max_size=4,
)
SHARES = {"siso": 0.7, "lilo": 0.3, "none": 0.0}


def schedule(*phases: Phase, seed: int = 67) -> list[Arrival]:
    return list(arrivals(phases, SHARES, seed))


@given(PHASES, SEEDS)
def test_arrivals_are_in_order_and_stay_inside_their_phase(phases: list[Phase], seed: int) -> None:
    whole = schedule(*phases, seed=seed)
    assert all(earlier.due <= later.due for earlier, later in pairwise(whole))
    begin = 0.0
    for phase in phases:
        end = begin + phase.duration
        inside = [arrival for arrival in whole if begin <= arrival.due < end]
        assert {arrival.phase for arrival in inside} <= {phase.name}
        assert not inside or isinstance(phase, OpenLoop | AtOnce)
        begin = end
    assert all(arrival.due < begin for arrival in whole)
    for name in SHARES:
        indices = [arrival.number for arrival in whole if arrival.request_class == name]
        assert indices == list(range(len(indices)))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    "course",
    [pytest.param(each, marks=pytest.mark.slow) if isinstance(each("day", 200), Diurnal) else each for each in COURSES],
)
def test_each_law_holds_under_each_course_of_the_rate(course: Callable[..., OpenLoop], law: dict[str, Any]) -> None:
    phase = course("steady", 200, **law)
    assert expected_arrivals(phase, 1.0, 200) == pytest.approx(1600)
    whole = schedule(phase)
    for name, share in (("siso", 0.7), ("lilo", 0.3)):
        times = [arrival.due for arrival in whole if arrival.request_class == name]
        found = check(name, phase, share, times)
        assert found.faults == ()
        assert found.variation == pytest.approx(phase.variation, rel=0.2, abs=1e-9)
        # each quarter has its part of the arrivals
        for quarter in range(4):
            begin, end = 50.0 * quarter, 50.0 * (quarter + 1)
            expected = expected_arrivals(phase, share, end) - expected_arrivals(phase, share, begin)
            count = sum(begin <= at < end for at in times)
            assert abs(count - expected) <= 4 * phase.variation * math.sqrt(expected) + 1


@pytest.mark.parametrize("law", LAWS)
def test_the_first_arrival_does_not_betray_the_start_of_the_phase(law: dict[str, Any]) -> None:
    firsts = [next(arrivals([Steady("s", 1000, 1.0, **law)], {"a": 1.0}, seed)).due for seed in range(1500)]
    # The mean residual time of a stationary renewal process: (1 + variation^2) / 2 mean gaps.
    expected = (1 + Steady("s", 1000, 1.0, **law).variation ** 2) / 2
    assert sum(firsts) / len(firsts) == pytest.approx(expected, rel=0.1)


def test_all_at_once_starts_with_the_phase_and_splits_by_share() -> None:
    whole = schedule(Steady("pause", 5, 0.0), AtOnce("burst", 10, 1000))
    assert {(arrival.due, arrival.phase) for arrival in whole} == {(5.0, "burst")}
    assert len(whole) == 1000
    assert abs(sum(arrival.request_class == "siso" for arrival in whole) - 700) < 4 * math.sqrt(210)


def test_more_arrivals_than_a_piece_has_by_rounding_are_due_at_its_end() -> None:
    assert Piece(10, 4, 0).after(20.0000001) == 10


def test_a_diurnal_rate_begins_each_cycle_at_its_lowest_and_peaks_in_the_middle() -> None:
    rates = [piece.begin for piece in Diurnal("day", 200, rate=2.0, peak_rate=14.0, cycle=100.0).pieces]
    eighth = CYCLE_PIECES // 8
    assert rates[: 12 * eighth : 2 * eighth] == pytest.approx([2, 8, 14, 8, 2, 8])


@pytest.mark.parametrize(
    "spoilt, fault",
    [
        (lambda times: times[:-120], "arrivals, 800 expected"),
        (lambda times: [at - at % 2 for at in times], "the gaps do not follow the law"),
        (lambda times: [at + 0.08 * math.sin(at) for at in times], "depend on each other"),
    ],
)
def test_arrivals_that_break_their_law_are_found(spoilt: Any, fault: str) -> None:
    phase = (
        Steady("steady", 100, 8.0, arrivals=Law.GAMMA, burstiness=100.0) if "depend" in fault else Steady("s", 100, 8)
    )
    times = [arrival.due for arrival in arrivals([phase], {"a": 1.0}, 67)]
    assert check("a", phase, 1.0, times).faults == ()
    assert fault in "; ".join(check("a", phase, 1.0, sorted(spoilt(times))).faults)


@pytest.mark.slow
def test_a_correct_schedule_is_rarely_accused() -> None:
    phase = Steady("steady", 30, 10.0)
    accused = sum(
        bool(check("a", phase, 1.0, [arrival.due for arrival in arrivals([phase], {"a": 1.0}, seed)]).faults)
        for seed in range(200)
    )
    assert accused <= 4  # three figures at 0.1 % each: 0.6 expected


@pytest.mark.parametrize(
    "shape, x, share",
    # values of the chi-squared and exponential distributions
    [(1.0, 1.0, 1 - math.exp(-1)), (0.5, 1.9207294, 0.95), (5.0, 9.1535, 0.95), (1.0, 0.0, 0.0), (2.0, 1e6, 1.0)],
)
def test_the_gamma_distribution(shape: float, x: float, share: float) -> None:
    assert gamma_share(shape, x) == pytest.approx(share, abs=1e-5)


def test_p_values_are_uniform_under_the_law() -> None:
    random = Random(67)  # noqa: S311 - repeatable, not secret
    values = [kolmogorov_smirnov([random.expovariate(1) for _ in range(60)], 1.0) for _ in range(400)]
    for level in (0.05, 0.25, 0.5, 0.75):
        assert sum(p < level for p in values) / len(values) == pytest.approx(level, abs=0.09)


@given(PHASES, st.floats(0.05, 100))
def test_a_wanted_length_is_met_and_stretches_no_phase_but_the_last(phases: list[Phase], seconds: float) -> None:
    *whole, final = cut = with_duration(phases, seconds)
    assert math.isclose(sum(phase.duration for phase in cut), seconds)
    assert [phase.name for phase in cut] == [phase.name for phase in phases][: len(cut)]
    assert [phase.duration for phase in whole] == [phase.duration for phase in phases[: len(whole)]]
    assert final.duration <= phases[len(whole)].duration or len(whole) == len(phases) - 1


def test_scaling_multiplies_every_rate() -> None:
    assert scale_rates([Ramp("a", 1, 2, 3), Steps("b", 3, (4, 5)), ClosedLoop("c", 1, 3)], 2.5) == (
        Ramp("a", 1, 5, 7.5),
        Steps("b", 3, (10, 12.5)),
        ClosedLoop("c", 1, 8),
    )


@given(PHASES)
def test_a_stored_phase_is_read_as_it_was(phases: list[Phase]) -> None:
    assert [stored_phase(msgspec.to_builtins(phase)) for phase in phases] == phases


@pytest.mark.parametrize(
    "given, phase",
    [
        pytest.param({"rate": 4}, Steady("a", 10, 4), id="rate"),
        pytest.param({"rate": 4, "arrivals": "constant"}, Steady("a", 10, 4, arrivals=Law.CONSTANT), id="law"),
        pytest.param({"rate": 1, "peak_rate": 2, "cycle": 5}, Diurnal("a", 10, 1, 2, 5), id="cycle"),
        pytest.param({"users": 4}, ClosedLoop("a", 10, 4), id="users"),
        pytest.param({}, Replay("a", 10), id="replay"),
    ],
)
def test_a_phase_of_release_0_2_is_read(given: dict[str, Any], phase: Phase) -> None:
    names = "rate end_rate peak_rate cycle requests users think_time arrivals burstiness"
    assert stored_phase({"name": "a", "duration": 10, **dict.fromkeys(names.split()), "steps": []} | given) == phase
