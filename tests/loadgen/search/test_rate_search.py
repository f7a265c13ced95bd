"""The search for the largest rate on an injected server, which gives each rate a share of good requests; decisions."""

import math
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.search.attainment import Attainment, Tally, Verdicts, chance_of_bad, events_needed, wilson, z_of
from loadgen.search.probes import Look, Timing, look_times, tally
from loadgen.search.rate_search import Answer, Finding, Limits, answer, next_rate, search

_LIMITS = Limits(start=4, floor=0.25, cap=256, resolution=0.05)
_OBJECTIVE = 0.95
_TIMING = Timing(least=20, most=160, confidence=0.95)
SEEDS = 60


def _certain(decide: Callable[[float], Attainment]) -> Callable[[float], Verdicts]:
    """A server whose probes always decide, without noise."""

    def probe(rate: float) -> Verdicts:
        return Verdicts([Tally("siso", "ttft", _OBJECTIVE, 100, 0, 0.0, 1.0, decide(rate))])

    return probe


@given(st.floats(0.3, 250), st.floats(0.3, 200))
def test_the_answer_contains_the_largest_rate_and_is_as_narrow_as_asked(largest: float, start: float) -> None:
    limits = Limits(start=start, floor=0.25, cap=256, resolution=0.05)
    probed: list[float] = []

    def decide(rate: float) -> Attainment:
        probed.append(rate)
        return Attainment.MET if rate <= largest else Attainment.MISSED

    found = search(_certain(decide), limits)
    assert found.finding is Finding.BETWEEN
    assert found.low is not None
    assert found.high is not None
    assert found.low <= largest < found.high <= found.low * 1.05
    assert len(probed) == len(set(probed)) <= abs(math.log2(largest / start)) + 2 + limits.bisections + 2
    assert all(limits.floor <= rate <= limits.cap for rate in probed)


@pytest.mark.parametrize(
    "largest, expected",
    [
        pytest.param(0.1, Answer(Finding.NONE, None, 0.25, ()), id="even the lowest rate misses"),
        pytest.param(1000, Answer(Finding.ABOVE_CAP, 256, None, ()), id="the cap is met"),
    ],
)
def test_the_limits_are_answers(largest: float, expected: Answer) -> None:
    found = search(_certain(lambda rate: Attainment.MET if rate <= largest else Attainment.MISSED), _LIMITS)
    assert found == expected


def test_undecided_rates_are_narrowed_from_both_sides() -> None:
    def decide(rate: float) -> Attainment:
        if 10 <= rate <= 12:
            return Attainment.UNDECIDED
        return Attainment.MET if rate < 10 else Attainment.MISSED

    found = search(_certain(decide), _LIMITS)
    assert found.finding is Finding.UNDECIDED
    assert found.low is not None
    assert found.high is not None
    assert 10 / 1.05 < found.low < 10 <= found.undecided[0] < found.low * 1.05
    assert found.undecided[-1] <= 12 < found.high < found.undecided[-1] * 1.05


def test_a_rate_with_too_few_events_is_followed_by_a_higher_one() -> None:
    found = search(_certain(lambda rate: Attainment.MET if 5 < rate < 100 else Attainment.UNDECIDED), _LIMITS)
    assert (found.finding, found.low, found.high, found.undecided) == (Finding.UNDECIDED, 64, None, (128.0, 256.0))


def test_a_search_that_was_interrupted_goes_on_where_it_was() -> None:
    probe = _certain(lambda rate: Attainment.MET if rate <= 37 else Attainment.MISSED)
    results: dict[float, Attainment] = {}
    order = []
    while (rate := next_rate(results, _LIMITS)) is not None:
        assert answer(results, _LIMITS).finding is Finding.UNDECIDED
        order.append(rate)
        results[rate] = probe(rate).attainment
    assert answer(results, _LIMITS) == search(probe, _LIMITS)
    assert order[:5] == [4, 8, 16, 32, 64]


def _noisy(good: Callable[[float], float], random: Random, slos: int = 1) -> Callable[[float], Verdicts]:
    """A server whose requests are good with a probability that depends on the rate, judged as in a real probe."""
    looks = look_times(20, _TIMING, slos)

    def verdicts(look: Look, rate: float, outcomes: list[list[bool]]) -> Verdicts:
        tallies = []
        for number, each in enumerate(outcomes):
            while len(each) < look.at * rate:
                each.append(random.random() < good(rate))
            events, bad = len(each), each.count(False)
            tallies.append(tally((f"c{number}", "ttft"), _OBJECTIVE, look, events=events, bad=bad, offered=events))
        return Verdicts(tallies)

    def probe(rate: float) -> Verdicts:
        outcomes: list[list[bool]] = [[] for _ in range(slos)]
        for look in looks:
            found = verdicts(look, rate, outcomes)
            if found.attainment is not Attainment.UNDECIDED:
                break
        return found

    return probe


@pytest.mark.slow
@pytest.mark.parametrize(
    "good, slos",
    [
        pytest.param(lambda rate: 1 - 0.05 * (rate / 10) ** 6, 1, id="a steep server"),
        pytest.param(lambda rate: 1 - 0.05 * (rate / 10) ** 2, 1, id="a flat server"),
        pytest.param(lambda rate: 0.999 if rate <= 10 else 0.95 * 10 / rate, 1, id="a server that saturates"),
        pytest.param(lambda rate: 1 - 0.05 * (rate / 10) ** 4, 3, id="three SLOs with the same limit"),
    ],
)
def test_the_answer_contains_the_largest_rate_in_the_stated_share_of_searches(
    good: Callable[[float], float], slos: int
) -> None:
    wrong = 0
    for seed in range(SEEDS):
        found = search(_noisy(lambda rate: max(0.0, good(rate)), Random(seed), slos), _LIMITS)  # noqa: S311
        wrong += not (found.low or 0) <= 10 <= (found.high or math.inf)
    assert wrong / SEEDS <= 0.05


@pytest.mark.parametrize("slos", [1, 6])
def test_a_rate_at_the_limit_is_decided_wrongly_in_at_most_the_rest_of_the_confidence(slos: int) -> None:
    results = [_noisy(lambda _: _OBJECTIVE, Random(seed), slos)(8).attainment for seed in range(SEEDS)]  # noqa: S311
    assert results.count(Attainment.MISSED) / SEEDS <= 0.05
    assert results.count(Attainment.MET) / SEEDS <= 0.05


def test_looks_are_at_fixed_times_and_their_errors_add_up_to_the_rest_of_the_confidence() -> None:
    looks = look_times(100, Timing(least=20, most=900, confidence=0.95), 6)
    assert [look.at for look in looks] == [25, 50, 100, 200, 400, 800, 900]
    assert [look.early for look in looks] == [True, True, False, False, False, False, False]
    assert 6 * sum(look.missed_error for look in looks) == pytest.approx(0.05)
    assert sum(_error(look.z) for look in looks if not look.early) == pytest.approx(0.05)
    assert looks[2].z == pytest.approx(1.96, abs=1e-3)


def _error(z: float) -> float:
    return math.erfc(z / math.sqrt(2)) / 2


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
