"""The path of nearly every token: a chunk that differs from one already read in nothing but its text.

Such a chunk is recognised by comparing bytes, without an HTTP or a JSON parser, and it goes on as
it came.
"""

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from exporters.relay import sse

if TYPE_CHECKING:
    from exporters.relay.meter import Meter

# A JSON string without escapes, in valid UTF-8 (RFC 3629, section 4): its bytes are its value.
_ASCII = rb"[\x20!\x23-\x5b\x5d-\x7f]*+"
_TAIL = rb"[\x80-\xbf]"
_PLAIN = re.compile(
    rb"%s(?:(?:[\xc2-\xdf]%s|\xe0[\xa0-\xbf]%s|[\xe1-\xec\xee\xef]%s{2}|\xed[\x80-\x9f]%s"
    rb"|\xf0[\x90-\xbf]%s{2}|[\xf1-\xf3]%s{3}|\xf4[\x80-\x8f]%s{2})%s)*+"
    % (_ASCII, _TAIL, _TAIL, _TAIL, _TAIL, _TAIL, _TAIL, _TAIL, _ASCII)
).fullmatch

LONGEST = 4096
"""Bytes of a chunk; longer ones take the other path."""


def _size_lines() -> list[bytes]:
    """By the length of a chunk with its frame: the size line that it must begin with."""
    lines = [b"\r"] * (LONGEST + 1)  # begins no chunk
    for size in range(1, LONGEST):
        line = b"%x\r\n" % size
        if (length := len(line) + size + 2) <= LONGEST:
            lines[length] = line
    return lines


_SIZE_LINES = _size_lines()


class Pattern(NamedTuple):
    """An event around its text."""

    before: bytes
    after: bytes


def learn(json: bytes, read: sse.Event) -> Pattern | None:
    """What events like this one have in common, or None where it may be more than one choice's next piece of text."""
    if len(read.choices) != 1 or read.usage is not None or read.metrics is not None or read.failed:
        return None
    choice = read.choices[0]
    delta = choice.delta
    texts = [choice.text] if delta is None else [choice.text, delta.content, delta.reasoning, delta.reasoning_content]
    said = [text for text in texts if text]
    if len(said) != 1 or choice.finish_reason is not None or (delta is not None and delta.tool_calls):
        return None
    text = said[0].encode()
    literal = b'"%s"' % text
    at = json.find(literal)
    # Once and as a value: then it is this text that the literal spells.
    if at < 0 or json.find(literal, at + 1) >= 0 or json[:at].rstrip()[-1:] != b":" or not _PLAIN(text):
        return None
    return Pattern(b"data: " + json[: at + 1], json[at + 1 + len(text) :] + b"\n\n")


class FastPath:
    """Forwards the chunks of one stream that follow its pattern."""

    __slots__ = ("_after", "_before", "_failed", "_meter", "_send")

    def __init__(
        self, like: Pattern, meter: "Meter", send: Callable[[bytes], None], failed: Callable[[Exception], None]
    ) -> None:
        self._before = like.before
        self._after = like.after + b"\r\n"
        self._meter = meter
        self._send = send
        self._failed = failed

    def forward(self, data: bytes) -> bool:
        """Count and send on a read that is one whole chunk of the pattern; False, and nothing done, otherwise."""
        length = len(data)
        if length > LONGEST:
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
        try:
            self._meter.output(time.monotonic())
        except Exception as error:  # noqa: BLE001 - a fault in measuring must never cost a user the answer
            self._failed(error)
        self._send(data)
        return True
