"""A strict HTTP/1.1 parser (RFC 9112) without I/O.

It rejects everything that RFC 9112 allows a recipient to repair (bare LF, folded headers, repeated content-length,
content-length with transfer-encoding), because repairs enable request smuggling.

httptools 0.9 is not used: it accepts requests with no or two Host headers, reports trailers as headers, and expects a
body after the response to a HEAD request. This parser takes about 10 us for both heads of an exchange; most chunks of a
stream bypass it (`fast_path`).
"""

import re
from collections.abc import Collection
from enum import Enum
from functools import lru_cache

import msgspec

Header = tuple[bytes, bytes]
"""A name in lower case and its value."""

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_TEXT = rb"[\t\x20-\x7e\x80-\xff]*+"
_REQUEST_LINE = re.compile(rb"(%s) ([!-~]++) HTTP/1\.([01])" % _TOKEN).fullmatch
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: (%s))?" % _TEXT).fullmatch
_FIELD_LINE = re.compile(rb"(%s):(%s)" % (_TOKEN, _TEXT)).fullmatch
_TRAILERS = re.compile(rb"(?:%s:%s\r\n)++" % (_TOKEN, _TEXT)).fullmatch
_LENGTH_LINE = re.compile(rb"\r\ncontent-length: ([0-9]{1,18}+)(?=\r\n)").search
_JSON, _EVENT_STREAM = b"application/json", b"text/event-stream"
_EMPTY_LINES = re.compile(rb"(?:\r\n)++").match
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15}+)(?:[\t ]*+;%s)?+\r\n" % _TEXT).match
# Patterns of at least 16 complete chunks of one size, by that size.
_CHUNKS_OF = [re.compile(rb"(?s:[%x%X]\r\n.{%d}\r\n){16,}+" % (size, size, size)).match for size in range(16)]
# Never valid in a head: a control character, or a bare CR or LF.
_NEVER_IN_A_HEAD = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?!\n|\Z)").search

MAX_DIGITS = 18
"""Digits of a content-length."""

KEPT_RESPONSE_HEADS = 64
"""Heads that are kept whole, without their length: those of one engine are equal for a second, the unit of their date.
"""

KEPT_LINES = 1024
KEPT_HEAD = 4096
"""Bytes of a head up to which its parsed lines are kept for later heads."""

MAX_HEADERS = 1000
"""Headers of a request or a response; a head of 64 KiB could have 16,000."""

MAX_OPTIONS = 100
"""Options in the Connection headers of a message, or in those of Expect."""

MAX_PATH = 8 * 1024
"""Bytes of a request target before its query: a path is decoded, normalised and encoded."""

MAX_LINE = 1024
"""Bytes of a chunk-size line, including extensions."""

MAX_TRAILERS = 16 * 1024


class BadHttpError(Exception):
    """A head that is malformed, ambiguous, or requests an unsupported feature."""

    def __init__(self, message: str, status: int = 400, code: str = "bad_request") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code


class RequestHead(msgspec.Struct):
    """A request line and headers, and the framing of the body."""

    method: str
    target: str
    headers: list[Header]
    """All headers except those that Connection names, which are for the relay only."""
    fields: dict[bytes, bytes]
    """The first value of each header name."""
    http_1_0: bool
    keep_alive: bool
    length: int
    """Body size in bytes, if the body is not chunked."""
    chunked: bool
    upgrade: bool = False
    """Whether the request asks for a tunnel, or for another protocol that the relay must not ignore."""
    websocket: bool = False
    """Whether that protocol is WebSocket."""
    expects_continue: bool = False
    """Whether the client waits for an interim response before it sends the body."""

    @property
    def has_body(self) -> bool:
        return self.chunked or self.length > 0

    def get(self, name: bytes) -> str | None:
        value = self.fields.get(name)
        return None if value is None else value.decode("latin-1")


class ResponseHead(msgspec.Struct, frozen=True, eq=False):
    """A status line and headers, and the framing of the body; several responses may share one."""

    status: int
    reason: bytes
    headers: list[Header]
    """All headers except those that Connection names."""
    fields: dict[bytes, bytes]
    keep_alive: bool
    length: int | None
    """Body size in bytes; None: the body is chunked or ends when the connection closes."""
    chunked: bool
    websocket: bool
    """Whether the response starts a WebSocket."""
    content_length: bytes | None
    kept: "ResponseHead | None" = None
    """The head of all responses that differ from this one only in their length, if it is kept."""

    @property
    def event_stream(self) -> bool:
        kind = self.fields.get(b"content-type", b"")
        return kind != _JSON and _is_event_stream(kind)


