"""The field map of an access log: which fields of its JSON lines are which values of a request."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from exporters.requestlog.reader import BadLineError
from exporters.text.yaml_reader import Node, nearest, open_yaml
from exporters.vocabulary.signals import Outcome
from exporters.vocabulary.slo_file import Measure

SHIPPED = Path(__file__).parent / "formats"


class Unit(StrEnum):
    """How a time or a duration is written."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    ISO = "iso"
    """A date and a time in ISO 8601."""


class Value(StrEnum):
    """The values of a request; the status, the path, and two of start, end and duration are required."""

    START = "start"
    END = "end"
    FIRST_TOKEN = "first_token"  # noqa: S105 - a field, no secret
    DURATION = "duration"
    STATUS = "status"
    METHOD = "method"
    PATH = "path"
    REQUEST_ID = "request_id"
    MODEL = "model"
    CLASS = "class"
    TENANT = "tenant"
    STREAM = "stream"
    CONTENT_TYPE = "content_type"
    PROMPT_TOKENS = "prompt_tokens"
    COMPLETION_TOKENS = "completion_tokens"
    CACHED_TOKENS = "cached_tokens"
    MAX_TOKENS = "max_tokens"


_MOMENTS = frozenset({Value.START, Value.END, Value.FIRST_TOKEN})
_REQUIRED = (Value.STATUS, Value.PATH)
_TIMES = frozenset({Value.START, Value.END, Value.DURATION})


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a line; `keys` lead to it through nested objects."""

    keys: tuple[str, ...]
    unit: Unit = Unit.SECONDS
    default: str | None = None
    """The value of a line that lacks the field, or has an empty one."""

    @property
    def name(self) -> str:
        return ".".join(self.keys)

    def of(self, line: Mapping[str, Any]) -> Any:
        """The value in a line; None without one."""
        found: Any = line
        for key in self.keys:
            found = found.get(key) if isinstance(found, dict) else None
        return self.default if found is None or found == "" else found

    def text(self, line: Mapping[str, Any]) -> str:
        """The value as text; empty without one."""
        found = self.of(line)
        return "" if found is None else str(found)

    def number(self, line: Mapping[str, Any]) -> float | None:
        """The value as a number, a time in seconds (Unix if it is a moment); None without one.

        Raises:
            BadLineError: it is not a number, or not a time of this unit.
        """
        found = self.of(line)
        if found is None:
            return None
        try:
            if self.unit is Unit.ISO:
                return datetime.fromisoformat(str(found)).timestamp()
            value = float(found)
        except (TypeError, ValueError) as error:
            what = "a time in ISO 8601" if self.unit is Unit.ISO else "a number"
            raise BadLineError(f"{self.name}: expected {what}, found {str(found)[:40]!r}") from error
        if value < 0:
            raise BadLineError(f"{self.name}: expected a number of at least 0, found {value:g}")
        return value / 1000 if self.unit is Unit.MILLISECONDS else value


@dataclass(frozen=True, slots=True)
class OutcomeRule:
    """An outcome, and the patterns that the texts of fields must match in full."""

    outcome: Outcome
    patterns: tuple[tuple[Field, re.Pattern[str]], ...]

    def applies(self, line: Mapping[str, Any]) -> bool:
        return all(pattern.fullmatch(field.text(line)) for field, pattern in self.patterns)


@dataclass(frozen=True, slots=True)
class AccessFields:
    """The field map; without a rule that applies, the outcome follows from the status."""

    fields: Mapping[Value, Field]
    outcomes: tuple[OutcomeRule, ...]

    @property
    def judged(self) -> frozenset[Measure]:
        """Signals of SLOs that can be judged with these fields."""
        measures = {Measure.AVAILABILITY, Measure.E2E}
        if Value.FIRST_TOKEN in self.fields:
            measures.add(Measure.TTFT)
            if Value.COMPLETION_TOKENS in self.fields:
                measures.add(Measure.TPOT)
        return frozenset(measures)


def load(path: Path) -> AccessFields:
    """Read a field map.

    Raises:
        UsageError: the file cannot be read, or contains mistakes; the message has all of them.
    """
    reader = open_yaml(path)
    root = reader.node()
    entries = root.fields(("version", "fields", "outcomes"), required=("version", "fields"))
    if (version := entries.get("version")) and version.number(whole=True) not in {1, None}:
        version.problem(f"unknown version {version.quoted()}; this release reads 1")
    fields = {}
    if "fields" in entries:
        for name, node in entries["fields"].fields(Value, required=_REQUIRED).items():
            if (read := _field(Value(name), node)) is not None:
                fields[Value(name)] = read
        if entries["fields"].is_mapping and len(_TIMES & entries["fields"].mapping().keys()) < 2:
            entries["fields"].problem("two of start, end and duration are required")
    rules = entries["outcomes"].items() if "outcomes" in entries else []
    outcomes = tuple(rule for rule in map(_rule, rules) if rule is not None)
    reader.finish()
    return AccessFields(fields, outcomes)


def _field(value: Value, node: Node) -> Field | None:
    """A field by its name, or a mapping with its unit and its default."""
    units = tuple(Unit) if value in _MOMENTS else (Unit.SECONDS, Unit.MILLISECONDS) if value is Value.DURATION else ()
    if not node.is_mapping:
        name = node.text()
        return None if name is None else Field(tuple(name.split(".")))
    parts = node.fields(("field", "default", *(("unit",) if units else ())), required=("field",))
    name, default = (parts[key].text() if key in parts else None for key in ("field", "default"))
    unit = parts["unit"].text() if "unit" in parts else Unit.SECONDS
    if unit is not None and units and unit not in units:
        parts["unit"].problem(f"unknown unit {unit!r}; {nearest(unit, units)}")
        return None
    return None if name is None or unit is None else Field(tuple(name.split(".")), Unit(unit), default)


def _rule(node: Node) -> OutcomeRule | None:
    entries = node.mapping()
    if "outcome" not in entries:
        node.problem(f"expected an outcome and patterns of fields, found {node.quoted()} without the key outcome")
        return None
    outcome = entries.pop("outcome")
    name = outcome.text()
    if name is not None and name not in set(Outcome):
        outcome.problem(f"unknown outcome {name!r}; {nearest(name, Outcome)}")
        return None
    patterns = []
    for key, value in entries.items():
        text = value.text()
        if text is not None:
            try:
                patterns.append((Field(tuple(key.split("."))), re.compile(text, re.DOTALL)))
            except re.error as error:
                value.problem(f"{text!r} is not a regular expression: {error}")
    if not entries:
        node.problem("names no field, so that it would apply to every line; add a pattern, such as status: '499'")
    return None if name is None else OutcomeRule(Outcome(name), tuple(patterns))
