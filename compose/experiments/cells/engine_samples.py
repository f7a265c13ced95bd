"""What an engine reports of itself during a cell: gauges once a second, counters, and its settings."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from msgspec import structs

from compose.experiments.setup.cell_store import EngineReading
from exporters.engines.exposition import LabelPairs, parse_exposition
from exporters.engines.table_schema import plain_name

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
USAGE = "vllm:kv_cache_usage_perc"
PREEMPTIONS = "vllm:num_preemptions_total"
GENERATED = "vllm:generation_tokens_total"
QUERIES = "vllm:prefix_cache_queries_total"
HITS = "vllm:prefix_cache_hits_total"
DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
CACHE_CONFIG = "vllm:cache_config_info"
_COUNTERS = {
    "preemptions": PREEMPTIONS,
    "generated_tokens": GENERATED,
    "prefix_query_tokens": QUERIES,
    "prefix_hit_tokens": HITS,
    "drafts": DRAFTS,
    "draft_tokens": DRAFT_TOKENS,
    "accepted_draft_tokens": ACCEPTED,
}
"""The counter of each field of a reading."""
_NAMES = frozenset(map(plain_name, (RUNNING, WAITING, USAGE, *_COUNTERS.values(), CACHE_CONFIG)))
_OTHER_NAMES = {"kv_cache_dtype": "cache_dtype"}
"""Flags whose setting has another name in `vllm:cache_config_info`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSample:
    """One scrape at `at`, in unix seconds; sums over the ranks of an engine, `usage` is the highest, from 0 to 1."""

    at: float
    running: float | None
    waiting: float | None
    usage: float | None
    counters: Mapping[str, float | None]
    settings: Mapping[str, str]

    @property
    def idle(self) -> bool:
        """Whether no request runs or waits; also without these gauges."""
        return not (self.running or self.waiting)


def parse_sample(text: str, at: float) -> EngineSample:
    """The sample in an exposition.

    Raises:
        ValueError: no line is a sample.
    """
    exposition = parse_exposition(text, _NAMES)

    def value(name: str, merge: Callable[[Iterable[float]], float] = sum) -> float | None:
        found: Mapping[LabelPairs, float] = exposition.samples_of(name)
        return merge(found.values()) if found else None

    settings: dict[str, str] = {}
    for labels in exposition.samples_of(CACHE_CONFIG):
        settings |= dict(labels)
    return EngineSample(
        at=at,
        running=value(RUNNING),
        waiting=value(WAITING),
        usage=value(USAGE, max),
        counters={name: value(name) for name in _COUNTERS.values()},
        settings=settings,
    )


def differences(flags: Mapping[str, str], settings: Mapping[str, str]) -> list[str]:
    """The flags that the engine reports with another value; flags that it does not report cannot be checked."""
    found = []
    for flag, wanted in flags.items():
        name = flag.replace("-", "_")
        reported = settings.get(_OTHER_NAMES.get(name, name))
        if reported is not None and not _equal(wanted, reported):
            found.append(f"{flag} is {reported} in the engine, not {wanted}")
    return found


def _equal(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one.lower() == other.lower()


def reading(samples: Sequence[EngineSample], settings: Mapping[str, str], start: float) -> EngineReading:
    """The figures since `start`, in unix seconds: gauges of the samples, counters from the last sample before it."""
    during = [sample for sample in samples if sample.at >= start]
    before = [sample for sample in samples if sample.at < start][-1:] or during[:1]

    def gauge(value: Callable[[EngineSample], float | None], samples: Sequence[EngineSample] = during) -> list[float]:
        return [found for sample in samples if (found := value(sample)) is not None]

    def rise(name: str) -> int | None:
        def counter(sample: EngineSample) -> float | None:
            return sample.counters[name]

        if not gauge(counter):
            return None
        counts = pairwise(gauge(counter, [*before, *during]))
        return round(sum(b - a if b >= a else b for a, b in counts))  # a counter that falls has started at 0 again

    usage, waiting = gauge(lambda sample: sample.usage), gauge(lambda sample: sample.waiting)
    return EngineReading(
        settings=dict(settings),
        kv_capacity_tokens=_capacity(settings),
        kv_usage_max=max(usage, default=None),
        kv_usage_mean=fmean(usage) if usage else None,
        waiting_max=max(waiting, default=None),
        waiting_mean=fmean(waiting) if waiting else None,
        running_max=max(gauge(lambda sample: sample.running), default=None),
        **{field: rise(name) for field, name in _COUNTERS.items()},
    )


def merged(readings: Sequence[EngineReading]) -> EngineReading:
    """The figures of several engines as one: sums of counts and of waiting requests, mean usage, largest maxima."""
    first, *others = readings
    if not others:
        return first

    def over(merge: Callable[[list[float]], float], name: str) -> float | None:
        found = [value for each in readings if (value := getattr(each, name)) is not None]
        return merge(found) if found else None

    maxima = {name: over(max, name) for name in ("kv_usage_max", "waiting_max", "running_max")}
    counts = {name: over(sum, name) for name in _COUNTERS}
    return structs.replace(
        first, **maxima, **counts, kv_usage_mean=over(fmean, "kv_usage_mean"), waiting_mean=over(sum, "waiting_mean")
    )


def _capacity(settings: Mapping[str, str]) -> int | None:
    """Tokens of the KV cache; vLLM reserves block 0."""
    blocks, size = settings.get("num_gpu_blocks", ""), settings.get("block_size", "")
    return (int(blocks) - 1) * int(size) if blocks.isdecimal() and size.isdecimal() else None
