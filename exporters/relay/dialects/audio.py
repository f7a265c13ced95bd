"""The dialect of `/v1/audio/transcriptions` and `/v1/audio/translations`, whose requests are forms with a file."""

from concurrent.futures import Executor

import msgspec
from multipart import MultipartError, MultipartSegment, PushMultipartParser

from exporters.relay.bodies.first_elements import First
from exporters.relay.bodies.request_body import CHARACTERS_PER_TOKEN, RequestBody, without_completion
from exporters.relay.dialects import completion_events, one_answer
from exporters.relay.dialects.dialect import MAX_CHOICES, ReadCount, TokenCounts
from exporters.vocabulary.engine_values import ABSENT, Number

DONE = completion_events.DONE

MAX_PARTS = 32
MAX_PART_HEADS = 16 * 1024
MAX_FIELD = 64 * 1024
"""Parts of a form, bytes of the headers of all parts, and bytes of a field; a form with more is not understood."""

_MAX_BOUNDARY = 70  # RFC 2046

_FIELDS = ("model", "prompt", "stream")
_TRUE = frozenset({b"true", b"1", b"t", b"yes", b"y", b"on"})


_DELTA, _END = "transcript.text.delta", "transcript.text.done"
"""OpenAI's events of a stream; vLLM sends chunks as of `/v1/chat/completions`."""


class _Usage(completion_events.Usage, gc=False):
    """The token counts of vLLM's streams and of OpenAI; a unary body of vLLM has the duration of the audio instead."""

    input_tokens: Number = ABSENT
    output_tokens: Number = ABSENT

    def counts(self, read: ReadCount) -> TokenCounts:
        self.prompt_tokens = self.prompt_tokens or self.input_tokens
        self.completion_tokens = self.completion_tokens or self.output_tokens
        return super().counts(read)


class _Transcript(one_answer.Answer):
    usage: _Usage | None = None


class _Event(completion_events.IdentifiedEvent, gc=False):
    usage: _Usage | None = None
    type: str = ""
    delta: str | None = None

    @property
    def output(self) -> bool:
        return self._transcribes or super().output

    @property
    def answer(self) -> bool:
        return self._transcribes or super().answer

    @property
    def only_text(self) -> str | None:
        if not self._transcribes:
            return super().only_text
        return None if self.choices or self.failed or self.metrics is not None else self.delta

    @property
    def ends(self) -> bool:  # type: ignore[override]
        return self.type == _END

    @property
    def _transcribes(self) -> bool:
        return bool(self.delta) and self.type == _DELTA


class _LongEvent(_Event, gc=False):
    choices: First[list[completion_events.LongChoice], MAX_CHOICES] | None = None  # type: ignore[assignment]  # as in LongEvent


decode = decode_first = msgspec.json.Decoder(_Event).decode
decode_long = msgspec.json.Decoder(_LongEvent).decode
decode_output = one_answer.decode_output
collect = one_answer.collect
decode_unary = msgspec.json.Decoder(_Transcript).decode


def parse(data: bytes, salt: bytes | None, hashing: Executor) -> RequestBody | None:  # noqa: ARG001 - of the interface
    fields = form_fields(data)
    if fields is None:
        return None
    try:
        model, prompt = (fields.get(name, b"").decode() for name in ("model", "prompt"))
    except UnicodeDecodeError:
        return None
    stream = fields.get("stream", b"").lower() in _TRUE
    return without_completion(model, len(prompt) / CHARACTERS_PER_TOKEN, stream=stream)


def form_fields(data: bytes) -> dict[str, bytes] | None:
    """The fields of `_FIELDS` in a `multipart/form-data` body; None if it is not a valid form."""
    boundary = data[len(b"--") : max(0, data.find(b"\r\n", 0, len(b"--\r\n") + _MAX_BOUNDARY))]
    if not boundary:
        return None
    fields: dict[str, bytes] = {}
    name, heads = "", 0
    parser = PushMultipartParser(boundary, max_segment_count=MAX_PARTS, strict=True)
    try:
        with parser:
            for event in parser.parse(data):
                if isinstance(event, MultipartSegment):
                    name, heads = event.name, heads + sum(len(value) for _, value in event.headerlist)
                    if heads > MAX_PART_HEADS:
                        return None
                elif event and name in _FIELDS:
                    if len(event) > MAX_FIELD:
                        return None
                    fields[name] = event
    except MultipartError:
        return None
    return fields
