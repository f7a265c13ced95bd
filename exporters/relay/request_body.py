"""Parses the fields of a request body that metering uses, and adds `stream_options.include_usage`."""

import hashlib
from typing import Annotated, Any

import msgspec

CHARACTERS_PER_TOKEN = 4
"""Estimates prompt tokens from decoded text characters until usage is known; images are not counted."""

# Records and spans have 64-bit integers; a body with a larger number is not parsed.
Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Part(msgspec.Struct):
    text: str = ""


class _Message(msgspec.Struct):
    content: str | list[str | _Part] | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | msgspec.UnsetType | None = msgspec.UNSET
    continuous_usage_stats: Any = None


class _Body(msgspec.Struct):
    model: str | None = None
    messages: list[_Message] = []
    prompt: str | list[str | Int | list[Int]] | None = None
    max_tokens: Int | None = None
    max_completion_tokens: Int | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: Int | None = None
    temperature: float | None = None


_decode = msgspec.json.Decoder(_Body).decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Raised by decoding invalid or too deeply nested JSON."""


class RequestBody(msgspec.Struct, frozen=True):
    """A parsed request; `prompt_tokens` is an estimate."""

    model: str
    prompt_tokens: float
    max_tokens: int | None
    stream: bool
    includes_usage: bool
    leaves_usage: bool
    """Whether `stream_options` leave it to the engine: vLLM sends usage if `include_usage` is missing, SGLang in every
    chunk if `continuous_usage_stats` is set."""
    n: int
    choices: int
    """Choices of the response: `n` for each prompt."""
    temperature: float | None
    prompt_sha256: str
    background: bool = False
    """Whether the response is generated after the request, which has no tokens then."""


def parse(data: bytes, salt: bytes) -> RequestBody | None:
    """The parsed request, or None if the body is not valid JSON for these endpoints."""
    try:
        body = _decode(data)
    except NOT_JSON:
        return None
    options = body.stream_options
    n = body.n or 1
    return RequestBody(
        model=body.model or "",
        prompt_tokens=_prompt_tokens(body),
        # vLLM prefers max_completion_tokens if both are set.
        max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        stream=bool(body.stream),
        includes_usage=bool(options and options.include_usage),
        leaves_usage=options is not None
        and (options.include_usage is msgspec.UNSET or bool(options.continuous_usage_stats)),
        n=n,
        choices=n * _prompts(body.prompt),
        temperature=body.temperature,
        prompt_sha256=prompt_digest(salt, body.model, (body.messages, body.prompt)),
    )


def with_usage(body: bytes) -> bytes:
    """The body with `stream_options.include_usage` set; the bytes of all other values are unchanged.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the body is not a JSON object, or too deeply nested.
    """
    fields = _decode_raw(body)
    options: dict[str, msgspec.Raw] = {}
    value = fields.get("stream_options")
    if value is not None and bytes(value) != b"null":
        options = _decode_raw(value)
    options["include_usage"] = msgspec.Raw(b"true")
    fields["stream_options"] = msgspec.Raw(msgspec.json.encode(options))
    return msgspec.json.encode(fields)


def _prompt_tokens(body: _Body) -> float:
    characters = 0
    for message in body.messages:
        if isinstance(message.content, str):
            characters += len(message.content)
        elif message.content:
            characters += sum(len(part if isinstance(part, str) else part.text) for part in message.content)
    tokens = 0
    prompt = body.prompt
    if isinstance(prompt, str):
        characters += len(prompt)
    elif prompt:
        for item in prompt:
            if isinstance(item, str):
                characters += len(item)
            else:
                tokens += len(item) if isinstance(item, list) else 1
    return tokens + characters / CHARACTERS_PER_TOKEN


def _prompts(prompt: str | list[str | int | list[int]] | None) -> int:
    """The number of prompts; a list of token ids is one prompt."""
    if not prompt or isinstance(prompt, str) or isinstance(prompt[0], int):
        return 1
    return len(prompt)


def prompt_digest(salt: bytes, model: str | None, prompt: Any) -> str:
    """A hash of the model and the prompt; of the prompt's structs, the decoded fields count."""
    digest = hashlib.sha256(salt)
    digest.update((model or "").encode())
    digest.update(msgspec.msgpack.encode(prompt))
    return digest.hexdigest()
