"""The metrics of vLLM 0.33 for the simulated scheduler: names, labels and buckets, one registry per engine start."""

from collections.abc import Mapping
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from compose.simulator.engine.cache_config import cache_config
from compose.simulator.engine.flags import EngineFlags
from compose.simulator.engine.job import Job
from compose.simulator.engine.scheduler import Scheduler, Step, Token
from compose.simulator.presets.preset import Preset

_M = TypeVar("_M", Counter, Gauge)

# vllm/v1/metrics/buckets.py at 0.33
_LATENCY = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
)
_ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_ITERATION = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)
_N = (1, 2, 5, 10, 20)
_LAG = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)

# Names without the prefix `vllm:`, with vLLM's help texts.
_COUNTERS = {
    "prefix_cache_queries": "Prefix cache queries, in terms of number of queried tokens.",
    "prefix_cache_hits": "Prefix cache hits, in terms of number of cached tokens.",
    "num_preemptions": "Cumulative number of preemption from the scheduler.",
    "prompt_tokens": "Number of prefill tokens processed.",
    "prompt_tokens_cached": "Number of cached prompt tokens (local + external).",
    "generation_tokens": "Number of generation tokens processed.",
    # The simulation does not change these.
    "external_prefix_cache_queries": "External prefix cache queries, in terms of number of queried tokens.",
    "external_prefix_cache_hits": "External prefix cache hits, in terms of number of cached tokens.",
    "mm_cache_queries": "Multi-modal cache queries, in terms of number of queried items.",
    "mm_cache_hits": "Multi-modal cache hits, in terms of number of cached items.",
}
# vLLM has these with a speculative configuration only.
_SPECULATIVE = {
    "spec_decode_num_drafts": "Number of spec decoding drafts.",
    "spec_decode_num_draft_tokens": "Number of draft tokens.",
    "spec_decode_num_accepted_tokens": "Number of accepted tokens.",
}
_HISTOGRAMS: dict[str, tuple[str, tuple[float, ...]]] = {
    "iteration_tokens_total": ("Histogram of number of tokens per engine_step.", _ITERATION),
    "time_to_first_token_seconds": ("Histogram of time to first token in seconds.", _TTFT),
    "inter_token_latency_seconds": ("Histogram of inter-token latency in seconds.", _ITL),
    "request_time_per_output_token_seconds": ("Histogram of time_per_output_token_seconds per request.", _ITL),
    "e2e_request_latency_seconds": ("Histogram of e2e request latency in seconds.", _LATENCY),
    "request_queue_time_seconds": ("Histogram of time spent in WAITING phase for request.", _LATENCY),
    "request_prefill_time_seconds": ("Histogram of time spent in PREFILL phase for request.", _LATENCY),
    "request_decode_time_seconds": ("Histogram of time spent in DECODE phase for request.", _LATENCY),
    "request_inference_time_seconds": ("Histogram of time spent in RUNNING phase for request.", _LATENCY),
    "request_params_n": ("Histogram of the n request parameter.", _N),
    "request_num_preemptions": ("Histogram of the number of times a request was preempted.", _PREEMPTIONS),
}
_SIZE_HISTOGRAMS = {
    "request_prompt_tokens": "Number of prefill tokens processed.",
    "request_generation_tokens": "Number of generation tokens processed.",
    "request_max_num_generation_tokens": "Histogram of maximum number of requested generation tokens.",
    "request_params_max_tokens": "Histogram of the max_tokens request parameter.",
    "request_prefill_kv_computed_tokens": (
        "Histogram of new KV tokens computed during prefill (excluding cached tokens)."
    ),
}


def token_buckets(limit: int) -> tuple[int, ...]:
    """1, 2, 5, 10, ... up to `limit`."""
    return tuple(
        digit * 10**power for power in range(len(str(limit))) for digit in (1, 2, 5) if digit * 10**power <= limit
    )


