"""The gaps of a stream use bounded memory and stay accurate."""

import itertools
import random
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.relay.metering.gaps import MAX_EXACT, MAX_FOLDED, Gaps
from exporters.vocabulary.verdicts import nearest_rank

BOUNDS = (0.01, 0.05, 0.25)


def filled(values: list[float], *, fold: bool) -> Gaps:
    stream_gaps = Gaps(BOUNDS)
    for value in values:
        stream_gaps.recent.append(value)
        if fold:
            stream_gaps.fold()
    return stream_gaps


@given(st.lists(st.floats(0, 10), min_size=1, max_size=200))
def test_a_short_stream_is_exact(values: list[float]) -> None:
    stream_gaps, ordered = filled(values, fold=True), sorted(values)
    percentiles, counts, total = stream_gaps.summary(50, 95)
    assert percentiles == [nearest_rank(ordered, 50), nearest_rank(ordered, 95)]
    assert total == pytest.approx(sum(values))
    assert sum(counts.values()) == len(stream_gaps) == len(values)
    assert counts == {
        upper: count
        for lower, upper in itertools.pairwise((-inf, *BOUNDS, inf))
        if (count := sum(lower < value <= upper for value in values))
    }


def assert_alike(stream_gaps: Gaps, exact: Gaps) -> None:
    folded, unfolded = (gaps.summary(1, 50, 95, 99) for gaps in (stream_gaps, exact))
    assert len(stream_gaps) == len(exact)
    assert folded.counts == unfolded.counts
    assert folded.total == pytest.approx(unfolded.total)
    assert folded.percentiles == pytest.approx(unfolded.percentiles, rel=0.0101)


@pytest.mark.parametrize("many", [MAX_EXACT - 1, MAX_EXACT, MAX_EXACT + 1, 10 * MAX_EXACT + 7])
def test_a_long_stream_has_exact_counts_and_percentiles_within_1_percent(many: int) -> None:
    rng = random.Random(many)  # noqa: S311 - reproducible
    values = [rng.lognormvariate(-4, 1.5) for _ in range(many)]
    stream_gaps = filled(values, fold=True)
    assert len(stream_gaps.recent) < MAX_EXACT
    assert_alike(stream_gaps, filled(values, fold=False))


def test_gaps_of_zero_seconds_can_be_folded() -> None:
    stream_gaps = filled([0.0] * MAX_EXACT, fold=True)
    assert stream_gaps.summary(95).percentiles[0] < 1e-6
    assert Gaps(BOUNDS).fold() is False


@pytest.mark.parametrize("many", [MAX_FOLDED + 1, 3 * MAX_FOLDED])
def test_many_gaps_are_folded_a_part_at_a_time(many: int) -> None:
    stream_gaps, exact = (filled([0.01 * number for number in range(many)], fold=False) for _ in range(2))
    sizes = [len(stream_gaps.recent)]
    while stream_gaps.fold():
        sizes.append(len(stream_gaps.recent))
        assert sizes[-2] - sizes[-1] <= MAX_FOLDED
    assert_alike(stream_gaps, exact)
