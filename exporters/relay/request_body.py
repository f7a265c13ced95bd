"""Parses the fields of a request body that metering uses, and adds `stream_options.include_usage`."""

import hashlib
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Annotated, Any, NamedTuple

import msgspec

from exporters.names import cut
from exporters.relay.dense_json import count_strings, has_many_strings, is_dense, is_mostly_empty
from exporters.relay.token_id_prompt import MARK, SPACES, cut_prompt

CHARACTERS_PER_TOKEN = 4
"""Estimates prompt tokens from decoded text characters until usage is known; images are not counted."""

LONG_BODY = 64 * 1024
"""Bytes of a body above which a thread hashes its prompt."""

MANY_TOKEN_IDS = LONG_BODY // 2
"""Token ids of a prompt above which they are only counted; a body up to `LONG_BODY` does not have as many."""

MAX_MEMBERS = 256
"""Members of an object that are decoded by name; a request of vLLM has up to 100."""

# Records and spans have 64-bit integers; a body with a larger number is not parsed.
Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


ABSENT = msgspec.Raw()


class _Part(msgspec.Struct, gc=False, omit_defaults=True):
    """A part of a message: a text, or JSON that is only hashed."""

    text: str = ""
    image_url: msgspec.Raw = ABSENT
    image_embeds: msgspec.Raw = ABSENT
    image_pil: msgspec.Raw = ABSENT
    input_audio: msgspec.Raw = ABSENT
    audio_url: msgspec.Raw = ABSENT
    audio_embeds: msgspec.Raw = ABSENT
    video_url: msgspec.Raw = ABSENT
    file: msgspec.Raw = ABSENT
    uuid: msgspec.Raw = ABSENT  # of media that the engine has cached


class _Message(msgspec.Struct, gc=False, omit_defaults=True):
    content: str | list[str | _Part] | None = None
    tool_calls: msgspec.Raw = ABSENT


class _StreamOptions(msgspec.Struct):
    include_usage: bool | msgspec.UnsetType | None = msgspec.UNSET
    continuous_usage_stats: Any = None


class _TokenIds(NamedTuple):
    """The token ids of a long prompt, or of several, which are not decoded."""

    json: bytes
    tokens: int

    @property
    def prompts(self) -> int:
        # Finding nothing is faster than counting.
        return 1 if self.json.find(b"[", 1) < 0 else self.json.count(b"[") - 1


class _Texts(NamedTuple):
    """The JSON of so many prompts that they are not decoded."""

    json: msgspec.Raw
    tokens: float
    prompts: int


_Prompt = str | list[str | Int | list[Int]] | None
_Undecoded = _TokenIds | _Texts
_LongPrompt = _Prompt | _Undecoded


class _Parameters(msgspec.Struct):
    model: str | None = None
    max_tokens: Int | None = None
    max_completion_tokens: Int | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | msgspec.UnsetType | None = msgspec.UNSET
    n: Int | None = None
    temperature: float | None = None


class _Body(_Parameters):
    messages: list[_Message] | None = None
    prompt: _Prompt = None


class _LongBody(_Parameters):
    messages: list[_Message] | None = None
    prompt: msgspec.Raw = msgspec.Raw(b"null")


class _DenseBody(_Parameters):
    messages: msgspec.Raw = ABSENT
    prompt: msgspec.Raw = msgspec.Raw(b"null")


_decode = msgspec.json.Decoder(_Body).decode
_decode_long = msgspec.json.Decoder(_LongBody).decode
_decode_dense = msgspec.json.Decoder(_DenseBody).decode
_decode_prompt: Callable[[bytes], _Prompt] = msgspec.json.Decoder(_Prompt).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode

NOT_IN_BODY_DIGEST = ("stream", "stream_options", "user", "metadata")
"""Fields that change how a response is sent or accounted, but not what it says."""


_NOT_IN_TOKEN_IDS = (b'"', b".", b"e", b"E", b"n", b"{")
"""Each is part of any JSON value other than an integer or a list: text, a fraction, true, false, null or an object."""

NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Raised by decoding invalid or too deeply nested JSON."""


class Digests(msgspec.Struct, frozen=True, gc=False):
    """Salted hashes; None if they are not computed."""

    prompt: str | None = None
    """Of the model and the prompt."""
    body: str | None = None
    """Of the body without the fields of `NOT_IN_BODY_DIGEST`; also None if the name of a field is invalid."""


NO_DIGESTS = Digests()


class RequestBody(msgspec.Struct, frozen=True):
    """A parsed request; `prompt_tokens` is an estimate. Defaults are for APIs that always send one choice and usage."""

    model: str
    prompt_tokens: float
    max_tokens: int | None
    stream: bool
    temperature: float | None
    _digests: Digests | Future[Digests]
    includes_usage: bool = True
    leaves_usage: bool = False
    """Whether `stream_options` leave it to the engine: vLLM sends usage if `include_usage` is missing, SGLang in every
    chunk if `continuous_usage_stats` is set."""
    has_options: bool = False
    """Whether the body has `stream_options`."""
    n: int = 1
    choices: int = 1
    """Choices of the response: `n` for each prompt; of dense prompts with escapes, a lower bound above `n`."""
    background: bool = False
    """Whether the response is generated after the request, which has no tokens then."""
    sized: bool = True
    """Whether `prompt_tokens` estimates what the model processes, unlike the text of a token count or of audio."""

    @property
    def digests(self) -> Digests:
        """The hashes of prompt and body; waits for the thread that hashes a long body."""
        return self._digests.result() if isinstance(self._digests, Future) else self._digests


def parse(data: bytes, salt: bytes | None, hashing: Executor) -> RequestBody | None:
    """The parsed request, or None if the body is not valid JSON for these endpoints, or mostly empty values.

    `hashing` hashes long prompts; without `salt` nothing is hashed.
    """
    body: _Body | _LongBody | _DenseBody
    prompt: _LongPrompt
    try:
        if len(data) <= LONG_BODY:
            body = short = _decode(data)
            prompt = short.prompt
        elif is_mostly_empty(data):
            return None
        else:
            body, prompt = _long_body(data)
    except NOT_JSON:
        return None
    has_options = body.stream_options is not msgspec.UNSET
    options = body.stream_options or None
    n = body.n or 1
    messages = [] if body.messages is None else body.messages
    return RequestBody(
        model=cut(body.model or ""),
        prompt_tokens=_prompt_tokens(messages, prompt),
        # vLLM prefers max_completion_tokens if both are set.
        max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        stream=bool(body.stream),
        includes_usage=bool(options and options.include_usage),
        leaves_usage=options is not None
        and (options.include_usage is msgspec.UNSET or bool(options.continuous_usage_stats)),
        has_options=has_options,
        n=n,
        choices=n * _prompts(prompt),
        temperature=body.temperature,
        _digests=(
            digests(data, hashing, salt, body.model, messages, prompt.json)
            if isinstance(prompt, _TokenIds)
            else digests(data, hashing, salt, body.model, (messages, prompt))
        ),
    )


def without_completion(
    model: str | None,
    prompt_tokens: float,
    *,
    prompt_digests: Digests | Future[Digests] = NO_DIGESTS,
    stream: bool = False,
    sized: bool = False,
) -> RequestBody:
    """A request without parameters of a completion."""
    return RequestBody(
        model=cut(model or ""),
        prompt_tokens=prompt_tokens,
        max_tokens=None,
        stream=stream,
        temperature=None,
        _digests=prompt_digests,
        sized=sized,
    )


def with_usage(body: bytes, *, has_options: bool) -> list[bytes | memoryview]:
    """A stream's body with `stream_options.include_usage` set, in pieces; the bytes of all other values are unchanged.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the body is not a JSON object, or too deeply nested.
    """
    if not has_options:
        # The body is neither parsed again nor copied; it has at least the member `stream`.
        end = len(body.rstrip(SPACES)) - 1
        return [memoryview(body)[:end], b',"stream_options":{"include_usage":true}}']
    fields = _members(body)
    options: dict[str, msgspec.Raw] = {}
    value = fields.get("stream_options")
    if value is not None and bytes(value) != b"null":
        options = decode_members(value)
    options["include_usage"] = msgspec.Raw(b"true")
    fields["stream_options"] = msgspec.Raw(msgspec.json.encode(options))
    return [msgspec.json.encode(fields)]


def decode_members(data: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The members of an object, whose values are not decoded.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is not a JSON object, or has more than MAX_MEMBERS.
    """
    if memoryview(data).nbytes > LONG_BODY:
        return _decode_few_members(data)
    members = _decode_members(data)
    if len(members) > MAX_MEMBERS:
        raise _too_many_members()
    return members


class _Name(str):
    """The name of a member, which is counted while the object is decoded."""

    __slots__ = ()


