"""The signal table: the family of each engine type for each of our signals, and the differences in meaning."""

from collections.abc import Iterable
from dataclasses import replace

from exporters.engines.table_schema import (
    CapacityGauges,
    CapacityLabels,
    EngineType,
    Family,
    Merge,
    Split,
    plain_name,
    row,
    split_by,
)
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Kind

_VLLM_ROWS = (
    row(
        signals.ENGINE_RUNNING,
        "vllm:num_requests_running",
        note="up to 0.9.0 one copy per API server (label `pid`): the largest is read, because a sum counts twice",
    ),
    row(
        signals.ENGINE_WAITING,
        "vllm:num_requests_waiting",
        note="includes deferred requests; the same copies as above",
    ),
    row(
        signals.ENGINE_DEFERRED,
        Family("vllm:num_requests_waiting_by_reason", since="0.20.0", only=("reason", "deferred")),
        note="waiting requests that are skipped until a LoRA slot is free or a KV transfer ends; the others wait for "
        "capacity",
    ),
    row(
        signals.ENGINE_REJECTIONS,
        Family("vllm:admission_rejections_total", since="0.32.0"),
        split=split_by("reason", "max_num_queued_reqs", "max_num_queued_tokens"),
        note="counted by the API server for all ranks, so the rank is 0; 0 without `--max-num-queued-reqs` and "
        "`--max-num-queued-tokens`, which exist from 0.29",
    ),
    row(
        signals.ENGINE_SLEEP_STATE,
        Family("vllm:engine_sleep_state", since="0.11.2"),
        split=split_by("sleep_state", "awake", "weights_offloaded", "discard_all"),
        note="all states are 0 while the engine sleeps at another level",
    ),
    row(
        signals.ENGINE_KV_USAGE,
        Family("vllm:kv_cache_usage_perc", since="0.9.2"),
        Family("vllm:gpu_cache_usage_perc", until="0.11.2"),
        note="0 to 1, although the name ends in `perc`; label `pid` up to 0.11.0",
    ),
    row(signals.ENGINE_PREEMPTIONS, "vllm:num_preemptions_total"),
    row(
        signals.ENGINE_CACHE_QUERIES,
        Family("vllm:prefix_cache_queries_total", since="0.9.2"),
        Family("vllm:gpu_prefix_cache_queries_total", since="0.7.3", until="0.11.2"),
        note="tokens, counted at admission; before 0.11 a preempted request counts again. The V0 engine has only a hit "
        "rate",
    ),
    row(
        signals.ENGINE_CACHE_HITS,
        Family("vllm:prefix_cache_hits_total", since="0.9.2"),
        Family("vllm:gpu_prefix_cache_hits_total", since="0.7.3", until="0.11.2"),
        note="the engine's own cache",
    ),
    row(
        signals.ENGINE_EXTERNAL_CACHE_QUERIES,
        Family("vllm:external_prefix_cache_queries_total", since="0.11.2"),
        note="0 without a KV connector; tokens, counted at admission",
    ),
    row(
        signals.ENGINE_EXTERNAL_CACHE_HITS,
        Family("vllm:external_prefix_cache_hits_total", since="0.11.2"),
        note="as above",
    ),
    row(signals.ENGINE_PROMPT_TOKENS, "vllm:prompt_tokens_total", note="cached tokens included"),
    row(
        signals.ENGINE_PROMPT_TOKENS_BY_SOURCE,
        Family("vllm:prompt_tokens_by_source_total", since="0.16.0"),
        split=split_by("source", "local_compute", "local_cache_hit", "external_kv_transfer"),
        note="counted at the first token; up to 0.19.1, cached tokens that are computed again count twice",
    ),
    row(signals.ENGINE_GENERATION_TOKENS, "vllm:generation_tokens_total"),
    row(signals.ENGINE_SPEC_DRAFTED, "vllm:spec_decode_num_draft_tokens_total"),
    row(signals.ENGINE_SPEC_ACCEPTED, "vllm:spec_decode_num_accepted_tokens_total"),
    row(
        signals.ENGINE_KV_FETCH,
        Family("vllm:num_requests_kv_fetch_by_stage", since="0.32.0"),
        split=split_by("stage", "waiting_to_start", "in_progress", "completed_waiting"),
        note="with a KV connector that loads (`kv_role` is `kv_consumer` or `kv_both`)",
    ),
    row(
        signals.ENGINE_KV_TRANSFER_BYTES,
        Family("vllm:nixl_bytes_transferred_sum", since="0.11.2"),
        Family("vllm:mooncake_bytes_transferred_sum", since="0.33.0"),
        note="with the connector NIXL or Mooncake; the sum of a histogram of transfers",
    ),
    row(
        signals.ENGINE_KV_TRANSFER_FAILURES,
        Family("vllm:nixl_num_failed_transfers_total", since="0.11.2"),
        Family("vllm:mooncake_num_failed_transfers_total", since="0.33.0"),
        note="failed receives of Mooncake are not included",
    ),
    row(
        signals.ENGINE_KV_EXPIRED,
        Family("vllm:nixl_num_kv_expired_reqs_total", since="0.15.1"),
        Family("vllm:mooncake_num_kv_expired_reqs_total", since="0.33.0"),
        note="counted by the prefill engine",
    ),
    row(
        signals.ENGINE_OFFLOAD_STORED,
        Family("vllm:kv_offload_store_bytes_total", since="0.24.0"),
        Family("vllm:kv_offload_total_bytes_total", since="0.16.0", only=("transfer_type", "GPU_to_CPU")),
        note="with the connector OffloadingConnector",
    ),
    row(
        signals.ENGINE_OFFLOAD_LOADED,
        Family("vllm:kv_offload_load_bytes_total", since="0.24.0"),
        Family("vllm:kv_offload_total_bytes_total", since="0.16.0", only=("transfer_type", "CPU_to_GPU")),
        note="as above",
    ),
    row(
        signals.ENGINE_OFFLOAD_PINNED,
        Family("vllm:kv_offload_cpu_cache_usage_perc", since="0.24.0"),
        note="pinned by active transfers, not occupied by cached blocks; 0 to 1, although the name ends in `perc`",
    ),
    row(
        signals.ENGINE_TTFT,
        "vllm:time_to_first_token_seconds",
        note="from arrival at the API server, including queue time; one sample per sequence (n > 1 gives n). The "
        "`time_to_first_token_ms` of a response body starts at scheduling. Last bound: 10 s up to 0.8.4, then 2560 s",
    ),
    row(
        signals.ENGINE_INTER_TOKEN,
        Family("vllm:inter_token_latency_seconds", since="0.10.2"),
        Family("vllm:time_per_output_token_seconds", until="0.14.1"),
        note="one sample per engine output, not per token: with speculative decoding or a stream interval, several "
        "tokens share one sample. The older name means the same",
    ),
    row(
        signals.ENGINE_TPOT,
        Family("vllm:request_time_per_output_token_seconds", since="0.11.0"),
        note="a completion of one token is recorded as 0, while the sidecar records no sample: quantiles are lower",
    ),
    row(
        signals.ENGINE_DURATION,
        "vllm:e2e_request_latency_seconds",
        note="finished requests only; aborted requests are in none of the per-request histograms",
    ),
    row(
        signals.ENGINE_QUEUE,
        Family("vllm:request_queue_time_seconds", since="0.6.6"),
        note="from queued to first scheduled, without tokenisation before it and waiting after a preemption. The "
        "lowest bound is 0.3 s: below it only sum / count is exact",
    ),
    row(
        signals.ENGINE_PREFILL,
        Family("vllm:request_prefill_time_seconds", since="0.6.6"),
        note="from first scheduled to first token, including preemptions during prefill; bounds as above",
    ),
    row(
        signals.ENGINE_DECODE,
        Family("vllm:request_decode_time_seconds", since="0.6.6"),
        note="from first to last token; bounds as above",
    ),
    row(
        signals.ENGINE_KV_TRANSFER,
        Family("vllm:nixl_xfer_time_seconds", since="0.11.2"),
        Family("vllm:mooncake_xfer_time_seconds", since="0.33.0"),
        note="successful transfers only",
    ),
)

