"""Measures one request from the bytes of its response: first token, gaps, usage, the engine's times, the outcome."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from exporters.relay import sse
from exporters.relay.fast_path import Pattern, learn
from exporters.relay.gaps import Gaps
from exporters.signals import Outcome, Verdict
from exporters.verdicts import Ending, Judge

HELD_AHEAD = 64 * 1024
"""An unfinished event is held back up to here while a usage event has to be taken out; those are far smaller."""

UNARY_LIMIT = 8 * 1024 * 1024
"""A unary response, or one event, is copied for reading up to here; a larger one passes unread."""

LONGEST_FINGERPRINT = 100
"""Characters of `system_fingerprint` that go into the record and become a label; vLLM's has 20 to 40."""

PATTERNS_TRIED = 16
"""A stream whose chunks differ in more than their text is not looked at for a pattern again after this many."""

Fallen = list[tuple[str, Verdict]]


class Meter:
    """One request being answered. Times are monotonic seconds, handed in; bytes go through `stream` or `unary`.

    While a client that does not read holds the engine's answer up, the meter's clock stands still.
    """

    __slots__ = (
        "_ahead",
        "_body",
        "_done",
        "_error",
        "_on_verdicts",
        "_one_choice",
        "_patterns_left",
        "_paused_at",
        "_splitter",
        "_takes_usage",
        "_tokens_known",
        "answer_at",
        "cached_tokens",
        "chunks",
        "completion_tokens",
        "engine",
        "fingerprint",
        "finish_reason",
        "first_at",
        "gaps",
        "judge",
        "last_at",
        "overflow",
        "pattern",
        "paused",
        "prompt_tokens",
        "zero",
    )

    def __init__(
        self,
        judge: Judge,
        *,
        zero: float,
        one_choice: bool,
        gap_bounds: Sequence[float],
        takes_usage: bool,
        on_verdicts: Callable[[Fallen], None],
    ) -> None:
        self.judge = judge
        self.zero = zero
        self.first_at: float | None = None
        self.answer_at: float | None = None
        self.last_at: float | None = None
        self.chunks = 0
        self.gaps = Gaps(gap_bounds)
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.engine = sse.EngineTimes()
        self.fingerprint: str | None = None
        self.finish_reason: str | None = None
        self.overflow = False
        self.pattern: Pattern | None = None
        """What the chunks of this stream have in common, once one has shown it."""
        self.paused = 0.0
        """Seconds for which the client has held the answer up."""
        self._paused_at: float | None = None
        self._patterns_left = PATTERNS_TRIED
        self._one_choice = one_choice  # with n > 1 the choices' chunks interleave: no gap, no time per token
        self._takes_usage = takes_usage
        self._on_verdicts = on_verdicts
        self._splitter = sse.Splitter()
        self._ahead = 0  # bytes of the unfinished event that have been forwarded already
        self._body = bytearray()
        self._done = False
        self._tokens_known = True
        self._error = False

    def stream(self, data: bytes, at: float) -> bytes:
        """A read of an event stream; returns what goes to the client, which is all but our own usage event."""
        if self.overflow:
            return data
        if (
            data.startswith(b"data: {")
            and data.count(b"\n") == 2
            and data.endswith(b"}\n\n")
            and b"\r" not in data
            and not self._splitter.held
        ):
            # One read, one event: how vLLM sends them, and the path that each token takes.
            return b"" if self._json(data[6:-2], at) and self._takes_usage else data
        events = self._splitter.feed(data)
        if not self._takes_usage:
            for event in events:
                self._event(event, at)
            self._check_size()
            return data
        out = []
        for event in events:
            ours = self._event(event, at)
            if not ours or self._ahead:
                out.append(event[self._ahead :])
            self._ahead = 0
        held = self._splitter.held
        if len(held) > HELD_AHEAD:
            out.append(held[self._ahead :])
            self._ahead = len(held)
        self._check_size()
        return b"".join(out) if len(out) != 1 else out[0]

    def output(self, at: float) -> None:
        """A chunk that is known to carry the one choice's next text, after its first."""
        at -= self.paused
        gap = at - self.last_at  # type: ignore[operator]  # a pattern is learnt from a chunk with output
        self.last_at = at
        self.chunks += 1
        self.gaps.recent.append(gap)
        judge = self.judge
        if gap > judge.late_gap or at > judge.late_after:
            self.tell(judge.chunk(at, gap, len(self.gaps)))

    @property
    def between_events(self) -> bool:
        """Whether the next byte begins an event."""
        return not self._splitter.held and not self.overflow

    def pause(self, at: float) -> None:
        """The client does not read, so the engine's answer is held back."""
        if self._paused_at is None:
            self._paused_at = at

    def resume(self, at: float) -> None:
        if self._paused_at is not None:
            if self.last_at is not None:  # what had been on its way when the pause began has set the clock already
                self._paused_at = max(self._paused_at, self.last_at + self.paused)
            self.paused += at - self._paused_at
            self._paused_at = None

    def stream_end(self, at: float) -> bytes:
        """The last bytes of an event stream that did not close its last event."""
        rest = self._splitter.release()
        if not rest:
            return b""
        ours = self._event(rest, at)
        if not self._takes_usage or (ours and not self._ahead):
            return b""
        return rest[self._ahead :]

    def unary(self, data: bytes) -> None:
        """A piece of a whole-body response."""
        if len(self._body) + len(data) > UNARY_LIMIT:
            self.overflow = True
            self._body.clear()
        elif not self.overflow:
            self._body += data

    def unary_end(self) -> None:
        """The response body is complete."""
        if self._body:
            try:
                self._read(sse.decode(bytes(self._body)))
            except (msgspec.DecodeError, UnicodeDecodeError):
                self._error = False  # a body of another shape has nothing to read; the status has spoken
            self._body.clear()

    def outcome(self, status: int, *, streams: bool, complete: bool) -> Outcome:
        """What became of the request, once its response of this status has ended.

        `complete` says that the framing ended properly; an event stream must also have come to its own end.
        """
        if status in {429, 503}:
            return Outcome.REJECTED
        if status >= 500:
            return Outcome.UPSTREAM_ERROR
        if status >= 400:
            return Outcome.CLIENT_ERROR
        if self._error or self.finish_reason in {"error", "abort"}:
            return Outcome.UPSTREAM_ERROR
        ended = self._done or (complete and (self.finish_reason is not None or self.overflow))
        if streams:
            return Outcome.OK if ended else Outcome.TRUNCATED
        return Outcome.OK if complete else Outcome.TRUNCATED

    def tell(self, fallen: Fallen) -> None:
        if fallen:
            self._on_verdicts(fallen)

    def finish(self, outcome: Outcome, at: float) -> None:
        """The request is over; a client that left leaves its tokens so far counted, a chunk for a token at least."""
        if self.completion_tokens is None and outcome is not Outcome.OK and self.chunks:
            self.completion_tokens = self.chunks
            self._tokens_known = False
        self.tell(
            self.judge.ended(
                Ending(
                    at=at,
                    outcome=outcome,
                    last_chunk=self.last_at,
                    gaps=len(self.gaps),
                    completion_tokens=self.completion_tokens,
                    queue=seconds(self.engine.queue_time_ms),
                    prefill=seconds(self.engine.time_to_first_token_ms),
                    decode=seconds(self.engine.generation_time_ms),
                )
            )
        )

    def latencies(self) -> dict[str, Any]:
        """The record's times in seconds: ttft, ttft_answer, tpot, itl_p50, itl_p95 and the histogram of gaps."""
        if self.first_at is None or self.last_at is None:
            return {}
        found: dict[str, Any] = {"ttft": self.first_at - self.zero}
        if self.answer_at is not None:
            found["ttft_answer"] = self.answer_at - self.zero
        if (
            self._one_choice
            and self._tokens_known
            and self.completion_tokens is not None
            and self.completion_tokens >= 2
        ):
            found["tpot"] = (self.last_at - self.first_at) / (self.completion_tokens - 1)
        if self.gaps:
            found["itl_p50"], found["itl_p95"] = self.gaps.percentiles(50, 95)
            found["gap_counts"] = self.gaps.counts()
            found["gap_sum"] = self.gaps.total()
        return found

    def _check_size(self) -> None:
        if len(self._splitter.held) > UNARY_LIMIT:
            self._splitter.release()
            self.overflow = True

    def _event(self, event: bytes, at: float) -> bool:
        """Read one event; True when it is the usage event and nothing else."""
        data = sse.payload(event)
        if data == sse.DONE:
            self._done = True
            return False
        return bool(data) and self._json(data, at)

    def _json(self, data: bytes, at: float) -> bool:
        """Read one JSON event; True when it is the usage event and nothing else."""
        try:
            read = sse.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False  # not the shape of a completion: forwarded, and nothing to count
        if read.output:
            if self.answer_at is None and read.answer:
                self.answer_at = at - self.paused
            if self.last_at is None:
                self.first_at = self.last_at = at - self.paused
                self.chunks = 1
                self.tell(self.judge.first_token(self.last_at))
            elif self._one_choice:
                self.output(at)
            else:
                self.last_at = at - self.paused
                self.chunks += 1
            if (
                self._patterns_left
                and self._one_choice
                and (learnt := learn(data, read)) is not None
                and learnt != self.pattern
            ):
                self._patterns_left -= 1
                self.pattern = learnt
        self._read(read)
        return read.usage is not None and not read.choices

    def _read(self, read: sse.Event) -> None:
        if read.usage is not None:
            self.prompt_tokens = read.usage.prompt_tokens
            self.completion_tokens = read.usage.completion_tokens
            self.cached_tokens = read.usage.cached_tokens
        if read.metrics is not None:
            self.engine = read.metrics
        if read.system_fingerprint:
            self.fingerprint = read.system_fingerprint[:LONGEST_FINGERPRINT]
        if (reason := read.finish_reason) is not None:
            self.finish_reason = reason
        if read.failed:
            self._error = True


def seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
