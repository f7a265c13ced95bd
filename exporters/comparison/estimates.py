"""Figures with their confidence intervals, and the difference of two; no random numbers, so a run can be repeated.

Requests that follow each other wait in the same queue and are alike, so that a thousand may say no more than a hundred.
`design_effect` finds by how much from blocks of time, and every interval counts only the independent events.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

from exporters.verdicts import nearest_rank

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""Half the width of an interval, in standard deviations."""

BLOCKS = 10
"""Of each window: few, so that each is long enough to hold what is alike ..."""

_STUDENT = (2.262 / Z) ** 2
"""... and for so few the normal distribution promises too much: Student's t with nine degrees of freedom."""

Interval = tuple[float, float]


class Estimate(Protocol):
    """A value and, for any number of standard deviations, the interval that holds the truth."""

    @property
    def value(self) -> float: ...

    def interval(self, z: float) -> Interval: ...


def design_effect(blocks: Sequence[int], deviations: Sequence[float], variance: float) -> float:
    """How many of these events count as one: the variance of their sum over `variance`, that of independent events.

    `deviations` are from the mean, and `blocks` says in which block of time each of them lies.
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
    """A share of `effective_size` independent events; Wilson's interval, which holds near 0 and 1 too."""

    value: float
    effective_size: float

    def interval(self, z: float) -> Interval:
        square = z * z / self.effective_size
        middle = (self.value + square / 2) / (1 + square)
        half = math.sqrt(square * (self.value * (1 - self.value) + square / 4)) / (1 + square)
        return max(0.0, min(middle - half, self.value)), min(1.0, max(middle + half, self.value))


@dataclass(frozen=True, slots=True)
class Rate:
    """An amount per second in `effective_size` independent portions; the score interval of a Poisson count."""

    value: float
    effective_size: float
    portion: float
    """Per second: what one portion adds."""

    def interval(self, z: float) -> Interval:
        middle, half = self.effective_size + z * z / 2, z * math.sqrt(self.effective_size + z * z / 4)
        return max(0.0, middle - half) * self.portion, (middle + half) * self.portion


@dataclass(frozen=True, slots=True)
class PointEstimate:
    """A figure whose source gives no spread: no interval, and so no verdict."""

    value: float

    def interval(self, z: float) -> Interval:
        return -math.inf, math.inf


def ranks(events: float, q: float, effective_size: float, z: float) -> tuple[int, int]:
    """Which two of the ordered values enclose the true `q` quantile; beyond 1 and `events` there is no bound.

    As many values lie below the truth as successes in a binomial trial, whatever the distribution of the values.
    """
    half = z * math.sqrt(q * (1 - q) / effective_size) * events
    return math.floor(events * q - half + 0.5), math.ceil(events * q + half + 0.5)


@dataclass(frozen=True, slots=True)
class Quantile:
    """A percentile (nearest rank) of ordered times; infinite is what never came."""

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
    """A percentile of a histogram: linear within its bucket, and its interval never narrower than that bucket."""

    bounds: Sequence[float]  # upper, the last is infinite
    counts: Sequence[float]  # cumulative
    percent: int

    @property
    def value(self) -> float:
        low, high = self._bucket(self._rank)
        below, within = self._counted(low), self._counted(high) - self._counted(low)
        return low if high == math.inf else low + (high - low) * (self._rank - below) / within

    def interval(self, z: float) -> Interval:
        events = self.counts[-1]
        low, high = ranks(events, self.percent / 100, events, z)
        return (
            self._bucket(low)[0] if low >= 1 else 0.0,
            self._bucket(high)[1] if high <= events else math.inf,
        )

    @property
    def _rank(self) -> float:
        return self.counts[-1] * self.percent / 100

    def _bucket(self, rank: float) -> Interval:
        index = next(index for index, count in enumerate(self.counts) if count >= rank and count > 0)
        return self.bounds[index - 1] if index else 0.0, self.bounds[index]

    def _counted(self, bound: float) -> float:
        return self.counts[self.bounds.index(bound)] if bound in self.bounds else 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """After minus before; of two shares this is Newcombe's hybrid score interval.

    The same square-and-add holds for any two independent estimates with intervals of their own (Zou and Donner 2008).
    """

    before: Estimate
    after: Estimate

    @property
    def value(self) -> float:
        return _minus(self.after.value, self.before.value, 0.0)

    def interval(self, z: float) -> Interval:
        b, a = self.before.value, self.after.value
        (b_low, b_high), (a_low, a_high) = self.before.interval(z), self.after.interval(z)
        if not all(map(math.isfinite, (b, a, b_low, b_high, a_low, a_high))):  # then the ends themselves must be apart
            return _minus(a_low, b_high, -math.inf), _minus(a_high, b_low, math.inf)
        return a - b - math.hypot(a - a_low, b_high - b), a - b + math.hypot(a_high - a, b - b_low)

    @property
    def p(self) -> float:
        """The least level of doubt at which the interval leaves out 0."""

        def apart(z: float) -> bool:
            low, high = self.interval(z)
            return low > 0 or high < 0

        return math.erfc(_last(apart, 40.0) / math.sqrt(2))


def _minus(one: float, other: float, undefined: float) -> float:
    difference = one - other
    return undefined if math.isnan(difference) else difference


def _last(holds: Callable[[float], bool], most: float) -> float:
    """The greatest number up to `most` below which `holds`, if it holds below some number."""
    low, high = 0.0, most
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