VLLM = EngineType(
    name="vllm",
    prefixes=("vllm:",),
    rows=_VLLM_ROWS,
    rank_labels=("engine",),
    model_label="model_name",
    capacity=CapacityLabels("vllm:cache_config_info"),
    lora_info="vllm:lora_requests_info",
    counts_live=True,
)


def _on_ray(family: Family) -> tuple[Family, ...]:
    """Ray replaces colons, and exposes a counter with and without `_total`."""
    name = f"ray_{family.name.replace(':', '_')}"
    return tuple(replace(family, name=exposed) for exposed in dict.fromkeys((name, name.removesuffix("_total"))))


RAY = replace(
    VLLM,
    name="ray_vllm",
    prefixes=("ray_vllm_",),
    rows=tuple(
        replace(row, families=tuple(each for family in row.families for each in _on_ray(family))) for row in _VLLM_ROWS
    ),
    rank_labels=("ReplicaId", "engine"),
    capacity=CapacityLabels("ray_vllm_cache_config_info"),
    lora_info="ray_vllm_lora_requests_info",
)

SGLANG = EngineType(
    name="sglang",
    prefixes=("sglang:",),
    rows=(
        row(
            signals.ENGINE_RUNNING,
            "sglang:num_running_reqs",
            note="the copies are tensor-parallel ranks, and a total beside the priorities; updated every 40 steps",
        ),
        row(signals.ENGINE_WAITING, "sglang:num_queue_reqs", note="as above"),
        row(
            signals.ENGINE_KV_USAGE,
            "sglang:token_usage",
            note="0 to 1, of the fullest pool, which may not be the KV cache; evictable blocks of the radix cache "
            "count as free",
        ),
        row(
            signals.ENGINE_PREEMPTIONS,
            "sglang:num_retracted_requests_total",
            merge=Merge.MAX,
            note="retractions; the copies are tensor-parallel ranks",
        ),
        row(
            signals.ENGINE_CACHE_QUERIES,
            "sglang:prompt_tokens_total",
            note="all prompt tokens, counted when a request ends; vLLM counts at admission",
        ),
        row(
            signals.ENGINE_CACHE_HITS,
            "sglang:cached_tokens_total",
            note="all values of `cache_source`, counted when a request ends",
        ),
        row(signals.ENGINE_PROMPT_TOKENS, "sglang:prompt_tokens_total", note="when a request ends"),
        row(
            signals.ENGINE_PROMPT_TOKENS_BY_SOURCE,
            "sglang:realtime_tokens_total",
            merge=Merge.MAX,
            split=Split(
                "mode", {"prefill_compute": "local_compute", "prefill_cache": "local_cache_hit", "decode": None}
            ),
            note="newer builds; `local_cache_hit` includes hits in host memory and storage; retracted requests count "
            "again",
        ),
        row(signals.ENGINE_GENERATION_TOKENS, "sglang:generation_tokens_total", note="when a request ends"),
        row(
            signals.ENGINE_KV_TRANSFER_FAILURES,
            "sglang:num_transfer_failed_reqs_total",
            merge=Merge.MAX,
            note="requests, not transfers; with disaggregated prefill",
        ),
        row(
            signals.ENGINE_TTFT,
            "sglang:time_to_first_token_seconds",
            note="the lowest bound is 0.1 s in newer builds",
        ),
        row(
            signals.ENGINE_INTER_TOKEN,
            "sglang:inter_token_latency_seconds",
            note="one sample per token: an output of k tokens counts k times, in vLLM once. The older "
            "`sglang:time_per_output_token_seconds` is a running mean and is not read",
        ),
        row(signals.ENGINE_TPOT, "sglang:request_time_per_output_token_seconds"),
        row(signals.ENGINE_DURATION, "sglang:e2e_request_latency_seconds"),
        row(
            signals.ENGINE_QUEUE,
            "sglang:queue_time_seconds",
            merge=Merge.MAX,
            note="the copies are tensor-parallel ranks",
        ),
    ),
    rank_labels=("dp_rank",),
    model_label="model_name",
    capacity=CapacityGauges(("sglang:max_total_num_tokens",)),
)

