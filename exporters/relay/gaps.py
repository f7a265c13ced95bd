"""The gaps between the chunks of a stream, in bounded memory."""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, inf, log

from exporters.verdicts import nearest_rank

MAX_EXACT = 2048
"""Gaps stored individually; more gaps are folded into size classes, which keep percentiles within 1 %."""

# Width of a size class in natural logarithms: all gaps in it are within 1 % of its middle.
_SIZE_WIDTH = 0.02
_SMALLEST = 1e-7


@dataclass(eq=False, slots=True)
class Gaps:
    """Gaps of one stream, in seconds."""

    _bounds: Sequence[float]
    recent: "array[float]" = field(default_factory=lambda: array("d"))
    """Gaps that are not folded; the caller appends each new gap."""
    _folded: int = 0
    _sum: float = 0.0
    _by_size: Counter[int] | None = None
    _counts: dict[float, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return self._folded + len(self.recent)

    def fold(self) -> bool:
        """Fold the recent gaps into size classes if there are MAX_EXACT; return whether it did."""
        if len(self.recent) < MAX_EXACT:
            return False
        self._counts = self.counts()
        self._sum += sum(self.recent)
        self._folded += len(self.recent)
        if self._by_size is None:
            self._by_size = Counter()
        self._by_size.update(round(log(max(gap, _SMALLEST)) / _SIZE_WIDTH) for gap in self.recent)
        self.recent = array("d")
        return True

    def counts(self) -> dict[float, int]:
        """The number of gaps by upper bound, not cumulative, without empty buckets; `inf`: above all bounds."""
        ordered, bounds, counts, start = sorted(self.recent), self._bounds, self._counts.copy(), 0
        while start < len(ordered):
            index = bisect_left(bounds, ordered[start])
            bound = bounds[index] if index < len(bounds) else inf
            end = bisect_right(ordered, bound, start)
            counts[bound] = counts.get(bound, 0) + end - start
            start = end
        return counts

    def total(self) -> float:
        return self._sum + sum(self.recent)

    def percentiles(self, *percents: int) -> list[float]:
        """Percentiles in seconds, by nearest rank."""
        ordered = sorted(self.recent)
        if self._by_size:
            for size, count in self._by_size.items():
                ordered += [exp(size * _SIZE_WIDTH)] * count
            ordered.sort()
        return [nearest_rank(ordered, percent) for percent in percents]
