"""Declares the keys of a YAML file as fields of a dataclass or struct; reads the file and generates its JSON Schema."""

import ast
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

import msgspec

from exporters.text.units import DURATION_UNITS, spell_duration
from exporters.text.yaml_reader import NAME, Node, nearest

Schema = dict[str, object]

NO_TIMEOUT = "none"

_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Kind(Generic[_T]):
    """The kind of a value: its reader, which returns None after it has reported a mistake, and its JSON Schema.

    It is the `Annotated` metadata of a field. A field without a default is a required key, and the docstring of the
    field is the description in the schema.
    """

    read: Callable[[Node], _T | None]
    schema: Schema


@dataclass(frozen=True, slots=True)
class Key:
    """The `Annotated` metadata of a field whose name is not the key."""

    kind: Kind[Any]
    name: str


@dataclass(frozen=True, slots=True)
class Spread(Generic[_T]):
    """The `Annotated` metadata of a field whose value several keys of the mapping determine together.

    The fields of the dataclass `keys` declare them. `build` makes the value from an instance of it, and reports to
    the node of the mapping.
    """

    keys: type
    build: Callable[[Any, Node], _T | None]


def read(cls: type[_T], node: Node) -> _T:
    """Read a mapping. A required value that is missing or wrong is reported and None."""
    keys = {key.name: field.required for key, field in _keys(cls)}
    return _built(cls, node, node.fields(keys, [name for name, required in keys.items() if required]))


