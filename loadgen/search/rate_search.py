"""Searches the largest rate at which every SLO is met: brackets it by doubling and halving, then bisects."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from loadgen.search.attainment import Attainment, Verdicts

FINEST = 0.01
"""The least `resolution`: rates have four significant digits."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Rates in requests/s; the search ends when its interval is narrower than a factor of 1 + `resolution`."""

    start: float
    floor: float
    cap: float
    resolution: float

    @property
    def bisections(self) -> int:
        """Probes that bisect a factor of 2."""
        return math.ceil(math.log2(math.log(2) / math.log1p(self.resolution)))


class Finding(StrEnum):
    """The kind of an answer."""

    BETWEEN = "between"
    BEATEN = "beaten"
    NONE = "none"
    ABOVE_CAP = "above_cap"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Answer:
    """`low` is the largest rate that was met, `high` the least that was missed; rates between may be undecided."""

    finding: Finding
    low: float | None
    high: float | None
    undecided: tuple[float, ...]


def search(probe: Callable[[float], Verdicts], limits: Limits, to_beat: float = 0.0) -> Answer:
    """Probe rates until the answer is as narrow as the probes can decide; exceptions of `probe` end the search.

    A rate of `to_beat` or less that is missed ends it too.
    """
    results: dict[float, Attainment] = {}
    while (rate := next_rate(results, limits, to_beat)) is not None:
        results[rate] = probe(rate).attainment
    return answer(results, limits, to_beat)


def next_rate(results: Mapping[float, Attainment], limits: Limits, to_beat: float = 0.0) -> float | None:
    """The rate to probe next, from the results so far, at first the one to beat; None when the search has ended."""
    if not results:
        return _rounded(to_beat or limits.start)
    low, high, undecided = _bracket(results)
    if high is not None and high <= to_beat:
        return None
    if high is None:
        top = max(results)
        return None if top >= limits.cap else min(_rounded(2 * top), limits.cap)
    if low is None:
        bottom = min(results)
        return None if bottom <= limits.floor else max(_rounded(bottom / 2), limits.floor)
    # Rates near the answer may be undecided: then the interval narrows from both sides towards them.
    for begin, end in ((low, min(undecided, default=high)), (max(undecided, default=low), high)):
        if end > begin * (1 + limits.resolution):
            return _rounded(math.sqrt(begin * end))
    return None


def answer(results: Mapping[float, Attainment], limits: Limits, to_beat: float = 0.0) -> Answer:
    """What the results say so far; `BEATEN` if that is enough to say that the rate to beat is missed."""
    low, high, undecided = _bracket(results)
    finding = Finding.UNDECIDED
    if undecided or not results:
        pass
    elif high is not None and high <= to_beat and next_rate(results, limits) is not None:
        finding = Finding.BEATEN
    elif low is not None and high is not None:
        finding = Finding.BETWEEN if next_rate(results, limits) is None else Finding.UNDECIDED
    elif high is not None and high <= limits.floor:
        finding = Finding.NONE
    elif low is not None and low >= limits.cap:
        finding = Finding.ABOVE_CAP
    return Answer(finding, low, high, undecided)


def _bracket(results: Mapping[float, Attainment]) -> tuple[float | None, float | None, tuple[float, ...]]:
    """The largest rate met below the least one missed, that rate, and the undecided rates between."""
    high = min((rate for rate, result in results.items() if result is Attainment.MISSED), default=None)
    below = {rate: result for rate, result in results.items() if high is None or rate < high}
    low = max((rate for rate, result in below.items() if result is Attainment.MET), default=None)
    undecided = sorted(
        rate for rate, result in below.items() if result is Attainment.UNDECIDED and (low is None or rate > low)
    )
    return low, high, tuple(undecided)


def _rounded(rate: float) -> float:
    return float(f"{rate:.4g}")
