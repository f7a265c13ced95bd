"""Orders recording rules: a rule is evaluated for the whole past, so the rules that it reads come before it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from alerts.recording_windows import STEP, windows
from alerts.rule_file import rules
from alerts.rule_groups import Recording, RuleGroup
from alerts.step_counts import counts_of_past
from alerts.target_labels import with_target_labels
from exporters.signals import ENGINE_MODEL, HELD_PAGE, PAGE_HELD, STEP_TIME, Label, Recorded, Signal
from exporters.slos import SloFile, Source

_SELECTED = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{([^{}]*)\})?")
_LEFT_OUT = (ENGINE_MODEL, PAGE_HELD, HELD_PAGE, STEP_TIME)
"""Three begin with series of engines, which no log has; the last finds missed evaluations, and there are none."""
_EQUALS = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class TimedRule:
    """A recording rule with the seconds between its evaluations; `offset` is of the first one after the epoch."""

    rule: Recording
    interval: float
    offset: float

    def reads(self, other: "TimedRule") -> bool:
        """Whether a selector of this rule may select the series of another rule."""
        return any(
            name == other.rule.series.name and _may_fit(where, other.rule.labels)
            for name, where in _SELECTED.findall(self.rule.expr)
        )


def passes(spec: SloFile) -> list[list[TimedRule]]:
    """The recording rules of the SLO file for logs of a sidecar; each pass reads only results of earlier passes."""
    left = _timed(replace(spec, source=Source.SIDECAR))
    ordered: list[list[TimedRule]] = []
    while left:
        ready = [each for each in left if not any(each.reads(other) for other in left)]
        if not ready:
            raise ValueError(f"rules that read each other: {[each.rule.series.name for each in left]}")
        ordered.append(ready)
        left = [each for each in left if each not in ready]
    return ordered


def _timed(spec: SloFile) -> list[TimedRule]:
    timed: list[TimedRule] = []
    (past,) = with_target_labels([RuleGroup("past", windows(spec).step, counts_of_past(spec))], spec.group_by)
    of_past = {_key(rule): rule for rule in past.rules if isinstance(rule, Recording)}
    for group in rules(spec):
        recordings = [rule for rule in group.rules if isinstance(rule, Recording) and rule.series not in _LEFT_OUT]
        # As in Prometheus, most groups are not evaluated at the times of samples and steps: a window that has a sample
        # at each of its ends has one too many in Prometheus 2.
        steps = any(rule.labels.get(Label.WINDOW) == STEP for rule in recordings)
        offset = 0.0 if steps else round(spec.scrape_interval / 10, 3)
        timed += [TimedRule(of_past.get(_key(rule), rule), group.interval, offset) for rule in recordings]
    return timed


def _key(rule: Recording) -> tuple[Recorded | Signal, str | None]:
    return rule.series, rule.labels.get(Label.WINDOW)


def _may_fit(where: str, labels: Mapping[str, str]) -> bool:
    return all(labels.get(name, value) == value for name, value in _EQUALS.findall(where))
