"""Generates the request, SLO and goodput series from records; all bounded label combinations start at 0."""

import itertools
from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client.core import Metric

from exporters import signals
from exporters.configuration.sidecar_config import MAX_MODELS
from exporters.exposition.accumulators import Accumulator, Counter, ExemplarTrace, Histogram, counter, gauge
from exporters.exposition.histogram_bounds import bounds
from exporters.names import is_unique
from exporters.records import UNMETERED, UNPARSED, Finished, Judged, Record, Snapshot
from exporters.sidecar.ingest.prompt_repeats import Distinct
from exporters.signals import NO_TOKENS, OTHER, SIZE_BOUNDS, SIZES, Label, Outcome, Phase, Signal, Verdict
from exporters.slos import SloFile

_COUNTERS = (
    signals.REQUESTS,
    signals.REQUESTS_WITH_ENGINE_TIMES,
    signals.REQUESTS_BY_SIZE,
    signals.PROMPT_TOKENS,
    signals.COMPLETION_TOKENS,
    signals.CACHED_TOKENS,
    signals.PROMPT_REPEATS,
    signals.SLO_EVENTS,
    signals.SLO_BAD,
    signals.SLO_ABANDONED,
    signals.GOODPUT_EVENTS,
    signals.GOODPUT_REQUESTS,
    signals.GOODPUT_TOKENS,
    signals.SIDECAR_UNMETERED,
    signals.SIDECAR_UNPARSED,
)
_HISTOGRAMS = (
    signals.TTFT,
    signals.TPOT,
    signals.INTER_CHUNK,
    signals.DURATION,
    signals.QUEUE,
    signals.PREFILL,
    signals.DECODE,
    signals.REQUEST_PROMPT_TOKENS,
    signals.REQUEST_COMPLETION_TOKENS,
)


