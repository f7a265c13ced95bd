"""Parses the fields of a request body that metering uses, and adds `stream_options.include_usage`."""

import hashlib
from concurrent.futures import Executor, Future
from typing import Annotated, Any

import msgspec

CHARACTERS_PER_TOKEN = 4
"""Estimates prompt tokens from decoded text characters until usage is known; images are not counted."""

HASHED_AT_ONCE = 64 * 1024
"""Bytes of a prompt that are hashed on the event loop, in less time than a thread takes."""

# Records and spans have 64-bit integers; a body with a larger number is not parsed.
_Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


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
    prompt: str | list[str | _Int | list[_Int]] | None = None
    max_tokens: _Int | None = None
    max_completion_tokens: _Int | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | msgspec.UnsetType | None = msgspec.UNSET
    n: _Int | None = None
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
    has_options: bool
    """Whether the body has `stream_options`."""
    n: int
    choices: int
    """Choices of the response: `n` for each prompt."""
    temperature: float | None
    _digest: str | Future[str]

    @property
    def prompt_sha256(self) -> str:
        """The salted hash of model and prompt; waits for the thread that hashes a long prompt."""
        return self._digest if isinstance(self._digest, str) else self._digest.result()


def parse(data: bytes, salt: bytes, hashing: Executor) -> RequestBody | None:
    """The parsed request, or None if the body is not valid JSON for these endpoints; `hashing` hashes long prompts."""
    try:
        body = _decode(data)
    except NOT_JSON:
        return None
    has_options = body.stream_options is not msgspec.UNSET
    options = body.stream_options or None
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
        has_options=has_options,
        n=n,
        choices=n * _prompts(body.prompt),
        temperature=body.temperature,
        _digest=_digest(body, salt, hashing),
    )


def with_usage(body: bytes, *, has_options: bool) -> bytes:
    """The body of a stream with `stream_options.include_usage` set; the bytes of all other values are unchanged.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the body is not a JSON object, or too deeply nested.
    """
    if not has_options:
        # The body is not parsed again; it has at least the member `stream`.
        end = len(body.rstrip(b" \t\r\n")) - 1
        return b"".join((memoryview(body)[:end], b',"stream_options":{"include_usage":true}}'))
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
    elif prompt and isinstance(prompt[0], int):
        tokens = len(prompt)
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


def _digest(body: _Body, salt: bytes, hashing: Executor) -> str | Future[str]:
    start = salt + (body.model or "").encode()
    prompt = msgspec.msgpack.encode((body.messages, body.prompt))
    if len(prompt) <= HASHED_AT_ONCE:
        return _hash(start, prompt)
    # hashlib lets other threads run.
    return hashing.submit(_hash, start, prompt)


def _hash(start: bytes, prompt: bytes) -> str:
    digest = hashlib.sha256(start)
    digest.update(prompt)
    return digest.hexdigest()
