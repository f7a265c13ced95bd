"""Maps an engine's own families to our vocabulary, by one table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from exporters import signals
from exporters.signals import Label, Signal

# Sample names of vLLM, newest first: the first one present is read, so that two spellings never count twice.
VLLM: dict[Signal, tuple[str, ...]] = {
    signals.ENGINE_RUNNING: ("vllm:num_requests_running",),
    signals.ENGINE_WAITING: ("vllm:num_requests_waiting",),
    # "perc" in vLLM means 0 to 1
    signals.ENGINE_KV_USAGE: ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    signals.ENGINE_PREEMPTIONS: ("vllm:num_preemptions_total",),
    signals.ENGINE_CACHE_QUERIES: ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    signals.ENGINE_CACHE_HITS: ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    signals.ENGINE_PROMPT_TOKENS: ("vllm:prompt_tokens_total",),
    signals.ENGINE_GENERATION_TOKENS: ("vllm:generation_tokens_total",),
    signals.ENGINE_SPEC_DRAFTED: ("vllm:spec_decode_num_draft_tokens_total",),
    signals.ENGINE_SPEC_ACCEPTED: ("vllm:spec_decode_num_accepted_tokens_total",),
}
CACHE_CONFIG = "vllm:cache_config_info"
START_TIME = "process_start_time_seconds"

# Labels of cache_config_info that name the rank, or come out of profiling the memory at each start: nobody set them.
_NOT_SETTINGS = frozenset({"engine", "kv_cache_max_concurrency", "kv_cache_size_tokens", "num_gpu_blocks"})


@dataclass(slots=True)
class Reading:
    """One scrape of an engine in our words: values by (rank, model), its settings and its start time (unix)."""

    values: dict[Signal, dict[tuple[str, str], float]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    start_time: float | None = None
    kv_capacity: dict[str, float] = field(default_factory=dict)
    engine_type: str = "unknown"


def read(text: str) -> Reading:
    """Read one exposition in the text format 0.0.4.

    Raises:
        ValueError: the text is no exposition.
    """
    samples: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    reading = Reading(engine_type="vllm" if any(name.startswith("vllm:") for name in samples) else "unknown")
    for signal, names in VLLM.items():
        found = next((samples[name] for name in names if name in samples), None)
        if found is not None:
            reading.values[signal] = _by_rank_and_model(found)
    for labels, _ in samples.get(CACHE_CONFIG, ()):
        rank = labels.get("engine", "0")
        reading.settings.update({key: value for key, value in labels.items() if key not in _NOT_SETTINGS})
        capacity = _capacity(labels)
        if capacity is not None:
            reading.kv_capacity[rank] = capacity
    starts = [value for _, value in samples.get(START_TIME, ())]
    reading.start_time = max(starts, default=None)
    return reading


def _by_rank_and_model(found: Iterable[tuple[Mapping[str, str], float]]) -> dict[tuple[str, str], float]:
    values: dict[tuple[str, str], float] = {}
    for labels, value in found:
        key = labels.get("engine", "0"), labels.get("model_name", signals.OTHER)
        values[key] = values.get(key, 0.0) + value
    return values


def _capacity(labels: Mapping[str, str]) -> float | None:
    """Tokens that the KV cache holds: stated since vLLM 0.2x, else blocks x block size."""
    try:
        if "kv_cache_size_tokens" in labels:
            return float(labels["kv_cache_size_tokens"])
        return float(labels["num_gpu_blocks"]) * float(labels["block_size"])
    except (KeyError, ValueError):
        return None


LABELS_OF_VALUES = (Label.ENGINE, Label.RANK, Label.MODEL)
"""The labels of every signal in the table above, in this order."""