def head_end(data: bytes, of: str, scanned: int = 0) -> int:
    """The size in bytes of the head, including the blank line; 0 while it is incomplete.

    The first `scanned` bytes were searched in an earlier call.

    Raises:
        BadHttpError: the head is invalid.
    """
    end = data.find(b"\r\n\r\n", max(0, scanned - 3))
    if end >= 0:
        return end + 4
    if _NEVER_IN_A_HEAD(data, max(0, scanned - 1)):
        raise BadHttpError(f"invalid HTTP: the {of} head contains a control character or a bare CR or LF")
    return 0


def empty_lines(data: bytes) -> int:
    """The size in bytes of the empty lines before a request, which are ignored: RFC 9112, section 2.2."""
    found = _EMPTY_LINES(data)
    return 0 if found is None else found.end()


def parse_request(block: bytes) -> RequestHead:
    """Parse a request head, including the blank line.

    Raises:
        BadHttpError: the head is invalid or its framing is ambiguous.
    """
    keep = len(block) <= KEPT_HEAD
    first, *lines = block[:-4].split(b"\r\n", MAX_HEADERS + 1)
    method, target, http_1_0 = (_request_line if keep else _request_line.__wrapped__)(first)
    headers, fields = _headers(lines, keep=keep)
    if b"host" not in fields and not http_1_0:
        raise BadHttpError("a request needs exactly one Host header", code="bad_host")
    if len(fields) != len(headers):
        _reject_repeated(headers)
    length, chunked = 0, False
    coding, declared = fields.get(b"transfer-encoding"), fields.get(b"content-length")
    if coding is not None:
        if coding.lower() != b"chunked" or http_1_0:
            raise BadHttpError("chunked is the only supported transfer-encoding", code="bad_transfer_encoding")
        if declared is not None:
            raise BadHttpError("a request must not have both content-length and transfer-encoding", code="bad_framing")
        chunked = True
    elif declared is not None:
        if not _is_length(declared):
            raise BadHttpError("content-length must be a decimal number of bytes", code="bad_content_length")
        length = int(declared)
    connection = _tokens(headers, b"connection") if b"connection" in fields else ()
    upgrade = method == "CONNECT" or (b"upgrade" in connection and _requires_upgrade(headers))
    bodiless = not (chunked or length)
    websocket = upgrade and method == "GET" and bodiless and not http_1_0 and _upgrades(headers) == [b"websocket"]
    return RequestHead(
        method,
        target,
        _without(headers, connection),
        fields,
        http_1_0,
        # After a request for another protocol, a front proxy may consider what follows as that, not as a request.
        not upgrade and (b"keep-alive" in connection if http_1_0 else b"close" not in connection),
        length,
        chunked,
        upgrade,
        websocket,
        # RFC 9110, section 10.1.1: HTTP/1.0 has no interim responses.
        b"expect" in fields and not http_1_0 and b"100-continue" in _tokens(headers, b"expect"),
    )


def parse_response(block: bytes, *, head_only: bool) -> ResponseHead:
    """Parse a response head, including the blank line; `head_only`: the request method was HEAD.

    Raises:
        BadHttpError: the head is invalid or its framing is ambiguous.
    """
    if len(block) > KEPT_HEAD:
        return _response_head.__wrapped__(block, head_only)
    line = _LENGTH_LINE(block)
    if line is None:
        return (_response_head if b"chunked" in block else _response_head.__wrapped__)(block, head_only)
    kept = _response_head(block[: line.start()] + block[line.end() :], head_only)
    if kept.chunked or kept.content_length is not None:  # ambiguous, or repeated
        return _response_head.__wrapped__(block, head_only)
    return ResponseHead(
        kept.status,
        kept.reason,
        kept.headers,
        kept.fields,
        kept.keep_alive,
        int(line[1]) if kept.length is None else 0,
        False,
        kept.websocket,
        line[1],
        kept,
    )


