"""Estimates with confidence intervals, and the difference of two; without random numbers, so a run is repeatable.

Consecutive requests wait in the same queue, so their latencies are correlated. `design_effect` estimates the
correlation from blocks of time, and every interval uses the effective sample size.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar, Protocol

from exporters.vocabulary.verdicts import nearest_rank

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""Half of the width of an interval, in standard deviations."""

BLOCKS = 10
"""Blocks of time per window: few, so that correlated requests are mostly in the same block."""

_STUDENT = (2.262 / Z) ** 2
"""Student's t with nine degrees of freedom, because the variance is estimated from only ten blocks."""

_ORDER_STATISTICS = "order statistics (binomial)"

Interval = tuple[float, float]


class Estimate(Protocol):
    """A value, and its confidence interval for a number of standard deviations; `test` names the statistical test."""

    test: ClassVar[str]

    @property
    def value(self) -> float: ...

    def interval(self, z: float) -> Interval: ...


def design_effect(blocks: Sequence[int], deviations: Sequence[float], variance: float) -> float:
    """The variance of the sum of the events, divided by `variance`, its value for independent events; at least 1.

    `deviations` are the events' differences from the mean, `blocks` the index of each event's block of time.
    """
    if variance <= 0:
        return 1.0
    sums = [0.0] * BLOCKS
    for block, deviation in zip(blocks, deviations, strict=True):
        sums[block] += deviation
    mean = sum(sums) / BLOCKS
    return max(1.0, _STUDENT * BLOCKS / (BLOCKS - 1) * sum((each - mean) ** 2 for each in sums) / variance)


@dataclass(frozen=True, slots=True)
class Share:
    """A share of `effective_size` independent events, with Wilson's interval, which is also valid near 0 and 1."""

    test: ClassVar[str] = "score test of shares (Wilson, Newcombe)"

    value: float
    effective_size: float

    def interval(self, z: float) -> Interval:
        square = z * z / self.effective_size
        middle = (self.value + square / 2) / (1 + square)
        half = math.sqrt(square * (self.value * (1 - self.value) + square / 4)) / (1 + square)
        return max(0.0, min(middle - half, self.value)), min(1.0, max(middle + half, self.value))


@dataclass(frozen=True, slots=True)
class Rate:
    """An amount per second in `effective_size` independent portions, with the score interval of a Poisson count."""

    test: ClassVar[str] = "score test of a Poisson count"

    value: float
    effective_size: float
    portion: float
    """The contribution of one portion, per second."""

    def interval(self, z: float) -> Interval:
        middle, half = self.effective_size + z * z / 2, z * math.sqrt(self.effective_size + z * z / 4)
        return max(0.0, middle - half) * self.portion, (middle + half) * self.portion


def ranks(events: float, q: float, effective_size: float, z: float) -> tuple[int, int]:
    """The ranks of the two ordered values that enclose the true `q` quantile; below 1 or above `events`: no bound.

    The number of values below the true quantile has a binomial distribution, for any distribution of the values.
    """
    half = z * math.sqrt(q * (1 - q) / effective_size) * events
    return math.floor(events * q - half + 0.5), math.ceil(events * q + half + 0.5)


@dataclass(frozen=True, slots=True)
class Quantile:
    """A percentile (nearest rank) of ordered times; the time of an event that did not happen is infinite."""

    test: ClassVar[str] = _ORDER_STATISTICS

    ordered: Sequence[float]
    percent: int
    effective_size: float

    @property
    def value(self) -> float:
        return nearest_rank(self.ordered, self.percent)

    def interval(self, z: float) -> Interval:
        count = len(self.ordered)
        low, high = ranks(count, self.percent / 100, self.effective_size, z)
        return self.ordered[low - 1] if low >= 1 else 0.0, self.ordered[high - 1] if high <= count else math.inf


@dataclass(frozen=True, slots=True)
class BucketQuantile:
    """A percentile of a histogram: interpolated within its bucket; its interval is at least as wide as the bucket."""

    test: ClassVar[str] = _ORDER_STATISTICS

    bounds: Sequence[float]
    """Upper bounds; the last one is infinite."""
    counts: Sequence[float]
    """Cumulative counts by bound."""
    percent: int

    @property
    def value(self) -> float:
        rank = self.counts[-1] * self.percent / 100
        low, high = self._bucket(rank)
        below, within = self._counted(low), self._counted(high) - self._counted(low)
        return low if high == math.inf else low + (high - low) * (rank - below) / within

    def interval(self, z: float) -> Interval:
        events = self.counts[-1]
        low, high = ranks(events, self.percent / 100, events, z)
        return self._bucket(low)[0] if low >= 1 else 0.0, self._bucket(high)[1] if high <= events else math.inf

    def _bucket(self, rank: float) -> Interval:
        index = next(index for index, count in enumerate(self.counts) if count >= rank and count > 0)
        return self.bounds[index - 1] if index else 0.0, self.bounds[index]

    def _counted(self, bound: float) -> float:
        return self.counts[self.bounds.index(bound)] if bound in self.bounds else 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """Estimate after minus before, with the square-and-add interval of independent estimates (Zou and Donner 2008).

    For two shares, this is Newcombe's hybrid score interval.
    """

    before: Estimate
    after: Estimate

    @property
    def value(self) -> float:
        return minus(self.after.value, self.before.value, 0.0)

    def interval(self, z: float) -> Interval:
        b, a = self.before.value, self.after.value
        (b_low, b_high), (a_low, a_high) = self.before.interval(z), self.after.interval(z)
        # Without finite bounds, the intervals themselves must not overlap.
        if not all(map(math.isfinite, (b, a, b_low, b_high, a_low, a_high))):
            return minus(a_low, b_high, -math.inf), minus(a_high, b_low, math.inf)
        return a - b - math.hypot(a - a_low, b_high - b), a - b + math.hypot(a_high - a, b - b_low)

    @property
    def test(self) -> str:
        return self.after.test

    @property
    def p(self) -> float:
        """The p-value: the lowest significance level at which the interval excludes 0."""
        excluded, included = 0.0, 40.0
        for _ in range(40):
            z = (excluded + included) / 2
            low, high = self.interval(z)
            excluded, included = (z, included) if low > 0 or high < 0 else (excluded, z)
        return math.erfc(excluded / math.sqrt(2))


def minus(one: float, other: float, undefined: float) -> float:
    """The difference; `undefined` for that of two infinite times."""
    difference = one - other
    return undefined if math.isnan(difference) else difference
