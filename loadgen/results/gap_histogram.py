"""Counts the gaps between chunks in geometric buckets, so that a run of any length takes constant memory."""

import math
from collections import Counter
from collections.abc import Iterable
from itertools import repeat
from operator import mul

import msgspec
from msgspec import structs

RATIO = 1.02
"""Ratio of the bounds of a bucket: its geometric middle differs from each of its gaps by less than 1 %."""
LEAST = 1e-6
"""Seconds; shorter gaps count as 0: the chunks arrived in one read, which has one time."""

_BUCKETS_PER_E = 1 / math.log(RATIO)
_MIDDLE = math.sqrt(RATIO)


class GapHistogram(msgspec.Struct):
    """Gaps in seconds: `counts` by bucket, where bucket i begins at RATIO**i seconds; the sums are exact."""

    counts: dict[int, int] = {}
    zeros: int = 0
    sum: float = 0.0
    squares: float = 0.0

    def add(self, gaps: Iterable[float]) -> None:
        every = list(gaps)
        positive = [gap for gap in every if gap >= LEAST]
        self.zeros += len(every) - len(positive)
        # Without a Python statement per gap, because a stream has hundreds and is counted between reads.
        for bucket, count in Counter(
            map(math.floor, map(mul, map(math.log, positive), repeat(_BUCKETS_PER_E)))
        ).items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.sum += sum(positive)
        self.squares += sum(map(mul, positive, positive))

    def merge(self, other: "GapHistogram") -> None:
        """Add the gaps of another histogram, such as that of another process."""
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.zeros += other.zeros
        self.sum += other.sum
        self.squares += other.squares

    def to_json(self) -> dict[str, object]:
        """The histogram as an object for JSON."""
        return {"ratio": RATIO, **structs.asdict(self), "counts": dict(sorted(self.counts.items()))}

    @property
    def count(self) -> int:
        return self.zeros + sum(self.counts.values())

    @property
    def mean(self) -> float:
        """The mean; 0 without a gap."""
        return self.sum / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """Standard deviation, of the gaps themselves."""
        return math.sqrt(max(0.0, self.squares / self.count - self.mean**2)) if self.count else 0.0

    def percentile(self, percent: float) -> float:
        """The percentile by nearest rank, within 1 %; 0 without a gap."""
        rank = max(1, math.ceil(self.count * percent / 100))
        counted = self.zeros
        if rank <= counted:
            return 0.0
        for bucket, count in sorted(self.counts.items()):
            counted += count
            if counted >= rank:
                return math.exp(bucket / _BUCKETS_PER_E) * _MIDDLE
        return 0.0
