"""The interval of a paired difference, by simulations of runs with known distributions."""

import math
from collections.abc import Callable
from random import Random
from statistics import NormalDist

import pytest

from exporters.analysis.estimates.estimates import BLOCKS, Difference, Quantile, Share, Z
from exporters.analysis.estimates.paired_difference import (
    DRAWS,
    PairedDifference,
    drawn_quantiles,
    drawn_shares,
    draws,
    paired_difference,
)
from tests.exporters.analysis.compare.sample_logs import seeded

RUNS = 80
REQUESTS = 200


def correlated(random: Random, correlation: float) -> list[float]:
    """Waits whose logarithms are normal, with this correlation of neighbours."""
    state, noise = random.gauss(0, 1), math.sqrt(1 - correlation**2)
    waits = []
    for _ in range(REQUESTS):
        waits.append(math.exp(state))
        state = correlation * state + noise * random.gauss(0, 1)
    return waits


def median_difference(before: list[float], after: list[float], random: Random) -> PairedDifference:
    drawn = draws(BLOCKS, random, 200)

    def drawn_medians(values: list[float]) -> list[float]:
        events = [(index * BLOCKS // len(values), value) for index, value in enumerate(values)]
        return [median for (median,) in drawn_quantiles(events, (50,), drawn)]

    estimates = (Quantile(sorted(before), 50, len(before)), Quantile(sorted(after), 50, len(after)))
    return paired_difference(*estimates, drawn_medians(before), drawn_medians(after), BLOCKS)


def share_difference(before: list[float], after: list[float], random: Random) -> PairedDifference:
    drawn = draws(BLOCKS, random, 200)

    def drawn_rates(values: list[float]) -> list[float]:
        return list(drawn_shares([(i * BLOCKS // len(values), float(v < 1)) for i, v in enumerate(values)], drawn))

    def share(values: list[float]) -> Share:
        return Share(sum(value < 1 for value in values) / len(values), len(values))

    return paired_difference(share(before), share(after), drawn_rates(before), drawn_rates(after), BLOCKS)


def excludes_zero(difference: PairedDifference) -> bool:
    low, high = difference.interval(Z)
    assert low <= high
    assert (low > 0 or high < 0) == (difference.p <= 0.05)
    return low > 0 or high < 0


@pytest.mark.slow
@pytest.mark.parametrize("difference", [median_difference, share_difference])
@pytest.mark.parametrize("correlation, most", [(0.0, 0.07), (0.8, 0.12)])
def test_without_a_difference_about_five_percent_of_the_intervals_exclude_zero(
    difference: Callable[[list[float], list[float], Random], PairedDifference], correlation: float, most: float
) -> None:
    # At a correlation of 0.8, blocks of 20 requests have 78 % of the variance of long ones: about 8 %, not 5 %.
    random = seeded(1)
    shared = [correlated(random, 0.0) for _ in range(RUNS)]  # what a request costs in both runs
    wrong = 0
    for costs in shared:
        before, after = ([a * b for a, b in zip(costs, correlated(random, correlation), strict=True)] for _ in "ab")
        wrong += excludes_zero(difference(before, after, random))
    assert 0.01 <= wrong / RUNS <= most


def test_a_difference_that_independent_intervals_hide_is_shown_by_pairs() -> None:
    random = seeded(2)
    before = correlated(random, 0.0)
    after = [wait * 1.1 for wait in before]
    paired = median_difference(before, after, random)
    low, high = paired.interval(Z)
    assert 0 < low < paired.value < high
    independent = Difference(paired.before, paired.after)
    assert paired.p < 0.05 < independent.p


def test_a_draw_counts_all_requests_of_a_block() -> None:
    events = [(0, 1.0), (0, 2.0), (1, 3.0), (2, 4.0), (2, math.inf)]
    drawn = [[2, 0, 1], [0, 3, 0], [1, 1, 1]]
    # the first draw has 1, 1, 2, 2, 4 and infinity
    assert list(drawn_quantiles(events, (50, 80), drawn)) == [(2.0, 4.0), (3.0, 3.0), (3.0, 4.0)]
    assert list(drawn_shares([(0, 1.0), (0, 0.0), (1, 1.0)], drawn)) == [0.5, 1.0, pytest.approx(2 / 3)]


def test_a_draw_without_a_value_is_left_out() -> None:
    drawn = [[0, 2], [1, 1]]
    shares = list(drawn_shares([(0, 1.0)], drawn))
    assert math.isnan(shares[0])
    assert math.isnan(next(drawn_quantiles([(0, 1.0)], (50,), drawn))[0])
    difference = paired_difference(Share(1, 1), Share(1, 1), shares, shares, BLOCKS)
    assert list(difference.ordered) == [0.0]


def test_two_infinite_times_do_not_differ_and_one_is_infinitely_worse() -> None:
    never, second = Quantile([math.inf], 50, 1), Quantile([1.0], 50, 1)
    assert paired_difference(never, never, [math.inf], [math.inf], BLOCKS).value == 0
    assert paired_difference(second, never, [1.0], [math.inf], BLOCKS).ordered == [math.inf]


@pytest.mark.parametrize("blocks, count", [(BLOCKS - 1, 1000), (BLOCKS, 0)])
def test_few_blocks_have_no_interval(blocks: int, count: int) -> None:
    difference = PairedDifference(Share(0, 1), Share(1, 1), [1.0] * count, blocks)
    assert difference.interval(Z) == (-math.inf, math.inf)
    assert difference.p > 0.99


def test_beyond_the_outermost_draw_the_interval_grows_in_proportion() -> None:
    normal = PairedDifference(
        Share(0, 1), Share(1, 1), [10 + NormalDist().inv_cdf((i + 0.5) / DRAWS) for i in range(DRAWS)], BLOCKS
    )
    widths = [high - low for low, high in map(normal.interval, (1.0, 2.0, 4.0, 8.0))]
    assert [width / widths[0] for width in widths] == pytest.approx([1, 2, 4, 8], rel=0.1)
    never = PairedDifference(Share(0, 1), Share(1, 1), [math.inf] * DRAWS, BLOCKS)
    assert never.interval(8.0) == (math.inf, math.inf)
    sometimes = PairedDifference(Share(0, 1), Share(1, 1), [1.0] + [math.inf] * (DRAWS - 1), BLOCKS)
    assert sometimes.interval(8.0) == (-math.inf, math.inf)
