"""The state of each engine after its last scrape, as series."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client.core import HistogramMetricFamily, Metric

from exporters.engines.changes.config_changes import ConfigWatch
from exporters.engines.normalisation import EngineMetrics, SeriesKey
from exporters.engines.signal_table import SIGNALS
from exporters.exposition.accumulators import Labels, counter, format_float, gauge
from exporters.text.names import cut
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Kind, Signal

UNAUTHORIZED, MODELS_UNAUTHORIZED = "unauthorized", "models_unauthorized"
"""Status 401 or 403 of the metrics, and of the list of models."""

FAILURES = ("connection", "timeout", "status", UNAUTHORIZED, "payload", "size", "parse")
"""Reasons of failed scrapes; the engine is then down."""

FAULTS = ("line", "value", "duplicate", "histogram", MODELS_UNAUTHORIZED)
"""Faults that a scrape skips: invalid content, or no access to the list of models; it uses everything else."""


@dataclass(slots=True)
class EngineState:
    """One engine; `last_success_at` in monotonic seconds."""

    name: str
    up: bool = False
    failure: str | None = None
    """The reason of the last scrape's failure; None if it succeeded, or before the first scrape."""
    metrics: EngineMetrics = field(default_factory=EngineMetrics)
    last_success_at: float | None = None
    generation_paused: bool = False
    """Whether vLLM has paused generation (`/pause`), as while its weights are updated."""
    version: str | None = None
    models: tuple[str, ...] = ()
    errors: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*FAILURES, *FAULTS), 0))
    watch: ConfigWatch = field(default_factory=ConfigWatch)

    def samples(self, now: float) -> Iterator[tuple[Signal, Labels, float]]:
        """All samples except histograms; unknown values are absent, not 0."""
        yield signals.ENGINE_UP, (), float(self.up)
        for reason, count in self.errors.items():
            yield signals.ENGINE_SCRAPE_ERRORS, (reason,), float(count)
        if self.last_success_at is not None:
            yield signals.ENGINE_SCRAPE_AGE, (), now - self.last_success_at
        if self.up:
            yield from self._scraped_samples()
        if self.watch.revision is not None:
            yield signals.ENGINE_CONFIG_INFO, (self.watch.revision,), 1.0
        for setting in sorted(self.watch.settings.items()):
            yield signals.ENGINE_SETTING_INFO, setting, 1.0
        for change in self.watch.changes:
            yield signals.ENGINE_CONFIG_CHANGE, (change.setting, change.old, change.new), change.at

    def _scraped_samples(self) -> Iterator[tuple[Signal, Labels, float]]:
        metrics = self.metrics
        for signal, values in metrics.values.items():
            for key, value in values.items():
                yield signal, self.labels(key), value
        for rank, tokens in metrics.kv_capacity.items():
            yield signals.ENGINE_KV_CAPACITY, (rank,), tokens
        for signal, adapters in metrics.lora.items():
            yield signal, (), adapters
        for signal in SIGNALS:
            yield signals.ENGINE_SIGNAL_EXPOSED, (signal.name,), float(signal in metrics.exposed)
        if metrics.engine_type is not None:
            yield signals.ENGINE_COUNTS_LIVE, (), float(metrics.engine_type.counts_live)
        if metrics.start_time is not None:
            yield signals.ENGINE_START_TIME, (), metrics.start_time
        yield signals.ENGINE_INFO, (metrics.type_name, self.version or "unknown"), 1.0

    def labels(self, key: SeriesKey) -> Labels:
        """The key; for an engine type without a model label, with the model of /v1/models if it is the only one."""
        rank, model, *last = key
        engine = self.metrics.engine_type
        is_unlabelled = engine is not None and engine.model_label is None
        return rank, cut(self.models[0]) if is_unlabelled and len(self.models) == 1 else model, *last


class Reporter(Protocol):
    """A part of what is known of an engine."""

    name: str

    def samples(self, now: float) -> Iterator[tuple[Signal, Labels, float]]: ...


def collect(states: Sequence[EngineState], now: float, others: Sequence[Reporter] = ()) -> Iterator[Metric]:
    """The families of all engines, each family once."""
    samples: dict[Signal, list[tuple[Labels, float]]] = {}
    for reporter in (*states, *others):
        for signal, labels, value in reporter.samples(now):
            samples.setdefault(signal, []).append(((reporter.name, *labels), value))
    for signal, signal_samples in samples.items():
        yield (counter if signal.kind is Kind.COUNTER else gauge)(signal, signal_samples)
    for signal in SIGNALS:
        exposing = [state for state in states if state.up and signal in state.metrics.distributions]
        if exposing:
            yield _histogram(signal, exposing)


def _histogram(signal: Signal, states: Sequence[EngineState]) -> Metric:
    family = HistogramMetricFamily(signal.name, signal.help, labels=list(signal.labels))
    for state in states:
        for key, distribution in state.metrics.distributions[signal].items():
            buckets = [(format_float(bound), count) for bound, count in distribution.buckets]
            family.add_metric((state.name, *state.labels(key)), buckets, distribution.sum)
    return family
