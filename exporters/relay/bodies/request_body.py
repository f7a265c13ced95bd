"""Parses the fields of a request body that metering uses, and adds `stream_options.include_usage`."""

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from exporters.http.lines import has_more_than
from exporters.relay.bodies.dense_json import (
    Counted,
    count_strings,
    decode_unless_dense,
    has_many_strings,
    is_mostly_brackets,
)
from exporters.relay.bodies.hashing_thread import is_known, known
from exporters.relay.bodies.token_id_prompt import MARK, SPACES, cut_prompt
from exporters.text.names import cut

CHARACTERS_PER_TOKEN = 4
"""Estimates prompt tokens from decoded text characters until usage is known; images are not counted."""

LONG_BODY = 64 * 1024
"""Bytes of a body above which a thread hashes its prompt."""

MANY_TOKEN_IDS = LONG_BODY // 2
"""Token ids of a prompt above which they are only counted; a body up to `LONG_BODY` does not have as many."""

MANY_PROMPTS = 1000
"""Lists of token ids in a long body above which they are only counted."""

MAX_MEMBERS = 256
"""Members of an object that are decoded by name; a request of vLLM has up to 100."""

MAX_PARSED_AGAIN = 4 * 1024 * 1024
"""Bytes of JSON that may be parsed a second time: to change `stream_options`, or to find a format or the output."""

# Records and spans have 64-bit integers; a body with a larger number is not parsed.
Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


Piece = bytes | bytearray | memoryview
"""A part of a body."""

ABSENT = msgspec.Raw()
_FALSE = (b"", b"false", b"null")


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


class _CountedPart(_Part, Counted, gc=False, omit_defaults=True):
    """A part of a long body."""


class _CountedMessage(_Message, Counted, gc=False, omit_defaults=True):
    """A message of a long body."""

    content: str | list[str | _CountedPart] | None = None  # type: ignore[assignment]


class _StreamOptions(msgspec.Struct):
    include_usage: bool | msgspec.UnsetType | None = msgspec.UNSET
    continuous_usage_stats: msgspec.Raw = ABSENT

    @property
    def leaves_usage(self) -> bool:
        """Whether it is left to the engine, which sends usage by default, or in each chunk."""
        return self.include_usage is msgspec.UNSET or bytes(self.continuous_usage_stats) not in _FALSE


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
_Messages = Sequence[_Message] | msgspec.Raw
NULL = msgspec.Raw(b"null")
_Params = TypeVar("_Params", bound=msgspec.Struct)


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
    messages: list[_CountedMessage] | None = None
    prompt: msgspec.Raw = NULL


_decode = msgspec.json.Decoder(_Body).decode
_decode_long = msgspec.json.Decoder(_LongBody).decode
_decode_prompt: Callable[[bytes], _Prompt] = msgspec.json.Decoder(_Prompt).decode
_decode_texts = msgspec.json.Decoder(list[str]).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode_prompt = msgspec.msgpack.Encoder().encode
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
    """Digest of the model and the prompt."""
    body: str | None = None
    """Digest of the body without the fields of `NOT_IN_BODY_DIGEST`; also None if the name of a field is invalid."""


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
    """Whether it is left to the engine: vLLM sends usage if `stream_options` have no `include_usage`, SGLang in every
    chunk if they have `continuous_usage_stats`; those of a very long body are not changed."""
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
        return known(self._digests)

    @property
    def is_hashed(self) -> bool:
        return is_known(self._digests)


