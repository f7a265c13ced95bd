"""Joins each request with the engine's span of it, whichever comes first."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf

from prometheus_client.core import Metric

from exporters import signals
from exporters.exposition.accumulators import counter
from exporters.records import Finished
from exporters.sidecar.tracing.engine_spans import EngineSpan, SpanTimes
from exporters.signals import Outcome
from exporters.slos import Measure, SloFile
from exporters.verdicts import Ending, Judge, charges, goodput

JOIN_TIMEOUT = 10.0
"""The longest wait of a request for its span, and of a span for its request."""

DRAIN_JOIN_TIMEOUT = 4.0
"""The same while a relay drains: it ends 5 s after its last record, acknowledged or not."""

SILENCE_TIMEOUT = 60.0
"""After so many seconds of waiting in vain the engine is assumed to send no spans, until one comes."""

MAX_SPANS = 20_000
MAX_SPAN_BYTES = 32 * 1024 * 1024
MAX_DECISIONS = 50_000
"""Bounds of the memory; beyond them the oldest entry is dropped."""

LATE, NO_REQUEST, NO_TIMES, TOO_MANY = "late", "no_request", "no_times", "too_many"
UNJOINED = (LATE, NO_REQUEST, NO_TIMES, TOO_MANY)
"""Why a span gave no request its times."""

_ENGINE_MEASURES = frozenset({Measure.QUEUE, Measure.PREFILL, Measure.DECODE})

Forward = Callable[[bytes, int], None]
"""Forwards an OTLP message of so many spans to the collector."""


@dataclass(slots=True)
class _WaitingRequest:
    record: Finished
    since: float
    on_ready: Callable[[], None]


@dataclass(slots=True)
class _HeldSpans:
    """Spans of an undecided request: several where it asked for several choices; the times are those of the first."""

    times: SpanTimes
    since: float
    messages: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Decision:
    kept: bool  # whether the request's own span was
    lacks_times: bool


class SpanJoin:
    """Requests that wait for their span and spans that wait for their request, by the id of our span.

    Times are monotonic. `forward` gets the spans of requests whose own span is kept; None: they are dropped.
    """

    def __init__(self, slos: SloFile, forward: Forward | None = None) -> None:
        self._slos = {
            name: [slo for slo in slos.slos_of(name) if slo.measure in _ENGINE_MEASURES] for name in slos.class_names
        }
        self._forward_message = forward
        self._requests: dict[str, _WaitingRequest] = {}
        self._spans: dict[str, _HeldSpans] = {}
        self._span_count = 0
        self._span_bytes = 0
        self._decisions: dict[str, _Decision] = {}
        self._silent_since = inf
        self._unjoined = dict.fromkeys(UNJOINED, 0)

    def add_request(self, record: Finished, now: float, on_ready: Callable[[], None]) -> None:
        """A request has ended; `on_ready` is called when it has its times, or will not get them."""
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
        """The engine's span of a request has come."""
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
        """The request has been counted, and its own span kept or not; the engine's spans are treated alike."""
        if record.span_id is None:
            return
        self._decisions[record.span_id] = _Decision(kept, _lacks_times(record))
        if len(self._decisions) > MAX_DECISIONS:
            del self._decisions[next(iter(self._decisions))]
        spans = self._pop_spans(record.span_id)
        if spans is not None and kept:
            self._forward(spans.messages)

    def check_timeouts(self, now: float, *, draining: bool = False) -> None:
        """End the waits of requests and spans that have lasted long enough."""
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
        """Add the times of the span, and the verdicts that need them."""
        record.queue = times.queue if record.queue is None else record.queue
        record.prefill = times.prefill if record.prefill is None else record.prefill
        record.decode = times.decode if record.decode is None else record.decode
        if record.outcome is not Outcome.OK or record.unmetered is not None:
            return
        open_slos = [slo for slo in self._slos.get(record.request_class, ()) if slo.name not in record.slo]
        judge = Judge(charges(open_slos, stream=record.stream, several=True), zero=0.0, first_token_timeout=inf)
        ending = Ending(0.0, Outcome.OK, queue=record.queue, prefill=record.prefill, decode=record.decode)
        record.slo |= dict(judge.ended(ending))
        record.goodput = goodput(record.slo.values())

    def _hold(self, span: EngineSpan, now: float) -> None:
        spans = self._spans.setdefault(span.parent, _HeldSpans(span.times, now))
        spans.messages.append(span.message)
        self._span_count += 1
        self._span_bytes += len(span.message)
        while self._span_count > MAX_SPANS or self._span_bytes > MAX_SPAN_BYTES:
            self._release_spans(next(iter(self._spans)), TOO_MANY)

    def _release_spans(self, parent: str, reason: str) -> None:
        spans = self._pop_spans(parent)
        if spans is not None:  # of a request that this sidecar did not relay
            self._unjoined[reason] += len(spans.messages)
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
    """Whether the engine makes a span that can help: it makes none for a request that did not finish."""
    return (
        record.queue is None
        and record.span_id is not None
        and record.outcome is Outcome.OK
        and record.unmetered is None
    )


def _keys_since(entries: "dict[str, _WaitingRequest] | dict[str, _HeldSpans]", until: float) -> list[str]:
    """The keys of entries since `until` or before; entries are in the order of their times."""
    keys = []
    for key, entry in entries.items():
        if entry.since > until:
            break
        keys.append(key)
    return keys
