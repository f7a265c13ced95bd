"""The fast path of a stream: forwards chunks that differ from a parsed chunk only in text and numbers.

Such a chunk is recognised by comparing bytes, without HTTP or JSON parsing, and is forwarded unchanged. A fast path is
the protocol of the engine's connection while reads consist of such chunks, so that few functions are called for each.
"""

import asyncio
import itertools
import re
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from exporters.http.lines import has_more_than
from exporters.http.size_lines import MAX_CHUNK, SIZE_LINES
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

# `translate` by this table leaves ASCII without escapes as it is, and changes any other byte; for a token, that takes a
# third of the time of the regular expression.
_ASCII_ONLY = bytes(byte if _PLAIN(bytes([byte])) else byte ^ 1 for byte in range(256))

MAX_CHUNK_LINES = 12_000
"""Line ends of the chunks that are forwarded at once; a chunk has four."""

# A size line, which may be incomplete, and what follows it.
_BEGINS = re.compile(rb"([1-9a-f][0-9a-f]{0,2}+)(?:\r\n((?s:.*))|\r?)").fullmatch


_INTEGER = rb"(?:0|[1-9][0-9]{0,14}+)"
# An integer that is the value of a member, below 2**53. Only after the name of a member a quote is followed by a colon.
_NUMBER = re.compile(rb'(?:(?<=[^\\]":)|(?<=[^\\]": ))(%s)(?=[,}])' % _INTEGER)
_DIGITS = re.compile(_INTEGER).match

KEPT_PATTERNS = 64
COMPILED_FROM = 8
"""Streams that need a regular expression before it is compiled, which takes 0.15 ms."""

_Match = Callable[[bytes, int], re.Match[bytes] | None]


@lru_cache(KEPT_PATTERNS)
def _uses(_constants: tuple[bytes, ...]) -> Iterator[int]:
    return itertools.count(1)


@lru_cache(KEPT_PATTERNS)
def _compiled(constants: tuple[bytes, ...]) -> _Match:
    return re.compile(_INTEGER.join(map(re.escape, constants))).match


def _match_if_frequent(constants: tuple[bytes, ...]) -> _Match | None:
    """Matches the constants with a number between each, by one call in place of three for each number."""
    return _compiled(constants) if next(_uses(constants)) >= COMPILED_FROM else None


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

    def between_numbers(self) -> tuple[bytes, ...]:
        """The bytes around all numbers of a part that ends a chunk: no number there needs to be constant."""
        *constants, last = _NUMBER.split(self.example)[::2]
        return (*constants, last + b"\r\n")

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


_Callbacks = tuple[
    Callable[[float], None], Callable[[int, float], None], Callable[[bytes], None], Callable[[Exception], None]
]


