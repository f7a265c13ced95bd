"""Compares loaded rules with those that the SLO file gives, by their content and not by the age of files."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from alerts.rule_file import rules
from alerts.rules.groups import Alert, Recording
from exporters.text.errors import UsageError
from exporters.text.units import parse_duration
from exporters.vocabulary.slo_file import SloFile, Source

_OURS, _COST = "vllm-slo-", "vllm-slo-cost"
"""Prefixes of the names of our groups, and of those that depend on prices, which the SLO file does not have."""

Key = tuple[str, tuple[tuple[str, str], ...]]
"""Name and labels of a rule."""

Format = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """What decides the values of a rule; durations in seconds. Annotations depend on flags and are not compared."""

    expression: str
    interval: float
    pending_for: float = 0.0
    keep_firing_for: float = 0.0


Rules = Mapping[Key, Rule]


@dataclass(frozen=True, slots=True)
class Difference:
    """The rules that differ, by their names and labels."""

    missing: tuple[str, ...]
    changed: tuple[str, ...]
    extra: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.missing) + len(self.changed) + len(self.extra)

    def __str__(self) -> str:
        kinds = {"missing": self.missing, "changed": self.changed, "not of this file": self.extra}
        return ", ".join(f"{len(names)} {kind} ({names[0]})" for kind, names in kinds.items() if names)


@dataclass(frozen=True, slots=True)
class Match:
    """The loaded rules against one SLO file, of which `spec` is the content."""

    name: str
    spec: SloFile
    total: int
    difference: Difference


def rendered(spec: SloFile) -> Rules:
    """The rules that `vllm-slo alerts render` writes."""
    return {
        _key(rule.name, rule.labels) if isinstance(rule, Alert) else _key(rule.series.name, rule.labels): Rule(
            str(rule.expr),
            *map(_seconds, (group.interval, *_durations(rule))),
        )
        for group in rules(spec)
        for rule in group.rules
    }


def our_rules(groups: Iterable[Mapping[str, Any]]) -> Rules:
    """Our rules in the response to `/api/v1/rules`, or in a rule file, whose durations are text.

    Raises:
        LookupError, TypeError, AttributeError, ValueError: the content has another shape.
    """
    return {
        _key(rule.get("name") or rule.get("record") or rule["alert"], rule.get("labels") or {}): Rule(
            str(rule.get("query") or rule["expr"]),
            _seconds(group["interval"]),
            _seconds(rule.get("duration", rule.get("for", 0))),
            _seconds(rule.get("keepFiringFor", rule.get("keep_firing_for", 0))),
        )
        for group in groups
        if str(group["name"]).startswith(_OURS) and not str(group["name"]).startswith(_COST)
        for rule in group["rules"]
    }


def best_match(candidates: Sequence[tuple[str, SloFile]], found: Rules, formatted: Format) -> Match:
    """The SLO file, with one of its sources, with which most of the rules agree; the first one if none has any.

    `formatted` is asked only about the expressions of this file, as it may send a request for each.
    """
    rendered_files = [(name, *each) for name, spec in candidates for each in _with_each_source(spec)]

    def agreeing(candidate: tuple[str, SloFile, Rules]) -> int:
        missing_or_changed = difference(candidate[2], found)
        return len(candidate[2]) - len(missing_or_changed.missing) - len(missing_or_changed.changed)

    name, spec, expected = max(rendered_files, key=agreeing)
    return Match(name, spec, len(expected), difference(expected, found, cache(formatted)))


def _with_each_source(spec: SloFile) -> Iterator[tuple[SloFile, Rules]]:
    """The file and its rules, with its own source first, as `--source` of the command that renders may differ."""
    yield spec, rendered(spec)
    for other in (replace(spec, source=source) for source in Source if source is not spec.source):
        with suppress(UsageError):  # vLLM counts none of its SLOs
            yield other, rendered(other)


def difference(expected: Rules, found: Rules, formatted: Format = lambda _: None) -> Difference:
    """How the rules found differ from those expected; `formatted` prints an expression as the server does."""

    def same(ours: Rule, theirs: Rule) -> bool:
        if replace(ours, expression="") != replace(theirs, expression=""):
            return False
        if _stripped(ours.expression) == _stripped(theirs.expression):
            return True
        text = formatted(ours.expression)
        return text is not None and _stripped(text) == _stripped(theirs.expression)

    return Difference(
        tuple(_spell(key) for key in expected if key not in found),
        tuple(_spell(key) for key, rule in expected.items() if key in found and not same(rule, found[key])),
        tuple(_spell(key) for key in found if key not in expected),
    )


def _durations(rule: Recording | Alert) -> tuple[float, ...]:
    return (rule.pending_for, rule.keep_firing_for) if isinstance(rule, Alert) else ()


def _key(name: str, labels: Mapping[str, str]) -> Key:
    return str(name), tuple(sorted((str(key), str(value)) for key, value in labels.items()))


def _spell(key: Key) -> str:
    name, labels = key
    return name + ("{" + ", ".join(f'{label}="{value}"' for label, value in labels) + "}" if labels else "")


def _stripped(expression: str) -> str:
    return re.sub(r"\s+", "", expression)


def _seconds(value: Any) -> float:
    """Whole milliseconds, to which rule files round durations."""
    return round(float(value) if isinstance(value, int | float) else parse_duration(value), 3)
