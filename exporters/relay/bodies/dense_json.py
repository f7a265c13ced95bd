"""Finds JSON of so many small values that decoding it would block the event loop for too long.

All of the JSON is counted, because samples would miss values that a client places between them.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from exporters.http.lines import has_more_than

MAX_QUOTES = 20_000
"""Quotation marks around strings, per MiB, up to which JSON is decoded; JSON below 1 MiB may have as many."""

UNCHECKED = 128 * 1024
"""Bytes of JSON whose strings are not counted, because decoding them takes 3 ms at most."""

MAX_OBJECTS = 5_000
"""Objects that are decoded."""

MAX_LISTS = 10_000
"""Lists, per MiB, up to which JSON of any form is decoded ..."""

MAX_COMMAS = 25_000
"""... and commas."""

_MIB = 1024 * 1024
_SLICE = 256 * 1024
_NO_MARKS = bytes(set(range(256)) - set(b'"\\'))

_Decoded = TypeVar("_Decoded")


class TooManyObjectsError(Exception):
    """JSON has more objects than may be decoded."""


class _Objects:
    """The objects that may still be decoded."""

    left = 0


class Counted(msgspec.Struct):
    """An object of a prompt, which is counted while it is decoded."""

    def __post_init__(self) -> None:
        _Objects.left -= 1
        if _Objects.left < 0:
            raise TooManyObjectsError


def decode_unless_dense(decode: Callable[[bytes], _Decoded], json: bytes) -> _Decoded | None:
    """The decoded JSON, whose objects are `Counted`; None if it is dense."""
    return None if len(json) > UNCHECKED and has_many_strings(json) else decode_few_objects(decode, json)


def decode_few_objects(decode: Callable[[bytes], _Decoded], json: bytes) -> _Decoded | None:
    """The decoded JSON, whose objects are `Counted`; None if there are too many."""
    _Objects.left = MAX_OBJECTS
    try:
        return decode(json)
    except TooManyObjectsError:
        return None


def has_many_strings(json: bytes) -> bool:
    """Whether the JSON has more strings than may be decoded."""
    limit = _limit(json, MAX_QUOTES)
    if not has_more_than(limit, b'"', json):
        return False
    # Quotation marks in texts follow a backslash. Between the first one of a string and the one before it there is no
    # backslash, so that each string counts once or twice.
    quotes = 0
    for start in range(0, len(json), _SLICE):
        part = json[start : start + _SLICE]
        marks = part.translate(None, _NO_MARKS)
        found = marks.count(b'"')
        if len(marks) - found > len(part) / 2:  # no text has as many backslashes, which take longer to search
            return True
        quotes += found - marks.count(b'\\"')
        if quotes > limit:
            return True
    return False


def has_many_values(json: bytes, max_quotes: int = MAX_QUOTES) -> bool:
    """Whether the JSON, of any form, may have more values than may be decoded; marks in texts count, too."""
    return any(
        has_more_than(_limit(json, per_mib), mark, json)
        for mark, per_mib in ((b",", MAX_COMMAS), (b"[", MAX_LISTS), (b'"', max_quotes))
    )


def is_mostly_brackets(json: bytes | bytearray) -> bool:
    """Whether the JSON consists of lists and objects with nearly no content: engines reject it.

    Finding the end of each would take too long, even if none is decoded.
    """
    few = len(json) // 64
    if not (has_more_than(few, b"[", json) or has_more_than(few, b"{", json)):
        return False
    return json.count(b"[") + json.count(b"{") > len(json) // 4


def count_strings(json: bytes) -> int:
    """The number of strings in JSON that has many; with escapes a lower bound, at least 2."""
    escapes = json.count(b"\\") if b"\\" in json else 0
    return max(2, (json.count(b'"') - escapes) // 2)


def _limit(json: bytes, per_mib: int) -> int:
    return int(per_mib * max(1, len(json) / _MIB))
