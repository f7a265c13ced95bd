"""The dialect of `/v1/messages`, Anthropic's Messages API."""

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
from exporters.relay.dialects.dialect import Output, ReadCount, TokenCounts
from exporters.text.names import cut
from exporters.vocabulary import signals
from exporters.vocabulary.engine_values import Number

DONE = None


class _Block(Counted, gc=False, omit_defaults=True):
    """A text, the result of a tool, or another block of a message, whose JSON is only hashed."""

    text: str | None = None
    content: "str | list[str | _Block] | _Block | None" = None
    source: msgspec.Raw = ABSENT  # of an image or a document
    input: msgspec.Raw = ABSENT  # of a tool


_Content = str | list[str | _Block] | _Block | None


class _Message(Counted, gc=False):
    content: _Content = None


class _Parameters(msgspec.Struct):
    model: str | None = None
    max_tokens: Int | None = None
    stream: bool | None = None
    temperature: float | None = None


class _Body(_Parameters):
    system: _Content = None
    messages: list[_Message] = []


class _PromptTokens(msgspec.Struct):
    input_tokens: Number = ABSENT
    cache_creation_input_tokens: Number = ABSENT
    cache_read_input_tokens: Number = ABSENT

    def counts(self, read: ReadCount) -> TokenCounts:
        """`input_tokens` are the prompt tokens that are neither read from the cache nor written to it."""
        prompt = read(self.input_tokens, signals.PROMPT_TOKENS)
        written = read(self.cache_creation_input_tokens, signals.PROMPT_TOKENS)
        cached = read(self.cache_read_input_tokens, signals.CACHED_TOKENS)
        return TokenCounts(None if prompt is None else prompt + (written or 0) + (cached or 0), cached=cached)


class _StartUsage(_PromptTokens):
    """`usage` of `message_start`, whose `output_tokens` are not those of the whole response."""


class _Usage(_PromptTokens):
    """`usage` of `message_delta` and of a unary body."""

    output_tokens: Number = ABSENT

    def counts(self, read: ReadCount) -> TokenCounts:
        completion = read(self.output_tokens, signals.COMPLETION_TOKENS)
        return super().counts(read)._replace(completion=completion)


class _Start(msgspec.Struct):
    usage: _StartUsage | None = None
    id: msgspec.Raw = ABSENT
    model: msgspec.Raw = ABSENT


class _Delta(msgspec.Struct, gc=False):
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _ContentBlock(msgspec.Struct):
    """`content_block` of `content_block_start`."""

    type: str = ""


class _Event(msgspec.Struct, gc=False):
    """An event, or a unary body, which has the fields of `message_delta`."""

    type: str = ""
    delta: _Delta | None = None
    message: _Start | None = None
    final_usage: _Usage | None = msgspec.field(default=None, name="usage")
    stop_reason: str | None = None
    content_block: _ContentBlock | None = None
    id: msgspec.Raw = ABSENT
    model: msgspec.Raw = ABSENT

    carries_choice: ClassVar[bool] = True
    metrics: ClassVar[None] = None
    system_fingerprint: ClassVar[None] = None

    @property
    def output(self) -> bool:
        delta = self.delta
        return (
            self.type == "content_block_delta"
            and delta is not None
            and bool(delta.text or delta.thinking or delta.partial_json)
        )

    @property
    def answer(self) -> bool:
        return self.output and (delta := self.delta) is not None and bool(delta.text or delta.partial_json)

    @property
    def only_text(self) -> str | None:
        delta = self.delta
        if delta is None or not self.output or self.finish_reason is not None or self.message is not None:
            return None
        outputs = [text for text in (delta.text, delta.thinking, delta.partial_json) if text]
        return outputs[0] if len(outputs) == 1 else None

    @property
    def carries_tool_call(self) -> bool:
        """Whether the event begins a tool call; the content blocks of a message follow each other."""
        return self.content_block is not None and self.content_block.type == "tool_use"

    @property
    def ends_tool_call(self) -> bool:
        return self.type == "content_block_stop"

    @property
    def usage(self) -> _StartUsage | _Usage | None:
        return self.final_usage if self.message is None else self.message.usage

    @property
    def response_id(self) -> msgspec.Raw:
        return self.id if self.message is None else self.message.id

    @property
    def response_model(self) -> msgspec.Raw:
        return self.model if self.message is None else self.message.model

    @property
    def finish_reason(self) -> str | None:
        return self.stop_reason if self.delta is None else self.delta.stop_reason

    @property
    def failed(self) -> bool:
        return self.type == "error"

    @property
    def ends(self) -> bool:
        return self.type in {"message_stop", "error"}


class _OutputBlock(msgspec.Struct):
    type: str = ""
    text: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"null")


class _Output(msgspec.Struct):
    """The output of an event or of a unary body, which _Event does not need."""

    type: str = ""
    index: int = 0
    content_block: _OutputBlock | None = None
    delta: _Delta | None = None
    content: First[list[_OutputBlock], 1024] | None = None
    stop_reason: str | None = None


_decode_body = msgspec.json.Decoder(_Body).decode
decode_output = msgspec.json.Decoder(_Output).decode
decode = decode_first = decode_long = decode_unary = msgspec.json.Decoder(_Event).decode


def collect(found: _Output, output: Output) -> None:
    delta = found.delta or _Delta()
    if found.type == "content_block_delta":
        output.text(delta.text or "")
        if delta.partial_json is not None:
            output.call(found.index, delta.partial_json)
    elif found.content_block is not None and found.content_block.type == "tool_use":
        output.empty_call = b"{}"
        output.call(found.index, "")
    for number, block in enumerate(found.content or ()):
        output.text(block.text or "")
        if block.type == "tool_use":
            output.call(number, bytes(block.input).decode())
    if "max_tokens" in (found.stop_reason, delta.stop_reason):
        output.cut()


def parse(data: bytes, salt: bytes | None, hashing: Executor) -> RequestBody | None:
    try:
        body, prompt, tokens = whole_or_dense(data, _decode_body, _Parameters, ("system", "messages"), _tokens)
    except NOT_JSON:
        return None
    return RequestBody(
        model=cut(body.model or ""),
        prompt_tokens=tokens,
        max_tokens=body.max_tokens,
        stream=bool(body.stream),
        temperature=body.temperature,
        _digests=digests(data, hashing, salt, body.model, prompt),
    )


def _tokens(body: _Body) -> float:
    characters = _length(body.system) + sum(_length(message.content) for message in body.messages)
    return characters / CHARACTERS_PER_TOKEN


def _length(content: _Content) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return len(content)
    if isinstance(content, _Block):
        return len(content.text or "") + _length(content.content)
    return sum(_length(block) for block in content)
