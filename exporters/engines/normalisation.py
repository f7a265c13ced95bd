"""Puts one scrape of an engine into our words, by the table."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from exporters import signals
from exporters.engines.exposition_parser import Labels, Page, take_apart
from exporters.engines.signal_table import ENGINES, START_TIME, WANTED
from exporters.engines.table_rows import Blocks, Engine, Family, Labelled, Merge, Stated, plain
from exporters.signals import Kind, Signal

T = TypeVar("T")
Key = tuple[str, str]
"""Rank and model."""

# Labels of vLLM's cache_config_info that say where it is (Ray's too), or that come out of profiling the memory at each
# start: nobody set them.
NOT_SETTINGS = frozenset(
    {
        *("engine", "pid", "kv_cache_max_concurrency", "kv_cache_size_tokens", "num_gpu_blocks"),
        *("Component", "NodeAddress", "ReplicaId", "SessionName", "Version", "WorkerId"),
    }
)


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram with the engine's own bounds: cumulative counts, +Inf last, and the sum if there is one."""

    buckets: tuple[tuple[float, float], ...]
    sum: float | None


@dataclass(slots=True)
class Reading:
    """One scrape of an engine; what its page does not have is not here."""

    engine: Engine | None = None
    values: dict[Signal, dict[Key, float]] = field(default_factory=dict)
    distributions: dict[Signal, dict[Key, Distribution]] = field(default_factory=dict)
    kv_capacity: dict[str, float] = field(default_factory=dict)
    exposed: frozenset[Signal] = frozenset()
    settings: dict[str, str] = field(default_factory=dict)
    start_time: float | None = None
    faults: Counter[str] = field(default_factory=Counter)

    @property
    def engine_type(self) -> str:
        return "unknown" if self.engine is None else self.engine.type


def read(text: str) -> Reading:
    """Read one exposition.

    Raises:
        ValueError: the text is no exposition.
    """
    page = take_apart(text, WANTED)
    reading = Reading(engine=_recognised(page.names), faults=page.faults)
    reading.start_time = max(page.of(START_TIME).values(), default=None)
    if (engine := reading.engine) is None:
        return reading
    exposed = set()
    for row in engine.rows:
        names = [family.name for family in row.families]
        if any(_declared(name, page) for name in names):
            exposed.add(row.signal)
        if row.signal.kind is Kind.HISTOGRAM:
            name = next((name for name in names if page.of(f"{name}_bucket")), None)
            if name is not None and (found := _distributions(page, name, engine, row.merge)):
                reading.distributions[row.signal] = found
        elif samples := next(filter(None, (_samples(page, family) for family in row.families)), None):
            reading.values[row.signal] = _merged(samples, engine, row.merge)
    reading.kv_capacity = _kv_capacity(page, engine)
    if reading.kv_capacity:
        exposed.add(signals.ENGINE_KV_CAPACITY)
    reading.exposed = frozenset(exposed)
    if isinstance(engine.capacity, Labelled):
        for labels in sorted(page.of(engine.capacity.name)):
            reading.settings.update((key, value) for key, value in labels if key not in NOT_SETTINGS)
    return reading


def _samples(page: Page, family: Family) -> Mapping[Labels, float]:
    found = page.of(family.name)
    return found if family.only is None else {labels: found[labels] for labels in found if family.only in labels}


def _declared(name: str, page: Page) -> bool:
    """Whether the page has the family, be it without samples: a counter with labels has none before its first event."""
    return page.has(name) or page.has(f"{name}_bucket") or page.has(name.removesuffix("_total"))


def _recognised(names: Iterable[str]) -> Engine | None:
    for engine in ENGINES:
        marks = tuple(map(plain, engine.marks))
        if any(name.startswith(marks) for name in names):
            return engine
    return None


def _key(labels: Mapping[str, str], engine: Engine) -> Key:
    rank = "/".join(labels[name] for name in engine.rank_labels if labels.get(name))
    return rank or "0", labels.get(engine.model_label or "") or signals.OTHER


def _grouped(samples: Iterable[tuple[Labels, T]], engine: Engine) -> dict[Key, list[T]]:
    groups: dict[Key, list[T]] = {}
    for labels, value in samples:
        groups.setdefault(_key(dict(labels), engine), []).append(value)
    return groups


def _merged(samples: Mapping[Labels, float], engine: Engine, merge: Merge) -> dict[Key, float]:
    return {key: merge.of(values) for key, values in _grouped(samples.items(), engine).items()}


def _distributions(page: Page, name: str, engine: Engine, merge: Merge) -> dict[Key, Distribution]:
    sums = _merged(page.of(f"{name}_sum"), engine, merge)
    whole: list[tuple[Labels, dict[float, float]]] = []
    for labels, buckets in _buckets(page.of(f"{name}_bucket")).items():
        counts = [buckets[bound] for bound in sorted(buckets)]
        if math.inf in buckets and not any(map(math.isnan, buckets)) and counts == sorted(counts):
            whole.append((labels, buckets))
        else:
            page.faults["histogram"] += 1
    found = {}
    for key, several in _grouped(whole, engine).items():
        bounds = sorted(set.intersection(*(set(buckets) for buckets in several)))  # cumulative: others may be left out
        merged = tuple((bound, merge.of(buckets[bound] for buckets in several)) for bound in bounds)
        found[key] = Distribution(merged, sums.get(key))
    return found


def _buckets(samples: Mapping[Labels, float]) -> dict[Labels, dict[float, float]]:
    """Cumulative counts by bound, for each set of labels without `le`."""
    found: dict[Labels, dict[float, float]] = {}
    for labels, value in samples.items():
        bound = _number(dict(labels).get("le"))
        found.setdefault(tuple(each for each in labels if each[0] != "le"), {})[bound] = value
    return found


def _kv_capacity(page: Page, engine: Engine) -> dict[str, float]:
    """Tokens that the KV cache of each rank holds."""
    match engine.capacity:
        case Stated(name):
            found = _merged(page.of(name), engine, Merge.MAX)
        case Blocks(blocks, tokens_per_block):
            counts, sizes = (_merged(page.of(name), engine, Merge.MAX) for name in (blocks, tokens_per_block))
            found = {key: counts[key] * sizes[key] for key in counts.keys() & sizes.keys()}
        case Labelled(name):
            tokens = ((labels, _labelled_tokens(dict(labels))) for labels in page.of(name))
            known = ((labels, value) for labels, value in tokens if math.isfinite(value))
            found = {key: max(values) for key, values in _grouped(known, engine).items()}
        case None:
            found = {}
    return {rank: value for (rank, _), value in sorted(found.items())}


def _labelled_tokens(labels: Mapping[str, str]) -> float:
    """Stated since vLLM 0.24, else blocks x block size; no number while it is "None"."""
    if "kv_cache_size_tokens" in labels:
        return _number(labels["kv_cache_size_tokens"])
    return _number(labels.get("num_gpu_blocks")) * _number(labels.get("block_size"))


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan
