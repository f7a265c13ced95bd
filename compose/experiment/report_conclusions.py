"""What an experiment shows: the best configuration of each class, and each configuration against the first one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compose.experiment.report_estimates import difference, excludes_zero, interval, value
from compose.experiment.report_groups import Experiment, Group
from compose.experiment.report_metrics import GOODPUT, THROUGHPUT, ReportMetric, Unit
from exporters.comparison.estimates import Difference
from exporters.comparison.paired_difference import PairedDifference
from loadgen.summary import TOTAL


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