@lru_cache(KEPT_RESPONSE_HEADS)
def _response_head(block: bytes, head_only: bool) -> ResponseHead:
    keep = len(block) <= KEPT_HEAD
    first, *lines = block[:-4].split(b"\r\n", MAX_HEADERS + 1)
    http_1_0, status, reason = (_status_line if keep else _status_line.__wrapped__)(first)
    headers, fields = _headers(lines, keep=keep)
    if len(fields) != len(headers) and len({value for name, value in headers if name == b"content-length"}) > 1:
        raise BadHttpError("conflicting content-length headers")
    connection = _tokens(headers, b"connection") if b"connection" in fields else ()
    keep_alive = b"keep-alive" in connection if http_1_0 else b"close" not in connection
    length: int | None = None
    chunked = False
    coding, declared = fields.get(b"transfer-encoding"), fields.get(b"content-length")
    if declared is not None and not _is_length(declared):
        raise BadHttpError("content-length is not a number")
    if head_only or status < 200 or status in {204, 304}:
        length = 0
    elif coding is not None:
        if coding.lower() != b"chunked" or declared is not None:
            raise BadHttpError("ambiguous framing")
        chunked = True
        keep_alive = keep_alive and not http_1_0  # RFC 9112, section 6.1: its framing may be wrong
    elif declared is not None:
        length = int(declared)
    websocket = status == 101 and _upgrades(headers) == [b"websocket"]
    rest = _without(headers, connection)
    return ResponseHead(status, reason, rest, fields, keep_alive, length, chunked, websocket, declared)


class SizedBody:
    """A body with a content-length."""

    __slots__ = ("_left", "broken", "done", "rest")

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0
        self.broken = False
        self.rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        left = self._left - len(data)
        if left < 0:
            data, self.rest = data[:left], data[left:]
            left = 0
        self._left = left
        self.done = left == 0
        return [data] if data else []


class CloseDelimitedBody:
    """A body that ends when the connection closes."""

    __slots__ = ("broken", "done", "rest")

    def __init__(self) -> None:
        self.done = self.broken = False
        self.rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        return [data] if data else []


class _ChunkPart(Enum):
    """The next part of a chunked body."""

    SIZE, DATA, DATA_END, TRAILERS = range(4)


# Enum member access takes 0.1 us in CPython 3.11.
_SIZE, _DATA, _DATA_END, _TRAILERS_PART = _ChunkPart.SIZE, _ChunkPart.DATA, _ChunkPart.DATA_END, _ChunkPart.TRAILERS


