"""What a comparison keeps of one request of the log."""

import math

import msgspec

from exporters.requestlog.log_entry import LogEntry
from exporters.signals import Outcome, Verdict


class Request(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A third of a `LogEntry`'s size; `arrived` and `ended` are unix seconds, converted once: they are read often."""

    request_class: str
    stream: bool
    outcome: Outcome
    arrived: float
    ended: float
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    ttft_ms: float | None
    tpot_ms: float | None
    queue_ms: float | None
    wait_ms_at_least: float | None
    slo: dict[str, Verdict]
    config_revision: str | None

    @property
    def ttft(self) -> float | None:
        return _seconds(self.ttft_ms)

    @property
    def tpot(self) -> float | None:
        return _seconds(self.tpot_ms)

    @property
    def queue(self) -> float | None:
        return _seconds(self.queue_ms)

    @property
    def tokens(self) -> int:
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0)

    @property
    def first_token_wait(self) -> float | None:
        """Seconds to the first token of a stream; infinite if the server never sent one.

        A client that left before it counts with the time it waited: a lower bound, but better than leaving it out.
        """
        if not self.stream or self.outcome is Outcome.CLIENT_ERROR:
            return None
        if self.ttft is not None:
            return self.ttft
        if self.outcome is Outcome.CLIENT_ABORT:
            return _seconds(self.wait_ms_at_least)
        return None if self.outcome is Outcome.OK else math.inf


def from_entry(entry: LogEntry) -> Request:
    arrived = entry.time.timestamp()
    return Request(
        request_class=entry.request_class,
        stream=entry.stream,
        outcome=entry.outcome,
        arrived=arrived,
        ended=arrived + entry.e2e_ms / 1000,
        prompt_tokens=entry.prompt_tokens,
        completion_tokens=entry.completion_tokens,
        cached_tokens=entry.cached_tokens,
        ttft_ms=entry.ttft_ms,
        tpot_ms=entry.tpot_ms,
        queue_ms=entry.queue_ms,
        wait_ms_at_least=entry.wait_ms_at_least,
        slo=entry.slo,
        config_revision=entry.config_revision,
    )


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
