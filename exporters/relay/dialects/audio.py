"""The dialect of `/v1/audio/transcriptions` and `/v1/audio/translations`, whose requests are forms with a file."""

import re
from concurrent.futures import Executor

import msgspec

from exporters.engine_values import ABSENT, Number
from exporters.relay.dialects import completion_events, one_answer
from exporters.relay.request_body import CHARACTERS_PER_TOKEN, RequestBody, without_completion

DONE = completion_events.DONE

MAX_PARTS = 100
MAX_PART_HEAD = 8 * 1024
MAX_FIELD = 64 * 1024
"""Parts of a form, bytes of the headers of a part, and bytes of a field; the rest of a larger form is not read."""

_MAX_BOUNDARY = 70  # RFC 2046

_NAME = re.compile(rb'content-disposition:[^\r\n]*[; ]name="?([^";\r\n]+)', re.IGNORECASE)
_TRUE = frozenset({b"true", b"1", b"t", b"yes", b"y", b"on"})


_DELTA, _END = "transcript.text.delta", "transcript.text.done"
"""OpenAI's events of a stream; vLLM sends chunks as of `/v1/chat/completions`."""


class _Usage(completion_events.Usage):
    """The token counts of OpenAI and of vLLM's streams; a unary body of vLLM has the duration of the audio instead."""

    input_tokens: Number = ABSENT
    output_tokens: Number = ABSENT

    def __post_init__(self) -> None:
        self.prompt_tokens = self.prompt_tokens or self.input_tokens
        self.completion_tokens = self.completion_tokens or self.output_tokens


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


decode = decode_first = msgspec.json.Decoder(_Event).decode
collect = one_answer.collect
decode_unary = msgspec.json.Decoder(_Transcript).decode


def parse(data: bytes, salt: bytes | None, hashing: Executor) -> RequestBody | None:  # noqa: ARG001 - of the interface
    fields = form_fields(data)
    if fields is None:
        return None
    try:
        model, prompt = (fields.get(name, b"").decode() for name in (b"model", b"prompt"))
    except UnicodeDecodeError:
        return None
    stream = fields.get(b"stream", b"").lower() in _TRUE
    return without_completion(model, len(prompt) / CHARACTERS_PER_TOKEN, stream=stream)


def form_fields(data: bytes) -> dict[bytes, bytes] | None:
    """The fields of a `multipart/form-data` body up to `MAX_FIELD`, by name; None if it is none."""
    end = data.find(b"\r\n", 0, len(b"--\r\n") + _MAX_BOUNDARY)
    if end < len(b"--x") or not data.startswith(b"--"):
        return None
    delimiter = b"\r\n" + data[:end]
    fields = {}
    for _ in range(MAX_PARTS):
        head_end = data.find(b"\r\n\r\n", end, end + MAX_PART_HEAD)
        content_end = data.find(delimiter, head_end + 4)
        if head_end < 0 or content_end < 0:
            break
        name = _NAME.search(data, end, head_end)
        if name is not None and content_end - head_end - 4 <= MAX_FIELD:
            fields[name[1]] = data[head_end + 4 : content_end]
        end = content_end + len(delimiter)
    return fields
