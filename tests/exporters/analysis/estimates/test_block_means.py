"""Block means: tables of Student's t, sums of blocks, and simulations of a queue that grows."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.analysis.compare.backlog import Backlog, Trend
from exporters.analysis.compare.engine_work import backlog, measure_work
from exporters.analysis.compare.request import Request
from exporters.analysis.estimates.block_means import BlockMean, Blocks, block_rate, block_ratio, student
from exporters.analysis.estimates.estimates import BLOCKS, Difference, Z
from exporters.analysis.estimates.figures import COMPLETED, OUTPUT_TOKENS
from exporters.analysis.estimates.windows import Window
from exporters.vocabulary.signals import Outcome
from tests.exporters.analysis.compare.sample_logs import Queue, queued, seeded

WINDOW = Window(1000.0, 1100.0)


@pytest.mark.parametrize(
    "z, degrees, quantile",
    [
        pytest.param(1.959964, 9, 2.262, id="95 %, 9 degrees of freedom"),
        pytest.param(2.575829, 9, 3.250, id="99 %, 9 degrees of freedom"),
        pytest.param(3.290527, 9, 4.781, id="99.9 %, 9 degrees of freedom"),
        pytest.param(1.959964, 30, 2.042, id="95 %, 30 degrees of freedom"),
    ],
)
def test_the_quantiles_are_those_of_the_tables(z: float, degrees: int, quantile: float) -> None:
    assert student(z, degrees) == pytest.approx(quantile, rel=0.005)


def test_a_rate_is_the_mean_of_its_blocks_with_their_standard_error() -> None:
    """Ten blocks of 10 s with 10, 20, ... 100: standard deviation 30.28, standard error 9.574, per second a tenth."""
    estimate = block_rate(WINDOW, [10.0 * (index + 1) for index in range(BLOCKS)])
    assert estimate is not None
    assert estimate.value == 5.5
    assert estimate.standard_error == pytest.approx(0.9574, abs=1e-4)
    assert estimate.interval(Z) == pytest.approx((5.5 - 2.262 * 0.9574, 5.5 + 2.262 * 0.9574), abs=0.01)


def test_a_ratio_has_no_spread_if_each_block_has_the_same() -> None:
    assert block_ratio([1.0, 3.0] * 5, [2.0, 6.0] * 5) == BlockMean(0.5, 0.0)
    assert block_ratio([0.0] * BLOCKS, [0.0] * BLOCKS) is None


# Amounts are tokens or requests. The parts of a subnormal number cannot be added up to it.
@given(st.floats(900, 1200), st.floats(0, 300), st.just(0.0) | st.floats(1e-3, 1e6))
def test_the_blocks_have_the_part_of_an_amount_that_is_in_the_window(
    since: float, seconds: float, amount: float
) -> None:
    blocks, until = Blocks(WINDOW), since + seconds
    overlaps = blocks.spread(since, until, amount)
    inside = max(0.0, min(until, WINDOW.end) - max(since, WINDOW.start))
    assert overlaps is (inside > 0)
    expected = amount * inside / (until - since) if inside else 0.0
    assert sum(blocks.sums) == pytest.approx(expected, rel=1e-6, abs=1e-6 * amount)
    assert min(blocks.sums) >= 0


def requests(seed: int, queue: Queue) -> list[Request]:
    """A minute before the window, at an empty engine, and the window."""
    unknown: dict[str, Any] = dict.fromkeys(Request.__struct_fields__)
    return [
        Request(
            **{
                **unknown,
                "outcome": Outcome.OK,
                "arrived": each.time,
                "ended": each.time + each.e2e,
                "prompt_tokens": each.prompt_tokens,
                "completion_tokens": each.completion_tokens,
                "ttft": each.ttft,
                "tpot": each.tpot,
            }
        )
        for each in queued(seeded(seed), WINDOW.start - 60, WINDOW.end, queue)
    ]


STABLE, OVERLOADED = Queue(offered=2.0, capacity=4.0), Queue(offered=6.0, capacity=4.0)


def test_a_load_that_the_engine_can_serve_shows_no_trend() -> None:
    trends = [backlog(requests(seed, STABLE), WINDOW).trend for seed in range(100)]
    assert trends.count(None) >= 95


def test_a_load_above_capacity_grows_the_backlog_by_the_difference() -> None:
    for seed in range(20):
        grown = backlog(requests(seed, OVERLOADED), WINDOW)
        assert grown.trend is Trend.GREW
        assert grown.served_per_second == pytest.approx(4.0, rel=0.05)
        estimate = grown.measurement.estimate
        assert estimate is not None
        assert estimate.value == pytest.approx(grown.growth / WINDOW.seconds)


def test_a_drain_is_a_backlog_that_shrinks() -> None:
    assert Backlog(WINDOW, [300.0 - 30 * edge for edge in range(BLOCKS + 1)], 200).trend is Trend.SHRANK


@pytest.mark.parametrize("pairs", [pytest.param(20, marks=pytest.mark.slow), pytest.param(100, marks=pytest.mark.long)])
def test_in_an_overload_equal_throughput_differs_at_most_at_the_stated_rate(pairs: int) -> None:
    wrong = 0
    for seed in range(pairs):
        sides = [measure_work(requests(2 * seed + side, OVERLOADED), WINDOW)[OUTPUT_TOKENS] for side in range(2)]
        before, after = (side.estimate for side in sides)
        assert before is not None
        assert after is not None
        wrong += Difference(before, after).p <= 0.05
    assert wrong / pairs <= 0.05


def test_in_an_overload_a_higher_capacity_is_shown_although_both_backlogs_grow() -> None:
    before, after = (
        measure_work(requests(seed, Queue(offered=6.0, capacity=capacity)), WINDOW)
        for seed, capacity in ((1, 3.0), (2, 4.5))
    )
    for figure in (OUTPUT_TOKENS, COMPLETED):
        early, late = before[figure].estimate, after[figure].estimate
        assert early is not None
        assert late is not None
        assert Difference(early, late).interval(Z)[0] > 0
        assert late.value / early.value == pytest.approx(1.5, rel=0.15)
