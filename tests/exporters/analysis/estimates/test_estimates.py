"""Each interval against published figures, an exact sum, or a simulation of known distributions."""

import math
import random
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.analysis.estimates.estimates import (
    CONFIDENCE,
    BucketQuantile,
    Difference,
    Estimate,
    Quantile,
    Rate,
    Share,
    Z,
    ranks,
)
from exporters.analysis.estimates.event_estimates import quantiles, rate, share
from exporters.analysis.estimates.figures import TTFT
from exporters.analysis.estimates.windows import Window
from tests.exporters.analysis.compare.sample_logs import seeded

WINDOW = Window(0.0, 600.0)


@pytest.mark.parametrize(
    "good, events, low, high",
    [
        pytest.param(81, 263, 0.2553, 0.3662, id="Newcombe 1998, table I: 81 of 263"),
        pytest.param(15, 148, 0.0624, 0.1605, id="15 of 148"),
        pytest.param(0, 20, 0.0, 0.1611, id="none of 20"),
        pytest.param(1, 29, 0.0061, 0.1718, id="1 of 29"),
    ],
)
def test_the_interval_of_a_share_is_wilsons(good: int, events: int, low: float, high: float) -> None:
    assert Share(good / events, events).interval(Z) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    "before, after, low, high",
    [
        pytest.param((48, 80), (56, 70), 0.0524, 0.3339, id="Newcombe 1998, table II, (a)"),
        pytest.param((3, 10), (9, 10), 0.1705, 0.8090, id="(b)"),
        pytest.param((2, 7), (6, 7), 0.0582, 0.8062, id="(c)"),
        pytest.param((0, 29), (5, 56), -0.0381, 0.1926, id="(d)"),
        pytest.param((0, 20), (0, 10), -0.1611, 0.2775, id="(f), the other way round"),
        pytest.param((0, 10), (10, 10), 0.6075, 1.0, id="(h)"),
    ],
)
def test_the_interval_of_two_shares_difference_is_newcombes(
    before: tuple[int, int], after: tuple[int, int], low: float, high: float
) -> None:
    difference = Difference(*(Share(good / events, events) for good, events in (before, after)))
    assert difference.interval(Z) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize("q", [0.5, 0.95])
@pytest.mark.parametrize("events", [10, 50, 92, 150, 300, 1000])
def test_the_ranks_enclose_a_quantile_at_the_stated_rate(events: int, q: float) -> None:
    """Exact, because the number of values below the true quantile has a binomial distribution."""
    low, high = ranks(events, q, events, Z)
    inside = range(max(low, 0), min(high, events + 1))
    assert CONFIDENCE <= sum(math.comb(events, k) * q**k * (1 - q) ** (events - k) for k in inside) < 0.99


def test_a_p95_needs_more_events_than_a_median() -> None:
    assert [figure.min_events for figure in TTFT] == [6, 92]


def test_a_quantile_close_to_infinite_times_has_no_upper_bound() -> None:
    estimate = Quantile([*(float(value) for value in range(100)), *([math.inf] * 100)], 50, 200)
    assert (estimate.value, estimate.interval(Z)) == (99.0, (85.0, math.inf))


def test_a_quantile_of_a_histogram_equals_histogram_quantile_and_its_interval_is_the_bucket() -> None:
    estimate = BucketQuantile([0.1, 0.5, 1.0, math.inf], [100, 700, 1000, 1000], 50)
    assert estimate.value == pytest.approx(0.1 + 0.4 * 400 / 600)
    assert estimate.interval(Z) == (0.1, 0.5)
    assert BucketQuantile([0.1, 0.5, math.inf], [10, 480, 1000], 50).interval(Z) == (0.1, math.inf)
    assert BucketQuantile([0.1, math.inf], [10, 1000], 50).value == 0.1


NEVER = Quantile([math.inf] * 200, 95, 200)
SOON = Quantile([0.5] * 200, 95, 200)


