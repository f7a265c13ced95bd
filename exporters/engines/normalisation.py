"""Converts a scrape of an engine to our signals, by the signal table."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeVar

from exporters.engines.exposition import Exposition, LabelPairs, parse_exposition
from exporters.engines.signal_table import ENGINE_TYPES, SAMPLE_NAMES, START_TIME
from exporters.engines.table_schema import (
    CapacityGauges,
    CapacityLabels,
    EngineType,
    Family,
    Merge,
    Split,
    plain_name,
)
from exporters.text.names import cut
from exporters.vocabulary import signals
from exporters.vocabulary.engine_values import is_sample
from exporters.vocabulary.signals import Kind, Signal

T = TypeVar("T")
SeriesKey = tuple[str, ...]
"""Rank and model, then the value of the signal's last label if the row has a split."""

_SEVERAL_TIMES = 3e9
"""A value above it is the sum of the Unix times of several processes: one is below it until 2065, two are above."""

NON_SETTINGS = frozenset(
    {
        *("engine", "pid", "kv_cache_max_concurrency", "kv_cache_size_tokens", "num_gpu_blocks"),
        *("Component", "NodeAddress", "ReplicaId", "SessionName", "Version", "WorkerId"),
    }
)
"""Labels of vLLM's cache_config_info that are not settings: addresses and results of memory profiling."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram with the engine's own bounds: cumulative counts, +Inf last, and the sum if there is one."""

    buckets: tuple[tuple[float, float], ...]
    sum: float | None


@dataclass(slots=True)
class EngineMetrics:
    """A scrape of an engine as our signals; without a signal that the engine does not expose."""

    engine_type: EngineType | None = None
    values: dict[Signal, dict[SeriesKey, float]] = field(default_factory=dict)
    distributions: dict[Signal, dict[SeriesKey, Distribution]] = field(default_factory=dict)
    kv_capacity: dict[str, float] = field(default_factory=dict)
    lora: dict[Signal, float] = field(default_factory=dict)
    exposed: frozenset[Signal] = frozenset()
    settings: dict[str, str] = field(default_factory=dict)
    start_time: float | None = None
    faults: Counter[str] = field(default_factory=Counter)

    @property
    def type_name(self) -> str:
        return "unknown" if self.engine_type is None else self.engine_type.name


def normalise(text: str) -> EngineMetrics:
    """Parse one exposition and convert it.

    Raises:
        ValueError: the text is not an exposition.
    """
    exposition = parse_exposition(text, SAMPLE_NAMES)
    metrics = EngineMetrics(engine_type=_recognise(exposition.names), faults=exposition.faults)
    metrics.start_time = max(exposition.samples_of(START_TIME).values(), default=None)
    if (engine := metrics.engine_type) is None:
        return metrics
    exposed = set()
    for row in engine.rows:
        names = [family.name for family in row.families]
        if any(_exposes(exposition, name) for name in names):
            exposed.add(row.signal)
        if row.signal.kind is Kind.HISTOGRAM:
            name = next((name for name in names if exposition.samples_of(f"{name}_bucket")), None)
            if name is not None and (distributions := _distributions(exposition, name, engine, row.merge)):
                metrics.distributions[row.signal] = distributions
        elif samples := next(filter(None, (_samples(exposition, family) for family in row.families)), None):
            metrics.values[row.signal] = _merge(samples, engine, row.merge, row.split)
    metrics.kv_capacity = _kv_capacity(exposition, engine)
    if metrics.kv_capacity:
        exposed.add(signals.ENGINE_KV_CAPACITY)
    metrics.lora = _lora(exposition, engine)
    metrics.exposed = frozenset(exposed | metrics.lora.keys())
    if isinstance(engine.capacity, CapacityLabels):
        for labels in sorted(exposition.samples_of(engine.capacity.name)):
            metrics.settings.update((key, value) for key, value in labels if key not in NON_SETTINGS)
    return metrics


def _samples(exposition: Exposition, family: Family) -> Mapping[LabelPairs, float]:
    samples = exposition.samples_of(family.name)
    if family.only is None:
        return samples
    return {labels: value for labels, value in samples.items() if family.only in labels}


def _exposes(exposition: Exposition, name: str) -> bool:
    """Whether the family is exposed; a counter with labels has no samples before its first event."""
    return any(map(exposition.has_family, (name, f"{name}_bucket", name.removesuffix("_total"))))


def _recognise(names: Iterable[str]) -> EngineType | None:
    for engine in ENGINE_TYPES:
        prefixes = tuple(map(plain_name, engine.prefixes))
        if any(name.startswith(prefixes) for name in names):
            return engine
    return None


