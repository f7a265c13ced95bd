"""The difference between two runs of the same requests, by a bootstrap that draws each request in both runs or in none.

What makes a request slow in both runs, such as its length or a burst of arrivals, cancels out. Neighbouring requests
wait in the same queue, so blocks of consecutive requests are drawn, not single ones.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from statistics import NormalDist

from exporters.analysis.estimates.estimates import BLOCKS, Difference, Estimate, Interval, Z, minus

DRAWS = 2_000

Weights = Sequence[int]
"""How often each block was drawn."""

Event = tuple[int, float]
"""A block, and a value."""


@dataclass(frozen=True, slots=True)
class PairedDifference(Difference):
    """Estimate after minus before; `ordered` has the differences of all draws of `blocks` blocks.

    The percentile interval is expanded for few blocks by Student's t distribution (Hesterberg 2015). Beyond the
    outermost draw, it grows in proportion to `z`. With fewer than the usual blocks, there is no interval.
    """

    ordered: Sequence[float]
    blocks: int

    def interval(self, z: float) -> Interval:
        ordered, count = self.ordered, len(self.ordered)
        if self.blocks < BLOCKS or not count:
            return -math.inf, math.inf
        expansion = _expansion(self.blocks)
        rank = math.floor(NormalDist().cdf(-z * expansion) * (count + 1))
        if rank >= 1:
            return ordered[rank - 1], ordered[count - rank]
        middle = ordered[count // 2]
        growth = -z * expansion / NormalDist().inv_cdf(1 / (count + 1))
        return (
            minus(middle, minus(middle, ordered[0], 0.0) * growth, -math.inf),
            middle + minus(ordered[-1], middle, 0.0) * growth,
        )

    @property
    def test(self) -> str:
        return "paired bootstrap"


def _expansion(blocks: int) -> float:
    """Student's t over the normal quantile, with the factor that makes the variance of a bootstrap unbiased."""
    degrees = blocks - 1
    student = Z + (Z**3 + Z) / (4 * degrees) + (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * degrees**2)
    return student / Z * math.sqrt(blocks / degrees)


def draws(blocks: int, random: Random, count: int = DRAWS) -> list[Weights]:
    """Random draws of as many blocks as there are, with replacement."""
    drawn: list[Weights] = []
    for _ in range(count):
        weights = [0] * blocks
        for block in random.choices(range(blocks), k=blocks):
            weights[block] += 1
        drawn.append(weights)
    return drawn


def drawn_shares(events: Sequence[Event], drawn: Sequence[Weights]) -> Iterator[float]:
    """The mean of the values in each draw; not a number without a value."""
    sums, counts = [0.0] * len(drawn[0]), [0] * len(drawn[0])
    for block, value in events:
        sums[block] += value
        counts[block] += 1
    for weights in drawn:
        count = sum(weight * each for weight, each in zip(weights, counts, strict=True))
        yield sum(weight * each for weight, each in zip(weights, sums, strict=True)) / count if count else math.nan


def drawn_quantiles(
    events: Sequence[Event], percents: Sequence[int], drawn: Sequence[Weights]
) -> Iterator[tuple[float, ...]]:
    """The percentiles (nearest rank) of the values in each draw; not a number without a value."""
    ordered = sorted(events, key=lambda event: event[1])
    blocks = [block for block, _ in ordered]
    for weights in drawn:
        counts = list(accumulate(map(weights.__getitem__, blocks)))
        if not counts or not counts[-1]:
            yield (math.nan,) * len(percents)
            continue
        yield tuple(ordered[bisect_left(counts, -(-counts[-1] * percent // 100))][1] for percent in percents)


def paired_difference(
    before: Estimate, after: Estimate, drawn_before: Sequence[float], drawn_after: Sequence[float], blocks: int
) -> PairedDifference:
    """The difference in the same draws of both sides; draws in which a side has no value are left out."""
    differences = (
        minus(late, early, 0.0)
        for early, late in zip(drawn_before, drawn_after, strict=True)
        if not math.isnan(early) and not math.isnan(late)
    )
    return PairedDifference(before, after, sorted(differences), blocks)