TENSORRT_LLM = EngineType(
    name="tensorrt_llm",
    prefixes=("trtllm_", "kv_cache_utilization"),
    rows=(
        row(signals.ENGINE_RUNNING, "trtllm_num_requests_running", note="newer builds"),
        row(signals.ENGINE_WAITING, "trtllm_num_requests_waiting", note="newer builds"),
        row(signals.ENGINE_KV_USAGE, "trtllm_kv_cache_utilization", "kv_cache_utilization", note="0 to 1"),
        row(
            signals.ENGINE_CACHE_QUERIES,
            "trtllm_prompt_tokens_total",
            note="all prompt tokens, counted when a request ends; vLLM counts at admission",
        ),
        row(signals.ENGINE_CACHE_HITS, "trtllm_prompt_cached_tokens_total", note="when a request ends"),
        row(signals.ENGINE_PROMPT_TOKENS, "trtllm_prompt_tokens_total", note="when a request ends"),
        row(signals.ENGINE_GENERATION_TOKENS, "trtllm_generation_tokens_total", note="when a request ends"),
        row(signals.ENGINE_SPEC_DRAFTED, "trtllm_spec_decode_num_draft_tokens_total"),
        row(signals.ENGINE_SPEC_ACCEPTED, "trtllm_spec_decode_num_accepted_tokens_total"),
        row(
            signals.ENGINE_OFFLOAD_STORED,
            "trtllm_kv_cache_offload_bytes_total",
            note="newer builds; exposed from the first transfer",
        ),
        row(signals.ENGINE_OFFLOAD_LOADED, "trtllm_kv_cache_onboard_bytes_total", note="as above"),
        row(signals.ENGINE_TTFT, "trtllm_time_to_first_token_seconds", "time_to_first_token_seconds"),
        row(
            signals.ENGINE_TPOT,
            "trtllm_time_per_output_token_seconds",
            "time_per_output_token_seconds",
            note="a mean per request; in vLLM this name means gaps",
        ),
        row(signals.ENGINE_DURATION, "trtllm_e2e_request_latency_seconds", "e2e_request_latency_seconds"),
        row(signals.ENGINE_QUEUE, "trtllm_request_queue_time_seconds", "request_queue_time_seconds"),
        row(signals.ENGINE_PREFILL, "trtllm_request_prefill_time_seconds", note="from first scheduled to first token"),
        row(signals.ENGINE_DECODE, "trtllm_request_decode_time_seconds"),
    ),
    model_label="model_name",
    capacity=CapacityGauges(("trtllm_kv_cache_max_blocks", "trtllm_kv_cache_tokens_per_block")),
)

