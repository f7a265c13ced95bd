"""Prometheus rule groups as values, and their YAML; equal groups give equal bytes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap

import yaml

from exporters.quantities import spell_duration
from exporters.signals import Recorded, Signal

HEADER = """\
# Made by `vllm-slo alerts render` from the SLO file; change that file and render again.
"""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording rule; it writes a `Signal` where it replaces a sidecar."""

    series: Recorded | Signal
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alert:
    """An alerting rule; `pending_for` is its `for`, both durations are in seconds."""

    name: str
    expr: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    pending_for: float = 0.0
    keep_firing_for: float = 0.0


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """Rules that are evaluated in order, every `interval` seconds."""

    name: str
    interval: float
    rules: tuple[Recording | Alert, ...]


def to_yaml(groups: Iterable[RuleGroup], remarks: Iterable[str] = ()) -> str:
    """A rule file for Prometheus 2.42 and later: no labels on groups, which 2.x refuses."""
    return header(remarks) + dump(document(groups))


def header(remarks: Iterable[str]) -> str:
    """The comments at the head of a rule file."""
    return HEADER + "".join(f"{line}\n" for text in remarks for line in _comment(text))


def _comment(text: str) -> list[str]:
    return wrap(text, 120, initial_indent="# ", subsequent_indent="#   ", break_long_words=False) or ["#"]


def document(groups: Iterable[RuleGroup]) -> dict[str, object]:
    """The content of a rule file."""
    return {
        "groups": [
            {"name": g.name, "interval": spell_duration(g.interval), "rules": [_plain(rule) for rule in g.rules]}
            for g in groups
        ]
    }


def dump(plain: Mapping[str, object] | Sequence[object]) -> str:
    return yaml.dump(plain, Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True)


def _plain(rule: Recording | Alert) -> dict[str, object]:
    match rule:
        case Recording(series, expr, labels):
            return {"record": series.name, "expr": expr, **({"labels": dict(labels)} if labels else {})}
        case Alert():
            return {
                "alert": rule.name,
                "expr": rule.expr,
                **({"for": spell_duration(rule.pending_for)} if rule.pending_for else {}),
                **({"keep_firing_for": spell_duration(rule.keep_firing_for)} if rule.keep_firing_for else {}),
                "labels": dict(rule.labels),
                "annotations": dict(rule.annotations),
            }


class _Dumper(yaml.SafeDumper):
    """Writes multi-line texts as blocks, so that expressions keep their lines."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
_Dumper.add_multi_representer(str, _text)  # names that are members of a StrEnum
