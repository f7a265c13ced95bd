"""Decides whether the queue of a server was stationary under a constant rate, and from when its figures are stable.

In a stationary queue, neither the latency by due time nor the number of open requests has a trend. If the server does
not keep up, both rise by about the share of the load that it does not serve: the latency in seconds per second, the
open requests in requests per request. Each trend is a line through the means of batches, whose error includes the
autocorrelation of its residuals, because neighbouring requests share a queue.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from exporters.vocabulary.verdicts import nearest_rank

FEWEST = 100
"""Requests below which nothing is decided."""
BATCHES = 20
DRIFT = 0.01
"""Trend, as a share of the load, below which a queue counts as stationary."""
UNDECIDED = 0.05
"""A steady state is stated only if trends above this are excluded: a server that serves 95 % of the load."""
_T = 3.61  # of Student's t distribution with BATCHES - 2 degrees of freedom, one-sided at 0.1 %
_TRUNCATION_BATCH = 5  # the 5 of MSER-5
_MOST_CORRELATED = 0.9
_Point = tuple[float, float]


class State(StrEnum):
    STEADY = "steady"
    DRIFTING = "not steady"
    SHORT = "too short to say"


class Timed(NamedTuple):
    """One request: times in seconds, `wait` from `due` to the first token, or to the end without one.

    `wait` is None for a request that failed before it was served, such as a rejected one.
    """

    due: float
    wait: float | None
    closed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState:
    """Whether a server kept up with a constant rate.

    `start` is that of the stable window, in the seconds of the due times, None unless `state` is steady.
    `latency_growth` is in seconds per second, `open_growth` in open requests per request; None where too few requests
    decide nothing.
    """

    state: State
    start: float | None = None
    latency_growth: float | None = None
    open_growth: float | None = None


@dataclass(frozen=True, slots=True)
class Trend:
    """A slope and the half width of its confidence interval."""

    slope: float
    margin: float

    @property
    def rising(self) -> bool:
        """Whether it rises by more than `DRIFT`, and not by chance."""
        return self.slope > max(DRIFT, self.margin)

    @property
    def excludes_overload(self) -> bool:
        return self.slope + self.margin < UNDECIDED


def steady_state(requests: Iterable[Timed]) -> SteadyState:
    """The state of a server that received requests at a constant rate.

    Open requests first rise for as long as a response takes (from its first token to its end), whatever the server
    does, so this time is left out. The stable window starts after it and after the truncation point of the latencies.
    """
    ordered = sorted(requests, key=lambda request: request.due)
    served = [(due, wait, closed) for due, wait, closed in ordered if wait is not None]
    if len(served) < FEWEST:
        return SteadyState(state=State.SHORT)
    filled = ordered[0].due + nearest_rank(sorted(closed - due - wait for due, wait, closed in served), 95)
    waits = [(due, wait) for due, wait, _ in served]
    levels = list(open_requests(ordered))
    begin = _first(waits, filled)
    if len(waits) - begin < FEWEST or begin > len(waits) / 2:
        return SteadyState(state=State.SHORT)
    trends, start = _trends(waits, levels, filled), None
    if any(each.rising for each in trends):
        state = State.DRIFTING
    else:
        start = waits[max(begin, truncation([wait for _, wait in waits]))][0]
        trends = _trends(waits, levels, start)
        state = State.STEADY if all(each.excludes_overload for each in trends) else State.SHORT
    latency, growth = trends
    return SteadyState(
        state=state,
        start=start if state is State.STEADY else None,
        latency_growth=latency.slope,
        open_growth=growth.slope,
    )


def open_requests(requests: Sequence[Timed]) -> Iterable[_Point]:
    """Number of earlier requests that are open at the due time of each request, sorted by due time."""
    ends = sorted(request.closed for request in requests)
    for index, request in enumerate(requests):
        yield request.due, index - bisect_right(ends, request.due, hi=index)


def truncation(values: Sequence[float]) -> int:
    """How many values to leave out at the start, by MSER-5 (White 1997): those that add more bias than precision.

    It minimises the squared standard error of the mean of the remaining batches of 5, over the first half of them.
    """
    size = _TRUNCATION_BATCH
    means = [sum(values[at : at + size]) / size for at in range(0, len(values) - size + 1, size)]
    best, least = 0, math.inf
    mean = squares = 0.0  # of the batches from `index`, by Welford's algorithm from the end
    for index in range(len(means) - 1, -1, -1):
        count = len(means) - index
        deviation = means[index] - mean
        mean += deviation / count
        squares += deviation * (means[index] - mean)
        if index <= len(means) // 2 and squares / count**2 <= least:
            best, least = index, squares / count**2
    return best * size


def trend(points: Sequence[_Point], batches: int = BATCHES, quantile: float = _T) -> Trend:
    """The trend of the points (x, y), sorted by x: a line through the means of `batches` batches of equal size.

    `quantile` of Student's t distribution, with `batches` - 2 degrees of freedom, gives the confidence interval. Its
    variance is that of independent residuals x (1 + r) / (1 - r), with r the autocorrelation of the residuals at lag 1.
    """
    bounds = [len(points) * number // batches for number in range(batches + 1)]
    means = [_mean(points[begin:end]) for begin, end in pairwise(bounds)]
    middle_x, middle_y = _mean(means)
    spread = sum((x - middle_x) ** 2 for x, _ in means)
    if not spread:
        return Trend(0.0, math.inf)
    slope = sum((x - middle_x) * (y - middle_y) for x, y in means) / spread
    residuals = [y - middle_y - slope * (x - middle_x) for x, y in means]
    squares = sum(residual**2 for residual in residuals)
    if not squares:
        return Trend(slope, 0.0)
    found = sum(a * b for a, b in pairwise(residuals)) / squares
    correlation = min(_MOST_CORRELATED, max(0.0, found + (1 + 3 * found) / batches))  # without the bias of few points
    inflation = (1 + correlation) / (1 - correlation)
    return Trend(slope, quantile * math.sqrt(squares / (batches - 2) / spread * inflation))


def _trends(waits: Sequence[_Point], levels: Sequence[_Point], start: float) -> tuple[Trend, Trend]:
    """Trends of the latencies by due time and of the open requests by number, both from `start`."""
    return trend(waits[_first(waits, start) :]), trend(
        [(index, level) for index, (_, level) in enumerate(levels[_first(levels, start) :])]
    )


def _mean(points: Sequence[_Point]) -> _Point:
    return sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points)


def _first(points: Sequence[_Point], at: float) -> int:
    return bisect_left(points, at, key=lambda point: point[0])
