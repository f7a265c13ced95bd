"""Sorts requests into bins of a plot, of which there are never more than a fixed number."""

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

LENGTH_BINS = 16
"""Bins of an axis of tokens."""
MOST_TIME_BINS = 60
_ROUND = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class LengthBins:
    """Bins of equal width on a logarithmic axis of tokens from `low` to `high`."""

    low: float
    high: float

    def edge(self, index: int) -> float:
        return self.low * math.pow(self.high / self.low, index / LENGTH_BINS)

    @property
    def starts(self) -> list[int]:
        """The smallest number of tokens in each bin; a bin too narrow for a whole number has that of the next."""
        return [math.ceil(self.edge(index) - 1e-9) for index in range(LENGTH_BINS)]

    def index(self, tokens: int) -> int:
        return max(0, bisect_right(self.starts, max(1, tokens)) - 1)

    def label(self, index: int) -> str:
        """The numbers of tokens in a bin."""
        last = math.floor(self.high) if index == LENGTH_BINS - 1 else self.starts[index + 1] - 1
        first = self.starts[index]
        return str(first) if first >= last else f"{first} to {last}"


def length_bins(tokens: Iterable[int]) -> LengthBins:
    """Bins from the least to the greatest number, over at least a factor of 2."""
    counts = [max(1, count) for count in tokens] or [1]
    low, high = float(min(counts)), float(max(counts))
    if high < 2 * low:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(2), middle * math.sqrt(2)
    return LengthBins(low, high)


@dataclass(frozen=True, slots=True)
class TimeBins:
    """Bins of `width` seconds from 0 to `end`; the last one may be shorter."""

    width: float
    end: float

    @property
    def count(self) -> int:
        return math.ceil(self.end / self.width - 1e-9)

    def index(self, at: float) -> int:
        return min(self.count - 1, max(0, int(at / self.width)))

    def limits(self, index: int) -> tuple[float, float]:
        """Start and end of a bin."""
        return index * self.width, min(self.end, (index + 1) * self.width)


def time_bins(end: float) -> TimeBins:
    """Bins with a round width."""
    power = 10.0 ** math.floor(math.log10(end / MOST_TIME_BINS))
    widths = (power * factor for factor in (*_ROUND, 10))
    return TimeBins(next(width for width in widths if end / width <= MOST_TIME_BINS + 1e-9), end)