class Forwarding(asyncio.Protocol):
    """Counts and forwards chunks of one stream, and leaves any other read to the protocol of the connection.

    `count` takes the arrival time of a chunk, `count_several` the number of chunks that have arrived together, too.
    """

    __slots__ = ("_before", "_count", "_count_several", "_held", "_on_failure", "_send", "connection", "leave")

    _before: bytes
    connection: asyncio.Protocol
    leave: Callable[[bytes], None]
    """Makes `connection` the protocol again, and passes a read to it."""

    def __init__(
        self,
        count: Callable[[float], None],
        count_several: Callable[[int, float], None],
        send: Callable[[bytes], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._count = count
        self._count_several = count_several
        self._send = send
        self._on_failure = on_failure
        self._held = b""  # the beginning of a chunk

    def pause_writing(self) -> None:
        self.connection.pause_writing()

    def resume_writing(self) -> None:
        self.connection.resume_writing()

    def eof_received(self) -> None:
        self._leave_held()
        self.connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_held()
        self.connection.connection_lost(exc)

    def _leave_held(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self.leave(held)

    def _fail(self, error: Exception, data: bytes) -> None:
        """Counting has failed: the parsers forward the read, and the request continues without a fast path."""
        self._on_failure(error)
        self.leave(data)

    def _forward_several(self, data: bytes) -> None:
        """Forward the chunks that a read begins with, hold the beginning of another one, and leave any other rest.

        After a backlog a read may end anywhere. A client cannot use the beginning of a chunk without its rest.
        """
        if self._held:
            data, self._held = self._held + data, b""
        end, chunks = self._leading_chunks(data)
        if chunks:
            try:
                self._count_several(chunks, time.monotonic())
            except Exception as error:  # noqa: BLE001 - as in FastPath.data_received
                self._fail(error, data)
                return
            send = self._send
            send(data[:end])
        rest = data[end:]
        if self._begins_chunk(rest):
            self._held = rest
        elif rest or not chunks:
            self.leave(rest)

    @abstractmethod
    def _leading_chunks(self, data: bytes) -> tuple[int, int]:
        """The end and the number of the chunks of the pattern that the data begins with."""

    def _begins_chunk(self, data: bytes) -> bool:
        """Whether this may be the beginning of a chunk of the pattern."""
        begins = None if len(data) > MAX_CHUNK else _BEGINS(data)
        if begins is None:
            return False
        size, event = begins.groups()
        if event is None:
            return True
        return len(event) < int(size, 16) + 2 and (event.startswith(self._before) or self._before.startswith(event))


class FastPath(Forwarding):
    """Forwards the chunks of one stream that match its pattern; see `Forwarding` for the callbacks."""

    __slots__ = ("_after",)

    def __init__(self, pattern: Pattern, *callbacks: *_Callbacks) -> None:
        super().__init__(*callbacks)
        self._before = pattern.before.example
        self._after = pattern.after.example + b"\r\n"

    def data_received(self, data: bytes) -> None:
        """Count and forward a read that is exactly one or more chunks of the pattern."""
        # After a system call the branches of the interpreter are not predicted, so a bytecode takes about 25 ns.
        length = len(data)
        if self._held or length > MAX_CHUNK:
            self._forward_several(data)
            return
        # CPython 3.11 takes twice as long for `startswith`, because its arguments are a tuple.
        rest = data.removeprefix(SIZE_LINES[length] + self._before)
        text = rest.removesuffix(self._after)
        # Equal: there was no prefix, or no suffix, to remove.
        if rest in (data, text) or not text or (text.translate(_ASCII_ONLY) != text and _PLAIN(text) is None):
            self._forward_several(data)
            return
        # CPython 3.11 is slow to call a slot by attribute.
        count, send = self._count, self._send
        try:
            count(time.monotonic())
        except Exception as error:  # noqa: BLE001 - a metering error must not fail the response
            self._fail(error, data)
            return
        send(data)

    def _leading_chunks(self, data: bytes) -> tuple[int, int]:
        chunks = end = 0
        if _has_too_many(data):
            return end, chunks
        before, after = self._before, self._after
        while (found := data.find(after, end, end + MAX_CHUNK)) >= 0:
            begin, next_begin = end, found + len(after)
            chunk = data[begin:found]
            text = chunk.removeprefix(SIZE_LINES[next_begin - begin] + before)
            if text == chunk or not text or (text.translate(_ASCII_ONLY) != text and _PLAIN(text) is None):
                break
            chunks, end = chunks + 1, next_begin
        return end, chunks


class VaryingFastPath(Forwarding):
    """A FastPath for a stream whose events also differ in numbers, or carry usage: it keeps the last chunk."""

    __slots__ = ("_after", "_match_after", "_more_before", "last")

    def __init__(self, pattern: Pattern, *callbacks: *_Callbacks) -> None:
        super().__init__(*callbacks)
        self._before, *self._more_before = pattern.before.constants()
        self._after = pattern.after.between_numbers()
        self._match_after = _match_if_frequent(self._after)
        self.last: bytes | None = None
        """The last chunk that was forwarded."""

    def data_received(self, data: bytes) -> None:
        """Forward events as FastPath.data_received does."""
        length = len(data)
        if self._held or length > MAX_CHUNK:
            self._forward_several(data)
            return
        head = SIZE_LINES[length] + self._before
        if not data.startswith(head) or self._chunk_end(data, len(head)) != length:
            self._forward_several(data)
            return
        count, send = self._count, self._send
        try:
            count(time.monotonic())
        except Exception as error:  # noqa: BLE001 - as in FastPath.data_received
            self._fail(error, data)
            return
        self.last = data
        send(data)

    def _leading_chunks(self, data: bytes) -> tuple[int, int]:
        chunks = begin = end = 0
        while end < len(data) and not _has_too_many(data):
            start = data.find(b"\n", end, end + MAX_CHUNK) + 1
            if not data.startswith(self._before, start):
                break
            next_begin = self._chunk_end(data, start + len(self._before))
            if not next_begin or next_begin - end > MAX_CHUNK or data[end:start] != SIZE_LINES[next_begin - end]:
                break
            chunks, begin, end = chunks + 1, end, next_begin
        if chunks:
            self.last = data[begin:end]
        return end, chunks

    def _chunk_end(self, data: bytes, start: int) -> int:
        """The end of the chunk whose first bytes before its text end at `start`; 0 if it is none of the pattern."""
        if self._more_before and not (start := _skip(data, start, self._more_before)):
            return 0
        plain = _PLAIN_PREFIX(data, start)
        if plain is None or (end := plain.end()) == start:
            return 0
        match_after = self._match_after
        if match_after is not None:
            after = match_after(data, end)
            return 0 if after is None else after.end()
        after_text, *rest = self._after
        return _skip(data, end + len(after_text), rest) if data.startswith(after_text, end) else 0


def _has_too_many(data: bytes) -> bool:
    return len(data) > MAX_CHUNK_LINES and has_more_than(MAX_CHUNK_LINES, b"\n", data)


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
