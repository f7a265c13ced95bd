"""The dialect of `/v1/embeddings`, `/pooling`, `/classify`, rerank and score, whose response is one JSON body."""

from concurrent.futures import Executor
from typing import Any, ClassVar

import msgspec

from exporters import signals
from exporters.engine_values import Number
from exporters.relay.dense_json import MAX_QUOTES, is_dense
from exporters.relay.dialects.dialect import Output, ReadCount, TokenCounts, WholeResponse
from exporters.relay.request_body import (
    ABSENT,
    CHARACTERS_PER_TOKEN,
    LONG_BODY,
    NOT_JSON,
    RequestBody,
    count_token_ids,
    digests,
    json_tokens,
    without_completion,
)

DONE = None

_MAX_QUOTES = MAX_QUOTES // 2
"""Inputs may have any form, so that decoding them takes longer than decoding messages."""


class _Body(msgspec.Struct):
    """The model and all fields with input: texts, token ids, messages, or documents with parts."""

    model: str | None = None
    input: msgspec.Raw = ABSENT
    messages: msgspec.Raw = ABSENT
    query: msgspec.Raw = ABSENT
    queries: msgspec.Raw = ABSENT
    documents: msgspec.Raw = ABSENT
    items: msgspec.Raw = ABSENT
    text_1: msgspec.Raw = ABSENT
    text_2: msgspec.Raw = ABSENT
    data_1: msgspec.Raw = ABSENT
    data_2: msgspec.Raw = ABSENT
    system: msgspec.Raw = ABSENT
    prompt: msgspec.Raw = ABSENT
    tokens: msgspec.Raw = ABSENT


class Answer(WholeResponse):
    """Implements `Event` without `usage`."""

    metrics: ClassVar[None] = None
    finish_reason: ClassVar[None] = None
    failed: ClassVar[bool] = False


class _Usage(msgspec.Struct):
    prompt_tokens: Number = ABSENT
    total_tokens: Number = ABSENT

    def counts(self, read: ReadCount) -> TokenCounts:
        """Some releases of vLLM report only the total of a rerank. Its 0 completion tokens are not a completion."""
        prompt = read(self.prompt_tokens, signals.PROMPT_TOKENS)
        return TokenCounts(read(self.total_tokens, signals.PROMPT_TOKENS) if prompt is None else prompt)


class _Answer(Answer):
    usage: _Usage | None = None


_decode_body = msgspec.json.Decoder(_Body).decode
decode = decode_first = decode_unary = msgspec.json.Decoder(_Answer).decode


def collect(data: bytes | bytearray, output: Output) -> None:
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
    body = _decode_body(data)
    inputs = [bytes(value) for value in msgspec.structs.astuple(body)[1:]]
    return body.model, inputs, sum(map(_estimate, filter(None, inputs)))


def _estimate(json: bytes) -> float:
    tokens = count_token_ids(json)
    if tokens is not None:
        return tokens
    if len(json) > LONG_BODY and is_dense(json, _MAX_QUOTES):
        return json_tokens(msgspec.Raw(json))
    return _tokens(msgspec.json.decode(json))


def _tokens(value: Any) -> float:
    """The tokens of texts and token ids, also in messages, documents and their parts; images are not counted."""
    if isinstance(value, str):
        return len(value) / CHARACTERS_PER_TOKEN
    if isinstance(value, list):
        return sum(map(_tokens, value))
    if isinstance(value, dict):
        return _tokens(value.get("text")) + _tokens(value.get("content"))
    return 1 if isinstance(value, int) else 0
