"""Quantiles of TTFT and E2E that Prometheus interpolates are within 10 % of the requests' own, from 50 ms to 120 s."""

import math
from collections.abc import Callable
from itertools import accumulate, pairwise
from random import Random

import pytest

from exporters.analysis.estimates.estimates import BucketQuantile
from exporters.exposition.accumulators import Buckets
from exporters.exposition.histogram_bounds import bounds
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Signal
from exporters.vocabulary.slo_file import SHIPPED, load

SPEC = load(SHIPPED)
FINE = [pytest.param(each, id=each.name) for each in (signals.TTFT, signals.DURATION)]
SHORTEST, LONGEST = 0.05, 120.0
SPREADS = (0.1, 0.3, 1.0)
"""Standard deviations of the logarithm: of nearly equal requests, of one kind, and of a mixed class."""

Sample = Callable[[Random, float], list[float]]


def log_normal(random: Random, spread: float) -> list[float]:
    """Times whose median and 95th percentile are in the range."""
    median = random.uniform(math.log(SHORTEST), math.log(LONGEST) - 2 * spread)
    return [random.lognormvariate(median, spread) for _ in range(2000)]


def bimodal(random: Random, spread: float) -> list[float]:
    """A fast and a slow kind of requests, such as a hit and a miss in the prefix cache."""
    fast, slow = sorted(random.uniform(math.log(SHORTEST), math.log(LONGEST) - 2 * spread) for _ in range(2))
    share = random.uniform(0.1, 0.4)
    return [random.lognormvariate(slow if random.random() < share else fast, spread) for _ in range(2000)]


def quantile(percent: int, times: list[float], upper: tuple[float, ...]) -> float:
    """As `histogram_quantile` computes it."""
    buckets = Buckets(upper)
    for each in times:
        buckets.observe(each)
    return BucketQuantile([*upper, math.inf], list(accumulate(buckets.counts)), percent).value


@pytest.mark.parametrize("signal", FINE)
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("sample", [log_normal, bimodal])
def test_p50_and_p95_are_within_10_percent_of_the_requests(signal: Signal, spread: float, sample: Sample) -> None:
    random, upper = Random(17), bounds(signal, SPEC)  # noqa: S311 - reproducible
    for _ in range(40):
        times = sorted(sample(random, spread))
        for percent in (50, 95):
            exact = times[math.ceil(percent / 100 * len(times)) - 1]
            assert quantile(percent, times, upper) == pytest.approx(exact, rel=0.1), (percent, exact)


@pytest.mark.parametrize("signal", FINE)
def test_bounds_are_at_most_a_factor_of_1_2_apart(signal: Signal) -> None:
    fine = [(low, high) for low, high in pairwise(signal.bounds) if high >= SHORTEST and low <= LONGEST]
    assert fine[0][0] <= SHORTEST
    assert fine[-1][1] >= LONGEST
    assert max(high / low for low, high in fine) <= 1.2
