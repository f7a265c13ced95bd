"""The metrics of vLLM 0.33 for the simulated scheduler: names, labels and buckets, one registry per engine start."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from compose.simulator.cache_config import cache_config
from compose.simulator.engine_flags import EngineFlags
from compose.simulator.presets import Preset
from compose.simulator.scheduler import Job, Scheduler, Step, Token

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

# The simulation does not change these.
_CONSTANT = (
    ("external_prefix_cache_queries", "External prefix cache queries, in terms of number of queried tokens."),
    ("external_prefix_cache_hits", "External prefix cache hits, in terms of number of cached tokens."),
    ("mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items."),
    ("mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items."),
)


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
        sizes = token_buckets(flags.max_model_len)
        self._describe(flags, preset, started)

        running = self._gauge("num_requests_running", "Number of requests in model execution batches.")
        running.set_function(lambda: len(scheduler.running))
        waiting = self._gauge("num_requests_waiting", "Number of requests waiting to be processed.")
        waiting.set_function(lambda: len(scheduler.waiting))
        reason = "Number of waiting requests by reason. Sum of all reasons equals vllm:num_requests_waiting."
        by_reason = Gauge(
            "vllm:num_requests_waiting_by_reason", reason, [*self._labels, "reason"], registry=self.registry
        )
        by_reason.labels(**self._labels, reason="capacity").set_function(lambda: len(scheduler.waiting))
        by_reason.labels(**self._labels, reason="deferred").set(0)
        usage = self._gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.")
        usage.set_function(lambda: scheduler.pool.usage)

        self._prefix_caching = flags.enable_prefix_caching  # without it vLLM counts no queries
        self._queries = self._counter(
            "prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens."
        )
        self._hits = self._counter("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.")
        for name, text in _CONSTANT:
            self._counter(name, text)
        self._preemptions = self._counter("num_preemptions", "Cumulative number of preemption from the scheduler.")
        self._prompt = self._counter("prompt_tokens", "Number of prefill tokens processed.")
        self._cached = self._counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external).")
        by_source = self._counters(
            "prompt_tokens_by_source",
            "Number of prompt tokens by source.",
            "source",
            ("local_compute", "local_cache_hit", "external_kv_transfer"),
        )
        self._computed, self._reused = by_source["local_compute"], by_source["local_cache_hit"]
        self._from_device = self._counters(
            "prompt_tokens_cached_by_source",
            "Prefix-cache hit tokens by the cache tier that supplied them.",
            "source",
            ("device", "host", "p2p", "disk", "external_unspecified"),
        )["device"]
        self._generated = self._counter("generation_tokens", "Number of generation tokens processed.")
        self._success = self._counters(
            "request_success",
            "Count of successfully processed requests.",
            "finished_reason",
            ("stop", "length", "abort", "error", "repetition"),
        )
        self._iteration = self._histogram(
            "iteration_tokens_total", "Histogram of number of tokens per engine_step.", _ITERATION
        )
        self._ttft = self._histogram(
            "time_to_first_token_seconds", "Histogram of time to first token in seconds.", _TTFT
        )
        self._itl = self._histogram("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", _ITL)
        self._tpot = self._histogram(
            "request_time_per_output_token_seconds",
            "Histogram of time_per_output_token_seconds per request.",
            _ITL,
        )
        self._e2e = self._histogram(
            "e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", _LATENCY
        )
        self._queue, self._prefill, self._decode, self._inference = (
            self._histogram(
                f"request_{name}_time_seconds", f"Histogram of time spent in {phase} phase for request.", _LATENCY
            )
            for name, phase in (
                ("queue", "WAITING"),
                ("prefill", "PREFILL"),
                ("decode", "DECODE"),
                ("inference", "RUNNING"),
            )
        )
        self._prompt_size = self._histogram("request_prompt_tokens", "Number of prefill tokens processed.", sizes)
        self._output_size = self._histogram(
            "request_generation_tokens", "Number of generation tokens processed.", sizes
        )
        self._max_output = self._histogram(
            "request_max_num_generation_tokens",
            "Histogram of maximum number of requested generation tokens.",
            sizes,
        )
        self._max_tokens = self._histogram(
            "request_params_max_tokens", "Histogram of the max_tokens request parameter.", sizes
        )
        self._n = self._histogram("request_params_n", "Histogram of the n request parameter.", _N)
        self._preempted = self._histogram(
            "request_num_preemptions", "Histogram of the number of times a request was preempted.", _PREEMPTIONS
        )
        self._kv_computed = self._histogram(
            "request_prefill_kv_computed_tokens",
            "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
            sizes,
        )

    def count_step(self, step: Step, tokens: list[Token]) -> None:
        """Count a completed step; `tokens` excludes those of disconnected clients."""
        for job in step.admitted if self._prefix_caching else ():
            self._queries.inc(job.prompt_length)
            self._hits.inc(job.cached)
            self._from_device.inc(job.cached)
        if step.preempted:
            self._preemptions.inc(len(step.preempted))
        computed = 0
        for token in tokens:
            if token.gap is None:
                computed += self._first_token(token.job, step.ends_at)
            else:
                self._itl.observe(token.gap)
        self._generated.inc(len(tokens))
        self._iteration.observe(computed + len(tokens))

    def _first_token(self, job: Job, at: float) -> int:
        """Count a prompt at its first token, as in vLLM; returns the number of computed prompt tokens."""
        computed = job.prompt_length - job.cached
        self._prompt.inc(job.prompt_length)
        self._cached.inc(job.cached)
        self._computed.inc(computed)
        self._reused.inc(job.cached)
        self._ttft.observe(at - job.queued_at)
        return computed

    def count_finished(self, job: Job, max_tokens: int) -> None:
        """Count a finished request; as in vLLM, an aborted request is not counted."""
        if job.scheduled_at is None or job.first_token_at is None or job.last_token_at is None:
            raise ValueError("a request cannot finish before its first token")
        decode = job.last_token_at - job.first_token_at
        self._success[job.finish].inc()
        self._e2e.observe(job.last_token_at - job.queued_at)
        self._queue.observe(job.scheduled_at - job.queued_at)
        self._prefill.observe(job.first_token_at - job.scheduled_at)
        self._decode.observe(decode)
        self._inference.observe(job.last_token_at - job.scheduled_at)
        self._tpot.observe(decode / (job.generated - 1) if job.generated > 1 else 0)
        self._prompt_size.observe(job.prompt_length)
        self._output_size.observe(job.generated)
        self._max_output.observe(job.generated)
        self._max_tokens.observe(max_tokens)
        self._n.observe(1)
        self._preempted.observe(job.preemptions)
        self._kv_computed.observe(job.prompt_length - job.cached)

    def text(self) -> bytes:
        """The exposition in text format 0.0.4."""
        return generate_latest(self.registry)

    def _describe(self, flags: EngineFlags, preset: Preset, started: float) -> None:
        start = Gauge(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            registry=self.registry,
        )
        start.set(started)
        simulated = Gauge(
            "vllm_slo_simulator_info",
            "These series come from a simulated engine, not from vLLM.",
            ["preset"],
            registry=self.registry,
        )
        simulated.labels(preset=preset.name).set(1)
        labels = cache_config(flags)
        info = Gauge(
            "vllm:cache_config_info",
            "Information of the LLMEngine CacheConfig",
            sorted(labels),
            registry=self.registry,
        )
        info.labels(**labels).set(1)
        sleep = Gauge(
            "vllm:engine_sleep_state",
            "Scheduler sleep state; awake = 1 means engine is awake.",
            [*self._labels, "sleep_state"],
            registry=self.registry,
        )
        for state in ("awake", "weights_offloaded", "discard_all"):
            sleep.labels(**self._labels, sleep_state=state).set(state == "awake")

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"vllm:{name}", text, list(self._labels), registry=self.registry).labels(**self._labels)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"vllm:{name}", text, list(self._labels), registry=self.registry).labels(**self._labels)

    def _counters(self, name: str, text: str, label: str, values: tuple[str, ...]) -> dict[str, Counter]:
        family = Counter(f"vllm:{name}", text, [*self._labels, label], registry=self.registry)
        return {value: family.labels(**self._labels, **{label: value}) for value in values}

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        family = Histogram(f"vllm:{name}", text, list(self._labels), buckets=buckets, registry=self.registry)
        return family.labels(**self._labels)
