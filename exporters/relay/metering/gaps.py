"""The gaps between the chunks of a stream, in bounded memory."""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from math import exp, inf, log
from typing import NamedTuple

from exporters.vocabulary.verdicts import nearest_index, nearest_rank

MAX_EXACT = 2048
"""Gaps stored individually; more gaps are folded into size classes, which keep percentiles within 1 %."""

MAX_FOLDED = 8192
"""Gaps that are folded at once, which takes 2 ms."""

# Width of a size class in natural logarithms: all gaps in it are within 1 % of its middle.
_SIZE_WIDTH = 0.02
_SMALLEST = 1e-7


class GapSummary(NamedTuple):
    """What a record has of the gaps of a stream, in seconds."""

    percentiles: list[float]
    """Percentiles by nearest rank."""
    counts: dict[float, int]
    """The number of gaps by upper bound, not cumulative, without empty buckets; `inf`: above all bounds."""
    total: float


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
        """Fold the oldest recent gaps into size classes if there are MAX_EXACT; return whether it did."""
        if len(self.recent) < MAX_EXACT:
            return False
        ordered = sorted(self.recent[:MAX_FOLDED])
        self._counts = self._add_counts(ordered)
        self._sum += sum(ordered)
        self._folded += len(ordered)
        if self._by_size is None:
            self._by_size = Counter()
        self._by_size.update(round(log(max(gap, _SMALLEST)) / _SIZE_WIDTH) for gap in ordered)
        self.recent = self.recent[MAX_FOLDED:]
        return True

    def summary(self, *percents: int) -> GapSummary:
        """The percentiles, counts and sum of all gaps, which are sorted once for all of them."""
        ordered = sorted(self.recent)
        counts, total = self._add_counts(ordered), self._sum + sum(ordered)
        if not self._by_size:
            return GapSummary([nearest_rank(ordered, percent) for percent in percents], counts, total)
        # There may be millions of each size, which are not listed one by one.
        sizes = sorted(
            [*((exp(size * _SIZE_WIDTH), count) for size, count in self._by_size.items()), *zip(ordered, repeat(1))]
        )
        ranks = list(accumulate(count for _, count in sizes))
        percentiles = [sizes[bisect_left(ranks, nearest_index(ranks[-1], percent) + 1)][0] for percent in percents]
        return GapSummary(percentiles, counts, total)

    def _add_counts(self, ordered: list[float]) -> dict[float, int]:
        """The counts of the folded gaps and these."""
        bounds, counts, start = self._bounds, self._counts.copy(), 0
        while start < len(ordered):
            index = bisect_left(bounds, ordered[start])
            bound = bounds[index] if index < len(bounds) else inf
            end = bisect_right(ordered, bound, start)
            counts[bound] = counts.get(bound, 0) + end - start
            start = end
        return counts
