"""Reads of a request body what measuring needs, and asks the engine for usage where the client did not."""

import hashlib
from typing import Annotated

import msgspec

CHARACTERS_PER_TOKEN = 4
"""Before usage is known, prompt tokens are estimated as decoded text characters / 4; images are not counted."""


# JSON knows no bounds, records and spans do: a number beyond them is not understood, rather than stuck on its way.
_Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Part(msgspec.Struct):
    text: str = ""


class _Message(msgspec.Struct):
    content: str | list[_Part] | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Body(msgspec.Struct):
    model: str = ""
    messages: list[_Message] = []
    prompt: str | list[str | _Int | list[_Int]] | None = None
    max_tokens: _Int | None = None
    max_completion_tokens: _Int | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: _Int | None = None
    temperature: float | None = None


_decode = msgspec.json.Decoder(_Body).decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for bytes that are no JSON of a sane depth."""


class RequestBody(msgspec.Struct, frozen=True):
    """A parsed request; `prompt_tokens` is an estimate."""

    model: str
    prompt_tokens: float
    max_tokens: int | None
    stream: bool
    asks_usage: bool
    n: int
    temperature: float | None
    prompt_sha256: str


def read(body: bytes, salt: bytes) -> RequestBody | None:
    """What the body asks for, or None when it is not the JSON that these endpoints take."""
    try:
        asked = _decode(body)
    except NOT_JSON:
        return None
    options = asked.stream_options
    return RequestBody(
        model=asked.model,
        prompt_tokens=_prompt_tokens(asked),
        # where both are given, vLLM goes by the newer name
        max_tokens=asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens,
        stream=bool(asked.stream),
        asks_usage=bool(options and options.include_usage),
        n=asked.n or 1,
        temperature=asked.temperature,
        prompt_sha256=_digest(asked, salt),
    )


def with_usage(body: bytes) -> bytes:
    """The same body with `stream_options.include_usage` on; every other value keeps its bytes.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the body is no JSON object of a sane depth.
    """
    fields = _decode_raw(body)
    options: dict[str, msgspec.Raw] = {}
    given = fields.get("stream_options")
    if given is not None and bytes(given) != b"null":
        options = _decode_raw(given)
    options["include_usage"] = msgspec.Raw(b"true")
    fields["stream_options"] = msgspec.Raw(msgspec.json.encode(options))
    return msgspec.json.encode(fields)


def _prompt_tokens(asked: _Body) -> float:
    characters = 0
    for message in asked.messages:
        if isinstance(message.content, str):
            characters += len(message.content)
        elif message.content:
            characters += sum(len(part.text) for part in message.content)
    tokens = 0
    prompt = asked.prompt
    if isinstance(prompt, str):
        characters += len(prompt)
    elif prompt:
        for item in prompt:
            if isinstance(item, str):
                characters += len(item)
            else:
                tokens += len(item) if isinstance(item, list) else 1
    return tokens + characters / CHARACTERS_PER_TOKEN


def _digest(asked: _Body, salt: bytes) -> str:
    digest = hashlib.sha256(salt)
    digest.update(asked.model.encode())
    digest.update(msgspec.msgpack.encode((asked.messages, asked.prompt)))
    return digest.hexdigest()
