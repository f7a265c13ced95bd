"""The schedule is a Poisson process that depends only on the seed."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.arrivals import Phase, arrivals, scale_rates, with_duration

SEEDS = st.integers(0, 2**32)
PHASES = st.lists(
    st.builds(
        Phase,
        name=st.sampled_from(["calm", "busy", "quiet"]),
        duration=st.floats(0.1, 30),
        rate=st.sampled_from([0.0, 0.5, 7.0, 40.0]),
    ),
    min_size=1,
    max_size=4,
)


@given(PHASES, SEEDS)
def test_arrivals_strictly_increase_and_stay_inside_their_phase(phases: list[Phase], seed: int) -> None:
    schedule = list(arrivals(phases, seed))
    assert all(earlier.due < later.due for earlier, later in pairwise(schedule))
    begin = 0.0
    for phase in phases:
        end = begin + phase.duration
        inside = [arrival for arrival in schedule if begin <= arrival.due < end]
        assert {arrival.phase for arrival in inside} <= {phase.name}
        assert not inside or phase.rate > 0
        begin = end
    assert all(arrival.due < begin for arrival in schedule)


@given(PHASES, SEEDS)
def test_the_same_seed_gives_the_same_schedule(phases: list[Phase], seed: int) -> None:
    assert list(arrivals(phases, seed)) == list(arrivals(phases, seed))


def test_another_seed_gives_another_schedule() -> None:
    phases = [Phase("steady", 10, 5)]
    assert list(arrivals(phases, 1)) != list(arrivals(phases, 2))


@pytest.mark.parametrize("rate", [0.5, 8.0, 300.0])
def test_the_count_is_that_of_the_rate(rate: float) -> None:
    duration = 4000 / rate
    count = sum(1 for _ in arrivals([Phase("steady", duration, rate)], 67))
    assert abs(count - 4000) < 4 * math.sqrt(4000)


def test_each_phase_has_its_own_rate() -> None:
    schedule = list(arrivals([Phase("calm", 500, 2), Phase("pause", 50, 0), Phase("busy", 100, 20)], 67))
    counts = {name: sum(arrival.phase == name for arrival in schedule) for name in ("calm", "pause", "busy")}
    assert counts["pause"] == 0
    assert abs(counts["calm"] - 1000) < 4 * math.sqrt(1000)
    assert abs(counts["busy"] - 2000) < 4 * math.sqrt(2000)


def test_gaps_are_exponential() -> None:
    due = [0.0, *(arrival.due for arrival in arrivals([Phase("steady", 500, 10)], 67))]
    gaps = sorted(later - earlier for earlier, later in pairwise(due))
    shares = [1 - math.exp(-10 * gap) for gap in gaps]
    distance = max(
        max(abs((index + 1) / len(gaps) - share), abs(index / len(gaps) - share)) for index, share in enumerate(shares)
    )
    assert distance < 1.63 / math.sqrt(len(gaps))  # Kolmogorov-Smirnov at 1 %


@given(PHASES, st.floats(0.05, 100))
def test_a_wanted_length_is_met_and_keeps_the_order(phases: list[Phase], seconds: float) -> None:
    cut = with_duration(phases, seconds)
    assert math.isclose(sum(phase.duration for phase in cut), seconds)
    assert [phase.name for phase in cut] == [phase.name for phase in phases][: len(cut)]


def test_scaling_multiplies_every_rate() -> None:
    assert scale_rates([Phase("a", 1, 2), Phase("b", 3, 4)], 2.5) == (Phase("a", 1, 5), Phase("b", 3, 10))
