"""`vllm-slo alerts diff`: what changes with another SLO file: its keys, limits of the alerts, alerts and series."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import msgspec

from alerts.plan import Plan
from alerts.rule_file import rules
from alerts.rules.groups import Alert, Recording, as_plain
from alerts.rules.wording import describe, percent
from exporters.text.units import number, spell_duration
from exporters.vocabulary.signals import OTHER, REQUESTS, SLO_EVENTS, Label
from exporters.vocabulary.slo_file import (
    HISTOGRAMS,
    Availability,
    Bound,
    Latency,
    RequestClass,
    Slo,
    SloFile,
    ValidOutput,
)

_SHARES = {"objective", "min_serving"}
_SHORT = 24
_NAMES = {"measure": "signal", "pending_for": "for"}
"""Keys of the file whose fields have another name."""


@dataclass(frozen=True, slots=True)
class Change:
    """A line of the difference; an old or a current value that is None does not exist."""

    what: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        """The change as a line of text; the value of what is only added or removed is left out if it is empty."""
        if self.old is None or self.new is None:
            sign, value = ("+", self.new) if self.old is None else ("-", self.old)
            return f"{sign} {self.what}" + (f": {value}" if value else "")
        return f"~ {self.what}: {self.old} -> {self.new}" if self.old else f"~ {self.what}: {self.new}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Changes by what a reviewer asks about, and what they mean for running sidecars, rules and dashboards."""

    objectives: tuple[Change, ...]
    limits: tuple[Change, ...]
    alerts: tuple[Change, ...]
    series: tuple[Change, ...]
    notes: tuple[str, ...]


Fields = dict[str, tuple[object, ...]]
"""The values of each key, in all rules of the same name and labels."""

Rules = dict[str, Fields]
"""The fields by name and labels of the alert or series."""


def difference(old: SloFile, new: SloFile) -> Difference:
    """What changes from the file `old` to `new`.

    Raises:
        UsageError: the rules of a file read vLLM alone, which can count none of its SLOs.
    """
    before, after = Plan.of(old), Plan.of(new)
    old_alerts, old_series = _rules(old)
    new_alerts, new_series = _rules(new)
    # The order of classes is shown too, because the first class that fits is that of a request.
    old_keys, new_keys = (_flat(spec) | {"classes": ", ".join(spec.class_names)} for spec in (old, new))
    return Difference(
        objectives=tuple(_changes(old_keys, new_keys)),
        limits=tuple(_changes(_limits(before), _limits(after))),
        alerts=tuple(_rule_changes(old_alerts, new_alerts)),
        series=tuple(_rule_changes(_series(before) | old_series, _series(after) | new_series)),
        notes=tuple(_notes(before.spec, after.spec)),
    )


def as_text(found: Difference) -> str:
    parts = {
        "SLO file": found.objectives,
        "limits": found.limits,
        "alerts": found.alerts,
        "series": found.series,
    }
    blocks = [
        "\n".join([f"{title}:", *(f"  {change}" for change in changes)]) for title, changes in parts.items() if changes
    ]
    return "\n\n".join([*blocks, *(f"note: {note}" for note in found.notes)]) or "no differences"


def as_json(found: Difference) -> str:
    return json.dumps(msgspec.to_builtins(found), indent=2)


def _flat(value: Any, path: str = "", name: str = "") -> dict[str, str]:
    """The keys of a file by their path, each with its value as a file has it; entries of lists are named."""
    match value:
        case Latency() | Availability() | ValidOutput():
            fields_of = {each: getattr(value, each) for each in ("measure", *value.__struct_fields__)}
        case _ if is_dataclass(value) and not isinstance(value, Bound):
            fields_of = {each.name: getattr(value, each.name) for each in fields(value) if each.name != "name"}
        case ((RequestClass() | Slo() | (_, _)), *_):
            fields_of = dict(each if isinstance(each, tuple) else (each.name, each) for each in value)
        case None | ():
            return {}
        case _:
            return {path: _spelled(value, name)}
    found: dict[str, str] = {}
    for each, inner in fields_of.items():
        key = path if each == "sli" else f"{path}.{_NAMES.get(each, each)}".removeprefix(".")
        found |= _flat(inner, key, name if isinstance(value, tuple) else each)
    return found


def _spelled(value: object, name: str) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float() if name in _SHARES:
            return percent(value)
        case float() if name != "version":
            return "none" if math.isinf(value) else spell_duration(value)
        case tuple():
            return ", ".join(map(str, value))
        case _:
            return str(value)


