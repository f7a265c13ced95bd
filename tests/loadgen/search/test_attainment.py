"""Decisions by Wilson's interval."""

import math

import pytest

from loadgen.search.attainment import Attainment, Tally, Verdicts, chance_of_bad, events_needed, wilson, z_of

_Z95 = z_of(0.025)


@pytest.mark.parametrize(
    "objective, confidence, events",
    [
        pytest.param(0.95, 0.95, 73, id="95 %: 73"),
        pytest.param(0.995, 0.95, 765, id="99.5 %: 765"),
        pytest.param(0.99, 0.95, 381, id="99 %: 381"),
        pytest.param(0.95, 0.99, 127, id="95 % at a confidence of 99 %: 127"),
    ],
)
def test_an_objective_needs_so_many_events_without_a_bad_one(objective: float, confidence: float, events: int) -> None:
    z = z_of((1 - confidence) / 2)
    assert events_needed(objective, confidence) == events
    assert wilson(events, events, z)[0] > objective
    assert wilson(events - 1, events - 1, z)[0] <= objective
    assert wilson(events - 1, events, z)[0] < objective  # with a bad one, more are needed


@pytest.mark.parametrize(
    "bad, events, chance",
    [
        pytest.param(0, 80, 1.0, id="none"),
        pytest.param(1, 80, 1 - 0.95**80, id="at least one"),
        pytest.param(80, 80, 0.05**80, id="all"),
        pytest.param(10, 80, sum(math.comb(80, k) * 0.05**k * 0.95 ** (80 - k) for k in range(10, 81)), id="ten"),
        pytest.param(0, 0, 1.0, id="no event"),
    ],
)
def test_the_chance_of_so_many_bad_events_is_the_binomial_tail(bad: int, events: int, chance: float) -> None:
    assert chance_of_bad(bad, events, 0.05) == pytest.approx(chance, rel=1e-6)


def test_without_events_nothing_is_known() -> None:
    assert wilson(0, 0, _Z95) == (0.0, 1.0)


def _tally(name: str, attainment: Attainment, bad: int = 0) -> Tally:
    return Tally(name, "ttft", 0.95, 100, bad, 0.0, 1.0, attainment)


@pytest.mark.parametrize(
    "attainments, whole",
    [
        ([Attainment.MET, Attainment.MET], Attainment.MET),
        ([Attainment.MET, Attainment.UNDECIDED], Attainment.UNDECIDED),
        ([Attainment.MISSED, Attainment.UNDECIDED, Attainment.MET], Attainment.MISSED),
    ],
)
def test_a_probe_is_missed_if_one_slo_is_and_met_if_all_are(attainments: list[Attainment], whole: Attainment) -> None:
    assert Verdicts([_tally("siso", each) for each in attainments]).attainment is whole


def test_the_deciding_slos_are_named_the_worst_first() -> None:
    missed = [_tally("siso", Attainment.MISSED, 10), _tally("liso", Attainment.MISSED, 40)]
    verdicts = Verdicts([*missed, _tally("lilo", Attainment.UNDECIDED, 50)])
    assert [tally.request_class for tally in verdicts.deciding()] == ["liso", "siso"]
    assert Verdicts([_tally("siso", Attainment.MET)]).deciding() == []
