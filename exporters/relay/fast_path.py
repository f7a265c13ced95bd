"""The fast path of a stream: forwards chunks that differ from a parsed chunk only in their text.

Such a chunk is recognised by comparing bytes, without HTTP or JSON parsing, and is forwarded unchanged.
"""

import re
import time
from collections.abc import Callable
from typing import NamedTuple

from exporters.relay import sse

# A JSON string of valid UTF-8 (RFC 3629, section 4) without escapes.
_ASCII = rb"[\x20!\x23-\x5b\x5d-\x7f]*+"
_TAIL = rb"[\x80-\xbf]"
_PLAIN = re.compile(
    rb"%s(?:(?:[\xc2-\xdf]%s|\xe0[\xa0-\xbf]%s|[\xe1-\xec\xee\xef]%s{2}|\xed[\x80-\x9f]%s"
    rb"|\xf0[\x90-\xbf]%s{2}|[\xf1-\xf3]%s{3}|\xf4[\x80-\x8f]%s{2})%s)*+"
    % (_ASCII, _TAIL, _TAIL, _TAIL, _TAIL, _TAIL, _TAIL, _TAIL, _ASCII)
).fullmatch

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


class Pattern(NamedTuple):
    """The bytes of an event before and after its text."""

    before: bytes
    after: bytes


def learn(json: bytes, event: sse.Event) -> Pattern | None:
    """The pattern of this event, or None if it is too long, or may carry more than the text of one choice."""
    if (
        len(json) > MAX_CHUNK
        or len(event.choices) != 1
        or event.usage is not None
        or event.metrics is not None
        or event.failed
    ):
        return None
    choice = event.choices[0]
    delta = choice.delta
    texts = [choice.text] if delta is None else [choice.text, delta.content, delta.reasoning, delta.reasoning_content]
    outputs = [text for text in texts if text]
    if len(outputs) != 1 or choice.finish_reason is not None or (delta is not None and delta.tool_calls):
        return None
    text = outputs[0].encode()
    literal = b'"%s"' % text
    at = json.find(literal)
    # The literal is this text if it occurs once and as a value.
    if at < 0 or json.find(literal, at + 1) >= 0 or json[:at].rstrip()[-1:] != b":" or not _PLAIN(text):
        return None
    return Pattern(b"data: " + json[: at + 1], json[at + 1 + len(text) :] + b"\n\n")


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
        self._before = pattern.before
        self._after = pattern.after + b"\r\n"
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
