"""How many requests were in a state at once, weighted by time, from the intervals of each request."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

Interval = tuple[float, float]
"""Start and end in unix seconds."""


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Requests at once, over the time from the first start to the last end."""

    mean: float
    p50: int
    p95: int


def concurrency(intervals: Iterable[Interval]) -> Concurrency | None:
    """None if no interval has a duration."""
    steps = sorted(step for start, end in intervals if end > start for step in ((start, 1), (end, -1)))
    if not steps:
        return None
    at_level: dict[int, float] = {}
    level, since = 0, steps[0][0]
    for at, change in steps:
        at_level[level] = at_level.get(level, 0.0) + at - since
        level, since = level + change, at
    total = sum(at_level.values())
    levels = sorted(at_level)
    passed = list(accumulate(at_level[each] for each in levels))
    p50, p95 = (levels[bisect_left(passed, share * total)] for share in (0.5, 0.95))
    return Concurrency(sum(each * seconds for each, seconds in at_level.items()) / total, p50, p95)
