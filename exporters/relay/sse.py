"""Cuts a server-sent event stream into events without changing a byte, and decodes what each one carries."""

import re
from typing import Annotated

import msgspec

# A blank line in any mix of line ends; `\r` counts alone only where no `\n` follows.
_BLANK = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
_LINE = re.compile(rb"\r\n|\n|\r")


# Bounded, because the records that carry them have 64 bits.
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
    time_to_first_token_ms: float | None = None  # counted from *scheduled*: the prefill time
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
    """One JSON event of a completion stream, or a whole unary body."""

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
        for choice in self.choices:  # a loop, as `any` of a generator takes three times as long
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


decode = msgspec.json.Decoder(Event).decode
DONE = b"[DONE]"


class Splitter:
    """Turns reads into whole events: the bytes of each with its blank line, in order, none lost."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The events that `data` completes; the rest is pending."""
        if not self._pending and data.endswith(b"\n\n") and data.find(b"\n\n") == len(data) - 2 and b"\r" not in data:
            return [data]  # one read, one event: how vLLM sends them
        if self._pending:
            data = self._pending + data
        events, start = [], 0
        for blank in _BLANK.finditer(data):
            end = blank.end()
            if end == len(data) and data.endswith(b"\r"):
                break  # the `\n` of this line end may still be on its way
            events.append(data[start:end])
            start = end
        self._pending = data[start:]
        return events

    @property
    def pending(self) -> bytes:
        """The bytes of the event that is not complete."""
        return self._pending

    def release(self) -> bytes:
        """Return the pending bytes and forget them: the stream has ended."""
        pending, self._pending = self._pending, b""
        return pending


def payload(event: bytes) -> bytes:
    """The `data:` of an event; empty for comments and other fields."""
    if event.startswith(b"data: ") and event.endswith(b"}\n\n") and event.count(b"\n") == 2 and b"\r" not in event:
        return event[6:-2]
    lines = [line[5:].removeprefix(b" ") for line in _LINE.split(event) if line.startswith(b"data:")]
    return b"\n".join(lines)