class ChunkedBody:
    """A chunked body; extensions and trailers are validated and dropped."""

    __slots__ = ("_buffer", "_left", "_part", "broken", "done", "rest")

    def __init__(self) -> None:
        self._buffer = b""
        self._left = 0
        self._part = _SIZE
        self.done = self.broken = False
        self.rest = b""

    @property
    def between(self) -> bool:
        """Whether the next byte starts a chunk."""
        return self._part == _SIZE and not self._buffer and not self.broken

    @property
    def left_of_chunk(self) -> int:
        """Bytes until the end of the chunk of which a part has arrived; 0 if no part of its data has."""
        return self._left + 2 if self._part is _DATA else 0

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces of body data; call no more after the body is `done` or `broken`."""
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        pieces: list[bytes] = []
        at = 0
        while at < len(data):
            part = self._part
            if part is _SIZE:
                line = _CHUNK_SIZE(data, at)
                if line is not None:
                    end = self._chunk_start(data, line, pieces)
                else:
                    end = at
                    self.broken = data.find(b"\n", at) >= 0 or len(data) - at > MAX_LINE
            elif part is _DATA:
                end = self._data(data, at, pieces)
            elif part is _DATA_END:
                end = self._data_end(data, at)
            else:
                end = self._trailers(data, at)
            if self.done or self.broken:
                self.rest = data[end:]
                break
            if end == at:
                self._buffer = data[at:]
                break
            at = end
        return pieces

    # Each of these methods parses one part at `data[at:]` and returns the end position.

    def _chunk_start(self, data: bytes, line: re.Match[bytes], pieces: list[bytes]) -> int:
        size, start = int(line[1], 16), line.end()
        if size and data.startswith(b"\r\n", start + size):
            pieces.append(data[start : start + size])
            end = start + size + 2
            if size < len(_CHUNKS_OF) and (chunks := _CHUNKS_OF[size](data, end)) is not None:
                pieces.append(_data_of_chunks(chunks[0], size))
                end = chunks.end()
            return end
        self._left = size
        self._part = _DATA if size else _TRAILERS_PART
        return start

    def _data(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        piece = data[at : at + self._left]
        pieces.append(piece)
        self._left -= len(piece)
        if self._left == 0:
            self._part = _DATA_END
        return at + len(piece)

    def _data_end(self, data: bytes, at: int) -> int:
        if data.startswith(b"\r\n", at):
            self._part = _SIZE
            return at + 2
        self.broken = data[at : at + 2] != b"\r"
        return at

    def _trailers(self, data: bytes, at: int) -> int:
        if data.startswith(b"\r\n", at):
            self.done = True
            return at + 2
        blank = data.find(b"\r\n\r\n", at)
        if blank < 0:
            self.broken = len(data) - at > MAX_TRAILERS
            return at
        self.done = _TRAILERS(data, at, blank + 2) is not None
        self.broken = not self.done
        return blank + 4


def _data_of_chunks(chunks: bytes, size: int) -> bytes:
    """The data of chunks that have a size line of one digit: one by one, 256 KiB of them would take 30 ms."""
    data = bytearray(len(chunks) // (size + 5) * size)
    for position in range(size):
        data[position::size] = chunks[3 + position :: size + 5]
    return bytes(data)


Body = SizedBody | CloseDelimitedBody | ChunkedBody
"""Removes the framing of a body: `feed` returns the data, `rest` contains the bytes after the body."""


# Heads of one client or engine have most lines in common. Only those of small heads are kept, which bounds the memory.


@lru_cache(KEPT_LINES)
def _request_line(line: bytes) -> tuple[str, str, bool]:
    """Method, target, and whether the version is HTTP/1.0."""
    match = _REQUEST_LINE(line)
    if match is None:
        raise BadHttpError("invalid HTTP: the request line is malformed")
    if len(match[2].partition(b"?")[0]) > MAX_PATH:
        raise BadHttpError(f"the path of the request is longer than {MAX_PATH} bytes", 414, "path_too_long")
    return match[1].decode(), match[2].decode(), match[3] == b"0"


@lru_cache(KEPT_LINES)
def _status_line(line: bytes) -> tuple[bool, int, bytes]:
    """Whether the version is HTTP/1.0, status, and reason."""
    match = _STATUS_LINE(line)
    if match is None:
        raise BadHttpError("invalid HTTP: the status line is malformed")
    return match[1] == b"0", int(match[2]), match[3] or b""


@lru_cache(KEPT_LINES)
def _header(line: bytes) -> Header:
    match = _FIELD_LINE(line)
    if match is None:
        raise BadHttpError("invalid HTTP: a header is malformed")
    return match[1].lower(), match[2].strip(b" \t")


def _headers(lines: list[bytes], *, keep: bool) -> tuple[list[Header], dict[bytes, bytes]]:
    if len(lines) > MAX_HEADERS:
        raise BadHttpError(f"the head has more than {MAX_HEADERS} headers", 431, "head_too_large")
    headers = [*map(_header if keep else _header.__wrapped__, lines)]
    fields = dict(headers)
    if len(fields) != len(headers):
        fields = dict(reversed(headers))  # so that the first of several equal names remains
    return headers, fields


def _is_event_stream(kind: bytes) -> bool:
    end = len(_EVENT_STREAM)
    return kind[:end].lower() == _EVENT_STREAM and kind[end:].lstrip(b" \t")[:1] in {b"", b";"}


def _is_length(value: bytes) -> bool:
    return value.isdigit() and len(value) <= MAX_DIGITS


def _reject_repeated(headers: list[Header]) -> None:
    names = [name for name, _ in headers]
    if names.count(b"host") > 1:
        raise BadHttpError("a request needs exactly one Host header", code="bad_host")
    if names.count(b"content-length") > 1 or names.count(b"transfer-encoding") > 1:
        raise BadHttpError("content-length and transfer-encoding must not be repeated", code="bad_framing")


def _requires_upgrade(headers: list[Header]) -> bool:
    """Whether a protocol other than `h2c` is requested; clients that offer h2c, as the JDK's does, accept HTTP/1.1."""
    return any(value != b"h2c" for value in _upgrades(headers))


def _upgrades(headers: list[Header]) -> list[bytes]:
    return [value.lower() for name, value in headers if name == b"upgrade"]


def _tokens(headers: list[Header], field: bytes) -> set[bytes]:
    """The lower-case members of the lists in these headers.

    Raises:
        BadHttpError: there are too many.
    """
    tokens = b",".join([value for name, value in headers if name == field]).split(b",", MAX_OPTIONS)
    if len(tokens) > MAX_OPTIONS:
        raise BadHttpError(f"the {field.decode().title()} header has more than {MAX_OPTIONS} options")
    return {token.strip(b" \t").lower() for token in tokens}


def _without(headers: list[Header], names: Collection[bytes]) -> list[Header]:
    return [header for header in headers if header[0] not in names] if names else headers