def parse(data: bytes, salt: bytes | None, hashing: Executor) -> RequestBody | None:
    """The parsed request, or None if the body is not valid JSON for these endpoints.

    `hashing` hashes long prompts; without `salt` nothing is hashed.
    """
    body: _Parameters
    messages: _Messages
    prompt: _LongPrompt
    try:
        if len(data) <= LONG_BODY:
            body = short = _decode(data)
            messages, prompt = short.messages or [], short.prompt
        else:
            body, messages, prompt = _long_body(data)
    except NOT_JSON:
        return None
    options = body.stream_options or None
    n = body.n or 1
    # msgspec searches each name among all fields.
    return RequestBody(
        cut(body.model or ""),
        _prompt_tokens(messages, prompt),
        # vLLM prefers max_completion_tokens if both are set.
        body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        bool(body.stream),
        body.temperature,
        digests(data, hashing, salt, body.model, messages, prompt.json)
        if isinstance(prompt, _TokenIds)
        else digests(data, hashing, salt, body.model, (messages, prompt)),
        bool(options and options.include_usage),
        options is not None and (options.leaves_usage or not may_be_parsed_again(data)),
        body.stream_options is not msgspec.UNSET,
        n,
        n * _prompts(prompt),
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


def with_usage(body: bytes, *, has_options: bool) -> list[Piece]:
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
        options = decode_members(bytes(value))
    options["include_usage"] = msgspec.Raw(b"true")
    fields["stream_options"] = msgspec.Raw(msgspec.json.encode(options))
    return [msgspec.json.encode(fields)]


def json_tokens(*values: msgspec.Raw) -> float:
    """The tokens of dense JSON: not less than those of its text. Templates of prompts add tokens for each message."""
    return sum(memoryview(value).nbytes for value in values) / CHARACTERS_PER_TOKEN


def decode_members(data: bytes) -> dict[str, msgspec.Raw]:
    """The members of a JSON object, whose values are not decoded.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is not a JSON object, or has too many members.
    """
    if len(data) > LONG_BODY:
        return _decode_few_members(data)
    members = _decode_members(data)
    if len(members) > MAX_MEMBERS:
        raise _too_many_members()
    return members


class _Name(str):
    """The name of a member, which is counted while the object is decoded."""

    __slots__ = ()


def _decode_few_members(data: bytes) -> dict[str, msgspec.Raw]:
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


def dense_body(data: bytes, parameters: type[_Params]) -> tuple[_Params, dict[str, msgspec.Raw]]:
    """The parameters of a dense body, and all of its members.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is not JSON with these parameters.
    """
    members = decode_members(data)
    found = {name: members[name] for name in parameters.__struct_fields__ if name in members}
    if sum(memoryview(value).nbytes for value in found.values()) > LONG_BODY:
        raise msgspec.DecodeError("the parameters are too long")
    return msgspec.json.decode(msgspec.json.encode(found), type=parameters), members


def whole_or_dense(
    data: bytes,
    decode: Callable[[bytes], _Params],
    parameters: type[_Params],
    prompt: tuple[str, ...],
    tokens: Callable[[Any], float],
) -> tuple[_Params, tuple[Any, ...], float]:
    """The body, the values of its members named `prompt`, and its estimated tokens; a dense body has undecoded values.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is not JSON with these parameters.
    """
    whole = decode_unless_dense(decode, data)
    if whole is not None:
        return whole, tuple(getattr(whole, name) for name in prompt), tokens(whole)
    body, members = dense_body(data, parameters)
    values = tuple(members.get(name, ABSENT) for name in prompt)
    return body, values, json_tokens(*values)


def may_be_parsed_again(json: bytes | bytearray) -> bool:
    """Whether finding the end of all values takes so little time that it may be done twice."""
    return len(json) <= LONG_BODY or (len(json) <= MAX_PARSED_AGAIN and not is_mostly_brackets(json))


def _long_body(data: bytes) -> tuple[_Parameters, _Messages, _LongPrompt]:
    cut = cut_prompt(data)
    if cut is not None and (token_ids := _many_token_ids(cut.prompt)) is not None:
        body, messages, prompt = _without_prompt(cut.rest)
        if bytes(prompt) == MARK:
            return body, messages, token_ids
    body, messages, prompt = _without_prompt(data)
    return body, messages, _long_prompt(bytes(prompt))


def _without_prompt(data: bytes) -> tuple[_Parameters, _Messages, msgspec.Raw]:
    body = decode_unless_dense(_decode_long, data)
    if body is not None:
        return body, body.messages or [], body.prompt
    parameters, members = dense_body(data, _Parameters)
    return parameters, members.get("messages", ABSENT), members.get("prompt", NULL)


def _long_prompt(json: bytes) -> _LongPrompt:
    if (token_ids := _many_token_ids(json)) is not None:
        return token_ids
    if not json.startswith(b"[") or count_token_ids(json) is not None:
        return _decode_prompt(json)
    if has_many_strings(json):
        raw = msgspec.Raw(json)
        return _Texts(raw, json_tokens(raw), count_strings(json))
    # Engines reject a list of both texts and token ids.
    return [*_decode_texts(json)]


def _many_token_ids(json: bytes) -> _TokenIds | None:
    # Decoding the token ids of 1 MiB takes 4 ms. Unlike those of a short prompt, they may have more than 64 bits.
    tokens = count_token_ids(json)
    if tokens is None or not (tokens > MANY_TOKEN_IDS or has_more_than(MANY_PROMPTS, b"[", json)):
        return None
    return _TokenIds(json, tokens)


def count_token_ids(json: bytes) -> int | None:
    """The number of token ids in a list, or in a list of lists, without decoding it; None if it has other values."""
    if json.startswith(b"[") and not any(mark in json for mark in _NOT_IN_TOKEN_IDS):
        return json.count(b",") + 1
    return None


def _prompt_tokens(messages: _Messages, prompt: _LongPrompt) -> float:
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
    if len(data) <= LONG_BODY:
        return _hashed(data, salt, model, prompt, token_ids)
    # In a thread, hashlib lets the event loop run.
    return hashing.submit(_hashed, data, salt, model, prompt, token_ids)


def _hashed(data: bytes, salt: bytes, model: str | None, prompt: Any, token_ids: bytes) -> Digests:
    digest = hashlib.sha256(salt + (model or "").encode())
    digest.update(_encode_prompt(prompt))
    if token_ids:
        digest.update(token_ids.translate(None, SPACES))
    return Digests(digest.hexdigest(), _body_digest(data, salt))


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