def _decode_few_members(data: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Stop at the first member above the limit: creating all members of a long body would take up to a second."""
    left = MAX_MEMBERS

    def counted(_: type, name: str) -> _Name:
        nonlocal left
        left -= 1
        if left < 0:
            raise _too_many_members()
        return _Name(name)

    members = msgspec.json.decode(data, type=dict[_Name, msgspec.Raw], dec_hook=counted)
    return {str(name): value for name, value in members.items()}


def _too_many_members() -> msgspec.DecodeError:
    return msgspec.DecodeError(f"an object has more than {MAX_MEMBERS} members")


def json_tokens(*values: msgspec.Raw) -> float:
    """The tokens of dense JSON: not less than those of its text. Templates of prompts add tokens for each message."""
    return sum(memoryview(value).nbytes for value in values) / CHARACTERS_PER_TOKEN


def _long_body(data: bytes) -> tuple[_LongBody | _DenseBody, _LongPrompt]:
    cut = cut_prompt(data)
    if cut is not None and (tokens := count_token_ids(cut.prompt)) is not None and tokens > MANY_TOKEN_IDS:
        body = _decode_long_or_dense(cut.rest)
        if bytes(body.prompt) == MARK:
            return body, _TokenIds(cut.prompt, tokens)
    body = _decode_long_or_dense(data)
    return body, _long_prompt(bytes(body.prompt))


def _decode_long_or_dense(data: bytes) -> _LongBody | _DenseBody:
    return (_decode_dense if is_dense(data) else _decode_long)(data)


def _long_prompt(json: bytes) -> _LongPrompt:
    # Decoding the token ids of 1 MiB takes 4 ms. Unlike those of a short prompt, they may have more than 64 bits.
    tokens = count_token_ids(json)
    if tokens is not None and tokens > MANY_TOKEN_IDS:
        return _TokenIds(json, tokens)
    if json.startswith(b"[") and has_many_strings(json):
        raw = msgspec.Raw(json)
        return _Texts(raw, json_tokens(raw), count_strings(json))
    return _decode_prompt(json)


def count_token_ids(json: bytes) -> int | None:
    """The number of token ids in a list, or in a list of lists, without decoding it; None if it has other values."""
    if json.startswith(b"[") and not any(mark in json for mark in _NOT_IN_TOKEN_IDS):
        return json.count(b",") + 1
    return None


def _prompt_tokens(messages: list[_Message] | msgspec.Raw, prompt: _LongPrompt) -> float:
    if isinstance(messages, msgspec.Raw):
        return json_tokens(messages) + _prompt_tokens([], prompt)
    characters = 0
    for message in messages:
        if isinstance(message.content, str):
            characters += len(message.content)
        elif message.content:
            characters += sum(len(part if isinstance(part, str) else part.text) for part in message.content)
    tokens: float = 0
    if isinstance(prompt, str):
        characters += len(prompt)
    elif isinstance(prompt, _Undecoded):
        tokens = prompt.tokens
    elif prompt and isinstance(prompt[0], int):
        tokens = len(prompt)
    elif prompt:
        for item in prompt:
            if isinstance(item, str):
                characters += len(item)
            else:
                tokens += len(item) if isinstance(item, list) else 1
    return tokens + characters / CHARACTERS_PER_TOKEN


def _prompts(prompt: _LongPrompt) -> int:
    """The number of prompts; a list of token ids is one prompt."""
    if not prompt or isinstance(prompt, str):
        return 1
    if isinstance(prompt, _Undecoded):
        return prompt.prompts
    return 1 if isinstance(prompt[0], int) else len(prompt)


def digests(
    data: bytes, hashing: Executor, salt: bytes | None, model: str | None, prompt: Any, token_ids: bytes = b""
) -> Digests | Future[Digests]:
    """The hashes of the model and the prompt of the body `data`, and of the body; of structs, the decoded fields count.

    `token_ids` is the JSON of a further part of the prompt, which is not decoded. Without `salt` nothing is hashed.
    """
    if salt is None:
        return NO_DIGESTS

    def hashed() -> Digests:
        digest = hashlib.sha256(salt + (model or "").encode())
        digest.update(msgspec.msgpack.encode(prompt))
        digest.update(token_ids.translate(None, SPACES))
        return Digests(digest.hexdigest(), _body_digest(data, salt))

    # In a thread, hashlib lets the event loop run.
    return hashed() if len(data) <= LONG_BODY else hashing.submit(hashed)


def _body_digest(data: bytes, salt: bytes) -> str | None:
    """The hash of what determines the response: requests with the same hash can have the same response."""
    try:
        fields = _members(data)
    except NOT_JSON:
        return None
    for name in NOT_IN_BODY_DIGEST:
        if name in fields:
            del fields[name]
    return hashlib.sha256(salt + _encode_sorted(fields)).hexdigest()


def _members(data: bytes) -> dict[str, msgspec.Raw]:
    """The fields of a body, without a search for the end of a long prompt of token ids."""
    cut = cut_prompt(data) if len(data) > LONG_BODY else None
    if cut is not None and count_token_ids(cut.prompt) is not None:
        fields = decode_members(cut.rest)
        if bytes(fields.get("prompt", ABSENT)) == MARK:
            fields["prompt"] = msgspec.Raw(cut.prompt)
            return fields
    return decode_members(data)