LLAMA_CPP = EngineType(
    name="llama_cpp",
    prefixes=("llamacpp:",),
    rows=(
        row(signals.ENGINE_RUNNING, "llamacpp:requests_processing", note="busy slots"),
        row(signals.ENGINE_WAITING, "llamacpp:requests_deferred"),
        row(signals.ENGINE_KV_USAGE, "llamacpp:kv_cache_usage_ratio", note="older builds only"),
        row(signals.ENGINE_PROMPT_TOKENS, "llamacpp:prompt_tokens_total", note="without cached tokens"),
        row(signals.ENGINE_GENERATION_TOKENS, "llamacpp:tokens_predicted_total", note="when a request ends"),
    ),
    version_endpoint=("/props", "build_info"),
)

TGI = EngineType(
    name="tgi",
    prefixes=("tgi_",),
    rows=(
        row(signals.ENGINE_RUNNING, "tgi_batch_current_size"),
        row(signals.ENGINE_WAITING, "tgi_queue_size"),
        row(
            signals.ENGINE_REJECTIONS,
            Family("tgi_request_failure", only=("err", "overloaded")),
            Family("tgi_request_failure_total", only=("err", "overloaded")),
            split=split_by("err", "overloaded"),
            note="more than `--max-concurrent-requests` requests; exposed from the first failed request",
        ),
        row(
            signals.ENGINE_PROMPT_TOKENS,
            "tgi_request_input_length_sum",
            note="the sum of a histogram of requests: grows when a request ends",
        ),
        row(signals.ENGINE_GENERATION_TOKENS, "tgi_request_generated_tokens_sum", note="as above"),
        row(signals.ENGINE_TPOT, "tgi_request_mean_time_per_token_duration", note="in seconds"),
        row(signals.ENGINE_DURATION, "tgi_request_duration", note="in seconds"),
        row(signals.ENGINE_QUEUE, "tgi_request_queue_duration", note="in seconds"),
    ),
    version_endpoint=("/info", "version"),
)