def _group(
    samples: Iterable[tuple[LabelPairs, T]], engine: EngineType, split: Split | None = None
) -> dict[SeriesKey, list[T]]:
    groups: dict[SeriesKey, list[T]] = defaultdict(list)
    for pairs, value in samples:
        labels = dict(pairs)
        key: SeriesKey = cut(_rank(labels, engine)), cut(labels.get(engine.model_label or "") or signals.OTHER)
        if split is not None:
            last = split.values.get(labels.get(split.label, ""), signals.OTHER)
            if last is None:
                continue
            key = *key, last
        groups[key].append(value)
    return groups


def _rank(labels: Mapping[str, str], engine: EngineType) -> str:
    return "/".join(labels[name] for name in engine.rank_labels if labels.get(name)) or "0"


def _merge(
    samples: Mapping[LabelPairs, float], engine: EngineType, merge: Merge, split: Split | None = None
) -> dict[SeriesKey, float]:
    return {key: merge.apply(values) for key, values in _group(samples.items(), engine, split).items()}


def _distributions(
    exposition: Exposition, name: str, engine: EngineType, merge: Merge
) -> dict[SeriesKey, Distribution]:
    sums = _merge(exposition.samples_of(f"{name}_sum"), engine, merge)
    valid: list[tuple[LabelPairs, dict[float, float]]] = []
    for labels, buckets in _buckets(exposition.samples_of(f"{name}_bucket")).items():
        counts = [buckets[bound] for bound in sorted(buckets)]
        if math.inf in buckets and not any(map(math.isnan, buckets)) and counts == sorted(counts):
            valid.append((labels, buckets))
        else:
            exposition.faults["histogram"] += 1
    distributions = {}
    for key, histograms in _group(valid, engine).items():
        # Counts are cumulative, so a bound that another histogram lacks can be omitted.
        shared = sorted(set.intersection(*map(set, histograms)))
        merged = tuple((bound, merge.apply(buckets[bound] for buckets in histograms)) for bound in shared)
        distributions[key] = Distribution(merged, sums.get(key))
    return distributions


def _buckets(samples: Mapping[LabelPairs, float]) -> dict[LabelPairs, dict[float, float]]:
    """Cumulative counts by bound, for each set of labels except `le`."""
    buckets: dict[LabelPairs, dict[float, float]] = defaultdict(dict)
    for labels, value in samples.items():
        bound = _number(dict(labels).get("le"))
        buckets[tuple(pair for pair in labels if pair[0] != "le")][bound] = value
    return buckets


def _kv_capacity(exposition: Exposition, engine: EngineType) -> dict[str, float]:
    """The capacity of each rank's KV cache in tokens."""
    match engine.capacity:
        case CapacityGauges(names):
            factors = [_merge(exposition.samples_of(name), engine, Merge.MAX) for name in names]
            shared = set.intersection(*map(set, factors))
            tokens = {key: math.prod(factor[key] for factor in factors) for key in shared}
        case CapacityLabels(name):
            samples = {labels: _tokens_of_labels(dict(labels)) for labels in exposition.samples_of(name)}
            valid = {labels: value for labels, value in samples.items() if is_sample(value)}
            tokens = _merge(valid, engine, Merge.MAX)
        case None:
            tokens = {}
    return {rank: value for (rank, _), value in sorted(tokens.items())}


def _lora(exposition: Exposition, engine: EngineType) -> dict[Signal, float]:
    """The running adapters in the newest list of each replica, and how many fit in a batch; nothing if LoRA is off.

    The waiting adapters are not read: the V1 engine repeats the running ones there, and knows no others.
    """
    samples = exposition.samples_of(engine.lora_info) if engine.lora_info else {}
    # A skipped line may be the newest list, which has no limit of length.
    if exposition.faults["line"] or max(samples.values(), default=0) > _SEVERAL_TIMES:
        return {}
    newest = {_rank(dict(pairs), engine): dict(pairs) for pairs, _ in sorted(samples.items(), key=itemgetter(1))}
    limits = [_number(labels.get("max_lora")) for labels in newest.values()]
    if not newest or 0 in limits:
        return {}
    adapters = {
        name for labels in newest.values() for name in labels.get("running_lora_adapters", "").split(",") if name
    }
    known = {signals.ENGINE_LORA_LIMIT: max(limits)} if all(map(is_sample, limits)) else {}
    return {signals.ENGINE_LORA_RUNNING: float(len(adapters)), **known}


def _tokens_of_labels(labels: Mapping[str, str]) -> float:
    """`kv_cache_size_tokens` since vLLM 0.24, else blocks x block size; NaN if the number of blocks is "None"."""
    if "kv_cache_size_tokens" in labels:
        return _number(labels["kv_cache_size_tokens"])
    return _number(labels.get("num_gpu_blocks")) * _number(labels.get("block_size"))


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan
