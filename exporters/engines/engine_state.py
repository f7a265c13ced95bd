"""What the last looks have found of each engine, as our series."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from exporters import signals
from exporters.engines.config_changes import ConfigWatch
from exporters.engines.normalisation import Key, Reading
from exporters.engines.signal_table import SIGNALS
from exporters.exposition.accumulators import Labels, counter, gauge
from exporters.signals import Kind, Signal

FAILED = ("connection", "timeout", "status", "payload", "size", "parse")
"""Why a look at an engine can fail; it is then down."""

UNUSABLE = ("line", "value", "duplicate", "histogram")
"""What a look can do without: the rest of the page is used."""


@dataclass(slots=True)
class EngineState:
    """One engine; `good_at` is monotonic seconds."""

    name: str
    up: bool = False
    reading: Reading = field(default_factory=Reading)
    good_at: float | None = None
    version: str | None = None
    models: tuple[str, ...] = ()
    errors: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*FAILED, *UNUSABLE), 0))
    watch: ConfigWatch = field(default_factory=ConfigWatch)

    def samples(self, now: float) -> Iterator[tuple[Signal, Labels, float]]:
        """All but the histograms; what is not known is absent, not zero."""
        yield signals.ENGINE_UP, (), float(self.up)
        for reason, count in self.errors.items():
            yield signals.ENGINE_SCRAPE_ERRORS, (reason,), float(count)
        if self.good_at is not None:
            yield signals.ENGINE_SCRAPE_AGE, (), now - self.good_at
        if self.up:
            yield from self._of_reading()
        if self.watch.revision is not None:
            yield signals.ENGINE_CONFIG_INFO, (self.watch.revision,), 1.0
        for setting in sorted(self.watch.settings.items()):
            yield signals.ENGINE_SETTING_INFO, setting, 1.0
        for change in self.watch.changes:
            yield signals.ENGINE_CONFIG_CHANGE, (change.setting, change.old, change.new), change.at

    def _of_reading(self) -> Iterator[tuple[Signal, Labels, float]]:
        reading = self.reading
        for signal, values in reading.values.items():
            for key, value in values.items():
                yield signal, self.labels(key), value
        for rank, tokens in reading.kv_capacity.items():
            yield signals.ENGINE_KV_CAPACITY, (rank,), tokens
        for signal in SIGNALS:
            yield signals.ENGINE_SIGNAL_EXPOSED, (signal.name,), float(signal in reading.exposed)
        if reading.engine is not None:
            yield signals.ENGINE_COUNTS_LIVE, (), float(reading.engine.counts_live)
        if reading.start_time is not None:
            yield signals.ENGINE_START_TIME, (), reading.start_time
        yield signals.ENGINE_INFO, (reading.engine_type, self.version or "unknown"), 1.0

    def labels(self, key: Key) -> Labels:
        """Rank and model; an engine that names no model serves the only one that is listed."""
        rank, model = key
        nameless = self.reading.engine is not None and self.reading.engine.model_label is None
        return rank, self.models[0] if nameless and len(self.models) == 1 else model


def collect(states: Sequence[EngineState], now: float) -> Iterator[Metric]:
    """Each family once, over all engines."""
    samples: dict[Signal, list[tuple[Labels, float]]] = {}
    for state in states:
        for signal, labels, value in state.samples(now):
            samples.setdefault(signal, []).append(((state.name, *labels), value))
    for signal, found in samples.items():
        yield (counter if signal.kind is Kind.COUNTER else gauge)(signal, found)
    for signal in SIGNALS:
        showing = [state for state in states if state.up and signal in state.reading.distributions]
        if showing:
            yield _histogram(signal, showing)


def _histogram(signal: Signal, states: Sequence[EngineState]) -> Metric:
    family = HistogramMetricFamily(signal.name, signal.help, labels=list(signal.labels))
    for state in states:
        for key, found in state.reading.distributions[signal].items():
            buckets = [(_bound(bound), count) for bound, count in found.buckets]
            family.add_metric((state.name, *state.labels(key)), buckets, found.sum)
    return family


def _bound(value: float) -> str:
    """As both formats want it written."""
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]  # it has no annotations
