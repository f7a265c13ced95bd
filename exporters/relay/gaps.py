"""The gaps between a stream's chunks, in bounded memory however long the stream."""

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import exp, log

from exporters.verdicts import nearest_rank

KEPT = 2048
"""Gaps kept one by one; those of a longer stream are counted by size, which gives percentiles to within 1 %."""

_WIDTH = 0.02  # of a class of sizes, as a natural logarithm: its middle is within 1 % of all in it
_LEAST = 1e-7


class Gaps:
    """Seconds between one stream's chunks."""

    __slots__ = ("_before", "_bounds", "_by_size", "_counts", "_sum", "recent")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.recent = array("d")
        """Where the next one is appended."""
        self._bounds = bounds
        self._before = 0
        self._sum = 0.0
        self._by_size: Counter[int] = Counter()
        self._counts: list[int] = []

    def __len__(self) -> int:
        return self._before + len(self.recent)

    def fold(self) -> bool:
        """Count by size what has become too much to keep; whether there was any."""
        if len(self.recent) < KEPT:
            return False
        self._counts = self.counts()
        self._sum += sum(self.recent)
        self._before += len(self.recent)
        self._by_size.update(round(log(max(gap, _LEAST)) / _WIDTH) for gap in self.recent)
        self.recent = array("d")
        return True

    def counts(self) -> list[int]:
        """How many there are per bound, +Inf last, not cumulative."""
        ordered = sorted(self.recent)
        edges = [0, *(bisect_right(ordered, bound) for bound in self._bounds), len(ordered)]
        found = [upper - lower for lower, upper in pairwise(edges)]
        return [one + other for one, other in zip(found, self._counts, strict=True)] if self._counts else found

    def total(self) -> float:
        return self._sum + sum(self.recent)

    def percentiles(self, *percents: int) -> list[float]:
        """By nearest rank."""
        ordered = sorted(self.recent)
        if self._by_size:
            for size, count in self._by_size.items():
                ordered += [exp(size * _WIDTH)] * count
            ordered.sort()
        return [nearest_rank(ordered, percent) for percent in percents]