@pytest.mark.parametrize(
    "before, after, value, low",
    [
        pytest.param(SOON, NEVER, math.inf, math.inf, id="a first token that is no longer sent is a difference"),
        pytest.param(NEVER, NEVER, 0.0, -math.inf, id="no first token before and after is not a difference"),
    ],
)
def test_infinite_times_can_be_compared(before: Estimate, after: Estimate, value: float, low: float) -> None:
    difference = Difference(before, after)
    assert (difference.value, difference.interval(Z)[0]) == (value, low)
    assert (difference.p < 0.01) == (low > 0)


ESTIMATES = st.one_of(
    st.builds(Share, st.floats(0, 1), st.floats(1, 1e6)),
    st.builds(Rate, st.just(3.0), st.just(30.0), st.just(0.1)),
    st.builds(lambda values: Quantile(sorted(values), 50, len(values)), st.lists(st.floats(0, 100), min_size=1)),
)


@given(ESTIMATES, ESTIMATES)
def test_p_is_below_a_level_exactly_when_the_interval_of_that_level_excludes_0(
    before: Estimate, after: Estimate
) -> None:
    difference = Difference(before, after)
    low, high = difference.interval(Z)
    assert low <= difference.value <= high
    if abs(difference.p - (1 - CONFIDENCE)) > 1e-9:
        assert (difference.p < 1 - CONFIDENCE) == (low > 0 or high < 0)


def arrivals(rng: random.Random, per_second: float) -> list[float]:
    times, at = [], rng.expovariate(per_second)
    while at < WINDOW.end:
        times.append(at)
        at += rng.expovariate(per_second)
    return times


def correlated(rng: random.Random, count: int, memory: float) -> list[float]:
    """Standard normal values; the correlation of consecutive values is `memory`."""
    values, now = [], rng.gauss(0, 1)
    for _ in range(count):
        now = memory * now + math.sqrt(1 - memory**2) * rng.gauss(0, 1)
        values.append(now)
    return values


TRUE_P95 = math.exp(NormalDist().inv_cdf(0.95))


def sampled(rng: random.Random, memory: float) -> dict[str, tuple[Estimate, float]]:
    """One window of about 200 requests: an estimate of each kind, and the true value."""
    times = arrivals(rng, 200 / 600)
    values = correlated(rng, len(times), memory)
    limit = NormalDist().inv_cdf(0.9)
    sizes = [rng.uniform(100, 1000) for _ in times]
    spread = quantiles(WINDOW, TTFT, [(at, math.exp(value)) for at, value in zip(times, values, strict=True)])
    measurements = {
        "share": (share(WINDOW, [(at, float(v < limit), 1.0) for at, v in zip(times, values, strict=True)]), 0.9),
        "ratio": (share(WINDOW, [(at, s * (rng.random() < 0.4), s) for at, s in zip(times, sizes, strict=True)]), 0.4),
        "p50": (spread[TTFT[0]], 1.0),
        "p95": (spread[TTFT[1]], TRUE_P95),
        "rate": (rate(WINDOW, [(at, 1.0) for at in times]), 200 / 600),
        "amount": (rate(WINDOW, list(zip(times, sizes, strict=True))), 200 / 600 * 550),
    }
    return {
        name: (measurement.estimate, truth)
        for name, (measurement, truth) in measurements.items()
        if measurement.estimate is not None
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "memory, least",
    [
        pytest.param(0.0, 0.94, id="independent requests"),
        pytest.param(0.8, 0.90, id="correlated requests: other intervals would have 60 %"),
    ],
)
def test_the_intervals_contain_the_true_value_at_their_stated_rate(memory: float, least: float) -> None:
    rng, runs = seeded(11), 150
    held: dict[str, int] = dict.fromkeys(("share", "ratio", "p50", "p95", "rate", "amount"), 0)
    apart = dict.fromkeys(held, 0)
    for _ in range(runs):
        before, after = sampled(rng, memory), sampled(rng, memory)
        for name, (estimate, truth) in after.items():
            low, high = estimate.interval(Z)
            held[name] += low <= truth <= high
            low, high = Difference(before[name][0], estimate).interval(Z)
            apart[name] += low > 0 or high < 0
    assert min(held.values()) / runs >= least, held
    assert max(apart.values()) / runs <= 1 - least, apart