DYNAMO = EngineType(
    name="dynamo",
    prefixes=("dynamo_",),
    rows=(
        row(
            signals.ENGINE_WAITING,
            "dynamo_frontend_queued_requests",
            note="until the first token: requests in prefill count as waiting. There is no signal of running requests: "
            "`dynamo_frontend_inflight_requests` includes waiting ones",
        ),
        row(
            signals.ENGINE_KV_USAGE,
            "dynamo_component_gpu_cache_usage_percent",
            note="0 to 1, although the name ends in `percent`; exposed by workers, not by the frontend",
        ),
        row(
            signals.ENGINE_CACHE_QUERIES,
            "dynamo_frontend_input_sequence_tokens_sum",
            note="all prompt tokens, counted by the frontend",
        ),
        row(
            signals.ENGINE_CACHE_HITS,
            "dynamo_frontend_cached_tokens_sum",
            "dynamo_frontend_cached_sequence_length_sum",
        ),
        row(signals.ENGINE_PROMPT_TOKENS, "dynamo_frontend_input_sequence_tokens_sum"),
        row(signals.ENGINE_GENERATION_TOKENS, "dynamo_frontend_output_tokens_total", note="during a request"),
        row(
            signals.ENGINE_TTFT,
            "dynamo_frontend_time_to_first_token_seconds",
            note="at the frontend, including routing",
        ),
        row(signals.ENGINE_INTER_TOKEN, "dynamo_frontend_inter_token_latency_seconds"),
        row(signals.ENGINE_DURATION, "dynamo_frontend_request_duration_seconds"),
    ),
    rank_labels=("dp_rank",),
    model_label="model",
    counts_live=True,
)

# Dynamo is last, because its worker also exposes the families of its engine, which have more signals.
ENGINE_TYPES = (VLLM, RAY, SGLANG, TENSORRT_LLM, LLAMA_CPP, TGI, DYNAMO)

SIGNALS = (
    signals.ENGINE_KV_CAPACITY,
    signals.ENGINE_LORA_RUNNING,
    signals.ENGINE_LORA_LIMIT,
    *(row.signal for row in _VLLM_ROWS),
)
"""All signals that an engine may expose; vLLM has all of them."""


def _sample_names() -> Iterable[str]:
    for engine in ENGINE_TYPES:
        for each in engine.rows:
            suffixes = ("_bucket", "_sum") if each.signal.kind is Kind.HISTOGRAM else ("",)
            yield from (f"{family.name}{suffix}" for family in each.families for suffix in suffixes)
        match engine.capacity:
            case CapacityGauges(names):
                yield from names
            case CapacityLabels(name):
                yield name
        if engine.lora_info is not None:
            yield engine.lora_info


START_TIME = "process_start_time_seconds"

SAMPLE_NAMES = frozenset(plain_name(name) for name in (START_TIME, *_sample_names()))
"""The plain names of all samples that are read."""
