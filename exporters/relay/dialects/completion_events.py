"""Events and unary bodies of `/v1/chat/completions` and `/v1/completions`."""

from typing import ClassVar

import msgspec

from exporters.relay.bodies.first_elements import First
from exporters.relay.dialects.dialect import MAX_CHOICES, EngineTimes, Output, ReadCount, TokenCounts
from exporters.vocabulary import signals
from exporters.vocabulary.engine_values import ABSENT, Count, Number

DONE = b"[DONE]"


class CachedDetails(msgspec.Struct):
    """`usage.prompt_tokens_details`."""

    cached_tokens: Number = ABSENT


class ReasoningDetails(msgspec.Struct):
    """`usage.completion_tokens_details`, or `usage.output_tokens_details` of `/v1/responses`."""

    reasoning_tokens: Number = ABSENT


class Usage(msgspec.Struct, gc=False):
    """`usage`."""

    prompt_tokens: Number = ABSENT
    completion_tokens: Number = ABSENT
    prompt_tokens_details: CachedDetails | None = None
    completion_tokens_details: ReasoningDetails | None = None

    def counts(self, read: ReadCount) -> TokenCounts:
        cached, reasoning = self.prompt_tokens_details, self.completion_tokens_details
        return TokenCounts(
            read(self.prompt_tokens, signals.PROMPT_TOKENS),
            read(self.completion_tokens, signals.COMPLETION_TOKENS),
            None if cached is None else read(cached.cached_tokens, signals.CACHED_TOKENS),
            None if reasoning is None else read(reasoning.reasoning_tokens, signals.REASONING_TOKENS),
        )


_TOOL_CALL_ENDS = frozenset({"tool_calls", "stop"})
"""Finish reasons after which tool calls are complete; vLLM sends `stop` for a call that the request has forced."""


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class CompletionEvent(msgspec.Struct, gc=False):
    """Implements `Event`."""

    choices: list[_Choice] | None = None
    usage: Usage | None = None
    metrics: EngineTimes | None = None
    system_fingerprint: str | None = None
    error: msgspec.Raw = ABSENT

    response_id: ClassVar[msgspec.Raw | str | None] = None
    response_model: ClassVar[msgspec.Raw | str | None] = None
    ends: ClassVar[bool] = False  # DONE does

    @property
    def failed(self) -> bool:
        return self.error is not ABSENT and bytes(self.error) != b"null"

    @property
    def carries_choice(self) -> bool:
        return bool(self.choices)

    @property
    def output(self) -> bool:
        # `any` with a generator takes three times as long.
        for choice in self.choices or ():
            delta = choice.delta
            if choice.text or (
                delta is not None and (delta.content or delta.reasoning or delta.reasoning_content or delta.tool_calls)
            ):
                return True
        return False

    @property
    def answer(self) -> bool:
        return any(
            choice.text or ((delta := choice.delta) is not None and (delta.content or delta.tool_calls))
            for choice in self.choices or ()
        )

    @property
    def only_text(self) -> str | None:
        choices = self.choices
        if not choices or len(choices) > 1 or self.metrics is not None or (self.error is not ABSENT and self.failed):
            return None
        choice = choices[0]
        delta = choice.delta
        if choice.finish_reason is not None:
            return None
        if delta is None:
            return choice.text or None
        if delta.tool_calls:
            return None
        if delta.content and not (choice.text or delta.reasoning or delta.reasoning_content):
            return delta.content
        outputs = [text for text in (choice.text, delta.content, delta.reasoning, delta.reasoning_content) if text]
        return outputs[0] if len(outputs) == 1 else None

    @property
    def carries_tool_call(self) -> bool:
        # Tool calls are measured for one choice only.
        choices = self.choices
        return bool(choices and (delta := choices[0].delta) is not None and delta.tool_calls)

    @property
    def ends_tool_call(self) -> bool:
        if not self.choices:
            return False
        choice = self.choices[0]
        calls = (choice.delta is not None and choice.delta.tool_calls) or ()
        return choice.finish_reason in _TOOL_CALL_ENDS or any(_index(call) > 0 for call in calls)

    @property
    def finish_reason(self) -> str | None:
        for choice in self.choices or ():
            if choice.finish_reason is not None:
                return choice.finish_reason
        return None


