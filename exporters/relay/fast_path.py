"""The fast path of a stream: forwards chunks that differ from a parsed chunk only in text and numbers.

Such a chunk is recognised by comparing bytes, without HTTP or JSON parsing, and is forwarded unchanged.
"""

import re
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from exporters.relay.dialects.dialect import Event

# A JSON string of valid UTF-8 (RFC 3629, section 4) without escapes.
_ASCII = rb"[\x20!\x23-\x5b\x5d-\x7f]*+"
_TAIL = rb"[\x80-\xbf]"
_PLAIN_TEXT = re.compile(
    rb"%s(?:(?:[\xc2-\xdf]%s|\xe0[\xa0-\xbf]%s|[\xe1-\xec\xee\xef]%s{2}|\xed[\x80-\x9f]%s"
    rb"|\xf0[\x90-\xbf]%s{2}|[\xf1-\xf3]%s{3}|\xf4[\x80-\x8f]%s{2})%s)*+"
    % (_ASCII, _TAIL, _TAIL, _TAIL, _TAIL, _TAIL, _TAIL, _TAIL, _ASCII)
)
_PLAIN, _PLAIN_PREFIX = _PLAIN_TEXT.fullmatch, _PLAIN_TEXT.match

MAX_CHUNK = 4096
"""Bytes of a chunk and its framing; a longer chunk is parsed."""


def _size_lines() -> list[bytes]:
    """The size line of a chunk, by the length of the chunk including its framing."""
    # No chunk starts with this.
    lines = [b"\r"] * (MAX_CHUNK + 1)
    for size in range(1, MAX_CHUNK):
        line = b"%x\r\n" % size
        if (length := len(line) + size + 2) <= MAX_CHUNK:
            lines[length] = line
    return lines


_SIZE_LINES = _size_lines()


# An integer that is the value of a member, below 2**53. Only after the name of a member a quote is followed by a colon.
_NUMBER = re.compile(rb'(?:(?<=[^\\]":)|(?<=[^\\]": ))(0|[1-9][0-9]{0,14})(?=[,}])')
_DIGITS = re.compile(rb"0|[1-9][0-9]{0,14}").match


class Part(NamedTuple):
    """Bytes of an event before or after its text; some of its numbers differ in each event."""

    example: bytes
    varying: frozenset[int] = frozenset()
    """The numbers that differ, by their position among all numbers of the part."""

    def joined(self, other: bytes) -> "Part | None":
        """A part that covers the other bytes, too; None if they differ in more than numbers."""
        if other == self.example:
            return self
        before, after = _NUMBER.split(self.example), _NUMBER.split(other)
        if before[::2] != after[::2]:
            return None
        differing = (
            number for number, pair in enumerate(zip(before[1::2], after[1::2], strict=True)) if pair[0] != pair[1]
        )
        return Part(self.example, self.varying.union(differing))

    def constants(self) -> tuple[bytes, ...]:
        """The bytes around the varying numbers."""
        pieces = _NUMBER.split(self.example)
        constants = [pieces[0]]
        for number, (value, rest) in enumerate(zip(pieces[1::2], pieces[2::2], strict=True)):
            if number in self.varying:
                constants.append(rest)
            else:
                constants[-1] += value + rest
        return tuple(constants)


class Pattern(NamedTuple):
    """The bytes of an event before and after its text."""

    before: Part
    after: Part
    usage: bool
    """Whether the event carries usage, whose numbers are needed of the last event."""

    @property
    def varies(self) -> bool:
        return bool(self.before.varying or self.after.varying)

    def joined(self, other: "Pattern") -> "Pattern":
        """A pattern of both events if they differ only in text and numbers, such as `created`, else the other."""
        before, after = self.before.joined(other.before.example), self.after.joined(other.after.example)
        return other if before is None or after is None else Pattern(before, after, other.usage)


