"""Declares command-line flags as fields of a dataclass, and reads them into an instance."""

import argparse
import ast
import inspect
from collections.abc import Callable, Collection, Iterator
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import StrEnum
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from exporters.text.errors import InvalidValueError, one_of, parse_flag
from exporters.text.units import parse_duration, parse_size, shortest_duration, shortest_size

NEVER = "never"

_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Kind(Generic[_T]):
    """How the values of a flag are written; `parse` raises InvalidValueError or UsageError."""

    metavar: str
    parse: Callable[[str], _T]
    spell: Callable[[_T], str] = str


@dataclass(frozen=True, slots=True)
class Group:
    """The heading and the introduction of some flags in the help."""

    title: str
    description: str | None = None


REQUIRED: Any = MISSING
"""The default of a flag that has to be given."""


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
    field: str = ""

    @property
    def text(self) -> Any:
        """The default as argparse has it."""
        if self.kind is None:
            return False
        if isinstance(self.default, tuple):
            return []
        return None if self.default in {None, REQUIRED} else self.kind.spell(self.default)

    def given(self, arguments: argparse.Namespace) -> Any:
        """The value as argparse has read it."""
        return getattr(arguments, self.option.removeprefix("--").replace("-", "_"))

    def read(self, arguments: argparse.Namespace) -> Any:
        """The value; raises UsageError if it is invalid."""
        given = self.given(arguments)
        if self.kind is None:
            return given != self.default
        parse = partial(parse_flag, self.option, parse=self.kind.parse)
        if isinstance(self.default, tuple):
            return tuple(map(parse, given))
        return None if given is None else parse(given)


def flag(
    group: Group,
    kind: Kind[Any] | None,
    default: Any,
    *,
    help: str = "",  # noqa: A002 - as in argparse
    option: str = "",
    no_effect: Collection[StrEnum] = (),
) -> Any:
    """A field of a dataclass that a flag sets. The flag of `max_body` is --max-body, and VLLM_SLO_MAX_BODY sets it.

    The docstring of the field is the help. A flag whose default is a tuple is repeatable, one without a kind a switch,
    which inverts the default; `option` is its name if it differs from that of the field.
    """
    return field(default=default, metadata={"flag": Flag(group, kind, default, help, option, no_effect)})


def flags_of(cls: type) -> Iterator[Flag]:
    """The flags of a dataclass, in the order of its fields."""
    docstrings = _docstrings(cls)
    for each in fields(cls):
        flag = each.metadata["flag"]
        yield replace(
            flag,
            field=each.name,
            option=flag.option or f"--{each.name.replace('_', '-')}",
            help=flag.help or docstrings[each.name],
        )


def _docstrings(cls: type) -> dict[str, str]:
    """The docstrings of the fields, each in one line."""
    (definition,) = ast.parse(inspect.getsource(cls)).body
    return {
        declared.target.id: " ".join(str(ast.literal_eval(docstring.value)).split())
        for declared, docstring in pairwise(cast("ast.ClassDef", definition).body)
        if isinstance(declared, ast.AnnAssign)
        and isinstance(declared.target, ast.Name)
        and isinstance(docstring, ast.Expr)
    }


def add(parser: argparse.ArgumentParser, cls: type) -> None:
    """Add the flags of a dataclass to a parser."""
    groups: dict[Group, argparse._ArgumentGroup] = {}
    for flag in flags_of(cls):
        if flag.group not in groups:
            groups[flag.group] = parser.add_argument_group(flag.group.title, flag.group.description)
        options: dict[str, Any] = {"action": "store_true"}
        if flag.kind is not None:
            options = {"metavar": flag.kind.metavar, "default": flag.text, "required": flag.default is REQUIRED}
            if isinstance(flag.default, tuple):
                options["action"] = "append"
        groups[flag.group].add_argument(flag.option, help=flag.help, **options)


def read(cls: type[_T], arguments: argparse.Namespace) -> _T:
    """The values of the flags.

    Raises:
        UsageError: a value is invalid.
    """
    return cls(**{flag.field: flag.read(arguments) for flag in flags_of(cls)})


def text(metavar: str) -> Kind[str]:
    return Kind(metavar, str)


def choice(metavar: str, options: Collection[str]) -> Kind[str]:
    return Kind(metavar, one_of(options))


def member(metavar: str, options: type[_E]) -> Kind[_E]:
    """A member of an enum, by its value."""
    parse = one_of([each.value for each in options])
    return Kind(metavar, lambda text: options(parse(text)))


def count(what: str) -> Kind[int]:
    """A number of at least 1 of `what`, such as relays."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < 1:
            raise InvalidValueError(f"{text} is not a valid number of {what}; use 1 or more")
        return int(text)

    return Kind("N", parse)


def or_never(kind: Kind[_T]) -> Kind[_T | None]:
    """`never` is None."""
    return Kind(
        kind.metavar,
        lambda text: None if text == NEVER else kind.parse(text),
        lambda value: NEVER if value is None else kind.spell(value),
    )


FILE: Kind[str | None] = Kind("FILE", lambda text: text or None)
"""A path; an empty one is none."""
PATH: Kind[str | None] = Kind("FILE", lambda text: str(Path(text).absolute()) if text else None)
"""A path, which becomes absolute."""
SIZE = Kind("SIZE", parse_size, shortest_size)
DURATION = Kind("DURATION", parse_duration, shortest_duration)
DURATION_OR_ZERO = Kind(
    "DURATION", lambda text: 0.0 if text == "0" else parse_duration(text, allow_zero=True), shortest_duration
)
