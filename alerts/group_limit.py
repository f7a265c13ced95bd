"""Splits rule groups that have more rules than an evaluator accepts; Mimir accepts 20 in a group."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from alerts.recording.steps import GOODPUT_COUNTS, SLO_COUNTS
from alerts.rules.groups import Alert, Recording, RuleGroup
from exporters.vocabulary.signals import Label

MAX_RULES = 20
FEWEST = 3 * len((*SLO_COUNTS, *GOODPUT_COUNTS)) + 1
"""The rules of the group that counts steps, the largest that is not divisible."""


def limited(groups: Iterable[RuleGroup], most: int) -> tuple[RuleGroup, ...]:
    """Groups of at most `most` rules, in order; the parts of a group have numbers.

    Prometheus evaluates the parts independently, so a rule may read what an earlier part recorded one interval ago. The
    counts of a window and the ratios from them stay together, as a ratio of counts of two evaluations is wrong.
    """
    return tuple(part for group in groups for part in _parts(group, most))


def _parts(group: RuleGroup, most: int) -> Iterator[RuleGroup]:
    if len(group.rules) <= most or not group.divisible:
        yield group
        return
    parts: list[tuple[Recording | Alert, ...]] = [()]
    for rules in _units(group.rules, most):
        if len(parts[-1]) + len(rules) > most:
            parts.append(())
        parts[-1] += rules
    for number, rules in enumerate(parts, start=1):
        yield replace(group, name=f"{group.name}-{number}", rules=rules)


def _units(rules: tuple[Recording | Alert, ...], most: int) -> Iterator[tuple[Recording | Alert, ...]]:
    """Consecutive recording rules of one window; all other rules on their own."""
    for window, consecutive in groupby(
        rules, key=lambda rule: isinstance(rule, Recording) and rule.labels.get(Label.WINDOW)
    ):
        unit = tuple(consecutive)
        size = most if window else 1
        yield from (unit[start : start + size] for start in range(0, len(unit), size))
