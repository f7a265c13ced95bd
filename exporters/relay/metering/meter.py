"""Measures a response: first token, gaps, usage, the engine's times, the outcome."""

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import msgspec

from exporters.http import sse
from exporters.relay.bodies.request_body import may_be_parsed_again
from exporters.relay.dialects.dialect import Dialect, Event, Output, text_of
from exporters.relay.metering.fast_path import FastPath, Forwarding, Pattern, VaryingFastPath, learn
from exporters.relay.metering.gaps import MAX_FOLDED, Gaps
from exporters.relay.metering.injected_usage import without_usage
from exporters.relay.metering.structured_output import Checked, StructuredOutput
from exporters.vocabulary import engine_values, signals
from exporters.vocabulary.engine_values import Number
from exporters.vocabulary.signals import Outcome, Signal, Verdict
from exporters.vocabulary.verdicts import Ending, Judge, outcome_of_status

MAX_HELD_EVENT = 64 * 1024
"""Bytes of an incomplete event that are held back to remove the usage event, which is far smaller."""

MAX_PARSED = 6 * 1024 * 1024
"""Bytes of a unary response or an event that are buffered for parsing; larger ones pass unparsed."""

MAX_FINGERPRINT = 100
"""Characters of `system_fingerprint` in the record and in a label; vLLM's has 20 to 40."""

MAX_PATTERNS = 16
"""Patterns that are tried for a stream whose chunks differ in more than their text."""

Verdicts = list[tuple[str, Verdict]]
"""Pairs of SLO name and verdict."""

# Enum member access takes 0.1 us in CPython 3.11.
_OK = Outcome.OK


