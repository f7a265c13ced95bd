"""Splits a server-sent event stream into events without changing a byte, and decodes their payload."""

import re
from typing import Annotated

import msgspec

# A blank line with any line ends; a `\r` is a line end only if no `\n` follows.
_BLANK = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
_LINE = re.compile(rb"\r\n|\n|\r")

# Bounded, because records have 64-bit integers.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class CachedDetails(msgspec.Struct):
    """`usage.prompt_tokens_details`."""

    cached_tokens: Count | None = None


class Usage(msgspec.Struct):
    """The engine's own token counts."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: CachedDetails | None = None

    @property
    def cached_tokens(self) -> int | None:
        return self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else None


class EngineTimes(msgspec.Struct):
    """vLLM's per-request `metrics` (>= 0.25, --enable-per-request-metrics); milliseconds."""

    queue_time_ms: float | None = None
    time_to_first_token_ms: float | None = None
    """Since the request was scheduled, which makes it the prefill time."""
    generation_time_ms: float | None = None


_ABSENT = msgspec.Raw()


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class Event(msgspec.Struct, gc=False):
    """One JSON event of a completion stream, or a complete unary body."""

    choices: list[_Choice] = []
    usage: Usage | None = None
    metrics: EngineTimes | None = None
    system_fingerprint: str | None = None
    error: msgspec.Raw = _ABSENT

    @property
    def failed(self) -> bool:
        return self.error is not _ABSENT and bytes(self.error) != b"null"

    @property
    def output(self) -> bool:
        """Whether any choice carries content, text, reasoning or a tool call."""
        # `any` with a generator takes three times as long.
        for choice in self.choices:
            delta = choice.delta
            if choice.text or (
                delta is not None and (delta.content or delta.reasoning or delta.reasoning_content or delta.tool_calls)
            ):
                return True
        return False

    @property
    def answer(self) -> bool:
        """Whether any choice carries output other than reasoning."""
        return any(
            choice.text or ((delta := choice.delta) is not None and (delta.content or delta.tool_calls))
            for choice in self.choices
        )

    @property
    def finish_reason(self) -> str | None:
        for choice in self.choices:
            if choice.finish_reason is not None:
                return choice.finish_reason
        return None


class _UsageEvent(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The members of the event that engines add to a stream because of `include_usage`."""

    id: msgspec.Raw = _ABSENT
    object: msgspec.Raw = _ABSENT
    created: msgspec.Raw = _ABSENT
    model: msgspec.Raw = _ABSENT
    choices: msgspec.Raw = _ABSENT
    system_fingerprint: msgspec.Raw = _ABSENT
    service_tier: msgspec.Raw = _ABSENT
    obfuscation: msgspec.Raw = _ABSENT
    usage: msgspec.Raw = _ABSENT
    metrics: msgspec.Raw = _ABSENT


decode = msgspec.json.Decoder(Event).decode
_decode_usage_event = msgspec.json.Decoder(_UsageEvent).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
DONE = b"[DONE]"


def _has_blank_line(data: bytearray, start: int) -> bool:
    """Whether there is a blank line after `start`; the pattern alone takes 20 times as long for a long event."""
    return data.find(b"\n\n", start) >= 0 or (data.find(b"\r", start) >= 0 and bool(_BLANK.search(data, start)))


class Splitter:
    """Splits reads into complete events, each with its blank line."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The events that `data` completes; the remaining bytes are pending."""
        pending, searched = self._pending, 0
        if pending:
            # The last three bytes may belong to a blank line that `data` completes.
            searched = max(0, len(pending) - 3)
            pending += data
            if not _has_blank_line(pending, searched):
                return []
            data = bytes(pending)
            pending.clear()
        elif data.endswith(b"\n\n") and data.find(b"\n\n") == len(data) - 2 and b"\r" not in data:
            # One read contains one event, as vLLM sends them.
            return [data]
        events, start = [], 0
        for blank in _BLANK.finditer(data, searched):
            end = blank.end()
            # The `\n` of this line end may be in the next read.
            if end == len(data) and data.endswith(b"\r"):
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


def payload(event: bytes) -> bytes:
    """The `data` field of an event; empty if there is none."""
    if event.startswith(b"data: ") and event.endswith(b"}\n\n") and event.count(b"\n") == 2 and b"\r" not in event:
        return event[6:-2]
    lines = [line[5:].removeprefix(b" ") for line in _LINE.split(event) if line.startswith(b"data:")]
    return b"\n".join(lines)


def without_usage(event: bytes, data: bytes) -> bytes:
    """The event with this payload, without its `usage`; empty if it exists only because of `include_usage`.

    llama.cpp adds its `timings` to the last event of any stream, which is the usage event if there is one. The bytes of
    all other values are unchanged. An event that cannot be rewritten is returned as it is.
    """
    try:
        _decode_usage_event(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _without_member(event, data)
    return b""


def _without_member(event: bytes, data: bytes) -> bytes:
    try:
        members = _decode_members(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return event
    others = members.keys() - _UsageEvent.__struct_fields__
    if all(bytes(members[name]) == b"null" for name in others):
        return b""
    del members["usage"]
    # A payload of several `data` lines is not found in the event.
    return event.replace(data, msgspec.json.encode(members), 1)