def _limits(plan: Plan) -> dict[str, str]:
    """The share of bad events above which each tier of an SLO fires, and the fewest events."""
    return {
        f"{slo.name} ({tier.name})": f"{percent(tier.bad_ratio(slo))} bad of at least {plan.min_events(tier)} events "
        f"in {spell_duration(tier.long)} and {spell_duration(tier.short)}"
        for slo in plan.spec.slos
        for tier in plan.tiers_of[slo.name]
    }


def _rules(spec: SloFile) -> tuple[Rules, Rules]:
    """Alerts and recorded series by name and labels."""
    found: dict[type, Rules] = {Alert: {}, Recording: {}}
    for group in rules(spec):
        for rule in group.rules:
            shown = as_plain(rule)
            name, *others = (key for key in shown if key != "labels")
            of_kind = found[type(rule)].setdefault(_labelled(str(shown[name]), rule.labels), {})
            for key in others:
                of_kind[key] = (*of_kind.get(key, ()), shown[key])
            of_kind["interval"] = (spell_duration(group.interval),)
    return found[Alert], found[Recording]


def _series(plan: Plan) -> Rules:
    """The series of sidecars that depend on the file: verdicts by SLO and class, and the bounds that thresholds add."""
    if not plan.has_sidecar:
        return {}
    spec = plan.spec
    tenants = [*spec.tenants.allow, OTHER] if spec.tenants.allow else []
    labelled: list[tuple[str, Mapping[Any, str]]] = [
        *((SLO_EVENTS.name, {Label.SLO: slo.name, Label.CLASS: each}) for slo in spec.slos for each in slo.classes),
        *((REQUESTS.name, {Label.CLASS: each}) for each in spec.class_names),
        *((REQUESTS.name, {Label.TENANT: each}) for each in tenants),
        *((f"{name}_bucket", {"le": number(bound)}) for name, bound in _added_bounds(spec)),
    ]
    return {_labelled(name, labels): {} for name, labels in labelled}


def _added_bounds(spec: SloFile) -> set[tuple[str, float]]:
    """The bounds that sidecars add to histograms for the thresholds of the file."""
    of_slos = ((HISTOGRAMS[slo.measure], slo.sli.threshold) for slo in spec.slos if isinstance(slo.sli, Latency))
    return {(signal.name, threshold) for signal, threshold in of_slos if threshold not in signal.bounds}


def _labelled(name: str, labels: Mapping[Any, str]) -> str:
    pairs = ", ".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    return f"{name}{{{pairs}}}" if pairs else name


def _changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key):
            yield Change(key, old.get(key), new.get(key))


def _rule_changes(old: Rules, new: Rules) -> Iterator[Change]:
    """Added and removed rules, and for others the names of their changed fields."""
    for key in sorted({*old, *new}):
        if key not in old or key not in new:
            yield Change(key, None if key not in old else "", None if key not in new else "")
        elif changed := list(_changed_fields(old[key], new[key])):
            yield Change(key, "", ", ".join(changed))


def _changed_fields(old: Fields, new: Fields) -> Iterator[str]:
    """The names of the fields that differ, with both values if they are short."""
    for each in sorted({*old, *new}):
        values = [", ".join(map(str, fields_of.get(each, ("none",)))) for fields_of in (old, new)]
        if old.get(each) != new.get(each):
            yield f"{each} {values[0]} -> {values[1]}" if max(map(len, values)) <= _SHORT else each


def _notes(old: SloFile, new: SloFile) -> Iterator[str]:
    """What the change means while sidecars with both files run, and afterwards."""
    before, after = ({slo.name: slo for slo in spec.slos} for spec in (old, new))
    period = spell_duration(new.period)
    for name in sorted(before.keys() & after.keys()):
        if (before[name].sli, before[name].rejected) != (after[name].sli, after[name].rejected):
            yield (
                f"slo {name}: its budget counts verdicts of both definitions ({describe(before[name])}; "
                f"{describe(after[name])}) until {period} after the update; a new name would start with a full budget"
            )
        elif before[name].objective != after[name].objective:
            yield f"slo {name}: the objective applies to the past {period} at once, so the budget that is left jumps"
    if added := sorted(after.keys() - before.keys()):
        yield f"slo {', '.join(added)}: no history, so the budget starts full"
    if removed := sorted(before.keys() - after.keys()):
        yield f"slo {', '.join(removed)}: firing alerts resolve when Prometheus loads the rules"
    if _added_bounds(old) != _added_bounds(new):
        yield (
            "bounds of histograms change: a quantile over sidecars of both files can be off by one bucket until all "
            "have the new one, and for the range of the query after that"
        )
    if old.period != new.period:
        yield "the period changes all windows: series of the old windows end, and those of the new ones start empty"
