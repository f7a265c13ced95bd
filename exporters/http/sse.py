"""Splits a server-sent event stream into events without changing a byte, and finds their payload."""

import re

from exporters.http.lines import has_more_than

# A blank line with any line ends; a `\r` is a line end only if no `\n` follows.
_BLANK = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
_LINE = re.compile(rb"\r\n|\n|\r")

LONG_EVENT = 64 * 1024
"""Bytes of an event above which only the first elements of its lists are decoded."""

MAX_EVENT_LINES = 1024
"""Lines of an event above which it is not parsed."""


def _end_of_blank_line(data: bytearray, start: int) -> int:
    """The end of the first blank line after `start`; -1 if there is none."""
    if data.find(b"\r", start) < 0:  # the pattern takes 20 times as long for a long event
        found = data.find(b"\n\n", start)
        return found + 2 if found >= 0 else -1
    blank = _BLANK.search(data, start)
    return blank.end() if blank is not None else -1


def _may_go_on(data: bytes | bytearray, end: int) -> bool:
    """Whether the next read may have the rest of the line end before `end`: the `LF` of `CRLF`."""
    return end == len(data) and data.endswith(b"\r")


class Splitter:
    """Splits reads into complete events, each with its blank line."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The events that `data` completes; the remaining bytes are pending."""
        pending, events = self._pending, list[bytes]()
        if pending:
            # The last three bytes may belong to a blank line that `data` completes.
            searched = max(0, len(pending) - 3)
            pending += data
            end = _end_of_blank_line(pending, searched)
            if end < 0 or _may_go_on(pending, end):
                return []
            with memoryview(pending) as view:  # so that a long event is copied only once
                events.append(bytes(view[:end]))
                data = bytes(view[end:])
            pending.clear()
        elif data.endswith(b"\n\n") and data.find(b"\n\n") == len(data) - 2 and b"\r" not in data:
            # One read contains one event, as vLLM sends them.
            return [data]
        start = 0
        for blank in _BLANK.finditer(data):
            end = blank.end()
            if _may_go_on(data, end):
                break
            events.append(data[start:end])
            start = end
        pending += data[start:]
        return events

    @property
    def pending(self) -> int:
        """The size of the incomplete event."""
        return len(self._pending)

    def rest(self, start: int) -> bytes:
        """The bytes of the incomplete event from `start`."""
        return bytes(self._pending[start:])

    def release(self) -> bytes:
        """Return and clear the incomplete event."""
        pending, self._pending = bytes(self._pending), bytearray()
        return pending


def is_one_line(event: bytes) -> bool:
    """Whether an event that ends with a blank line has one line before it."""
    return event.find(b"\n") == len(event) - 2 and b"\r" not in event


def payload(event: bytes) -> bytes:
    """The `data` field of an event; empty if there is none, or if the event has too many lines."""
    if event.startswith(b"data: ") and event.endswith(b"}\n\n") and is_one_line(event):
        return event[6:-2]
    if len(event) > MAX_EVENT_LINES and any(has_more_than(MAX_EVENT_LINES, end, event) for end in (b"\n", b"\r")):
        return b""
    lines = [line[5:].removeprefix(b" ") for line in _LINE.split(event) if line.startswith(b"data:")]
    return b"\n".join(lines)
