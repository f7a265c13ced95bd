"""Figures of the work of an engine, by the method of batch means: a window is cut into blocks of equal length.

Work per block is defined also while a queue grows, when the latencies of requests have no stable distribution.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from exporters.analysis.estimates.estimates import BLOCKS, Interval
from exporters.analysis.estimates.windows import Window


@dataclass(frozen=True, slots=True)
class BlockMean:
    """A ratio of two sums over blocks, with Student's t interval (Law, Simulation Modeling and Analysis, 9.5.3).

    The `Difference` of two is Welch's test with the smaller number of degrees of freedom, which is conservative.
    """

    test: ClassVar[str] = f"block means ({BLOCKS} blocks per window, Welch's t-test)"

    value: float
    standard_error: float
    lowest: float = 0.0

    def interval(self, z: float) -> Interval:
        half = student(z, BLOCKS - 1) * self.standard_error
        return max(self.lowest, self.value - half), self.value + half


def student(z: float, degrees: int) -> float:
    """The quantile of Student's t that has the probability of the normal quantile `z` (Wallace 1959)."""
    scaled = z * (8 * degrees + 3) / (8 * degrees + 1)
    exponent = scaled * scaled / degrees
    return math.sqrt(degrees * math.expm1(exponent)) if exponent < 700 else math.inf


def block_ratio(parts: Sequence[float], wholes: Sequence[float], lowest: float = 0.0) -> BlockMean | None:
    """The sum of the parts over the sum of the wholes, one of each per block; None if nothing is a whole.

    The variance is that of a ratio estimator (Cochran, Sampling Techniques, 6.4).
    """
    total = sum(wholes)
    if total <= 0:
        return None
    value = sum(parts) / total
    squares = sum((part - value * whole) ** 2 for part, whole in zip(parts, wholes, strict=True))
    return BlockMean(value, math.sqrt(squares * BLOCKS / (BLOCKS - 1)) / total, lowest)


def block_rate(window: Window, amounts: Sequence[float], lowest: float = 0.0) -> BlockMean | None:
    """The amounts of all blocks per second."""
    return block_ratio(amounts, [window.seconds / BLOCKS] * BLOCKS, lowest)


def edges(window: Window) -> list[float]:
    """The start of each block and the end of the last one, in unix seconds."""
    return [window.start + window.seconds * index / BLOCKS for index in range(BLOCKS + 1)]


class Blocks:
    """Sums up amounts by the blocks of a window; amounts outside of the window are left out."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._seconds = window.seconds / BLOCKS
        self.sums = [0.0] * BLOCKS

    def add(self, at: float, amount: float) -> None:
        if self._window.contains(at):
            self.sums[self._index(at)] += amount

    def spread(self, start: float, end: float, amount: float) -> bool:
        """Spread an amount evenly from `start` to `end`; whether they overlap with the window."""
        low, high = max(start, self._window.start), min(end, self._window.end)
        if low >= high:
            return False
        for index in range(self._index(low), self._index(high) + 1):
            begin = self._window.start + index * self._seconds
            overlap = min(high, begin + self._seconds) - max(low, begin)
            self.sums[index] += amount * max(overlap, 0.0) / (end - start)
        return True

    def _index(self, at: float) -> int:
        return min(int((at - self._window.start) / self._seconds), BLOCKS - 1)
