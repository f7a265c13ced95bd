"""Cuts a server-sent event stream into events without changing a byte, and reads what each one carries."""

import re

import msgspec

# A blank line in any mix of line ends; `\r` counts alone only where no `\n` follows.
_BLANK = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
_LINE = re.compile(rb"\r\n|\n|\r")


class CachedDetails(msgspec.Struct):
    """`usage.prompt_tokens_details`."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """The engine's own token counts."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: CachedDetails | None = None

    @property
    def cached_tokens(self) -> int | None:
        return self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else None


class EngineTimes(msgspec.Struct):
    """vLLM's per-request `metrics` (>= 0.25, --enable-per-request-metrics); milliseconds."""

    queue_time_ms: float | None = None
    time_to_first_token_ms: float | None = None  # counted from *scheduled*: the prefill time
    generation_time_ms: float | None = None


class _Delta(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw()
    reasoning: msgspec.Raw = msgspec.Raw()
    reasoning_content: msgspec.Raw = msgspec.Raw()
    tool_calls: msgspec.Raw = msgspec.Raw()


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: msgspec.Raw = msgspec.Raw()
    finish_reason: str | None = None


class Event(msgspec.Struct):
    """One JSON event of a completion stream, or a whole unary body."""

    choices: list[_Choice] = []
    usage: Usage | None = None
    metrics: EngineTimes | None = None
    error: msgspec.Raw = msgspec.Raw()

    @property
    def failed(self) -> bool:
        return _full(self.error)

    @property
    def output(self) -> bool:
        """Whether any choice carries content, text, reasoning or a tool call."""
        return any(_full(choice.text) or _has_output(choice.delta) for choice in self.choices)

    @property
    def answer(self) -> bool:
        """Whether any choice carries output other than reasoning."""
        return any(
            _full(choice.text)
            or (choice.delta is not None and (_full(choice.delta.content) or _full(choice.delta.tool_calls)))
            for choice in self.choices
        )

    @property
    def finish_reason(self) -> str | None:
        return next((choice.finish_reason for choice in self.choices if choice.finish_reason), None)


def _full(raw: msgspec.Raw) -> bool:
    return bytes(raw) not in {b"", b'""', b"null", b"[]"}


def _has_output(delta: _Delta | None) -> bool:
    return delta is not None and (
        _full(delta.content) or _full(delta.reasoning) or _full(delta.reasoning_content) or _full(delta.tool_calls)
    )


decode = msgspec.json.Decoder(Event).decode
DONE = b"[DONE]"


class Splitter:
    """Turns reads into whole events: the bytes of each with its blank line, in order, none lost."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The events that `data` completes; the rest is held."""
        if not self._held and data.endswith(b"\n\n") and data.find(b"\n\n") == len(data) - 2 and b"\r" not in data:
            return [data]  # one read, one event: how vLLM sends them
        if self._held:
            data = self._held + data
        events, start = [], 0
        for blank in _BLANK.finditer(data):
            end = blank.end()
            if end == len(data) and data.endswith(b"\r"):
                break  # the `\n` of this line end may still be on its way
            events.append(data[start:end])
            start = end
        self._held = data[start:]
        return events

    @property
    def held(self) -> bytes:
        """The bytes of the event that is not complete."""
        return self._held

    def release(self) -> bytes:
        """What is held, given up: at the end of the stream."""
        held, self._held = self._held, b""
        return held


def payload(event: bytes) -> bytes:
    """The `data:` of an event; empty for comments and other fields."""
    if event.startswith(b"data: ") and event.endswith(b"}\n\n") and event.count(b"\n") == 2:
        return event[6:-2]
    lines = [line[5:].removeprefix(b" ") for line in _LINE.split(event) if line.startswith(b"data:")]
    return b"\n".join(lines)
