"""The gaps between a stream's chunks, in bounded memory however long the stream."""

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import exp, log

from exporters.verdicts import nearest_rank

MAX_EXACT = 2048
"""Gaps stored one by one; those of a longer stream are counted by size, which gives percentiles to within 1 %."""

_SIZE_WIDTH = 0.02  # of a class of sizes, as a natural logarithm: its middle is within 1 % of all in it
_SMALLEST = 1e-7


class Gaps:
    """Seconds between one stream's chunks."""

    __slots__ = ("_bounds", "_by_size", "_counts", "_folded", "_sum", "recent")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.recent = array("d")
        """The caller appends the next gap."""
        self._bounds = bounds
        self._folded = 0
        self._sum = 0.0
        self._by_size: Counter[int] = Counter()
        self._counts: list[int] = []

    def __len__(self) -> int:
        return self._folded + len(self.recent)

    def fold(self) -> bool:
        """Count the recent gaps by size once they are too many; whether they were."""
        if len(self.recent) < MAX_EXACT:
            return False
        self._counts = self.counts()
        self._sum += sum(self.recent)
        self._folded += len(self.recent)
        self._by_size.update(round(log(max(gap, _SMALLEST)) / _SIZE_WIDTH) for gap in self.recent)
        self.recent = array("d")
        return True

    def counts(self) -> list[int]:
        """The number of gaps per bound, +Inf last, not cumulative."""
        ordered = sorted(self.recent)
        edges = [0, *(bisect_right(ordered, bound) for bound in self._bounds), len(ordered)]
        counts = [upper - lower for lower, upper in pairwise(edges)]
        return [one + other for one, other in zip(counts, self._counts, strict=True)] if self._counts else counts

    def total(self) -> float:
        return self._sum + sum(self.recent)

    def percentiles(self, *percents: int) -> list[float]:
        """By nearest rank."""
        ordered = sorted(self.recent)
        if self._by_size:
            for size, count in self._by_size.items():
                ordered += [exp(size * _SIZE_WIDTH)] * count
            ordered.sort()
        return [nearest_rank(ordered, percent) for percent in percents]
