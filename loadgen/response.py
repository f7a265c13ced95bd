"""What one response says: its output's moments, token counts, the engine's own times and how it ended; no sockets."""

from array import array
from typing import Any

import msgspec

from exporters.verdicts import outcome_of_status
from loadgen.event_data import EventStream
from loadgen.http_response import Response
from loadgen.request_record import Fate

ERROR_SHOWN = 300  # characters of an error's text that a record keeps


class _Cached(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Cached | None = None


class _Metrics(msgspec.Struct):
    queue_time_ms: float | None = None
    time_to_first_token_ms: float | None = None  # vLLM counts it from *scheduled*: the prefill time
    generation_time_ms: float | None = None


class _Delta(msgspec.Struct):
    content: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    tool_calls: Any = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: Any = None
    finish_reason: str | None = None


class _Event(msgspec.Struct):
    """One event of a stream, or a whole unary body; with a schema a decoder reads it in about a microsecond."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    metrics: _Metrics | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode


class Answer:
    """One response being read; times are the caller's clock."""

    __slots__ = (
        "_done",
        "_failure",
        "_stream",
        "body",
        "bytes",
        "cached_tokens",
        "completion_tokens",
        "decode",
        "finish_reason",
        "first",
        "gaps",
        "http",
        "last",
        "prefill",
        "prompt_tokens",
        "queue",
    )

    def __init__(self) -> None:
        self.http = Response()
        self.bytes = 0
        self.first: float | None = None
        self.last: float | None = None
        self.gaps = array("d")
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.finish_reason: str | None = None
        self.queue: float | None = None
        self.prefill: float | None = None
        self.decode: float | None = None
        self._stream: EventStream | None = None
        self.body = bytearray()
        self._done = False
        self._failure: str | None = None

    def feed(self, data: bytes, at: float) -> bool:
        """A read of the socket; True when the response is complete.

        Raises:
            ProtocolError: this is no HTTP/1.1 response.
        """
        self.bytes += len(data)
        body = self.http.feed(data)
        if body:
            if self._stream is None and self._is_stream():
                self._stream = EventStream()
            if self._stream is None:
                self.body += body
            else:
                for event in self._stream.feed(body):
                    self._event(event, at)
        if self.http.complete:
            self._end(at)
            return True
        return False

    def eof(self, at: float) -> None:
        """The sender has closed the connection."""
        self.http.eof()
        self._end(at)

    def fate(self) -> tuple[Fate, str | None]:
        """What became of the request, now that its response has ended, and the error's text when there is one."""
        status = self.http.status
        if status is None:
            return Fate.UPSTREAM_UNREACHABLE, "the connection ended before a response"
        if status >= 300:
            text = error_text(self.body) or f"status {status}"
            # a redirect is not followed: the request was sent to the wrong address
            return (Fate.CLIENT_ERROR if status < 400 else Fate(outcome_of_status(status))), text
        if self._failure is not None:
            return Fate.UPSTREAM_ERROR, self._failure
        if self.finish_reason in {"error", "abort"}:
            return Fate.UPSTREAM_ERROR, f"finish_reason {self.finish_reason}"
        whole = self.http.complete
        if self._stream is not None:
            whole = self._done or (whole and self.finish_reason is not None)
        return (Fate.OK, None) if whole else (Fate.TRUNCATED, "the response ended before its end")

    def _is_stream(self) -> bool:
        return self.http.status == 200 and "text/event-stream" in self.http.headers.get("content-type", "")

    def _end(self, at: float) -> None:
        if self._stream is not None:
            for event in self._stream.close():
                self._event(event, at)
        elif self.http.complete and self.http.status == 200:
            try:
                self._read(_decode(self.body))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                self._failure = f"the body is no completion: {error}"

    def _event(self, data: bytes, at: float) -> None:
        if data == b"[DONE]":
            self._done = True
            return
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return  # not the shape of a completion: nothing to count
        for choice in event.choices:
            if choice.text or ((delta := choice.delta) and _has_output(delta)):
                if self.last is None:
                    self.first = at
                else:
                    self.gaps.append(at - self.last)
                self.last = at
                break
        self._read(event)

    def _read(self, event: _Event) -> None:
        for choice in event.choices:
            self.finish_reason = choice.finish_reason or self.finish_reason
        if (usage := event.usage) is not None:
            self.prompt_tokens = usage.prompt_tokens
            self.completion_tokens = usage.completion_tokens
            self.cached_tokens = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None
        if (metrics := event.metrics) is not None:
            self.queue = _seconds(metrics.queue_time_ms)
            self.prefill = _seconds(metrics.time_to_first_token_ms)
            self.decode = _seconds(metrics.generation_time_ms)
        if event.error:
            self._failure = _message(event.error)


def _has_output(delta: _Delta) -> bool:
    return bool(delta.content or delta.reasoning or delta.reasoning_content or delta.tool_calls)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def error_text(body: bytes | bytearray) -> str:
    """The message of an error body, in OpenAI's shape or any other."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body[:ERROR_SHOWN].decode("utf-8", "replace").strip()
    return _message(found.get("error") or found.get("message") or found if isinstance(found, dict) else found)


def _message(error: Any) -> str:
    return str(error.get("message", error) if isinstance(error, dict) else error)[:ERROR_SHOWN]
