"""Generates the request, SLO and goodput series from records; those that rules read exist at 0 from the start."""

import itertools
from bisect import bisect_left
from collections.abc import Collection, Container, Iterator
from typing import NamedTuple

from prometheus_client.core import Metric

from exporters.configuration.sidecar import MAX_MODELS
from exporters.exposition.accumulators import Accumulator, Counter, ExemplarTrace, Histogram, Total, counter, gauge
from exporters.exposition.histogram_bounds import bounds
from exporters.records.messages import UNMETERED, UNPARSED, Finished, Judged, Record, Refused, Snapshot
from exporters.sidecar.ingest.prompt_repeats import Distinct
from exporters.sidecar.ingest.saved_series import SavedHistogram, SavedSeries
from exporters.text import connect_errors
from exporters.text.names import is_unique
from exporters.vocabulary import signals
from exporters.vocabulary.signals import (
    LENGTH_BOUNDS,
    LENGTHS,
    NO_TOKENS,
    OTHER,
    SIZE_BOUNDS,
    SIZES,
    WARM_UP,
    Endpoint,
    Label,
    Outcome,
    Phase,
    Signal,
    Verdict,
)
from exporters.vocabulary.slo_file import SloFile

_TIMES = (
    *(signals.TTFT, signals.TTFT_ANSWER, signals.TPOT),
    *(signals.FRONTEND, signals.QUEUE, signals.PREFILL, signals.DECODE),
)
_TOKENS = (signals.PROMPT_TOKENS, signals.COMPLETION_TOKENS, signals.CACHED_TOKENS, signals.REASONING_TOKENS)
_COUNTERS = (
    signals.REQUESTS,
    signals.WARM_UP_REQUESTS,
    signals.WITHOUT_FIRST_TOKEN,
    signals.REQUESTS_WITH_ENGINE_TIMES,
    signals.REQUESTS_BY_SIZE,
    signals.REQUESTS_BY_LENGTH,
    signals.FAILED_BY_LENGTH,
    *_TOKENS,
    signals.SHAREABLE_PROMPT_TOKENS,
    signals.PROMPT_REPEATS,
    signals.BODY_REPEATS,
    signals.STRUCTURED_REQUESTS,
    signals.SLO_EVENTS,
    signals.SLO_BAD,
    signals.SLO_ABANDONED,
    signals.GOODPUT_EVENTS,
    signals.GOODPUT_REQUESTS,
    signals.GOODPUT_TOKENS,
    signals.SIDECAR_REFUSED,
    signals.SIDECAR_UNMETERED,
    signals.SIDECAR_UNPARSED,
    signals.SIDECAR_DROPPED_VALUES,
)
_HISTOGRAMS = (
    *_TIMES,
    signals.INTER_CHUNK,
    signals.DURATION,
    signals.REQUEST_PROMPT_TOKENS,
    signals.REQUEST_COMPLETION_TOKENS,
)
_OF_SNAPSHOTS = {
    "loop_lag": signals.SIDECAR_LOOP_LAG,
    "connections": signals.SIDECAR_CONNECTIONS,
    "client_limit": signals.SIDECAR_CONNECTIONS_LIMIT,
    "rejected_connections": signals.SIDECAR_REJECTED_CONNECTIONS,
    "buffered": signals.SIDECAR_BUFFERED,
    "buffered_limit": signals.SIDECAR_BUFFERED_LIMIT,
}
"""The series of each relay, by the name of the field of its snapshot."""

_SERVED = (
    *(signals.TTFT, signals.TPOT, signals.INTER_CHUNK, signals.DURATION),
    *(signals.REQUEST_PROMPT_TOKENS, signals.REQUEST_COMPLETION_TOKENS),
)
"""Histograms of every stream, at 0 from the start for each model that an engine serves."""

_SLO_COUNTERS = (signals.SLO_EVENTS, signals.SLO_BAD, signals.SLO_ABANDONED)
_AT_START = (
    *(signals.REQUESTS, signals.REQUESTS_WITH_ENGINE_TIMES, *_TOKENS),
    *_SLO_COUNTERS,
    *(signals.GOODPUT_EVENTS, signals.GOODPUT_REQUESTS, signals.GOODPUT_TOKENS),
)
"""Counters at 0 from the start for all models and classes. All others are exposed from their first count on."""

