"""The fields of a logged request that a comparison needs."""

import math

import msgspec

from exporters.quantities import from_milliseconds
from exporters.requestlog.log_entry import LogEntry
from exporters.signals import Outcome, Verdict


class Request(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A third of the size of a `LogEntry`; durations in seconds, `arrived` and `ended` in unix seconds."""

    request_class: str
    stream: bool
    outcome: Outcome
    arrived: float
    ended: float
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    ttft: float | None
    ttft_answer: float | None
    tpot: float | None
    queue: float | None
    wait_at_least: float | None
    slo: dict[str, Verdict]
    config_revision: str | None

    @property
    def tokens(self) -> int:
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0)

    @property
    def first_token_wait(self) -> float | None:
        """Seconds to the first token of a stream; infinite if the server sent none.

        If the client aborted before the first token, this is the time until then, a lower bound.
        """
        if not self.stream or self.outcome is Outcome.CLIENT_ERROR:
            return None
        if self.ttft is not None:
            return self.ttft
        if self.outcome is Outcome.CLIENT_ABORT:
            return self.wait_at_least
        return None if self.outcome is Outcome.OK else math.inf


def from_entry(entry: LogEntry) -> Request:
    return Request(
        request_class=entry.request_class,
        stream=entry.stream,
        outcome=entry.outcome,
        arrived=entry.arrived,
        ended=entry.ended,
        prompt_tokens=entry.prompt_tokens,
        completion_tokens=entry.completion_tokens,
        cached_tokens=entry.cached_tokens,
        ttft=from_milliseconds(entry.ttft_ms),
        ttft_answer=from_milliseconds(entry.ttft_answer_ms),
        tpot=from_milliseconds(entry.tpot_ms),
        queue=from_milliseconds(entry.queue_ms),
        wait_at_least=from_milliseconds(entry.wait_ms_at_least),
        slo=entry.slo,
        config_revision=entry.config_revision,
    )
