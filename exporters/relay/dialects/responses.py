"""The dialect of `/v1/responses`, OpenAI's Responses API."""

from concurrent.futures import Executor
from typing import ClassVar

import msgspec

from exporters.relay.bodies.dense_json import Counted
from exporters.relay.bodies.first_elements import First
from exporters.relay.bodies.request_body import (
    ABSENT,
    CHARACTERS_PER_TOKEN,
    NOT_JSON,
    Int,
    RequestBody,
    digests,
    whole_or_dense,
)
from exporters.relay.dialects.completion_events import CachedDetails, ReasoningDetails
from exporters.relay.dialects.dialect import EngineTimes, Output, ReadCount, TokenCounts, WholeResponse
from exporters.text.names import cut
from exporters.vocabulary import signals
from exporters.vocabulary.engine_values import Number

DONE = None

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
_TOOL_CALLS = frozenset({"response.function_call_arguments.done", "response.custom_tool_call_input.done"})
_FAILED = frozenset({"failed", "cancelled"})


class _Part(Counted, gc=False, omit_defaults=True):
    """A part of a message: a text, or JSON that is only hashed."""

    text: str | None = None
    image_url: msgspec.Raw = ABSENT
    input_audio: msgspec.Raw = ABSENT
    file_id: msgspec.Raw = ABSENT
    file_data: msgspec.Raw = ABSENT
    file_url: msgspec.Raw = ABSENT


_Content = str | list[str | _Part] | _Part | None


class _Item(Counted, gc=False, omit_defaults=True):
    """A message, a call of a tool, its output, or another item of the input."""

    content: _Content = None
    output: _Content = None
    arguments: msgspec.Raw = ABSENT
    input: msgspec.Raw = ABSENT  # of a custom tool


class _Parameters(msgspec.Struct):
    model: str | None = None
    max_output_tokens: Int | None = None
    stream: bool | None = None
    background: bool | None = None
    temperature: float | None = None


class _Body(_Parameters):
    input: str | list[str | _Item] | None = None
    instructions: str | None = None


class _Usage(msgspec.Struct):
    input_tokens: Number = ABSENT
    output_tokens: Number = ABSENT
    input_tokens_details: CachedDetails | None = None
    output_tokens_details: ReasoningDetails | None = None

    def counts(self, read: ReadCount) -> TokenCounts:
        cached, reasoning = self.input_tokens_details, self.output_tokens_details
        return TokenCounts(
            read(self.input_tokens, signals.PROMPT_TOKENS),
            read(self.output_tokens, signals.COMPLETION_TOKENS),
            None if cached is None else read(cached.cached_tokens, signals.CACHED_TOKENS),
            None if reasoning is None else read(reasoning.reasoning_tokens, signals.REASONING_TOKENS),
        )


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(WholeResponse):
    """The response object: a unary body, and part of the events at the start and the end of a stream."""

    status: str | None = None
    incomplete_details: _Incomplete | None = None
    usage: _Usage | None = None
    metrics: EngineTimes | None = None

    @property
    def finish_reason(self) -> str | None:
        """`status`, or the reason why the response is incomplete."""
        return (self.incomplete_details and self.incomplete_details.reason) or self.status

    @property
    def failed(self) -> bool:
        return self.status in _FAILED


class _Delta(msgspec.Struct):
    """An object, of which nothing is decoded."""


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    delta: str | _Delta | None = None
    response: _Response | None = None

    ends_tool_call: ClassVar[bool] = True
    carries_choice: ClassVar[bool] = True
    system_fingerprint: ClassVar[None] = None

    @property
    def output(self) -> bool:
        return bool(self.delta) and self.type.endswith(".delta")

    @property
    def answer(self) -> bool:
        return self.output and not self.type.startswith("response.reasoning")

    @property
    def only_text(self) -> str | None:
        return self.delta if isinstance(self.delta, str) and self.output else None

    @property
    def carries_tool_call(self) -> bool:
        """Whether the event has the complete arguments."""
        return self.type in _TOOL_CALLS

    @property
    def ends(self) -> bool:
        return self.type in _ENDS

    @property
    def _final(self) -> _Response | None:
        """The complete response; before the end, it has neither its usage nor its status."""
        return self.response if self.response is not None and self.ends else None

    @property
    def usage(self) -> _Usage | None:
        return None if (final := self._final) is None else final.usage

    @property
    def metrics(self) -> EngineTimes | None:
        return None if (final := self._final) is None else final.metrics

    @property
    def response_id(self) -> msgspec.Raw | None:
        return None if self.response is None else self.response.response_id

    @property
    def response_model(self) -> msgspec.Raw | None:
        return None if self.response is None else self.response.response_model

    @property
    def finish_reason(self) -> str | None:
        return None if (final := self._final) is None else final.finish_reason

    @property
    def failed(self) -> bool:
        return self.type in {"response.failed", "error"} or ((final := self._final) is not None and final.failed)


class _OutputPart(msgspec.Struct):
    type: str = ""
    text: str | None = None


class _OutputItem(msgspec.Struct):
    type: str = ""
    arguments: str | None = None
    content: First[list[_OutputPart], 64] | None = None


class _Outputs(msgspec.Struct):
    output: First[list[_OutputItem], 256] | None = None
    status: str | None = None


class _OutputEvent(_Outputs):
    """The output of an event or of a unary body, which _Event and _Response do not need."""

    type: str = ""
    item: _OutputItem | None = None
    response: _Outputs | None = None


_decode_body = msgspec.json.Decoder(_Body).decode
decode_output = msgspec.json.Decoder(_OutputEvent).decode
decode = decode_first = decode_long = msgspec.json.Decoder(_Event).decode
decode_unary = msgspec.json.Decoder(_Response).decode


def collect(found: _OutputEvent, output: Output) -> None:
    """The last event of a stream has the whole output, as a unary body has."""
    if found.item is not None and found.item.type == "function_call":
        output.calls_tool()
    if found.type and found.type not in _ENDS:
        return
    response = found.response or found
    for number, item in enumerate(response.output or ()):
        if item.type == "function_call":
            output.call(number, item.arguments or "")
        elif item.type == "message":
            output.text("".join(part.text or "" for part in item.content or ()))
    if response.status == "incomplete":
        output.cut()


def parse(data: bytes, salt: bytes | None, hashing: Executor) -> RequestBody | None:
    try:
        body, prompt, tokens = whole_or_dense(data, _decode_body, _Parameters, ("instructions", "input"), _tokens)
    except NOT_JSON:
        return None
    return RequestBody(
        model=cut(body.model or ""),
        prompt_tokens=tokens,
        max_tokens=body.max_output_tokens,
        stream=bool(body.stream),
        temperature=body.temperature,
        _digests=digests(data, hashing, salt, body.model, prompt),
        background=bool(body.background),
    )


def _tokens(body: _Body) -> float:
    characters = len(body.instructions or "")
    if isinstance(body.input, str):
        characters += len(body.input)
    else:
        for item in body.input or ():
            characters += len(item) if isinstance(item, str) else _length(item.content) + _length(item.output)
    return characters / CHARACTERS_PER_TOKEN


def _length(content: _Content) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return len(content)
    parts = [content] if isinstance(content, _Part) else content
    return sum(len(part if isinstance(part, str) else part.text or "") for part in parts)
