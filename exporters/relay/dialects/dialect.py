"""The interface of a dialect, which a module of this package implements for one inference API."""

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec

from exporters.relay.bodies.request_body import NOT_JSON, RequestBody
from exporters.vocabulary.engine_values import ABSENT, Number
from exporters.vocabulary.signals import Signal

MAX_CHOICES = 128
"""Choices that are decoded of a long event, of a unary body, or to collect the output."""

ReadCount = Callable[[Number, Signal], int | None]
"""The count, if it is present and plausible; the signal is the series that it is for."""


class TokenCounts(NamedTuple):
    """The engine's own token counts; None for a count that an earlier event may have."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    reasoning: int | None = None


class Usage(Protocol):
    """The `usage` of an event."""

    def counts(self, read: ReadCount) -> TokenCounts: ...


class EngineTimes(msgspec.Struct):
    """vLLM's per-request `metrics` (>= 0.25, --enable-per-request-metrics); milliseconds."""

    queue_time_ms: Number = ABSENT
    time_to_first_token_ms: Number = ABSENT
    """Time since the request was scheduled, which makes it the prefill time."""
    generation_time_ms: Number = ABSENT


class Event(Protocol):
    """One JSON event of a stream, or a complete unary body."""

    @property
    def output(self) -> bool:
        """Whether the event carries output: text, reasoning, or arguments of a tool call."""

    @property
    def answer(self) -> bool:
        """Whether the event carries output other than reasoning."""

    @property
    def only_text(self) -> str | None:
        """The text of an event whose text and usage are all that is measured of it."""

    @property
    def carries_tool_call(self) -> bool:
        """Whether the event begins, continues or completes a tool call; not read of an event with a pattern."""

    @property
    def ends_tool_call(self) -> bool:
        """Whether the first tool call is complete after this event, if a tool call has begun."""

    @property
    def usage(self) -> Usage | None: ...

    @property
    def carries_choice(self) -> bool:
        """Whether the event carries more than usage that a client may have requested."""

    @property
    def metrics(self) -> EngineTimes | None: ...
    @property
    def system_fingerprint(self) -> str | None: ...
    @property
    def response_id(self) -> msgspec.Raw | str | None: ...
    @property
    def response_model(self) -> msgspec.Raw | str | None: ...
    @property
    def finish_reason(self) -> str | None: ...
    @property
    def failed(self) -> bool: ...

    @property
    def ends(self) -> bool:
        """Whether the stream is complete after this event."""


_decode_text = msgspec.json.Decoder(str).decode
_SHORT = 256
"""Bytes up to which JSON is decoded, whatever its type."""


def text_of(json: msgspec.Raw | str | None) -> str | None:
    """The text of a JSON string, if it is not decoded yet; long JSON of another type is not decoded."""
    if json is None or isinstance(json, str):
        return json
    if len(json) > _SHORT and bytes(memoryview(json)[:1]) != b'"':
        return None
    try:
        return _decode_text(json)
    except NOT_JSON:
        return None


class WholeResponse(msgspec.Struct):
    """A response in one JSON object, which is not a chunk of output: the part of `Event` that all APIs share."""

    # Raw, so that a response whose id is not a string is measured, too.
    response_id: msgspec.Raw = msgspec.field(default=ABSENT, name="id")
    response_model: msgspec.Raw = msgspec.field(default=ABSENT, name="model")

    output: ClassVar[bool] = False
    answer: ClassVar[bool] = False
    only_text: ClassVar[None] = None
    carries_tool_call: ClassVar[bool] = False
    ends_tool_call: ClassVar[bool] = False
    carries_choice: ClassVar[bool] = True
    system_fingerprint: ClassVar[None] = None
    ends: ClassVar[bool] = False


class Output(Protocol):
    """Collects the output of one answer in the order of its events."""

    empty_call: bytes
    """The arguments of a call without any: Messages sends none for a tool without parameters."""

    def text(self, piece: str, choice: int = 0) -> None: ...

    def call(self, call: int, piece: str, choice: int = 0) -> None:
        """A piece of the arguments of the tool call with this number; the first one may be empty."""

    def calls_tool(self) -> None:
        """A tool call has begun, whose arguments follow in a later event."""

    def cut(self, choice: int = 0) -> None:
        """The choice ends at the limit of tokens."""

    def release(self) -> None:
        """The answer is too large: keep no more of it."""


class Dialect(Protocol):
    """One inference API of the engine."""

    @property
    def DONE(self) -> bytes | None:  # noqa: N802 - a constant of the module
        """The payload that ends a stream, if it is not an event with `ends`.

        Without it, a response that ends in order after its `finish_reason` is complete, because some engines omit it.
        """

    def parse(self, data: bytes, salt: bytes | None, hashing: Executor) -> RequestBody | None:
        """The parsed request, or None if the body is not valid JSON for this API.

        `hashing` hashes long prompts; without `salt` nothing is hashed.
        """

    def decode(self, data: bytes, /) -> Event:
        """The event with this payload.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError: it is not an event of this API.
        """

    def decode_first(self, data: bytes, /) -> Event:
        """Decode an event as `decode` does, until the id of the response is known."""

    def decode_long(self, data: bytes, /) -> Event:
        """Decode an event of any length as `decode_first` does, but only the first elements of its lists."""

    def decode_unary(self, data: bytes | bytearray, /) -> Event:
        """The complete body of a unary response; raises as `decode`."""

    def decode_output(self, data: bytes | bytearray, /) -> Any:
        """The output of an event, or of a unary body, for `collect`; raises as `decode`."""

    def collect(self, found: Any, output: Output, /) -> None:
        """Add the text and the tool calls that `decode_output` has found."""
