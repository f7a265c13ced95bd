"""Joins requests with their engine spans, in any order of arrival."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf

from prometheus_client.core import Metric

from exporters.configuration.trace_sampling import in_share
from exporters.exposition.accumulators import counter
from exporters.records.messages import Finished
from exporters.sidecar.tracing.engine_spans import EngineSpan, SpanTimes
from exporters.vocabulary import signals
from exporters.vocabulary.signals import GENERATING, Outcome, Verdict
from exporters.vocabulary.slo_file import Measure
from exporters.vocabulary.verdicts import goodput

JOIN_TIMEOUT = 10.0
"""Maximum time that a request waits for its span, and a span for its request."""

DRAIN_JOIN_TIMEOUT = 4.0
"""The same while a relay drains, because it exits 5 s after its last record even without acknowledgement."""

SILENCE_TIMEOUT = 60.0
"""The time without spans after which requests do not wait until the engine sends one."""

MAX_SPANS = 20_000
MAX_SPAN_BYTES = 32 * 1024 * 1024
MAX_DECISIONS = 50_000
"""Memory limits; above them the oldest entry is dropped."""

LATE, NO_REQUEST, NO_TIMES, TOO_MANY = "late", "no_request", "no_times", "too_many"
UNJOINED = (LATE, NO_REQUEST, NO_TIMES, TOO_MANY)
"""Reasons why a span was not joined with a request."""

Forward = Callable[[bytes, int], None]
"""Forwards an OTLP message and its number of spans to the collector."""


@dataclass(slots=True)
class _WaitingRequest:
    record: Finished
    since: float
    on_ready: Callable[[], None]


@dataclass(slots=True)
class _HeldSpans:
    """Spans of a request without a decision: one for each choice. The times are from the first span."""

    trace_id: str
    times: SpanTimes
    since: float
    messages: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Decision:
    kept: bool  # the span of the request was kept
    lacks_times: bool


class SpanJoin:
    """Requests that wait for their span and spans that wait for their request, by id of the sidecar's span.

    Times are monotonic. `forward` receives the engine spans of requests whose own span is kept; None drops them.
    Of spans whose request is unknown it receives those that are `good_share` of all traces: their requests may have
    passed another sidecar, which keeps the same traces.
    """

    def __init__(self, forward: Forward | None = None, good_share: float = 1.0) -> None:
        self._forward_message = forward
        self._good_share = good_share
        self._requests: dict[str, _WaitingRequest] = {}
        self._spans: dict[str, _HeldSpans] = {}
        self._span_count = 0
        self._span_bytes = 0
        self._decisions: dict[str, _Decision] = {}
        self._silent_since = inf
        self._unjoined = dict.fromkeys(UNJOINED, 0)

    def add_request(self, record: Finished, now: float, on_ready: Callable[[], None]) -> None:
        """See `EngineTimes`."""
        if record.api not in GENERATING:
            on_ready()
            return
        spans = self._spans.get(record.span_id or "")
        if spans is not None:
            self._silent_since = inf
            self._add_times(record, spans.times)
        if spans is None and _lacks_times(record) and now - self._silent_since < SILENCE_TIMEOUT and record.span_id:
            self._silent_since = min(self._silent_since, now)
            self._requests[record.span_id] = _WaitingRequest(record, now, on_ready)
        else:
            on_ready()

    def add_span(self, span: EngineSpan, now: float) -> None:
        """The engine has sent the span of a request."""
        if not span.times.present:
            self._unjoined[NO_TIMES] += 1
        decision = self._decisions.get(span.parent)
        if decision is not None:
            self._silent_since = inf
            self._unjoined[LATE] += decision.lacks_times and span.times.present
            if decision.kept:
                self._forward([span.message])
            return
        self._hold(span, now)
        request = self._requests.pop(span.parent, None)
        if request is not None:
            self._silent_since = inf
            self._add_times(request.record, span.times)
            request.on_ready()

    def record_decision(self, record: Finished, *, kept: bool) -> None:
        """The request has been counted; its engine spans are forwarded if its own span was kept."""
        if record.span_id is None:
            return
        self._decisions[record.span_id] = _Decision(kept, _lacks_times(record))
        if len(self._decisions) > MAX_DECISIONS:
            del self._decisions[next(iter(self._decisions))]
        spans = self._pop_spans(record.span_id)
        if spans is not None and kept:
            self._forward(spans.messages)

    def check_timeouts(self, now: float, *, draining: bool = False) -> None:
        """End the waits of requests and spans that have timed out."""
        self._release_requests_since(now - (DRAIN_JOIN_TIMEOUT if draining else JOIN_TIMEOUT))
        for parent in _keys_since(self._spans, now - JOIN_TIMEOUT):
            self._release_spans(parent, NO_REQUEST)

    def release_requests(self) -> None:
        """End the waits of all requests."""
        self._release_requests_since(inf)

    def collect(self) -> Iterator[Metric]:
        yield counter(signals.SIDECAR_UNJOINED_SPANS, [((reason,), float(n)) for reason, n in self._unjoined.items()])

    def _release_requests_since(self, until: float) -> None:
        for span_id in _keys_since(self._requests, until):
            self._requests.pop(span_id).on_ready()

    def _add_times(self, record: Finished, times: SpanTimes) -> None:
        """Add the times of the span, and the verdicts of SLOs on them."""
        record.queue = times.queue if record.queue is None else record.queue
        record.prefill = times.prefill if record.prefill is None else record.prefill
        record.decode = times.decode if record.decode is None else record.decode
        record.dropped_values = [*record.dropped_values, *times.dropped]
        if record.outcome is not Outcome.OK or record.unmetered is not None:
            return
        values = {Measure.QUEUE: record.queue, Measure.PREFILL: record.prefill, Measure.DECODE: record.decode}
        for slo, (measure, threshold) in record.engine_slos.items():
            value = values[measure]
            if slo not in record.slo and value is not None:
                record.slo[slo] = Verdict.GOOD if value <= threshold else Verdict.BAD
        record.goodput = goodput(record.slo.values())

    def _hold(self, span: EngineSpan, now: float) -> None:
        spans = self._spans.setdefault(span.parent, _HeldSpans(span.trace_id, span.times, now))
        spans.messages.append(span.message)
        self._span_count += 1
        self._span_bytes += len(span.message)
        while self._span_count > MAX_SPANS or self._span_bytes > MAX_SPAN_BYTES:
            self._release_spans(next(iter(self._spans)), TOO_MANY)

    def _release_spans(self, parent: str, reason: str) -> None:
        spans = self._pop_spans(parent)
        if spans is not None:
            self._unjoined[reason] += len(spans.messages)
            if in_share(spans.trace_id, self._good_share):
                self._forward(spans.messages)

    def _pop_spans(self, parent: str) -> _HeldSpans | None:
        spans = self._spans.pop(parent, None)
        if spans is not None:
            self._span_count -= len(spans.messages)
            self._span_bytes -= sum(map(len, spans.messages))
        return spans

    def _forward(self, messages: list[bytes]) -> None:
        if self._forward_message is not None:
            self._forward_message(b"".join(messages), len(messages))


def _lacks_times(record: Finished) -> bool:
    """Whether a span can add times: the engine sends none for a request that did not finish."""
    return (
        record.api in GENERATING
        and record.queue is None
        and record.span_id is not None
        and record.outcome is Outcome.OK
        and record.unmetered is None
    )


def _keys_since(entries: "dict[str, _WaitingRequest] | dict[str, _HeldSpans]", until: float) -> list[str]:
    """The keys of entries with `since` up to `until`; entries are ordered by time."""
    keys = []
    for key, entry in entries.items():
        if entry.since > until:
            break
        keys.append(key)
    return keys
