"""Orders recording rules: a rule is evaluated for the whole past, so the rules that it reads come before it."""

import re
from dataclasses import dataclass, replace

from alerts.plan import STEP, Plan
from alerts.promql.expression import Selector
from alerts.recording.steps import counts_of_past
from alerts.rule_file import rules
from alerts.rules.groups import Recording
from alerts.rules.target_labels import with_target_labels
from exporters.vocabulary.signals import ENGINE_MODEL, HELD_PAGE, PAGE_HELD, STEP_TIME, Label, Recorded, Signal
from exporters.vocabulary.slo_file import SloFile

_LEFT_OUT = (ENGINE_MODEL, PAGE_HELD, HELD_PAGE, STEP_TIME)
"""Three begin with series of engines, which no log has; the last finds missed evaluations, and there are none."""


@dataclass(frozen=True, slots=True)
class TimedRule:
    """A recording rule with the seconds between its evaluations; `offset` is of the first one after the epoch."""

    rule: Recording
    interval: float
    offset: float

    def reads(self, other: "TimedRule") -> bool:
        """Whether a selector of this rule may select the series of another rule."""
        return any(
            isinstance(node, Selector) and node.name == other.rule.series.name and _may_select(node, other.rule)
            for node in self.rule.expr.walk()
        )


def passes(spec: SloFile) -> list[list[TimedRule]]:
    """The recording rules of the SLO file; each pass reads only results of earlier passes."""
    left = _timed(spec)
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
    of_past = {
        _key(rule): replace(rule, expr=with_target_labels(rule.expr, spec.group_by))
        for rule in counts_of_past(Plan.of(spec))
    }
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


def _may_select(selector: Selector, rule: Recording) -> bool:
    """Whether the labels that the rule sets do not exclude its series."""
    fixed = ((each, rule.labels[each.label]) for each in selector.matchers if each.label in rule.labels)
    return all(
        value == each.value if each.operator == "=" else each.operator != "=~" or re.fullmatch(str(each.value), value)
        for each, value in fixed
    )
