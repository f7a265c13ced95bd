"""Declares flags as fields of a dataclass, and reads them from the command line, the environment and a file."""

import argparse
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from exporters.text.environment import switch, variable
from exporters.text.errors import InvalidValueError, UsageError, one_of, parse_flag
from exporters.text.units import (
    DURATION_PATTERN,
    SIZE_PATTERN,
    parse_duration,
    parse_size,
    shortest_duration,
    shortest_size,
)
from exporters.text.yaml_keys import field_docstrings

NEVER = "never"
COMMAND_LINE = "command line"
"""The origin of a value that a flag has."""

_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Kind(Generic[_T]):
    """How the values of a flag are written; `parse` raises InvalidValueError or UsageError."""

    metavar: str
    parse: Callable[[str], _T]
    spell: Callable[[_T], str] = str
    schema: Mapping[str, object] = field(default_factory=lambda: {"type": ["string", "number"]}, hash=False)
    """JSON Schema of the value in a file."""
    none: str | None = None
    """How None is written, if it is a value that can be given."""


@dataclass(frozen=True, slots=True)
class Group:
    """The heading and the introduction of some flags in the help."""

    title: str
    description: str | None = None


REQUIRED: Any = MISSING
"""The default of a flag that has to be given."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was given, and its origin: the command line, a variable, or a line of a file."""

    value: str | bool | tuple[str, ...]
    origin: str


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag, and the field that it sets."""

    group: Group
    kind: Kind[Any] | None
    """None: a switch."""
    default: Any
    help: str
    option: str
    no_effect: Collection[StrEnum]
    """The modes of the command in which the flag has no effect."""
    secret: bool
    """Whether each value is NAME=SECRET."""
    field: str = ""

    @property
    def text(self) -> str | None:
        """The default as it is written, without one None."""
        if self.kind is None or isinstance(self.default, tuple) or self.default is REQUIRED:
            return None
        return self.kind.none if self.default is None else self.kind.spell(self.default)

    @property
    def repeatable(self) -> bool:
        return isinstance(self.default, tuple)

    @property
    def key(self) -> str:
        """The key in a file: that of --no-inject-usage is `inject_usage`, which is true or false."""
        name = self.option.removeprefix("--no-" if self.default is True else "--")
        return name.replace("-", "_")

    def given(self, arguments: argparse.Namespace, environment: Mapping[str, str]) -> Given | None:
        """The value on the command line, else that in the environment."""
        name, value = variable(self.option), vars(arguments).get(self.option.removeprefix("--").replace("-", "_"))
        if value is not None:
            return Given(self._as_given(value), COMMAND_LINE)
        if (text := environment.get(name)) is None:
            return None
        words = text.split(",") if self.repeatable else text
        return Given(self._as_given(switch(name, text) if self.kind is None else words), name)

    def _as_given(self, value: Any) -> str | bool | tuple[str, ...]:
        if self.kind is None:
            return bool(value) is not self.default
        return tuple(value) if self.repeatable else str(value)

    def read(self, given: Given | None) -> Any:
        """The value; raises UsageError if it is invalid or missing."""
        if given is None:
            if self.default is REQUIRED:
                raise UsageError(f"{self.option}: is missing: {self.help.removesuffix(' (required)')}")
            return self.default
        if self.kind is None:
            return given.value
        parse = partial(parse_flag, self.option, parse=self.kind.parse)
        return tuple(map(parse, given.value)) if isinstance(given.value, tuple) else parse(str(given.value))


def flag(
    group: Group,
    kind: Kind[Any] | None,
    default: Any,
    *,
    help: str = "",  # noqa: A002 - as in argparse
    option: str = "",
    no_effect: Collection[StrEnum] = (),
    secret: bool = False,
) -> Any:
    """A field of a dataclass that a flag sets. The flag of `max_body` is --max-body, and VLLM_SLO_MAX_BODY sets it.

    The docstring of the field is the help. A flag whose default is a tuple is repeatable, one without a kind a switch,
    which inverts the default; `option` is its name if it differs from that of the field.
    """
    return field(default=default, metadata={"flag": Flag(group, kind, default, help, option, no_effect, secret)})


@cache
def flags_of(cls: type) -> tuple[Flag, ...]:
    """The flags of a dataclass, in the order of its fields."""
    docstrings = field_docstrings(cls)
    return tuple(_complete(each.metadata["flag"], each.name, docstrings) for each in fields(cls))


def _complete(flag: Flag, name: str, docstrings: Mapping[str, str]) -> Flag:
    option = flag.option or f"--{name.replace('_', '-')}"
    return replace(flag, field=name, option=option, help=flag.help or docstrings[name])


def add(parser: argparse.ArgumentParser, cls: type) -> None:
    """Add the flags of a dataclass to a parser."""
    groups: dict[Group, argparse._ArgumentGroup] = {}
    for flag in flags_of(cls):
        if flag.group not in groups:
            groups[flag.group] = parser.add_argument_group(flag.group.title, flag.group.description)
        options: dict[str, Any] = {"action": "store_true"}
        if flag.kind is not None:
            options = {"metavar": flag.kind.metavar, "action": "append" if flag.repeatable else "store"}
        text = flag.help.replace("%(default)s", flag.text or "")
        groups[flag.group].add_argument(flag.option, help=text, default=argparse.SUPPRESS, **options)


def given(
    cls: type, arguments: argparse.Namespace, environment: Mapping[str, str], file: Mapping[str, Given]
) -> dict[str, Given]:
    """What was given for each field, in this order of precedence.

    Raises:
        UsageError: a switch in the environment is neither true nor false.
    """
    found = {flag.field: flag.given(arguments, environment) or file.get(flag.field) for flag in flags_of(cls)}
    return {name: each for name, each in found.items() if each is not None}


def read(cls: type[_T], given: Mapping[str, Given]) -> _T:
    """The values of the flags; raises UsageError if a value is invalid or missing."""
    declared = flags_of(cls)  # type: ignore[arg-type] # a generic type is hashable too
    return cls(**{flag.field: flag.read(given.get(flag.field)) for flag in declared})


def located(message: str, cls: type, given: Mapping[str, Given]) -> str:
    """A message with the variable, or the place in the file, instead of the flags that its lines begin with."""
    names = {}
    for flag in flags_of(cls):
        origin = given[flag.field].origin if flag.field in given else COMMAND_LINE
        if origin != COMMAND_LINE:
            names[flag.option] = origin if origin == variable(flag.option) else f"{origin}: {flag.key}"
    return re.sub(r"^--[a-z-]+", lambda match: names.get(match[0], match[0]), message, flags=re.MULTILINE)


def text(metavar: str) -> Kind[str]:
    return Kind(metavar, str)


def choice(metavar: str, options: Collection[str]) -> Kind[str]:
    return Kind(metavar, one_of(options), schema={"enum": [*options]})


def member(metavar: str, options: type[_E]) -> Kind[_E]:
    """A member of an enum, by its value."""
    parse = one_of([each.value for each in options])
    return Kind(metavar, lambda text: options(parse(text)), schema={"enum": [each.value for each in options]})


def count(what: str) -> Kind[int]:
    """A number of at least 1 of `what`, such as relays."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < 1:
            raise InvalidValueError(f"{text} is not a valid number of {what}; use 1 or more")
        return int(text)

    return Kind("N", parse, schema={"type": "integer", "minimum": 1})


def or_never(kind: Kind[_T]) -> Kind[_T | None]:
    """`never` is None."""
    return Kind(
        kind.metavar,
        lambda text: None if text == NEVER else kind.parse(text),
        lambda value: NEVER if value is None else kind.spell(value),
        {"anyOf": [{"const": NEVER}, kind.schema]},
        NEVER,
    )


FILE: Kind[str | None] = Kind("FILE", lambda text: text or None)
"""A path; an empty one is none."""
PATH: Kind[str | None] = Kind("FILE", lambda text: str(Path(text).absolute()) if text else None)
"""A path, which becomes absolute."""
SIZE = Kind("SIZE", parse_size, shortest_size, {"type": ["string", "integer"], "pattern": f"^{SIZE_PATTERN}$"})
_DURATION = {"type": "string", "pattern": f"^({DURATION_PATTERN})+$"}
DURATION = Kind("DURATION", parse_duration, shortest_duration, _DURATION)
DURATION_OR_ZERO = Kind(
    "DURATION",
    lambda text: 0.0 if text == "0" else parse_duration(text, allow_zero=True),
    shortest_duration,
    {"anyOf": [{"const": 0}, _DURATION]},
)