def field_docstrings(cls: type) -> Mapping[str, str]:
    """The docstrings of the fields of a class and its bases, each in one line."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if vars(each).get("__annotations__"):
            found |= _docstrings_of(each.__module__).get(each.__name__, {})
    return found


@cache
def _docstrings_of(module: str) -> Mapping[str, Mapping[str, str]]:
    """The docstrings of the fields of a module, by class and field."""
    return {
        each.name: {
            declared.target.id: " ".join(str(ast.literal_eval(docstring.value)).split())
            for declared, docstring in pairwise(each.body)
            if isinstance(declared, ast.AnnAssign)
            and isinstance(declared.target, ast.Name)
            and isinstance(docstring, ast.Expr)
        }
        for each in ast.parse(inspect.getsource(sys.modules[module])).body
        if isinstance(each, ast.ClassDef)
    }


def _built(cls: type[_T], node: Node, nodes: dict[str, Node]) -> _T:
    values: dict[str, object] = {}
    for field in _fields(cls):  # type: ignore[arg-type]  # mypy holds a generic type for not hashable
        match field.declared:
            case Spread(keys, build):
                value = build(_built(keys, node, nodes), node)
            case Key(kind, name):
                value = kind.read(nodes[name]) if name in nodes else None
        values[field.name] = field.default if value is None else value
    return cls(**values)


def schema(cls: type) -> Schema:
    """The JSON Schema of a dataclass, with its docstring as the description."""
    keys = [*_keys(cls)]
    properties = {key.name: _property(key, field) for key, field in keys}
    required = {"required": names} if (names := [key.name for key, field in keys if field.required]) else {}
    shape = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"description": cls.__doc__, **shape, **required}


def section(cls: type[_T], rules: Schema | None = None) -> Kind[_T]:
    """A nested mapping; `rules` are added to its schema."""
    return Kind(lambda node: read(cls, node), {**schema(cls), **(rules or {})})


def list_of(item: Kind[_T], empty: str | None = None) -> Kind[tuple[_T | None, ...]]:
    """A list; with `empty`, the error message for a list without items, it needs at least one."""

    def read_all(node: Node) -> tuple[_T | None, ...]:
        problems = len(node.reader.problems)
        items = node.items()
        if not items and empty and len(node.reader.problems) == problems:
            node.problem(empty)
        return tuple(map(item.read, items))

    return Kind(read_all, {"type": "array", "items": item.schema, **({"minItems": 1} if empty else {})})


def distinct_list_of(item: Kind[_T], empty: str | None = None) -> Kind[tuple[_T, ...]]:
    """A list as `list_of` reads it, but repeated values are mistakes, and values with a mistake are omitted."""
    every = list_of(item, empty)

    def read_all(node: Node) -> tuple[_T, ...]:
        values: list[_T] = []
        for value, place in zip(every.read(node) or (), node.items() if node.is_list else (), strict=True):
            if value in values:
                place.problem(f"{str(value)!r} is listed twice; keep one")
            elif value is not None:
                values.append(value)
        return tuple(values)

    return Kind(read_all, {**every.schema, "uniqueItems": True})


def one_or_list(item: Kind[_T], empty: str) -> Kind[tuple[_T, ...]]:
    """One value, or a list of at least one; `empty` is the error message for a list without items."""
    several = distinct_list_of(item, empty)

    def read_some(node: Node) -> tuple[_T, ...] | None:
        if node.is_list:
            return several.read(node) or None
        value = item.read(node)
        return None if value is None else (value,)

    return Kind(read_some, {"anyOf": [item.schema, several.schema]})


def choice(options: Iterable[_E], refusal: str = "is unknown") -> Kind[_E]:
    """One of the options; `refusal` is what an error message says of another text."""
    known = {str(option): option for option in options}

    def read_choice(node: Node) -> _E | None:
        text = node.text()
        if text is not None and text not in known:
            node.problem(f"{text!r} {refusal}; {nearest(text, known)}")
        return None if text is None else known.get(text)

    return Kind(read_choice, {"enum": [*known]})


def matched(pattern: str, parse: Callable[[re.Match[str]], _T], refusal: str, **rules: object) -> Kind[_T]:
    """A text that matches the pattern; `refusal` ends the error message for others, `rules` are added to the schema."""

    def read_match(node: Node) -> _T | None:
        text = node.text()
        match = None if text is None else re.fullmatch(pattern, text)
        if text is not None and match is None:
            node.problem(f"{text!r} {refusal}")
        return None if match is None else parse(match)

    return Kind(read_match, {**text_of(pattern), **rules})


def text_of(pattern: str) -> Schema:
    return {"type": "string", "pattern": f"^(?:{pattern})$"}


COUNT = Kind(lambda node: node.whole(least=1), {"type": "integer", "minimum": 1})
FLAG = Kind(Node.boolean, {"type": "boolean"})
NAMED = Kind(Node.name, text_of(NAME.pattern))
TEXT = Kind(Node.text, {"type": ["string", "number"]})
_DURATION = rf"(?=.*[1-9])(\d+(\.\d+)?({'|'.join(DURATION_UNITS)}))+"
"""A duration above zero: not all digits are 0."""
DURATION = Kind(Node.duration, {"description": "A duration such as 250ms, 5s, 12h or 30d.", **text_of(_DURATION)})
"""Seconds, above zero."""
TIMEOUT = Kind(
    lambda node: (
        math.inf if node.quoted() == repr(NO_TIMEOUT) else node.duration(f"250ms, 5s, 1m or 12h, or {NO_TIMEOUT}")
    ),
    {"description": f"A duration such as 5s or 1m, or {NO_TIMEOUT}.", **text_of(f"{NO_TIMEOUT}|{_DURATION}")},
)
"""Seconds, above zero; infinite for `none`."""


class _Field(NamedTuple):
    """A field of a dataclass or a struct; the default of a required key is None."""

    name: str
    declared: Key | Spread[Any]
    required: bool
    default: Any
    docstring: str


@cache
def _fields(cls: type) -> tuple[_Field, ...]:
    return tuple(_read_fields(cls))


def _read_fields(cls: type) -> Iterator[_Field]:
    annotated, docstrings = get_type_hints(cls, include_extras=True), field_docstrings(cls)
    for each in fields(cls) if is_dataclass(cls) else msgspec.structs.fields(cls):
        (declared,) = annotated[each.name].__metadata__
        key = Key(declared, each.name) if isinstance(declared, Kind) else declared
        required = each.default in (MISSING, msgspec.NODEFAULT)
        yield _Field(each.name, key, required, None if required else each.default, docstrings.get(each.name, ""))


def _keys(cls: type) -> Iterator[tuple[Key, _Field]]:
    """The keys of the mapping, with the fields that declare them."""
    for field in _fields(cls):
        match field.declared:
            case Spread(keys):
                yield from _keys(keys)
            case Key() as key:
                yield key, field


def _property(key: Key, field: _Field) -> Schema:
    rules, default = dict(key.kind.schema), field.default
    description = f"{field.docstring} {rules.pop('description', '')}".strip()
    if default is not None and not is_dataclass(default):
        rules.setdefault("default", spell_duration(default) if isinstance(default, float) else default)  # a duration
    return {"description": description, **rules}