class EngineMetrics:
    """The metrics of one run of the engine."""

    def __init__(self, flags: EngineFlags, preset: Preset, *, model: str, scheduler: Scheduler, started: float) -> None:
        self.registry = CollectorRegistry()
        self._labels = {"model_name": model, "engine": "0"}
        self._add_gauges(flags, preset, scheduler, started)
        self._prefix_caching = flags.enable_prefix_caching  # without it vLLM counts no queries
        names = list(self._labels)
        self._counters = {
            name: Counter(f"vllm:{name}", text, names, registry=self.registry).labels(**self._labels)
            for name, text in (_COUNTERS | ({} if preset.speculation is None else _SPECULATIVE)).items()
        }
        if preset.speculation is not None:
            self._accepted_at = self._by_value(
                Counter,
                "spec_decode_num_accepted_tokens_per_pos",
                "Accepted tokens per draft position.",
                "position",
                tuple(map(str, range(preset.speculation.tokens))),
            )
        # The simulated engine has no queue limit. vLLM counts rejections in the API server, so without a rank.
        rejections = Counter(
            "vllm:admission_rejections",
            "Number of admission attempts rejected by a queue limit, by reason.",
            ("model_name", "reason"),
            registry=self.registry,
        )
        for reason in ("max_num_queued_reqs", "max_num_queued_tokens"):
            rejections.labels(model_name=model, reason=reason)
        by_source = self._by_value(
            Counter,
            "prompt_tokens_by_source",
            "Number of prompt tokens by source.",
            "source",
            ("local_compute", "local_cache_hit", "external_kv_transfer"),
        )
        self._computed, self._reused = by_source["local_compute"], by_source["local_cache_hit"]
        self._from_device = self._by_value(
            Counter,
            "prompt_tokens_cached_by_source",
            "Prefix-cache hit tokens by the cache tier that supplied them.",
            "source",
            ("device", "host", "p2p", "disk", "external_unspecified"),
        )["device"]
        self._success = self._by_value(
            Counter,
            "request_success",
            "Count of successfully processed requests.",
            "finished_reason",
            ("stop", "length", "abort", "error", "repetition"),
        )
        sizes = token_buckets(flags.max_model_len)
        histograms = _HISTOGRAMS | {name: (text, sizes) for name, text in _SIZE_HISTOGRAMS.items()}
        self._histograms = {
            name: Histogram(f"vllm:{name}", text, names, buckets=buckets, registry=self.registry).labels(**self._labels)
            for name, (text, buckets) in histograms.items()
        }

        self._lag = Histogram(
            "vllm_slo_simulator_lag_seconds",
            "Time from the end of a simulated step until all its tokens are written.",
            registry=self.registry,
            buckets=_LAG,
        )

    def count_lag(self, seconds: float) -> None:
        """Count how late all tokens of a step are written."""
        self._lag.observe(seconds)

    def count_step(self, step: Step, tokens: list[Token]) -> None:
        """Count a completed step; `tokens` excludes those of disconnected clients."""
        for job in step.admitted if self._prefix_caching else ():
            self._counters["prefix_cache_queries"].inc(job.prompt_length)
            self._counters["prefix_cache_hits"].inc(job.cached)
            self._from_device.inc(job.cached)
        if step.preempted:
            self._counters["num_preemptions"].inc(len(step.preempted))
        computed = 0
        for token in tokens:
            if token.gap is None:
                computed += self._first_token(token.job, step.ends_at)
            else:
                self._histograms["inter_token_latency_seconds"].observe(token.gap)
            if token.drafted:
                self._count_draft(token)
        generated = sum(token.count for token in tokens if not token.job.pooling)
        self._counters["generation_tokens"].inc(generated)
        self._histograms["iteration_tokens_total"].observe(computed + generated)

    def _count_draft(self, token: Token) -> None:
        for name, count in zip(_SPECULATIVE, (1, token.drafted, token.accepted), strict=True):
            self._counters[name].inc(count)
        for position in range(token.accepted):
            self._accepted_at[str(position)].inc()

    def _first_token(self, job: Job, at: float) -> int:
        """Count a prompt at its first token, as in vLLM; returns the number of computed prompt tokens."""
        computed = job.prompt_length - job.cached
        self._counters["prompt_tokens"].inc(job.prompt_length)
        self._counters["prompt_tokens_cached"].inc(job.cached)
        self._computed.inc(computed)
        self._reused.inc(job.cached)
        self._histograms["time_to_first_token_seconds"].observe(at - job.queued_at)
        return computed

    def count_finished(self, job: Job, max_tokens: int) -> None:
        """Count a finished request; as in vLLM, an aborted request is not counted."""
        if job.scheduled_at is None or job.first_token_at is None or job.last_token_at is None:
            raise ValueError("a request cannot finish before its first token")
        generated = 0 if job.pooling else job.generated
        decode = job.last_token_at - job.first_token_at
        self._success[job.finish].inc()
        for name, value in {
            "e2e_request_latency_seconds": job.last_token_at - job.queued_at,
            "request_queue_time_seconds": job.scheduled_at - job.queued_at,
            "request_prefill_time_seconds": job.first_token_at - job.scheduled_at,
            "request_decode_time_seconds": decode,
            "request_inference_time_seconds": job.last_token_at - job.scheduled_at,
            "request_time_per_output_token_seconds": decode / (job.generated - 1) if job.generated > 1 else 0,
            "request_prompt_tokens": job.prompt_length,
            "request_generation_tokens": generated,
            "request_max_num_generation_tokens": generated,
            "request_params_max_tokens": max_tokens,
            "request_params_n": 1,
            "request_num_preemptions": job.preemptions,
            "request_prefill_kv_computed_tokens": job.prompt_length - job.cached,
        }.items():
            self._histograms[name].observe(value)

    def text(self) -> bytes:
        """The exposition in text format 0.0.4."""
        return generate_latest(self.registry)

    def _add_gauges(self, flags: EngineFlags, preset: Preset, scheduler: Scheduler, started: float) -> None:
        self._gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.").set(started)
        text = "These series come from a simulated engine, not from vLLM."
        self._gauge("vllm_slo_simulator_info", text, {"preset": preset.name}).set(1)
        self._gauge(
            "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", cache_config(flags, preset)
        ).set(1)
        for name, text, value in (
            (
                "num_requests_running",
                "Number of requests in model execution batches.",
                lambda: len(scheduler.running),
            ),
            (
                "num_requests_waiting",
                "Number of requests waiting to be processed.",
                lambda: len(scheduler.waiting),
            ),
            ("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", lambda: scheduler.pool.usage),
        ):
            self._gauge(f"vllm:{name}", text, self._labels).set_function(value)
        by_reason = self._by_value(
            Gauge,
            "num_requests_waiting_by_reason",
            "Number of waiting requests by reason. Sum of all reasons equals vllm:num_requests_waiting.",
            "reason",
            ("capacity", "deferred"),
        )
        by_reason["capacity"].set_function(lambda: len(scheduler.waiting))
        sleep = self._by_value(
            Gauge,
            "engine_sleep_state",
            "Scheduler sleep state; awake = 1 means engine is awake.",
            "sleep_state",
            ("awake", "weights_offloaded", "discard_all"),
        )
        sleep["awake"].set(1)

    def _gauge(self, name: str, text: str, labels: Mapping[str, str] | None = None) -> Gauge:
        family = Gauge(name, text, list(labels or ()), registry=self.registry)
        return family.labels(**labels) if labels else family

    def _by_value(self, metric: type[_M], name: str, text: str, label: str, values: tuple[str, ...]) -> dict[str, _M]:
        family = metric(f"vllm:{name}", text, [*self._labels, label], registry=self.registry)
        return {value: family.labels(**self._labels, **{label: value}) for value in values}
