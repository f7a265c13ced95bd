"""The value of a metric over the repeats of a group, and the difference between two groups with its interval."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from statistics import fmean

from compose.experiments.report.groups import Group, Repeat
from compose.experiments.report.metrics import Mean, Percentile, PerSecond, Reading, ReportMetric, Share
from exporters.analysis.estimates.estimates import BLOCKS, Difference, Estimate, Interval, Z
from exporters.analysis.estimates.event_estimates import quantiles, rate, share
from exporters.analysis.estimates.figures import Better, Figure
from exporters.analysis.estimates.figures import Unit as FigureUnit
from exporters.analysis.estimates.paired_difference import (
    PairedDifference,
    Weights,
    drawn_quantiles,
    drawn_shares,
    draws,
    paired_difference,
)
from exporters.analysis.estimates.windows import Window
from loadgen.results.record import Record
from loadgen.results.summary import TOTAL

Start = tuple[str, int, int]
"""A schedule, the index of a phase, and the number of a request in it."""


@dataclass(frozen=True, slots=True)
class Value:
    """The value of all repeats together, and that of each repeat."""

    pooled: float
    repeats: tuple[float, ...]

    @property
    def spread(self) -> tuple[float, float] | None:
        """The least and the largest value of several repeats."""
        return (min(self.repeats), max(self.repeats)) if len(self.repeats) > 1 else None


@cache
def value(metric: ReportMetric, group: Group, request_class: str = TOTAL) -> Value | None:
    """The metric of one class, or of all; None where nothing was measured."""
    pooled = _value(metric, group.repeats, request_class)
    if pooled is None:
        return None
    each = (_value(metric, [repeat], request_class) for repeat in group.repeats)
    return Value(pooled, tuple(one for one in each if one is not None))


def cell(metric: ReportMetric, group: Group, request_class: str = TOTAL) -> str:
    """The value with the spread of the repeats, or the state of a group without figures."""
    if group.state:
        return group.state
    found = value(metric, group, request_class)
    if found is None:
        return "-"
    text = metric.unit.text(found.pooled)
    if found.spread is None or found.spread[0] == found.spread[1]:
        return text
    low, high = (metric.unit.text(end).removesuffix(" %") for end in found.spread)
    return f"{text} [{low}..{high}]"


def estimate(metric: ReportMetric, repeats: Sequence[Repeat], request_class: str = TOTAL) -> Estimate | None:
    """The pooled value with its interval; None without requests, and for a mean or a figure of the run."""
    window = Window(0.0, max(sum(repeat.run.seconds for repeat in repeats), 1e-6))
    match metric.source:
        case Share(of):
            events = [(at, found, 1.0) for at, found in _events(repeats, request_class, of)]
            return share(window, events).estimate
        case Percentile(of, percent):
            figure = Figure(metric.name, FigureUnit.SECONDS, Better.LOWER, percent)
            return quantiles(window, [figure], [*_events(repeats, request_class, of)])[figure].estimate
        case PerSecond(of):
            return rate(window, [*_events(repeats, request_class, of)]).estimate if repeats else None
        case Mean() | Reading():
            return None


@cache
def difference(
    metric: ReportMetric, before: Group, after: Group, request_class: str = TOTAL
) -> Difference | PairedDifference | None:
    """The estimate after minus the one before; None unless both exist.

    For the same schedules, both sides are drawn by the same blocks of consecutive requests (bootstrap). Otherwise, and
    if no draw differs, they are independent samples: Newcombe's interval for shares.
    """
    first, second = (estimate(metric, group.repeats, request_class) for group in (before, after))
    if first is None or second is None:
        return None
    schedules, others = ({repeat.run.schedule for repeat in group.repeats} for group in (before, after))
    if not isinstance(metric.source, Share | Percentile) or schedules != others:
        return Difference(first, second)
    sides = [[*_numbered(group.repeats, request_class, metric.source.of)] for group in (before, after)]
    starts = sorted({start for side in sides for start, _ in side})
    count = BLOCKS * len(schedules)
    if len(starts) < count:
        return Difference(first, second)
    block_of = {start: index * count // len(starts) for index, start in enumerate(starts)}
    drawn = _draws(count, " ".join(sorted(schedules)))
    early, late = (_drawn(metric, [(block_of[start], each) for start, each in side], drawn) for side in sides)
    if early == late:
        return Difference(first, second)
    return paired_difference(first, second, early, late, count)


def excludes_zero(interval: Interval) -> bool:
    return interval[0] > 0 or interval[1] < 0


def interval(found: Difference | PairedDifference) -> Interval:
    """The 95 % confidence interval."""
    return found.interval(Z)


def _value(metric: ReportMetric, repeats: Sequence[Repeat], request_class: str) -> float | None:
    if isinstance(metric.source, Reading):
        readings = [found for repeat in repeats if (found := metric.source.of(repeat)) is not None]
        return metric.source.combine(readings) if readings else None
    if isinstance(metric.source, Mean):
        values = [found for _, found in _events(repeats, request_class, metric.source.of)]
        return fmean(values) if values else None
    whole = estimate(metric, repeats, request_class)
    return None if whole is None else whole.value


def _events(
    repeats: Iterable[Repeat], request_class: str, of: Callable[[Record], float | None]
) -> Iterable[tuple[float, float]]:
    """The due time and the value of each request that counts; each repeat starts at the end of the one before."""
    start = 0.0
    for repeat in repeats:
        for record in repeat.records:
            if request_class in (TOTAL, record.request_class) and (found := of(record)) is not None:
                yield start + min(record.due, repeat.run.seconds), found
        start += repeat.run.seconds


def _numbered(
    repeats: Iterable[Repeat], request_class: str, of: Callable[[Record], float | None]
) -> Iterable[tuple[Start, float]]:
    for repeat in repeats:
        order = {phase.name: index for index, phase in enumerate(repeat.run.phases)}
        for record in repeat.records:
            if request_class in (TOTAL, record.request_class) and (found := of(record)) is not None:
                yield (repeat.run.schedule, order[record.phase], record.number), found


def _drawn(metric: ReportMetric, events: Sequence[tuple[int, float]], drawn: Sequence[Weights]) -> list[float]:
    if isinstance(metric.source, Percentile):
        return [each for (each,) in drawn_quantiles(events, [metric.source.percent], drawn)]
    return [*drawn_shares(events, drawn)]


@cache
def _draws(count: int, seed: str) -> Sequence[Weights]:
    return draws(count, Random(seed))  # noqa: S311 - repeatable, not secret