class Meter:
    """Measures one response. Times are monotonic seconds; the bytes are passed to `stream` or `unary`.

    The meter's clock stops while the client does not read, because that delays the engine's response.
    """

    # Defaults are attributes of the class: each request would need 3 us to set them.

    first_at: float | None = None
    answer_at: float | None = None
    last_at: float | None = None
    first_tool_call_at: float | None = None
    """When the first tool call was complete."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    queue: float | None = None
    prefill: float | None = None
    decode: float | None = None
    fingerprint: str | None = None
    finish_reason: str | None = None
    response_id: str | None = None
    response_model: str | None = None
    overflow = False
    done = False
    """Whether the stream has sent its own end."""
    pattern: Pattern | None = None
    """The pattern of this stream's chunks, if it is known."""
    _chunks_without_gap = 0
    """The first output chunk, and the others of several choices."""
    _paused_at: float | None = None
    _patterns_left = MAX_PATTERNS
    _varying: VaryingFastPath | None = None
    """The fast path whose last chunk carries usage that was not read."""
    _forwarded = 0
    """Bytes of the incomplete event that were forwarded."""
    _body: bytes | bytearray = b""
    _always_usage = False
    """Whether an event with a choice carried usage: then the engine sends it without a request for it."""
    _tokens_estimated = False
    _error = False
    _tool_call = False
    """Whether a tool call has begun."""
    dropped_values: frozenset[str] = frozenset()
    """The series that lack a value of the response, because it is implausible."""
    checked: Checked | None = None
    """Whether the output is valid, if it had to be JSON."""
    _structured: StructuredOutput | None = None
    _outputs: tuple[Output, ...] = ()

    def __init__(
        self,
        judge: Judge,
        *,
        dialect: Dialect,
        zero: float,
        one_choice: bool,
        gap_bounds: Sequence[float],
        strips_usage: bool,
        on_verdicts: Callable[[Verdicts, float], None],
    ) -> None:
        """`one_choice`: with several choices or prompts their chunks interleave, so there are no gaps and no TPOT."""
        self.judge = judge
        self._dialect = dialect
        self._decode = dialect.decode_first
        self.zero = zero
        self.one_choice = one_choice
        self.strips_usage = strips_usage
        self.on_verdicts = on_verdicts
        self.gaps = Gaps(gap_bounds)
        self.paused = 0.0  # not of the class, because each chunk reads it
        """Seconds for which the client delayed the response."""
        self._splitter = sse.Splitter()
        self._held: list[bytes] = []
        """The reads of the incomplete event that were held back by the last completed call of `stream`."""

    def check(self, output: StructuredOutput) -> None:
        """Collect and check the output."""
        self._structured = output
        self.collect(output)

    def collect(self, output: Output) -> None:
        """Collect the output, for which each chunk is parsed."""
        self._outputs = (*self._outputs, output)
        self._patterns_left = 0

    def stream(self, data: bytes, at: float) -> bytes:
        """Measure a read of an event stream and return the bytes for the client: all but injected usage."""
        if self.overflow:
            return data
        if (
            data.startswith(b"data: {")
            and data.endswith(b"}\n\n")
            and sse.is_one_line(data)
            and not self._splitter.pending
        ):
            # One read contains one event, as vLLM sends them.
            json = data[6:-2]
            return without_usage(data, json) if self._measure_json(json, at, data) and self.strips_usage else data
        events = self._splitter.feed(data)
        if not self.strips_usage:
            for event in events:
                self._measure_event(event, at)
            self._check_size()
            return data
        out = []
        for event in events:
            ours = self._measure_event(event, at)
            if ours and not self._forwarded:
                out.append(without_usage(event, sse.payload(event)))
            else:
                out.append(event[self._forwarded :])
            self._forwarded = 0
        pending = self._splitter.pending
        if pending > MAX_HELD_EVENT:
            out.append(self._splitter.rest(self._forwarded))
            self._forwarded = pending
            self._held.clear()
        elif events:
            self._held = [self._splitter.rest(0)]
        else:
            self._held.append(data)
        self._check_size()
        return b"".join(out) if len(out) != 1 else out[0]

    @property
    def chunks(self) -> int:
        """The number of output chunks."""
        return self._chunks_without_gap + len(self.gaps)

    def count_chunk(self, at: float) -> None:
        """Measure an output chunk after the first, of a response with one choice."""
        read_at = at - self.paused
        gap = read_at - self.last_at  # type: ignore[operator]  # set by the first output chunk
        self.last_at = read_at
        self.gaps.recent.append(gap)
        judge = self.judge
        if gap > judge.late_gap or read_at > judge.late_after:
            self.report(judge.chunk(read_at, gap, len(self.gaps)), at)

    def count_chunks(self, chunks: int, at: float) -> None:
        """Measure output chunks that have arrived together, as `count_chunk`."""
        self.count_chunk(at)
        gaps = self.gaps
        gaps.recent.extend(repeat(0.0, chunks - 1))
        if len(gaps.recent) > MAX_FOLDED:  # they arrive faster than the timer of the relay folds them
            gaps.fold()

    def fast_path(self, send: Callable[[bytes], None], on_failure: Callable[[Exception], None]) -> Forwarding | None:
        """The fast path of a stream with a known pattern; None in the middle of an event."""
        if self.pattern is None or self._splitter.pending or self.overflow:
            return None
        if self.pattern.varies or self.pattern.usage:
            path = VaryingFastPath(self.pattern, self.count_chunk, self.count_chunks, send, on_failure)
            if self.pattern.usage:
                self._read_skipped_usage()
                self._varying = path
            return path
        return FastPath(self.pattern, self.count_chunk, self.count_chunks, send, on_failure)

    @property
    def between_events(self) -> bool:
        """Whether the stream has not ended and its last event is complete."""
        return not (self._splitter.pending or self.overflow or self.done)

    def pause(self, at: float) -> None:
        """Stop the clock: the client does not read."""
        if self._paused_at is None:
            self._paused_at = at

    def resume(self, at: float) -> None:
        self.paused = self.paused_until(at)
        self._paused_at = None

    def paused_until(self, at: float) -> float:
        """Seconds until `at` for which the client delayed the response."""
        if self._paused_at is None:
            return self.paused
        # Chunks that arrived after the pause began were measured.
        since = self._paused_at if self.last_at is None else max(self._paused_at, self.last_at + self.paused)
        return self.paused + at - since

    def stream_end(self, at: float) -> bytes:
        """Measure an unterminated last event and return its bytes for the client."""
        rest = self._splitter.release()
        if not rest:
            return b""
        ours = self._measure_event(rest, at)
        self._held.clear()
        if not self.strips_usage:
            return b""
        if ours and not self._forwarded:
            return without_usage(rest, sse.payload(rest))
        return rest[self._forwarded :]

    def release(self) -> bytes:
        """Return the bytes that are held back; called after a fault, when nothing more is measured."""
        held = b"".join(self._held)
        self._held.clear()
        return held

    def unary(self, data: bytes) -> None:
        """A piece of a unary response."""
        if len(self._body) + len(data) > MAX_PARSED:
            self.overflow = True
            self._body = b""
        elif not self.overflow:
            if not self._body:  # most responses arrive in one piece, which is not copied
                self._body = data
            else:
                if isinstance(self._body, bytes):
                    self._body = bytearray(self._body)
                self._body += data

    def unary_end(self) -> None:
        """Parse the complete unary response."""
        if self._body:
            try:
                self._apply(self._dialect.decode_unary(self._body))
                if self._outputs and not self._error:
                    self._collect(self._body)
            except (msgspec.DecodeError, UnicodeDecodeError):
                # The body is not a completion; the status decides the outcome.
                self._error = False
            self._body = b""

    def outcome(self, status: int, *, streams: bool, complete: bool) -> Outcome:
        """The outcome of the request after its response ended.

        `complete`: the framing ended properly. An event stream must also contain its own end.
        """
        if status >= 400:
            return outcome_of_status(status)
        if self._error or self.finish_reason in {"error", "abort"}:
            return Outcome.UPSTREAM_ERROR
        finished = self.finish_reason is not None and self._dialect.DONE is not None
        ended = self.done or (complete and (finished or self.overflow))
        return _OK if (ended if streams else complete) else Outcome.TRUNCATED

    def report(self, verdicts: Verdicts, at: float) -> None:
        if verdicts:
            self.on_verdicts(verdicts, at)

    def finish(self, outcome: Outcome, at: float) -> None:
        """Give the final verdicts. Without usage, as for aborted requests, each chunk counts as one token."""
        self._read_skipped_usage()
        if self.completion_tokens is None and outcome is not _OK and self.chunks:
            self.completion_tokens = self.chunks
            self._tokens_estimated = True
        if self._structured is not None:
            self._check_output(self._structured, at, complete=outcome is _OK)
        self.report(
            self.judge.ended(
                Ending(
                    at=at,
                    outcome=outcome,
                    last_chunk=self.last_at,
                    gaps=len(self.gaps),
                    completion_tokens=self.completion_tokens,
                    queue=self.queue,
                    prefill=self.prefill,
                    decode=self.decode,
                    paused=self.paused_until(at),
                )
            ),
            at,
        )

    def latencies(self) -> dict[str, Any]:
        """Times of the record in seconds, such as ttft and tpot, and the histogram of gaps."""
        latencies: dict[str, Any] = {}
        if self.first_tool_call_at is not None:
            latencies["first_tool_call"] = self.first_tool_call_at - self.zero
        if self.first_at is None or self.last_at is None:
            return latencies
        latencies["ttft"] = self.first_at - self.zero
        if self.answer_at is not None:
            latencies["ttft_answer"] = self.answer_at - self.zero
        if (
            self.one_choice
            and not self._tokens_estimated
            and self.completion_tokens is not None
            and self.completion_tokens >= 2
        ):
            latencies["tpot"] = (self.last_at - self.first_at) / (self.completion_tokens - 1)
        if self.gaps:
            (latencies["itl_p50"], latencies["itl_p95"]), latencies["gap_counts"], latencies["gap_sum"] = (
                self.gaps.summary(50, 95)
            )
        return latencies

    def _check_size(self) -> None:
        if len(self.gaps.recent) > MAX_FOLDED:
            self.gaps.fold()
        if self._splitter.pending > MAX_PARSED:
            self._splitter.release()
            self.overflow = True

    def _measure_event(self, event: bytes, at: float) -> bool:
        """Measure one event; return whether it is the usage event that the client did not request."""
        data = sse.payload(event)
        if data == self._dialect.DONE:
            self.done = True
            return False
        return bool(data) and self._measure_json(data, at, event)

    def _measure_json(self, data: bytes, at: float, framed: bytes) -> bool:
        """Measure one JSON event; return whether it is the usage event that the client did not request."""
        try:
            event = (self._decode if len(data) <= sse.LONG_EVENT else self._dialect.decode_long)(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Not a completion event; it is forwarded and not counted.
            return False
        pattern = None
        if self._outputs and not event.failed:
            self._collect(data)
        if event.output:
            if self.last_at is None:
                self.first_at = self.last_at = at - self.paused
                self._chunks_without_gap = 1
                self.report(self.judge.first_token(self.last_at), at)
            elif self.one_choice:
                self.count_chunk(at)
            else:
                self.last_at = at - self.paused
                self._chunks_without_gap += 1
            if self.answer_at is None and event.answer:
                self.answer_at = at - self.paused
                if self.judge.awaits_answer:
                    self.report(self.judge.first_answer(self.answer_at), at)
            if self._patterns_left and self.one_choice and (pattern := learn(framed, data, event)) is not None:
                self._use_pattern(pattern)
        # An event with a pattern carries only text.
        if pattern is None and self.first_tool_call_at is None and (self._tool_call or event.carries_tool_call):
            self._tool_call = self.one_choice
            if self._tool_call and event.ends_tool_call:
                self.first_tool_call_at = at - self.paused
        self._apply(event)
        if event.usage is None:
            return False
        if event.carries_choice:
            self._always_usage = True
        return not self._always_usage

    def _collect(self, data: bytes | bytearray) -> None:
        if not may_be_parsed_again(data):
            for output in self._outputs:
                output.release()
            return
        try:
            found = self._dialect.decode_output(data)
            for output in self._outputs:
                self._dialect.collect(found, output)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Output of another form is neither logged nor checked.
            self._outputs = ()
            if self._structured is not None:
                self._structured = None
                self.judge.output_checked(valid=None)

    def _check_output(self, output: StructuredOutput, at: float, *, complete: bool) -> None:
        if self.overflow:
            output.release()
        if complete:
            self.checked = output.check()
            self.report(self.judge.output_checked(valid=None if self.checked is None else self.checked.good), at)
        elif not output.expected:
            self.judge.output_checked(valid=None)

    def _use_pattern(self, pattern: Pattern) -> None:
        if self.pattern is not None:
            pattern = self.pattern.joined(pattern)
        if pattern != self.pattern:
            self._patterns_left -= 1
            self.pattern = pattern

    def _read_skipped_usage(self) -> None:
        """Read the usage of the last chunk, if the fast path forwarded it."""
        if self._varying is not None and self._varying.last is not None:
            _, _, event = self._varying.last.partition(b"\n")
            self._apply(self._decode(sse.payload(event[:-2])))

    def _apply(self, event: Event) -> None:
        if (usage := event.usage) is not None:
            self._varying = None
            prompt, completion, cached, reasoning = usage.counts(self._count)
            # A count that the usage does not have keeps its value.
            if prompt is not None:
                self.prompt_tokens = prompt
            if completion is not None:
                self.completion_tokens = completion
            if cached is not None:
                self.cached_tokens = cached
            if reasoning is not None:
                self.reasoning_tokens = reasoning
        if (metrics := event.metrics) is not None:
            self.queue = self._seconds(metrics.queue_time_ms, signals.QUEUE)
            self.prefill = self._seconds(metrics.time_to_first_token_ms, signals.PREFILL)
            self.decode = self._seconds(metrics.generation_time_ms, signals.DECODE)
        if event.system_fingerprint:
            self.fingerprint = event.system_fingerprint[:MAX_FINGERPRINT]
        if self.response_id is None:
            self.response_id, self.response_model = text_of(event.response_id), text_of(event.response_model)
            if self.response_id is not None:
                self._decode = self._dialect.decode
        if (reason := event.finish_reason) is not None:
            self.finish_reason = reason
        if event.failed:
            self._error = True
        if event.ends:
            self.done = True

    def _count(self, number: Number, series: Signal) -> int | None:
        value = engine_values.read_count(number)
        if value is None:
            self._count_dropped(number, series)
        return value

    def _seconds(self, milliseconds: Number, series: Signal) -> float | None:
        value = engine_values.read(milliseconds, engine_values.from_milliseconds)
        if value is None:
            self._count_dropped(milliseconds, series)
        return value

    def _count_dropped(self, number: Number, series: Signal) -> None:
        if engine_values.is_given(number):
            self.dropped_values = self.dropped_values | {series.name}
