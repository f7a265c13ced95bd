"""The fields of the request log by name, and which of them can be compared with a number."""

import difflib
import types
import typing
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

from exporters.requestlog.entry import LogEntry
from exporters.text.errors import UsageError

SLO = "slo"

_ENTRY = {field.encode_name: field for field in msgspec.structs.fields(LogEntry)}
_REQUIRED = tuple(name for name, field in _ENTRY.items() if field.required)

FIELDS = tuple(_ENTRY)


def _unannotated(annotation: Any) -> Any:
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is typing.Annotated else annotation


def _value_type(annotation: Any) -> Any:
    """The type of a value without its `Annotated` and `None`."""
    annotation = _unannotated(annotation)
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return next(_value_type(each) for each in typing.get_args(annotation) if each is not type(None))
    return annotation


NUMBERS = tuple(name for name, field in _ENTRY.items() if _value_type(field.type) in (int, float))
TEXTS = tuple(
    name
    for name, field in _ENTRY.items()
    if isinstance(kind := _value_type(field.type), type) and issubclass(kind, str)
)
SORTABLE = tuple(name for name in FIELDS if name != SLO)


def check_field(flag: str, name: str, names: Iterable[str]) -> str:
    """The name.

    Raises:
        UsageError: it is not one of `names`; the message has all of them, similar ones first.
    """
    known = list(names)
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3)
        ordered = ", ".join([*close, *(each for each in known if each not in close)])
        raise UsageError(f"{flag}: {name!r} is not a field that can be used here; known: {ordered}")
    return name


def decoder(names: Iterable[str]) -> msgspec.json.Decoder[Any]:
    """A decoder of only these fields and the required ones; attributes have the names of the fields.

    The values of an enum may be those of a later version.
    """
    fields = [
        (name, _lenient(_ENTRY[name].type), *([] if _ENTRY[name].required else [_default(name)]))
        for name in dict.fromkeys([*_REQUIRED, *names])
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Row", fields, gc=False))


def _lenient(annotation: Any) -> Any:
    kind = _value_type(annotation)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return str | None if type(None) in typing.get_args(_unannotated(annotation)) else str
    return dict[str, str] if typing.get_origin(kind) is dict else annotation


def _default(name: str) -> Any:
    field = _ENTRY[name]
    if field.default is msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return msgspec.field(default_factory=dict) if field.default == {} else field.default