_OF_HASHES = (signals.PROMPT_REPEATS, signals.BODY_REPEATS, signals.UNIQUE_PROMPTS)

# Enum member access takes 0.1 us in CPython 3.11.
_BAD, _ABANDONED, _OK = Verdict.BAD, Verdict.ABANDONED, Outcome.OK


class _SloSeries(NamedTuple):
    events: Total
    bad: Total
    abandoned: Total


class _Ending:
    """The series of requests of one kind that have the same outcome."""

    __slots__ = ("_by_length", "_labels", "_sized", "_totals", "requests")

    def __init__(self, kind: tuple[str, str, str], record: Finished, counters: dict[Signal, Counter]) -> None:
        model, name, tenant = kind
        stream = "true" if record.stream else "false"
        requests = counters[signals.REQUESTS]
        self.requests = requests.series((model, name, record.outcome, tenant, stream, record.api))
        self._labels = model, name, record.outcome
        self._sized = counters[signals.REQUESTS_BY_SIZE]
        by_length = (signals.REQUESTS_BY_LENGTH, *(() if record.outcome is _OK else (signals.FAILED_BY_LENGTH,)))
        self._by_length = tuple(counters[signal] for signal in by_length)
        self._totals: dict[tuple[int, int, int], tuple[Total, ...]] = {}
        """Counters by size and length of the prompt, and by size of the completion."""

    def count_sizes(self, prompt: float, completion: int | None) -> None:
        size = bisect_left(SIZE_BOUNDS, completion) if completion else -1
        key = bisect_left(SIZE_BOUNDS, prompt), bisect_left(LENGTH_BOUNDS, prompt), size
        totals = self._totals.get(key)
        if totals is None:
            totals = self._totals[key] = self._series(*key)
        for total in totals:
            total[0] += 1

    def _series(self, prompt: int, length: int, completion: int) -> tuple[Total, ...]:
        model, name, outcome = self._labels
        sizes = SIZES[prompt], NO_TOKENS if completion < 0 else SIZES[completion]
        lengths = (each.series((model, name, LENGTHS[length])) for each in self._by_length)
        return self._sized.series((model, *sizes, outcome)), *lengths


class _Kind:
    """The series of requests with the same model, class and tenant, so that each request needs few lookups."""

    __slots__ = (
        *("body_repeats", "cached_tokens", "completion_tokens", "decode", "duration", "endings", "frontend", "gaps"),
        *("goodput_events", "goodput_requests", "goodput_tokens", "labels", "prefill", "prompt_repeats"),
        *("prompt_tokens", "queue", "reasoning_tokens", "request_completion_tokens", "request_prompt_tokens", "slos"),
        *("tpot", "ttft", "ttft_answer"),
    )

    def __init__(
        self, labels: tuple[str, str, str], counters: dict[Signal, Counter], histograms: dict[Signal, Histogram]
    ) -> None:
        self.labels = labels
        self.slos: dict[str, _SloSeries] = {}
        self.endings: dict[tuple[Outcome, bool, Endpoint], _Ending] = {}
        # Attributes, as a loop over them would take 1 us per request.
        self.prompt_tokens, self.completion_tokens, self.cached_tokens, self.reasoning_tokens = (
            counters[signal].series(labels) for signal in _TOKENS
        )
        self.prompt_repeats = counters[signals.PROMPT_REPEATS].series(labels[:2])
        self.body_repeats = counters[signals.BODY_REPEATS].series(labels[:2])
        self.goodput_events = counters[signals.GOODPUT_EVENTS].series(labels)
        self.goodput_requests = counters[signals.GOODPUT_REQUESTS].series(labels)
        self.goodput_tokens = counters[signals.GOODPUT_TOKENS].series(labels)
        self.ttft, self.ttft_answer, self.tpot, self.frontend, self.queue, self.prefill, self.decode = (
            histograms[signal].series(labels[:2]) for signal in _TIMES
        )
        self.duration = histograms[signals.DURATION].series(labels[:2])
        self.gaps = histograms[signals.INTER_CHUNK].series(labels[:2])
        self.request_prompt_tokens = histograms[signals.REQUEST_PROMPT_TOKENS].series(labels[:2])
        self.request_completion_tokens = histograms[signals.REQUEST_COMPLETION_TOKENS].series(labels[:2])


