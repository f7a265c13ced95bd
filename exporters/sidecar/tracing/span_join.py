"""Brings a request and the engine's span of it together, whichever comes first."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf

from prometheus_client.core import Metric

from exporters import signals
from exporters.exposition.accumulators import counter
from exporters.records import Finished
from exporters.sidecar.tracing.engine_spans import EngineSpan, EngineTimes
from exporters.signals import Outcome
from exporters.slos import Measure, SloFile
from exporters.verdicts import Ending, Judge, charges, goodput

WAIT = 10.0
"""Seconds for which a request waits for its span, and a span for its request."""

DRAIN_WAIT = 4.0
"""The same while a relay drains: it goes away 5 s after its last record, acknowledged or not."""

SILENCE = 60.0
"""After so many seconds of waiting in vain the engine is taken to send no spans, until one comes."""

SPANS = 20_000
SPAN_BYTES = 32 * 1024 * 1024
DECIDED = 50_000
"""Bounds of what is remembered; beyond them the oldest goes."""

LATE, NO_REQUEST, NO_TIMES, TOO_MANY = "late", "no_request", "no_times", "too_many"
UNJOINED = (LATE, NO_REQUEST, NO_TIMES, TOO_MANY)
"""Why a span gave no request its times."""

_ENGINE_MEASURES = frozenset({Measure.QUEUE, Measure.PREFILL, Measure.DECODE})

Pass = Callable[[bytes, int], None]
"""Hands an OTLP message of so many spans on."""


@dataclass(slots=True)
class _Waiting:
    record: Finished
    since: float
    settled: Callable[[], None]


@dataclass(slots=True)
class _Early:
    """Spans whose request is not decided yet: several where it asked for several answers; the first one's times."""

    times: EngineTimes
    since: float
    messages: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Decided:
    kept: bool  # whether its own span was
    lacks_times: bool


class SpanJoin:
    """Requests that wait for their span and spans that wait for their request, by the id of our span.

    Times are monotonic and handed in. `pass_on` takes the spans of requests whose own span is kept; None: nobody does.
    """

    def __init__(self, slos: SloFile, pass_on: Pass | None = None) -> None:
        self._slos = {
            name: [slo for slo in slos.slos_of(name) if slo.measure in _ENGINE_MEASURES] for name in slos.class_names
        }
        self._pass_on = pass_on
        self._waiting: dict[str, _Waiting] = {}
        self._early: dict[str, _Early] = {}
        self._early_count = 0
        self._early_bytes = 0
        self._decided: dict[str, _Decided] = {}
        self._unanswered_since = inf
        self._unjoined = dict.fromkeys(UNJOINED, 0)

    def request(self, record: Finished, now: float, settled: Callable[[], None]) -> None:
        """A request has ended; `settled` is called when it has its times, or will not get them."""
        early = self._early.get(record.span_id or "")
        if early is not None:
            self._unanswered_since = inf
            self._fill(record, early.times)
        if early is None and _lacks_times(record) and now - self._unanswered_since < SILENCE and record.span_id:
            self._unanswered_since = min(self._unanswered_since, now)
            self._waiting[record.span_id] = _Waiting(record, now, settled)
        else:
            settled()

    def span(self, span: EngineSpan, now: float) -> None:
        """The engine's span of a request has come."""
        if not span.times.known:
            self._unjoined[NO_TIMES] += 1
        decided = self._decided.get(span.parent)
        if decided is not None:
            self._unanswered_since = inf
            self._unjoined[LATE] += decided.lacks_times and span.times.known
            if decided.kept:
                self._pass([span.message])
            return
        self._keep(span, now)
        waiting = self._waiting.pop(span.parent, None)
        if waiting is not None:
            self._unanswered_since = inf
            self._fill(waiting.record, span.times)
            waiting.settled()

    def decided(self, record: Finished, *, kept: bool) -> None:
        """The request is counted, and its own span kept or not: the engine's go the same way."""
        if record.span_id is None:
            return
        self._decided[record.span_id] = _Decided(kept, _lacks_times(record))
        if len(self._decided) > DECIDED:
            del self._decided[next(iter(self._decided))]
        early = self._take(record.span_id)
        if early is not None and kept:
            self._pass(early.messages)

    def clock(self, now: float, *, draining: bool = False) -> None:
        """Time has come to `now`: who has waited long enough goes on alone."""
        wait = DRAIN_WAIT if draining else WAIT
        self.give_up(now - wait)
        for parent in _oldest(self._early, now - WAIT):
            self._give_up_early(parent, NO_REQUEST)

    def give_up(self, until: float = inf) -> None:
        """Let go of the requests that have waited since `until` or longer."""
        for span_id in _oldest(self._waiting, until):
            self._waiting.pop(span_id).settled()

    def collect(self) -> Iterator[Metric]:
        yield counter(signals.SIDECAR_UNJOINED_SPANS, [((reason,), float(n)) for reason, n in self._unjoined.items()])

    def _fill(self, record: Finished, times: EngineTimes) -> None:
        """Add what the span tells, and the verdicts that only it makes possible."""
        record.queue = times.queue if record.queue is None else record.queue
        record.prefill = times.prefill if record.prefill is None else record.prefill
        record.decode = times.decode if record.decode is None else record.decode
        if record.outcome is not Outcome.OK or record.unmetered is not None:
            return
        open_slos = [slo for slo in self._slos.get(record.request_class, ()) if slo.name not in record.slo]
        judge = Judge(charges(open_slos, stream=record.stream, several=True), zero=0.0, first_token_timeout=inf)
        fallen = judge.ended(Ending(0.0, Outcome.OK, queue=record.queue, prefill=record.prefill, decode=record.decode))
        record.slo |= dict(fallen)
        record.goodput = goodput(record.slo.values())

    def _keep(self, span: EngineSpan, now: float) -> None:
        early = self._early.setdefault(span.parent, _Early(span.times, now))
        early.messages.append(span.message)
        self._early_count += 1
        self._early_bytes += len(span.message)
        while self._early_count > SPANS or self._early_bytes > SPAN_BYTES:
            self._give_up_early(next(iter(self._early)), TOO_MANY)

    def _give_up_early(self, parent: str, reason: str) -> None:
        early = self._take(parent)
        if early is not None:  # of a request that did not come through here
            self._unjoined[reason] += len(early.messages)
            self._pass(early.messages)

    def _take(self, parent: str) -> _Early | None:
        early = self._early.pop(parent, None)
        if early is not None:
            self._early_count -= len(early.messages)
            self._early_bytes -= sum(map(len, early.messages))
        return early

    def _pass(self, messages: list[bytes]) -> None:
        if self._pass_on is not None:
            self._pass_on(b"".join(messages), len(messages))


def _lacks_times(record: Finished) -> bool:
    """Whether the engine makes a span that can help: it makes none of a request that did not finish."""
    return (
        record.queue is None
        and record.span_id is not None
        and record.outcome is Outcome.OK
        and record.unmetered is None
    )


def _oldest(kept: "dict[str, _Waiting] | dict[str, _Early]", until: float) -> list[str]:
    """The keys since `until` or before; entries are in the order of their times."""
    found = []
    for key, entry in kept.items():
        if entry.since > until:
            break
        found.append(key)
    return found