class RequestMetrics:
    """All request series; not thread-safe."""

    def __init__(self, slos: SloFile, max_models: int = MAX_MODELS) -> None:
        self._slos = slos
        self._max_models = max_models
        self._models: set[str] = set()
        self._prompts: dict[str, Distinct] = {}
        self._counters = {signal: Counter(signal) for signal in _COUNTERS}
        self._histograms = {signal: Histogram(signal, bounds(signal, slos)) for signal in _HISTOGRAMS}
        self._snapshots: dict[str, Snapshot] = {}
        self.add_model(OTHER)
        for reason in UNPARSED:
            self._counters[signals.SIDECAR_UNPARSED].initialise((reason,))
        for reason in UNMETERED:
            self._counters[signals.SIDECAR_UNMETERED].initialise((reason,))

    def add_model(self, model: str) -> None:
        """Add a model that the engine serves as a label value, at 0 in all series, unless the limit is reached.

        Records have cut names, so a name that may be another one's beginning is no label value.
        """
        if model in self._models or not is_unique(model) or len(self._models) > self._max_models:  # with `other`
            return
        self._models.add(model)
        self._prompts[model] = Distinct()
        accumulators: dict[Signal, Counter | Histogram] = {**self._counters, **self._histograms}
        for signal, accumulator in accumulators.items():
            if Label.MODEL in signal.labels:
                for labels in self._combinations(signal, model):
                    accumulator.initialise(labels)

    def has_model(self, model: str) -> bool:
        """Whether the model is a label value; it then remains one."""
        return model in self._models

    def record(self, record: Record, *, traced: bool = False) -> None:
        """Count one record; `traced`: its spans are kept, so its trace can be an exemplar."""
        if isinstance(record, Judged):
            self._count_verdicts(self._bounded(record.model), record.request_class, record.tenant, record.slo)
            if record.goodput_lost:
                key = self._bounded(record.model), record.request_class, record.tenant
                self._counters[signals.GOODPUT_EVENTS].add(key)
        else:
            self._count_finished(record, _trace(record) if traced else None)

    def snapshot(self, process: str, snapshot: Snapshot) -> None:
        self._snapshots[process] = snapshot

    def forget(self, process: str) -> Snapshot | None:
        """Remove the snapshot of a disconnected relay; returns it, if there is one."""
        return self._snapshots.pop(process, None)

    def snapshots(self) -> dict[str, Snapshot]:
        return dict(self._snapshots)

    def collect(self, now: float) -> Iterator[Metric | Accumulator]:
        """All families; `now` is monotonic, like the times of the snapshots."""
        yield from self._counters.values()
        yield from self._histograms.values()
        prompts = sorted(self._prompts.items())
        yield gauge(signals.UNIQUE_PROMPTS, (((model,), distinct.estimate()) for model, distinct in prompts))
        yield from self._open_requests(now)
        rows = self._snapshots.items()
        yield gauge(signals.SIDECAR_LOOP_LAG, (((name,), row.loop_lag) for name, row in rows))
        yield gauge(signals.SIDECAR_CONNECTIONS, (((name,), float(row.connections)) for name, row in rows))
        yield gauge(signals.SIDECAR_CONNECTIONS_LIMIT, (((name,), float(row.client_limit)) for name, row in rows))
        rejected = (((name,), float(row.rejected_connections)) for name, row in rows)
        yield counter(signals.SIDECAR_REJECTED_CONNECTIONS, rejected)
        yield counter(signals.SIDECAR_DROPPED, (((name,), float(row.dropped)) for name, row in rows))

    def _open_requests(self, now: float) -> Iterator[Metric]:
        kinds = [(model, name) for model in sorted(self._models) for name in self._slos.class_names]
        in_flight = dict.fromkeys(((*kind, phase) for kind in kinds for phase in Phase), 0.0)
        oldest = dict.fromkeys(kinds, 0.0)
        for snapshot in self._snapshots.values():
            for row in snapshot.open:
                kind = self._bounded(row.model), row.request_class
                in_flight[*kind, Phase.WAITING] += row.waiting
                in_flight[*kind, Phase.STREAMING] += row.streaming
                if row.oldest_zero is not None:
                    oldest[kind] = max(oldest[kind], now - row.oldest_zero)
        yield gauge(signals.IN_FLIGHT, in_flight.items())
        yield gauge(signals.OLDEST_WAIT, oldest.items())

    def _combinations(self, signal: Signal, model: str) -> Iterator[tuple[str, ...]]:
        values: dict[Label, tuple[str, ...]] = {
            Label.MODEL: (model,),
            Label.TENANT: self._slos.tenant_names,
            Label.OUTCOME: tuple(Outcome),
            Label.STREAM: ("true", "false"),
            Label.PROMPT_SIZE: SIZES,
            Label.COMPLETION_SIZE: (*SIZES, NO_TOKENS),
        }
        for name in self._slos.class_names:
            values[Label.CLASS] = (name,)
            values[Label.SLO] = tuple(slo.name for slo in self._slos.slos_of(name))
            yield from itertools.product(*(values[label] for label in signal.labels))

    def _bounded(self, model: str) -> str:
        return model if model in self._models else OTHER

    def _count_verdicts(self, model: str, name: str, tenant: str, verdicts: dict[str, Verdict]) -> None:
        for slo, verdict in verdicts.items():
            key = model, name, slo, tenant
            if verdict is Verdict.ABANDONED:
                self._counters[signals.SLO_ABANDONED].add(key)
                continue
            self._counters[signals.SLO_EVENTS].add(key)
            if verdict is Verdict.BAD:
                self._counters[signals.SLO_BAD].add(key)

    def _count_finished(self, record: Finished, trace: ExemplarTrace | None) -> None:
        counters, histograms = self._counters, self._histograms
        kind = self._bounded(record.model), record.request_class
        key = *kind, record.tenant
        counters[signals.REQUESTS].add((*kind, record.outcome, record.tenant, "true" if record.stream else "false"))
        if record.queue is not None:
            counters[signals.REQUESTS_WITH_ENGINE_TIMES].add(kind)
        histograms[signals.DURATION].observe((*kind, record.outcome), record.e2e, trace)
        for signal, tokens in (
            (signals.PROMPT_TOKENS, record.prompt_tokens),
            (signals.COMPLETION_TOKENS, record.completion_tokens),
            (signals.CACHED_TOKENS, record.cached_tokens),
        ):
            if tokens:
                counters[signal].add(key, tokens)
        for signal, value in (
            (signals.TTFT, record.ttft),
            (signals.TPOT, record.tpot),
            (signals.QUEUE, record.queue),
            (signals.PREFILL, record.prefill),
            (signals.DECODE, record.decode),
            (signals.REQUEST_PROMPT_TOKENS, record.prompt_tokens),
        ):
            if value is not None:
                histograms[signal].observe(kind, value, trace)
        if record.completion_tokens is not None:
            labels = *kind, record.outcome
            histograms[signals.REQUEST_COMPLETION_TOKENS].observe(labels, record.completion_tokens, trace)
        prompt = record.prompt_estimate if record.prompt_tokens is None else record.prompt_tokens
        if prompt is not None:
            completion = _size(record.completion_tokens) if record.completion_tokens else NO_TOKENS
            counters[signals.REQUESTS_BY_SIZE].add((kind[0], _size(prompt), completion, record.outcome))
        if record.gap_counts:
            histograms[signals.INTER_CHUNK].merge(kind, record.gap_counts, record.gap_sum)
        if record.prompt_sha256 is not None:
            self._prompts[kind[0]].add(record.prompt_sha256)
        if record.prompt_repeat:
            counters[signals.PROMPT_REPEATS].add(kind)
        if record.unparsed is not None:
            counters[signals.SIDECAR_UNPARSED].add((record.unparsed,))
        if record.unmetered is not None:
            reason = record.unmetered if record.unmetered in UNMETERED else OTHER
            counters[signals.SIDECAR_UNMETERED].add((reason,))
        uncounted = {slo: verdict for slo, verdict in record.slo.items() if slo not in record.counted}
        self._count_verdicts(*kind, record.tenant, uncounted)
        if record.goodput is not None and not record.goodput_counted:
            counters[signals.GOODPUT_EVENTS].add(key)
        if record.goodput:
            counters[signals.GOODPUT_REQUESTS].add(key)
            counters[signals.GOODPUT_TOKENS].add(key, record.completion_tokens or 0)


def _size(tokens: float) -> str:
    return SIZES[bisect_left(SIZE_BOUNDS, tokens)]


def _trace(record: Finished) -> ExemplarTrace | None:
    """The trace of the record, if it has a span of the sidecar; other traces may not be stored anywhere."""
    if record.trace_id is None or record.span_id is None:
        return None
    return record.time + record.e2e, record.trace_id