def learn(framed: bytes, json: bytes, event: Event) -> Pattern | None:
    """The pattern of this event, or None if it is too long, or if more of it is measured than its text and usage.

    `framed` are the bytes of the event, `json` its payload.
    """
    decoded = None if len(json) > MAX_CHUNK else event.only_text
    if decoded is None:
        return None
    text = decoded.encode()
    literal = b'"%s"' % text
    at = json.find(literal)
    # The literal is this text if it occurs once and as a value.
    if at < 0 or json.find(literal, at + 1) >= 0 or json[:at].rstrip()[-1:] != b":" or not _PLAIN(text):
        return None
    # The JSON of several `data` lines.
    if b"\n" in json:
        return None
    before, after = b"data: " + json[: at + 1], json[at + 1 + len(text) :] + b"\n\n"
    if framed.startswith(b"event: "):
        name = framed[: framed.find(b"\n") + 1]
        if b"\r" in name:
            return None
        before = name + before
    return Pattern(Part(before), Part(after), event.usage is not None)


class FastPath:
    """Forwards the chunks of one stream that match its pattern; `count` takes the arrival time of a chunk."""

    __slots__ = ("_after", "_before", "_count", "_on_failure", "_send")

    def __init__(
        self,
        pattern: Pattern,
        count: Callable[[float], None],
        send: Callable[[bytes], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._before = pattern.before.example
        self._after = pattern.after.example + b"\r\n"
        self._count = count
        self._send = send
        self._on_failure = on_failure

    def forward(self, data: bytes) -> bool:
        """Count and forward a read that is exactly one chunk of the pattern; returns False for any other read.

        Also False if counting fails: the parsers forward the chunk, and the request continues without a fast path.
        """
        length = len(data)
        if length > MAX_CHUNK:
            return False
        size = _SIZE_LINES[length]
        start = len(size)
        text, end = start + len(self._before), length - len(self._after)
        if (
            text >= end
            or not data.startswith(size)
            or not data.startswith(self._before, start)
            or not data.endswith(self._after)
            or _PLAIN(data, text, end) is None
        ):
            return False
        # CPython 3.11 is slow to call a slot by attribute.
        count, send = self._count, self._send
        try:
            count(time.monotonic())
        except Exception as error:  # noqa: BLE001 - a metering error must not fail the response
            self._on_failure(error)
            return False
        send(data)
        return True


class VaryingFastPath:
    """As FastPath, for a stream whose events also differ in numbers, or carry usage: it keeps the last chunk."""

    __slots__ = ("_after", "_before", "_count", "_on_failure", "_rest", "_send", "last")

    def __init__(
        self,
        pattern: Pattern,
        count: Callable[[float], None],
        send: Callable[[bytes], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._before = pattern.before.constants()
        *constants, last = pattern.after.constants()
        self._after, *self._rest = *constants, last + b"\r\n"
        self._count = count
        self._send = send
        self._on_failure = on_failure
        self.last: bytes | None = None
        """The last chunk that was forwarded."""

    def forward(self, data: bytes) -> bool:
        """As FastPath.forward."""
        length = len(data)
        if length > MAX_CHUNK:
            return False
        size = _SIZE_LINES[length]
        if not data.startswith(size):
            return False
        before, after = self._before, self._after
        start = len(size)
        if not data.startswith(before[0], start):
            return False
        start += len(before[0])
        if len(before) > 1:
            start = _skip(data, start, before[1:])
        plain = _PLAIN_PREFIX(data, start)
        if plain is None or (end := plain.end()) == start or not start or not data.startswith(after, end):
            return False
        if _skip(data, end + len(after), self._rest) != length:
            return False
        count, send = self._count, self._send
        try:
            count(time.monotonic())
        except Exception as error:  # noqa: BLE001 - as in FastPath.forward
            self._on_failure(error)
            return False
        self.last = data
        send(data)
        return True


def _skip(data: bytes, at: int, constants: Iterable[bytes]) -> int:
    """The end of the constants, with a number before each, from `at`; 0 if the data differs."""
    for constant in constants:
        digits = _DIGITS(data, at)
        if digits is None:
            return 0
        at = digits.end()
        if not data.startswith(constant, at):
            return 0
        at += len(constant)
    return at
