"""What an experiment shows: the best of each class, changes against the first configuration, and predictions."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from compose.experiments.report.estimates import Value, difference, estimate, excludes_zero, interval, value
from compose.experiments.report.groups import Experiment, Group
from compose.experiments.report.metrics import GOODPUT, METRICS, THROUGHPUT, Mean, Reading, ReportMetric, Unit
from compose.experiments.setup.cell_store import Direction, ExpectedFigure, Prediction
from compose.experiments.setup.level import PHASES, Level
from exporters.analysis.estimates.estimates import Difference, Interval, Z
from exporters.analysis.estimates.paired_difference import PairedDifference
from exporters.text.yaml_reader import nearest
from loadgen.results.summary import TOTAL


@dataclass(frozen=True, slots=True)
class Best:
    """The configuration with the highest goodput of offered; None if no cell is valid or no request is good.

    `ties` are the configurations whose difference from it has an interval that includes 0.
    """

    request_class: str
    configuration: str | None = None
    goodput: float | None = None
    ties: tuple[str, ...] = ()

    def marks(self, configuration: str) -> bool:
        return configuration == self.configuration or configuration in self.ties


def best(groups: Sequence[Group], request_class: str) -> Best:
    """The best configuration of one class at one level."""
    found = [(each.pooled, group) for group in groups if (each := value(GOODPUT, group, request_class)) is not None]
    if not any(share for share, _ in found):
        return Best(request_class)
    share, winner = max(found, key=lambda each: each[0])
    ties = []
    for _, group in found:
        compared = None if group is winner else difference(GOODPUT, winner, group, request_class)
        if compared is not None and not excludes_zero(interval(compared)):
            ties.append(group.configuration)
    return Best(request_class, winner.configuration, share, tuple(ties))


@dataclass(frozen=True, slots=True)
class Change:
    """The goodput of one class against that of the first configuration."""

    request_class: str
    difference: Difference | PairedDifference

    @property
    def shown(self) -> bool:
        """Whether the interval excludes 0."""
        return excludes_zero(interval(self.difference))


@dataclass(frozen=True, slots=True)
class Conclusion:
    """One configuration at one level against the first configuration; no changes if either has no figures."""

    baseline: Group
    group: Group
    changes: tuple[Change, ...]

    def __str__(self) -> str:
        name = self.group.name
        for side in (self.group, self.baseline):
            if side.state:
                return f"{name}: not compared, because {side.configuration} is {side.state}."
        shown = [change for change in self.changes if change.shown]
        others = [change for change in self.changes if not change.shown]
        parts = [f"{spell_difference(GOODPUT, each.difference)} for {each.request_class}" for each in shown]
        if parts:
            parts[0] = f"goodput {parts[0]}"
        if others:
            unclear = (f"{each.request_class} ({GOODPUT.unit.change(each.difference.value)})" for each in others)
            parts.append(f"no difference of goodput shown for {', '.join(unclear)}")
        rates = [value(THROUGHPUT, side) for side in (self.baseline, self.group)]
        before, after = (Unit.PER_SECOND.text(rate.pooled if rate else None) for rate in rates)
        return f"{name}: {'; '.join(parts)}; output tokens/s {after}, {self.baseline.configuration} {before}."


def conclusions(experiment: Experiment) -> Iterator[Conclusion]:
    """One for each configuration and level but those of the first configuration."""
    for baseline, *others in experiment.groups.values():
        for group in others:
            compared = ((name, difference(GOODPUT, baseline, group, name)) for name in (*experiment.classes, TOTAL))
            yield Conclusion(baseline, group, tuple(Change(name, each) for name, each in compared if each is not None))


def spell_difference(metric: ReportMetric, found: Difference | PairedDifference) -> str:
    """`+41 points (+35 to +47)`: the value and its interval."""
    low, high = (metric.unit.change(end) for end in interval(found))
    points = " points" if metric.unit is Unit.SHARE else ""
    return f"{metric.unit.change(found.value)}{points} ({low} to {high})"


SAME = 0.1
"""`same` is kept if the interval of the difference is within 10 points (shares) or 10 % of the baseline."""


class Verdict(StrEnum):
    """Whether a prediction holds, as far as the measurement decides it."""

    KEPT = "kept"
    FAILED = "failed"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Judged:
    """A prediction at one level, its verdict, and the numbers for it."""

    prediction: Prediction
    level: Level
    verdict: Verdict
    numbers: str

    @property
    def text(self) -> str:
        """What was predicted."""
        prediction = self.prediction
        if prediction.direction is not None:
            word = "as" if prediction.direction is Direction.SAME else "than"
            return f"{prediction.direction.value} {word} {prediction.baseline}"
        unit = METRICS[prediction.metric].unit
        ends = (("at least", prediction.low), ("at most", prediction.high))
        return ", ".join(f"{word} {unit.text(end)}" for word, end in ends if end is not None)


@dataclass(frozen=True, slots=True)
class Beside:
    """A figure of the source and ours at one level; `problem` says why there is none."""

    expected: ExpectedFigure
    level: Level
    ours: Value | None
    problem: str = ""


def judged(experiment: Experiment) -> Iterator[Judged]:
    """Each prediction, at its level or at all."""
    for prediction in experiment.record.predictions:
        for level, groups in _at(experiment, prediction):
            yield Judged(prediction, level, *_judge(prediction, groups))


def beside(experiment: Experiment) -> Iterator[Beside]:
    """Each figure of the source, at its level or at all."""
    for expected in experiment.record.expected:
        for level, groups in _at(experiment, expected):
            if problem := _problem(groups, expected.configuration):
                yield Beside(expected, level, None, problem)
            else:
                group = groups[expected.configuration]
                yield Beside(expected, level, value(METRICS[expected.metric], group, expected.request_class or TOTAL))


def _at(experiment: Experiment, claim: Prediction | ExpectedFigure) -> Iterator[tuple[Level, dict[str, Group]]]:
    """The groups of one level, or of each, by configuration."""
    for level, groups in experiment.groups.items():
        if claim.level in (PHASES, level):
            yield level, {group.configuration: group for group in groups}


def _problem(groups: dict[str, Group], *configurations: str) -> str:
    """Why configurations have no values; empty if they may have some."""
    for name in configurations:
        if name not in groups:
            return f"unknown configuration {name!r}; {nearest(name, groups)}"
        if groups[name].state:
            return f"{name} is {groups[name].state}"
    return ""


def _judge(prediction: Prediction, groups: dict[str, Group]) -> tuple[Verdict, str]:
    names = [prediction.configuration]
    if prediction.direction is not None:
        names.append(prediction.baseline or next(iter(groups)))
    if problem := _problem(groups, *names):
        return Verdict.UNDECIDED, problem
    metric, name = METRICS[prediction.metric], prediction.request_class or TOTAL
    after, *before = (groups[each] for each in names)
    values = [value(metric, group, name) for group in (after, *before)]
    present = [each for each in values if each is not None]
    if len(present) < len(values):
        return Verdict.UNDECIDED, "not measured"
    if prediction.direction is None:
        return _within(prediction, metric, after, present[0], name)
    if isinstance(metric.source, Mean | Reading):
        return _by_repeats(prediction.direction, metric, *present)
    found = difference(metric, before[0], after, name)
    if found is None:
        return Verdict.UNDECIDED, "not measured"
    allowed = SAME if metric.unit is Unit.SHARE else SAME * present[1].pooled
    return _of_interval(prediction.direction, interval(found), allowed), spell_difference(metric, found)


def _of_interval(direction: Direction, ends: Interval, allowed: float) -> Verdict:
    low, high = ends
    if direction is Direction.SAME:
        if math.isfinite(allowed) and -allowed <= low and high <= allowed:
            return Verdict.KEPT
        return Verdict.FAILED if low > 0 or high < 0 else Verdict.UNDECIDED
    if direction is Direction.LOWER:
        low, high = -high, -low
    return Verdict.KEPT if low > 0 else Verdict.FAILED if high < 0 else Verdict.UNDECIDED


def _within(
    prediction: Prediction, metric: ReportMetric, group: Group, measured: Value, name: str
) -> tuple[Verdict, str]:
    """A value with an interval is decided by the interval, a figure of the engine by all repeats."""
    low = -float("inf") if prediction.low is None else prediction.low
    high = float("inf") if prediction.high is None else prediction.high
    found = estimate(metric, group.repeats, name)
    ends = (min(measured.repeats), max(measured.repeats)) if found is None else found.interval(Z)
    text = f"{metric.unit.text(measured.pooled)} ({metric.unit.text(ends[0])} to {metric.unit.text(ends[1])})"
    if low <= ends[0] and ends[1] <= high:
        return Verdict.KEPT, text
    return (Verdict.FAILED if ends[1] < low or ends[0] > high else Verdict.UNDECIDED), text


def _by_repeats(direction: Direction, metric: ReportMetric, after: Value, before: Value) -> tuple[Verdict, str]:
    """A mean or a figure of the run has no interval: every repeat must differ from every repeat of the baseline."""
    text = f"{metric.unit.text(after.pooled)}, baseline {metric.unit.text(before.pooled)}"
    exact = isinstance(metric.source, Reading) and metric.source.exact
    if not exact and min(len(after.repeats), len(before.repeats)) < 2:
        return Verdict.UNDECIDED, f"{text}; one run each has no interval, so measure more repeats"
    ends = min(after.repeats) - max(before.repeats), max(after.repeats) - min(before.repeats)
    return _of_interval(direction, ends, SAME if metric.unit is Unit.SHARE else SAME * before.pooled), text
