"""The fields of a logged request that a comparison needs."""

import msgspec

from exporters.requestlog.entry import LogEntry
from exporters.text.units import from_milliseconds
from exporters.vocabulary.signals import Outcome, Verdict


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
    first_token_wait: float | None
    tpot: float | None
    itl_p95: float | None
    queue: float | None
    slo: dict[str, Verdict]
    config_revision: str | None

    @property
    def served(self) -> float:
        """When the request stopped waiting (unix seconds): at its first token, or when its prefill began, or ended."""
        wait = self.queue if self.ttft is None else self.ttft
        return self.ended if wait is None else min(self.arrived + wait, self.ended)


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
        first_token_wait=entry.first_token_wait,
        tpot=from_milliseconds(entry.tpot_ms),
        itl_p95=from_milliseconds(entry.itl_p95_ms),
        queue=from_milliseconds(entry.queue_ms),
        slo=entry.slo,
        config_revision=entry.config_revision,
    )