class RequestMetrics:
    """All request series; not thread-safe."""

    def __init__(
        self,
        slos: SloFile,
        max_models: int = MAX_MODELS,
        *,
        hashes_prompts: bool = True,
        absent: Collection[Signal] = (),
    ) -> None:
        """`hashes_prompts`: the relays do this; otherwise its series are absent.

        `absent`: further series that the source of the records cannot give.
        """
        self._slos = slos
        self._hidden = {*absent, *(() if hashes_prompts else _OF_HASHES)}
        self._max_models = max_models
        self._models: set[str] = set()
        self._prompts: dict[str, Distinct] = {}
        self._counters = {signal: Counter(signal) for signal in _COUNTERS}
        self._bounds = {signal: bounds(signal, slos) for signal in _HISTOGRAMS}
        self._histograms = {signal: Histogram(signal, self._bounds[signal]) for signal in _HISTOGRAMS}
        self._kinds: dict[tuple[str, str, str], _Kind] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self.add_model(OTHER)
        for reason in UNPARSED:
            self._counters[signals.SIDECAR_UNPARSED].show((reason,))
        for reason in UNMETERED:
            self._counters[signals.SIDECAR_UNMETERED].show((reason,))

    def add_model(self, model: str) -> None:
        """Add a model that the engine serves as a label value, at 0 in all series, unless the limit is reached.

        Records have cut names, so a name that may be another one's beginning is not a label value.
        """
        if model in self._models or not is_unique(model) or len(self._models) > self._max_models:  # with `other`
            return
        self._models.add(model)
        self._prompts[model] = Distinct()
        self._initialise(model)

    def use(self, slos: SloFile) -> None:
        """Expose the classes, SLOs and tenants of another file at 0; those that it does not have keep their values.

        A histogram with other bounds restarts at 0, which Prometheus handles as a reset of its counters.
        """
        if slos == self._slos:
            return
        self._slos = slos
        for signal in _HISTOGRAMS:
            if (changed := bounds(signal, slos)) != self._bounds[signal]:
                self._bounds[signal] = changed
                self._histograms[signal] = Histogram(signal, changed)
        self._kinds.clear()
        for model in self._models:
            self._initialise(model)

    def _initialise(self, model: str) -> None:
        for signal in _AT_START:
            for labels in self._combinations(signal, model):
                self._counters[signal].show(labels)
        for signal in () if model == OTHER else _SERVED:
            for labels in self._combinations(signal, model):
                self._histograms[signal].show(labels)

    def save(self) -> SavedSeries:
        """The values of all counters and histograms."""
        return SavedSeries(
            sorted(self._models),
            {signal.name: counter.rows() for signal, counter in self._counters.items()},
            {
                signal.name: SavedHistogram(self._bounds[signal], histogram.rows())
                for signal, histogram in self._histograms.items()
            },
        )

    def restore(self, saved: SavedSeries) -> None:
        """Continue from saved values; a histogram that has other bounds restarts at 0, as in `use`."""
        for model in saved.models:
            self.add_model(model)
        for signal, totals in self._counters.items():
            for labels, total in saved.counters.get(signal.name, ()):
                if self._is_series(signal, labels):
                    totals.show(labels)[0] = total
        for signal, histogram in self._histograms.items():
            kept = saved.histograms.get(signal.name)
            if kept is None or kept.bounds != self._bounds[signal]:
                continue
            for labels, counts, sum_ in kept.rows:
                if self._is_series(signal, labels):
                    buckets = histogram.show(labels)
                    buckets.counts[:], buckets.total = counts, sum_

    def _is_series(self, signal: Signal, labels: tuple[str, ...]) -> bool:
        """Whether the signal still has these labels, and the model is still a label value."""
        if len(labels) != len(signal.labels):
            return False
        return Label.MODEL not in signal.labels or labels[signal.labels.index(Label.MODEL)] in self._models

    def has_model(self, model: str) -> bool:
        """Whether the model is a label value; it then remains one."""
        return model in self._models

    def record(self, record: Record, *, traced: bool = False) -> None:
        """Count one record; `traced`: its spans are kept, so its trace can be an exemplar."""
        if isinstance(record, Judged):
            kind = self._kind(record.model, record.request_class, record.tenant)
            self._count_verdicts(kind, record.slo)
            if record.goodput_lost:
                kind.goodput_events[0] += 1
        elif isinstance(record, Refused):
            self._counters[signals.SIDECAR_REFUSED].add((str(record.status), record.reason))
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
        hidden = self._hidden
        yield from (counter for signal, counter in self._counters.items() if signal not in hidden)
        yield from (histogram for signal, histogram in self._histograms.items() if signal not in hidden)
        if signals.UNIQUE_PROMPTS not in hidden:
            prompts = sorted(self._prompts.items())
            yield gauge(signals.UNIQUE_PROMPTS, (((model,), distinct.estimate()) for model, distinct in prompts))
        if signals.IN_FLIGHT in hidden:  # no relay sends snapshots
            return
        yield from self._open_requests(now)
        rows = self._snapshots.items()
        for field, signal in _OF_SNAPSHOTS.items():
            family = counter if signal.kind is signals.Kind.COUNTER else gauge
            yield family(signal, (((name,), float(getattr(row, field))) for name, row in rows))
        failures = (
            ((name, row.upstream, kind), float(row.connect_failures.get(kind, 0)))
            for name, row in rows
            for kind in connect_errors.KINDS
        )
        yield counter(signals.SIDECAR_UPSTREAM_ERRORS, failures)

    def _open_requests(self, now: float) -> Iterator[Metric]:
        kinds = [(model, name) for model in sorted(self._models) for name in self._slos.class_names]
        in_flight = dict.fromkeys(((*kind, phase) for kind in kinds for phase in Phase), 0.0)
        oldest = dict.fromkeys(kinds, 0.0)
        for snapshot in self._snapshots.values():
            for row in snapshot.open:
                if row.request_class == WARM_UP:
                    continue
                kind = self._bounded(row.model), row.request_class
                # The request may have arrived under another SLO file, with another class.
                for phase, count in ((Phase.WAITING, row.waiting), (Phase.STREAMING, row.streaming)):
                    in_flight[*kind, phase] = in_flight.get((*kind, phase), 0.0) + count
                if row.oldest_zero is not None:
                    oldest[kind] = max(oldest.get(kind, 0.0), now - row.oldest_zero)
        yield gauge(signals.IN_FLIGHT, in_flight.items())
        yield gauge(signals.OLDEST_WAIT, oldest.items())

    def _combinations(self, signal: Signal, model: str) -> Iterator[tuple[str, ...]]:
        values: dict[Label, tuple[str, ...]] = {
            Label.MODEL: (model,),
            Label.TENANT: self._slos.tenant_names,
            Label.OUTCOME: tuple(Outcome),
            Label.STREAM: ("true", "false"),
            Label.ROUTE: (Endpoint.CHAT_COMPLETIONS,),
        }
        for name in self._slos.class_names:
            values[Label.CLASS] = (name,)
            values[Label.SLO] = tuple(slo.name for slo in self._slos.slos_of(name))
            yield from itertools.product(*(values[label] for label in signal.labels))

    def _bounded(self, model: str) -> str:
        return model if model in self._models else OTHER

    def _count_verdicts(self, kind: _Kind, verdicts: dict[str, Verdict], counted: Container[str] = ()) -> None:
        for slo, verdict in verdicts.items():
            if slo in counted:
                continue
            series = kind.slos.get(slo)
            if series is None:
                model, name, tenant = kind.labels
                labels = model, name, slo, tenant
                series = kind.slos[slo] = _SloSeries(
                    *(self._counters[signal].series(labels) for signal in _SLO_COUNTERS)
                )
            if verdict is _ABANDONED:
                series.abandoned[0] += 1
                continue
            series.events[0] += 1
            if verdict is _BAD:
                series.bad[0] += 1

    def _kind(self, model: str, name: str, tenant: str) -> _Kind:
        labels = self._bounded(model), name, tenant
        kind = self._kinds.get(labels)
        if kind is None:
            kind = self._kinds[labels] = _Kind(labels, self._counters, self._histograms)
        return kind

    def _count_finished(self, record: Finished, trace: ExemplarTrace | None) -> None:
        counters = self._counters
        if record.refused is not None:
            counters[signals.SIDECAR_REFUSED].add((str(record.status), record.refused))
        if record.unparsed is not None:
            counters[signals.SIDECAR_UNPARSED].add((record.unparsed,))
        if record.unmetered is not None:
            reason = record.unmetered if record.unmetered in UNMETERED else OTHER
            counters[signals.SIDECAR_UNMETERED].add((reason,))
        for name in record.dropped_values:
            counters[signals.SIDECAR_DROPPED_VALUES].add((name,))
        if record.request_class == WARM_UP:
            counters[signals.WARM_UP_REQUESTS].add((self._bounded(record.model), record.outcome))
            return
        kind = self._kind(record.model, record.request_class, record.tenant)
        model, outcome = kind.labels[0], record.outcome
        key = outcome, record.stream, record.api
        ending = kind.endings.get(key)
        if ending is None:
            ending = kind.endings[key] = _Ending(kind.labels, record, counters)
        ending.requests[0] += 1
        if outcome is _OK:
            kind.duration.observe(record.e2e, trace)
        prompt_tokens, completion_tokens = record.prompt_tokens, record.completion_tokens
        prompt = record.prompt_estimate
        if prompt_tokens is not None:
            prompt = prompt_tokens
            kind.prompt_tokens[0] += prompt_tokens
            kind.request_prompt_tokens.observe(prompt_tokens, trace)
        if completion_tokens is not None:
            kind.completion_tokens[0] += completion_tokens
            kind.request_completion_tokens.observe(completion_tokens, trace)
        if record.cached_tokens:
            kind.cached_tokens[0] += record.cached_tokens
        if record.reasoning_tokens:
            kind.reasoning_tokens[0] += record.reasoning_tokens
        if record.ttft is not None:
            kind.ttft.observe(record.ttft, trace)
        elif record.wait_at_least is not None:
            counters[signals.WITHOUT_FIRST_TOKEN].add((*kind.labels[:2], outcome))
        if record.ttft_answer is not None:
            kind.ttft_answer.observe(record.ttft_answer, trace)
        if record.tpot is not None:
            kind.tpot.observe(record.tpot, trace)
        if record.gap_counts:
            kind.gaps.merge(record.gap_counts, record.gap_sum)
        if record.queue is not None:
            counters[signals.REQUESTS_WITH_ENGINE_TIMES].add(kind.labels[:2])
            kind.queue.observe(record.queue, trace)
            if (frontend := record.frontend) is not None:
                kind.frontend.observe(frontend, trace)
        if record.prefill is not None:
            kind.prefill.observe(record.prefill, trace)
        if record.decode is not None:
            kind.decode.observe(record.decode, trace)
        if prompt is not None:
            ending.count_sizes(prompt, completion_tokens)
        if record.prompt_sha256 is not None:
            self._prompts[model].add(record.prompt_sha256)
        if record.prompt_repeat:
            kind.prompt_repeats[0] += 1
        if record.body_repeat:
            kind.body_repeats[0] += 1
        if record.shareable_tokens is not None:
            counters[signals.SHAREABLE_PROMPT_TOKENS].add(kind.labels, record.shareable_tokens)
        if record.structured_kind is not None and record.structured_result is not None:
            labels = *kind.labels[:2], record.structured_kind, record.structured_result
            counters[signals.STRUCTURED_REQUESTS].add(labels)
        self._count_verdicts(kind, record.slo, record.counted)
        if record.goodput is not None and not record.goodput_counted:
            kind.goodput_events[0] += 1
        if record.goodput:
            kind.goodput_requests[0] += 1
            kind.goodput_tokens[0] += completion_tokens or 0


def _trace(record: Finished) -> ExemplarTrace | None:
    """The trace of the record, if it has a span of the sidecar; other traces may not be stored anywhere."""
    if record.trace_id is None or record.span_id is None:
        return None
    return record.time + record.e2e, record.trace_id
