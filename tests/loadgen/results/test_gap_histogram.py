"""The histogram of the gaps between chunks: its error, and its sums."""

import statistics

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.vocabulary.verdicts import nearest_rank
from loadgen.results.gap_histogram import GapHistogram

GAPS = st.lists(st.just(0.0) | st.floats(1e-6, 1000.0), min_size=1, max_size=200)


def histogram(gaps: list[float]) -> GapHistogram:
    made = GapHistogram()
    made.add(gaps)
    return made


@pytest.mark.slow
@given(GAPS, st.integers(1, 100))
def test_a_percentile_is_within_one_percent(gaps: list[float], percent: int) -> None:
    exact = nearest_rank(sorted(gaps), percent)
    assert histogram(gaps).percentile(percent) == pytest.approx(exact, rel=0.01, abs=0)


@given(GAPS)
def test_the_mean_and_the_deviation_are_exact(gaps: list[float]) -> None:
    made = histogram(gaps)
    assert made.count == len(gaps)
    assert made.mean == pytest.approx(statistics.fmean(gaps))
    assert made.deviation == pytest.approx(statistics.pstdev(gaps), rel=1e-6, abs=1e-4)


@given(GAPS, GAPS)
def test_merged_histograms_are_the_histogram_of_all_gaps(some: list[float], others: list[float]) -> None:
    merged, whole = histogram(some), histogram(some + others)
    merged.merge(msgspec.msgpack.decode(msgspec.msgpack.encode(histogram(others)), type=GapHistogram))
    assert merged.counts == whole.counts
    assert merged.zeros == whole.zeros
    assert merged.sum == pytest.approx(whole.sum)


def test_gaps_of_chunks_read_together_are_zero() -> None:
    made = histogram([0.0, 0.0, 0.0, 1e-9, 0.25])
    assert (made.zeros, made.percentile(50), made.count) == (4, 0.0, 5)