class IdentifiedEvent(CompletionEvent, gc=False):
    """An event with the id and the model of its response, which all events repeat; decoding them takes 0.17 us."""

    # Raw, so that an event whose id is not a string is measured, too.
    response_id: msgspec.Raw = msgspec.field(default=ABSENT, name="id")  # type: ignore[misc]
    response_model: msgspec.Raw = msgspec.field(default=ABSENT, name="model")  # type: ignore[misc]


_MAX_CALLS = 64
"""Tool calls of a choice that are decoded of a long event, or to collect the output."""


class _LongDelta(_Delta, gc=False):
    tool_calls: First[list[msgspec.Raw], _MAX_CALLS] | None = None


class LongChoice(_Choice, gc=False):
    delta: _LongDelta | None = None


class LongEvent(IdentifiedEvent, gc=False):
    """An event of any length, or a unary body."""

    choices: First[list[LongChoice], MAX_CHOICES] | None = None  # type: ignore[assignment]  # a list is invariant


class _Function(msgspec.Struct):
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    index: int | None = None  # only in a stream
    function: _Function | None = None


class _Output(msgspec.Struct):
    content: str | None = None
    tool_calls: First[list[_ToolCall], _MAX_CALLS] | None = None


class _OutputChoice(msgspec.Struct):
    index: int = 0
    text: str | None = None
    delta: _Output | None = None
    message: _Output | None = None  # of a unary body
    finish_reason: str | None = None


class _OutputEvent(msgspec.Struct):
    """The output of an event, which CompletionEvent does not need."""

    choices: First[list[_OutputChoice], MAX_CHOICES] | None = None


class _PlainCached(msgspec.Struct):
    cached_tokens: Count | None = None


class _PlainReasoning(msgspec.Struct):
    reasoning_tokens: Count | None = None


class _PlainUsage(msgspec.Struct, gc=False):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: _PlainCached | None = None
    completion_tokens_details: _PlainReasoning | None = None

    def counts(self, _: ReadCount) -> TokenCounts:
        cached, reasoning = self.prompt_tokens_details, self.completion_tokens_details
        return TokenCounts(
            self.prompt_tokens,
            self.completion_tokens,
            None if cached is None else cached.cached_tokens,
            None if reasoning is None else reasoning.reasoning_tokens,
        )


class _PlainEvent(CompletionEvent, gc=False):
    """An event with plausible counts and names, as nearly all are: checking them while decoding is faster."""

    usage: _PlainUsage | None = None  # type: ignore[assignment]
    response_id: str | None = msgspec.field(default=None, name="id")  # type: ignore[misc]
    response_model: str | None = msgspec.field(default=None, name="model")  # type: ignore[misc]


decode = msgspec.json.Decoder(CompletionEvent).decode
_decode_tool_call = msgspec.json.Decoder(_ToolCall).decode
_decode_plain = msgspec.json.Decoder(_PlainEvent).decode
_decode_identified = msgspec.json.Decoder(IdentifiedEvent).decode
decode_long = msgspec.json.Decoder(LongEvent).decode
decode_output = msgspec.json.Decoder(_OutputEvent).decode


def decode_identified(data: bytes | bytearray) -> CompletionEvent:
    """The event, with the id and the model of its response."""
    try:
        return _decode_plain(data)
    except msgspec.ValidationError:
        return _decode_identified(data)


def _index(call: msgspec.Raw) -> int:
    """The position of the tool call in the response."""
    try:
        return _decode_tool_call(call).index or 0
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0


def collect(found: _OutputEvent, output: Output) -> None:
    for choice in found.choices or ():
        made = choice.delta or choice.message or _Output()
        output.text(made.content or choice.text or "", choice.index)
        for number, call in enumerate(made.tool_calls or ()):
            arguments = call.function.arguments if call.function is not None else None
            output.call(number if call.index is None else call.index, arguments or "", choice.index)
        if choice.finish_reason == "length":
            output.cut(choice.index)
