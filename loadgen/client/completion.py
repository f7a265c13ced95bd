"""Parses one response, without I/O: chunk times, token counts, engine times and the outcome."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from operator import sub
from typing import Any
from zlib import crc32

import msgspec

from exporters.http import sse
from exporters.vocabulary.engine_values import ABSENT, Number, count, from_milliseconds, read
from exporters.vocabulary.signals import OutputResult
from exporters.vocabulary.verdicts import outcome_of_status
from loadgen.client.http_response import HttpResponse
from loadgen.client.token_chunk import TokenChunk, learn
from loadgen.results.record import ClientOutcome

COMPARED = 512
"""Bytes of the output that `answer_hash` covers: a canned answer is cut at the tokens of each request."""
ERROR_LENGTH = 300  # characters of an error message in a record


class _Cached(msgspec.Struct):
    cached_tokens: Number = ABSENT


class _Usage(msgspec.Struct):
    prompt_tokens: Number = ABSENT
    completion_tokens: Number = ABSENT
    prompt_tokens_details: _Cached | None = None


class _Metrics(msgspec.Struct):
    queue_time_ms: Number = ABSENT
    time_to_first_token_ms: Number = ABSENT  # vLLM counts it from *scheduled*: the prefill time
    generation_time_ms: Number = ABSENT


class _Delta(msgspec.Struct):
    content: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    tool_calls: Any = None


_NO_DELTA = _Delta()


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    text: Any = None
    finish_reason: str | None = None


class _Event(msgspec.Struct):
    """One event of a stream, or the body of a unary response; decoding with a schema takes about a microsecond."""

    sent_choices: list[_Choice] | None = msgspec.field(default=None, name="choices")
    usage: _Usage | None = None
    metrics: _Metrics | None = None
    error: Any = None

    @property
    def choices(self) -> Sequence[_Choice]:
        return self.sent_choices or ()


_decode = msgspec.json.Decoder(_Event).decode


@dataclass(slots=True, eq=False)
class CompletionResponse:
    """One response; `first`, `last`, `answer` and `gaps` in seconds of the caller's clock, engine times in seconds.

    `first_byte` is the time of the first read. `answer` is the time of the first output that is not reasoning.
    `first_choice` and `last_choice` are the times of the first and the last event with a choice, also without output.
    `end` is the time of the read that completed the response or found the connection closed.
    `coalesced` counts chunks that arrived in one read with an earlier chunk. With `keep_text`, `text` has the pieces of
    the answer without its reasoning, and `calls` those of the arguments of its tool calls. `output_bytes` counts the
    output, and `answer_hash` is the CRC of its beginning.
    """

    keep_text: bool = False
    text: list[str] = field(default_factory=list)
    calls: dict[int, list[str]] = field(default_factory=dict)
    http: HttpResponse = field(default_factory=HttpResponse)
    size: int = 0
    body: bytearray = field(default_factory=bytearray)
    first_byte: float | None = None
    first: float | None = None
    last: float | None = None
    answer: float | None = None
    first_choice: float | None = None
    last_choice: float | None = None
    end: float | None = None
    coalesced: int = 0
    gaps: "array[float]" = field(default_factory=lambda: array("d"))
    output_bytes: int = 0
    answer_hash: int = 0
    silent: list[float] = field(default_factory=list)  # times of chunks with a choice, but without output
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    queue: float | None = None
    prefill: float | None = None
    decode: float | None = None
    _stream: sse.Splitter | None = None
    _learned: TokenChunk | None = None
    _next: TokenChunk | None = None  # the one learned, unless the last read ended within a chunk or an event
    _done: bool = False
    _has_choice: bool = False
    _failure: str | None = None

    def feed(self, data: bytes, at: float) -> bool:
        """Parse the bytes of one read; True when the response is complete.

        Raises:
            BadHttpError: the bytes are not an HTTP/1.1 response.
        """
        expected, last = self._next, self.last
        if expected is not None and last is not None and (text := expected.text(data)):
            self.size += len(data)
            self.gaps.append(at - last)
            self.coalesced += at == last
            self.last = self.last_choice = at
            self._count_output(text)
            if self.keep_text:
                self.text.append(text.decode())
            return False
        if not self.size:
            self.first_byte = at
        self.size += len(data)
        body = self.http.feed(data)
        if body:
            head = self.http.head
            if self._stream is None and head is not None and head.status == 200 and head.event_stream:
                self._stream = sse.Splitter()
            if self._stream is None:
                self.body += body
            else:
                for event in self._stream.feed(body):
                    self._event(event, at)
        if self._learned is not None:
            whole = self.http.between_chunks and self._stream is not None and not self._stream.pending
            self._next = self._learned if whole else None
        if self.http.complete:
            self._end(at)
            return True
        return False

    def eof(self, at: float) -> None:
        """The server has closed the connection."""
        self.http.eof()
        self._end(at)

    def lost(self, at: float) -> None:
        """The connection failed, which completes no response."""
        self._end(at)

    def outcome(self) -> tuple[ClientOutcome, str | None]:
        """The outcome of an ended request, and the text of an error."""
        status = self.http.status
        if status is None:
            return ClientOutcome.UPSTREAM_UNREACHABLE, "the connection closed before a response"
        if status >= 300:
            text = error_text(self.body) or f"status {status}"
            # Redirects are not followed: they show a wrong target.
            return (ClientOutcome.CLIENT_ERROR if status < 400 else ClientOutcome(outcome_of_status(status))), text
        if self._failure is not None:
            return ClientOutcome.UPSTREAM_ERROR, self._failure
        if self.finish_reason in {"error", "abort"}:
            return ClientOutcome.UPSTREAM_ERROR, f"finish_reason {self.finish_reason}"
        complete = self.http.complete
        if self._stream is not None:
            complete = self._done or (complete and self.finish_reason is not None)
        if not complete:
            return ClientOutcome.TRUNCATED, "the response is incomplete"
        if not self._has_choice:
            return ClientOutcome.UPSTREAM_ERROR, "the response has no choices: it is not a completion"
        return ClientOutcome.OK, None

    @property
    def json_result(self) -> OutputResult:
        """Whether a complete answer that must be JSON is: the arguments of its tool calls, or else its text."""
        if self.finish_reason == "length":
            return OutputResult.TRUNCATED
        try:
            for pieces in self.calls.values() or [self.text]:
                msgspec.json.decode("".join(pieces))
        except (msgspec.DecodeError, UnicodeEncodeError):
            return OutputResult.INVALID
        return OutputResult.VALID

    @property
    def choice_gaps(self) -> Sequence[float]:
        """The gaps between chunks with a choice, also those without output."""
        if not self.silent:
            return self.gaps
        times = [] if self.first is None else accumulate(self.gaps, initial=self.first)
        ordered = sorted([*self.silent, *times])
        return list(map(sub, ordered[1:], ordered))

    def _end(self, at: float) -> None:
        self.end = at
        if self._stream is not None:
            self._event(self._stream.release(), at)  # a last one without its blank line
        elif self.http.complete and self.http.status == 200:
            try:
                self._read(_decode(self.body))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                self._failure = f"the body is not a completion: {error}"

    def _event(self, event_bytes: bytes, at: float) -> None:
        data = sse.payload(event_bytes)
        if data == b"[DONE]":
            self._done = True
            return
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return  # not a completion
        for choice in event.choices:
            if choice.text or ((delta := choice.delta) and _has_output(delta)):
                if self.last is None:
                    self.first = at
                else:
                    self.gaps.append(at - self.last)
                    self.coalesced += at == self.last  # one read has one time
                self.last = at
                break
        else:
            if event.choices:
                self.silent.append(at)
        if event.choices:
            if self.first_choice is None:
                self.first_choice = at
            self.last_choice = at
        if self.answer is None and any(map(_is_answer, event.choices)):
            self.answer = at
        self._read(event)
        if (text := _only_text(event, answer=self.keep_text)) is not None:
            self._learned = learn(data, text)

    def _count_output(self, text: bytes) -> None:
        if (missing := COMPARED - self.output_bytes) > 0:
            self.answer_hash = crc32(text[:missing], self.answer_hash)
        self.output_bytes += len(text)

    def _read(self, event: _Event) -> None:
        if self.keep_text:
            self.text.extend(piece for choice in event.choices if (piece := _answer_text(choice)))
            for number, piece in chain.from_iterable(map(_arguments, event.choices)):
                self.calls.setdefault(number, []).append(piece)
        for choice in event.choices:
            self._count_output(_output(choice))
            self._has_choice = True
            self.finish_reason = choice.finish_reason or self.finish_reason
        if (usage := event.usage) is not None:
            details = usage.prompt_tokens_details or _Cached()
            self.prompt_tokens = read(usage.prompt_tokens, count)
            self.completion_tokens = read(usage.completion_tokens, count)
            self.cached_tokens = read(details.cached_tokens, count)
        if (metrics := event.metrics) is not None:
            self.queue = read(metrics.queue_time_ms, from_milliseconds)
            self.prefill = read(metrics.time_to_first_token_ms, from_milliseconds)
            self.decode = read(metrics.generation_time_ms, from_milliseconds)
        if event.error:
            self._failure = _message(event.error)


def _has_output(delta: _Delta) -> bool:
    return bool(delta.content or delta.reasoning or delta.reasoning_content or delta.tool_calls)


def _output(choice: _Choice) -> bytes:
    """All output of a choice: reasoning, text and tool calls."""
    part = choice.delta or choice.message
    pieces = (
        (choice.text,) if part is None else (part.reasoning or part.reasoning_content, part.content, part.tool_calls)
    )
    return b"".join(
        piece.encode() if isinstance(piece, str) else msgspec.json.encode(piece) for piece in pieces if piece
    )


def _is_answer(choice: _Choice) -> bool:
    """Whether it has output other than reasoning."""
    return bool(choice.text or ((delta := choice.delta) and (delta.content or delta.tool_calls)))


def _only_text(event: _Event, *, answer: bool) -> str | None:
    """The text of an event that has nothing else to measure; with `answer`, not that of reasoning."""
    if len(event.choices) != 1 or event.usage is not None or event.metrics is not None or event.error:
        return None
    (choice,) = event.choices
    if choice.finish_reason is not None or choice.message is not None:
        return None
    delta = choice.delta or _NO_DELTA
    given = [output for output in (choice.text, delta.content, delta.reasoning, delta.reasoning_content) if output]
    if delta.tool_calls or len(given) != 1 or not isinstance(given[0], str) or (answer and not _is_answer(choice)):
        return None
    return given[0]


def _answer_text(choice: _Choice) -> str:
    part = choice.delta or choice.message
    content = part.content if part else choice.text
    return content if isinstance(content, str) else ""


def _arguments(choice: _Choice) -> Iterator[tuple[int, str]]:
    """The pieces of arguments, by the number of their tool call."""
    part = choice.delta or choice.message
    calls = part.tool_calls if part else None
    for number, call in enumerate(calls if isinstance(calls, list) else ()):
        match call:
            case {"function": {"arguments": str(piece)}}:
                yield call.get("index", number), piece


def error_text(body: bytes | bytearray) -> str:
    """The message of an error body, in OpenAI's form or any other."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _one_line(body[:ERROR_LENGTH].decode("utf-8", "replace"))
    return _message(value.get("error") or value.get("message") or value if isinstance(value, dict) else value)


def _message(error: Any) -> str:
    return _one_line(str(error.get("message", error) if isinstance(error, dict) else error)[:ERROR_LENGTH])


def _one_line(text: str) -> str:
    """The text without line breaks and control characters, which would change the terminal that shows it."""
    return "".join(character if character.isprintable() else " " for character in text).strip()
