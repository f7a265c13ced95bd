"""The dialect of `/v1/embeddings`, `/pooling`, `/classify`, rerank and score, whose response is one JSON body."""

from collections.abc import Callable
from concurrent.futures import Executor
from typing import ClassVar

import msgspec

from exporters.relay.bodies.dense_json import MAX_QUOTES, Counted, decode_few_objects, has_many_values
from exporters.relay.bodies.request_body import (
    ABSENT,
    CHARACTERS_PER_TOKEN,
    NOT_JSON,
    NULL,
    RequestBody,
    count_token_ids,
    decode_members,
    digests,
    json_tokens,
    without_completion,
)
from exporters.relay.dialects.dialect import Output, ReadCount, TokenCounts, WholeResponse
from exporters.vocabulary import signals
from exporters.vocabulary.engine_values import Number, is_given

DONE = None

_MAX_QUOTES = MAX_QUOTES // 2
"""Inputs may have any form, so that decoding them takes longer than decoding messages."""


_INPUTS = (
    *("input", "messages", "query", "queries", "documents", "items"),
    *("text_1", "text_2", "data_1", "data_2", "system", "prompt", "tokens"),
)
"""All members with input: texts, token ids, messages, or documents with parts."""


class _Item(Counted, gc=False):
    """A message, a document, or a part of either; images are not counted."""

    text: "_Input" = None
    content: "_Input" = None


_Input = str | list[str | _Item] | _Item | None


class Answer(WholeResponse):
    """Implements `Event` without `usage`."""

    metrics: ClassVar[None] = None
    finish_reason: ClassVar[None] = None
    failed: ClassVar[bool] = False


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: Number = ABSENT
    total_tokens: Number = ABSENT

    def counts(self, read: ReadCount) -> TokenCounts:
        """Some releases of vLLM report only the total of a rerank. Its 0 completion tokens are not a completion."""
        prompt = read(self.prompt_tokens, signals.PROMPT_TOKENS)
        return TokenCounts(read(self.total_tokens, signals.PROMPT_TOKENS) if prompt is None else prompt)


class _Answer(Answer):
    usage: _Usage | None = None


_decode_model = msgspec.json.Decoder(str | None).decode
_decode_input: Callable[[bytes], _Input] = msgspec.json.Decoder(_Input).decode
decode = decode_first = decode_long = decode_unary = msgspec.json.Decoder(_Answer).decode


def decode_output(data: bytes | bytearray) -> None:
    """No output is found."""


def collect(found: None, output: Output) -> None:
    """These responses have no text that a request may want as JSON."""


def parse(data: bytes, salt: bytes | None, hashing: Executor) -> RequestBody | None:
    try:
        model, inputs, tokens = parse_inputs(data)
    except NOT_JSON:
        return None
    hashes = digests(data, hashing, salt, model, inputs)
    return without_completion(model, tokens, prompt_digests=hashes, sized=True)


def parse_inputs(data: bytes) -> tuple[str | None, list[bytes], float]:
    """The model, the JSON of each input, and the estimated tokens of all.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the body is not JSON of these APIs.
    """
    members = decode_members(data)
    inputs = [bytes(members.get(name, ABSENT)) for name in _INPUTS]
    tokens = sum(_estimate(json) for json in inputs if is_given(json))
    return _decode_model(members.get("model", NULL)), inputs, tokens


def _estimate(json: bytes) -> float:
    tokens = count_token_ids(json)
    if tokens is not None:
        return tokens
    try:
        found = None if has_many_values(json, _MAX_QUOTES) else decode_few_objects(_decode_input, json)
        if found is not None:
            return _characters(found) / CHARACTERS_PER_TOKEN
    except msgspec.ValidationError:
        pass  # JSON of another form
    return json_tokens(msgspec.Raw(json))


def _characters(value: _Input) -> int:
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value)
    if isinstance(value, _Item):
        return _characters(value.text) + _characters(value.content)
    return sum(map(_characters, value))
