"""Which family of which engine is which signal of ours: one row a signal, and beside it what differs silently."""

from collections.abc import Iterable
from dataclasses import replace

from exporters import signals
from exporters.engines.table_rows import Blocks, Engine, Family, Labelled, Merge, Row, Stated, plain, row
from exporters.signals import Kind

_VLLM_ROWS = (
    row(
        signals.ENGINE_RUNNING,
        "vllm:num_requests_running",
        note="up to 0.9.0 one copy for each API server (label `pid`): the largest is read, a sum would count twice",
    ),
    row(
        signals.ENGINE_WAITING,
        "vllm:num_requests_waiting",
        note="holds deferred requests too; the same copies as above",
    ),
    row(
        signals.ENGINE_DEFERRED,
        Family("vllm:num_requests_waiting_by_reason", since="0.20.0", only=("reason", "deferred")),
        note="of those: passed over until a LoRA slot or a transfer of KV is there; the others wait for capacity",
    ),
    row(
        signals.ENGINE_KV_USAGE,
        Family("vllm:kv_cache_usage_perc", since="0.9.2"),
        Family("vllm:gpu_cache_usage_perc", until="0.11.2"),
        note="`perc`, but 0 to 1; up to 0.11.0 with the label `pid`",
    ),
    row(signals.ENGINE_PREEMPTIONS, "vllm:num_preemptions_total"),
    row(
        signals.ENGINE_CACHE_QUERIES,
        Family("vllm:prefix_cache_queries_total", since="0.9.2"),
        Family("vllm:gpu_prefix_cache_queries_total", since="0.7.3", until="0.11.2"),
        note="tokens, counted at admission; a preempted request counts again before 0.11. The V0 engine has no such "
        "counter, only a hit rate",
    ),
    row(
        signals.ENGINE_CACHE_HITS,
        Family("vllm:prefix_cache_hits_total", since="0.9.2"),
        Family("vllm:gpu_prefix_cache_hits_total", since="0.7.3", until="0.11.2"),
        note="this engine's own cache; hits in an external one are `vllm:external_prefix_cache_hits_total`",
    ),
    row(signals.ENGINE_PROMPT_TOKENS, "vllm:prompt_tokens_total", note="cached tokens included"),
    row(signals.ENGINE_GENERATION_TOKENS, "vllm:generation_tokens_total"),
    row(signals.ENGINE_SPEC_DRAFTED, "vllm:spec_decode_num_draft_tokens_total"),
    row(signals.ENGINE_SPEC_ACCEPTED, "vllm:spec_decode_num_accepted_tokens_total"),
    row(
        signals.ENGINE_TTFT,
        "vllm:time_to_first_token_seconds",
        note="from arrival at the API server, queue included, one sample a sequence (n > 1 gives n); the body's "
        "`time_to_first_token_ms` counts from scheduled. Ends at 10 s up to 0.8.4, at 2560 s since",
    ),
    row(
        signals.ENGINE_INTER_TOKEN,
        Family("vllm:inter_token_latency_seconds", since="0.10.2"),
        Family("vllm:time_per_output_token_seconds", until="0.14.1"),
        note="one sample an engine output, not a token: with speculative decoding or a stream interval several tokens "
        "share one. The older name says per token and means the same",
    ),
    row(
        signals.ENGINE_TPOT,
        Family("vllm:request_time_per_output_token_seconds", since="0.11.0"),
        note="an answer of one token is recorded as 0, where ours makes no sample: quantiles lean low",
    ),
    row(
        signals.ENGINE_DURATION,
        "vllm:e2e_request_latency_seconds",
        note="finished requests only; a client that left is in none of the per-request histograms",
    ),
    row(
        signals.ENGINE_QUEUE,
        Family("vllm:request_queue_time_seconds", since="0.6.6"),
        note="queued to first scheduled; tokenising before it and waits after a preemption are not in it. The lowest "
        "bound is 0.3 s: below that only sum / count is exact",
    ),
    row(
        signals.ENGINE_PREFILL,
        Family("vllm:request_prefill_time_seconds", since="0.6.6"),
        note="first scheduled to first token, preemptions in prefill included; bounds as above",
    ),
    row(
        signals.ENGINE_DECODE,
        Family("vllm:request_decode_time_seconds", since="0.6.6"),
        note="first to last token; bounds as above",
    ),
)

VLLM = Engine(
    type="vllm",
    marks=("vllm:",),
    rows=_VLLM_ROWS,
    rank_labels=("engine",),
    model_label="model_name",
    capacity=Labelled("vllm:cache_config_info"),
    counts_live=True,
)


def _on_ray(family: Family) -> tuple[Family, ...]:
    """Ray knows no colons, and exports a counter with and without `_total`."""
    name = f"ray_{family.name.replace(':', '_')}"
    return tuple(replace(family, name=each) for each in dict.fromkeys((name, name.removesuffix("_total"))))


RAY = Engine(
    type="ray_vllm",
    marks=("ray_vllm_",),
    rows=tuple(
        Row(
            row.signal,
            tuple(each for family in row.families for each in _on_ray(family)),
            row.merge,
        )
        for row in _VLLM_ROWS
    ),
    rank_labels=("ReplicaId", "engine"),
    model_label="model_name",
    capacity=Labelled("ray_vllm_cache_config_info"),
    counts_live=True,
)

SGLANG = Engine(
    type="sglang",
    marks=("sglang:",),
    rows=(
        row(
            signals.ENGINE_RUNNING,
            "sglang:num_running_reqs",
            note="the copies are tensor-parallel ranks, and a total beside each priority; renewed every 40 steps",
        ),
        row(signals.ENGINE_WAITING, "sglang:num_queue_reqs", note="as above"),
        row(
            signals.ENGINE_KV_USAGE,
            "sglang:token_usage",
            note="0 to 1: the fullest pool, which need not be the KV cache; what the radix cache could evict is free",
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
            note="all prompt tokens, counted when a request ends, where vLLM counts at admission",
        ),
        row(signals.ENGINE_CACHE_HITS, "sglang:cached_tokens_total", note="over all `cache_source`, at the end"),
        row(signals.ENGINE_PROMPT_TOKENS, "sglang:prompt_tokens_total", note="at the end of a request"),
        row(signals.ENGINE_GENERATION_TOKENS, "sglang:generation_tokens_total", note="at the end of a request"),
        row(
            signals.ENGINE_TTFT,
            "sglang:time_to_first_token_seconds",
            note="the first bound is 0.1 s in newer builds",
        ),
        row(
            signals.ENGINE_INTER_TOKEN,
            "sglang:inter_token_latency_seconds",
            note="one sample a token: an output of k tokens counts k times, where vLLM counts it once. The older "
            "`sglang:time_per_output_token_seconds` is a running mean, neither this nor the next, and not read",
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
    capacity=Stated("sglang:max_total_num_tokens"),
)

TENSORRT_LLM = Engine(
    type="tensorrt_llm",
    marks=("trtllm_", "kv_cache_utilization"),
    rows=(
        row(signals.ENGINE_RUNNING, "trtllm_num_requests_running", note="newer builds"),
        row(signals.ENGINE_WAITING, "trtllm_num_requests_waiting", note="newer builds"),
        row(signals.ENGINE_KV_USAGE, "trtllm_kv_cache_utilization", "kv_cache_utilization", note="0 to 1"),
        row(
            signals.ENGINE_CACHE_QUERIES,
            "trtllm_prompt_tokens_total",
            note="all prompt tokens, counted when a request ends, where vLLM counts at admission",
        ),
        row(signals.ENGINE_CACHE_HITS, "trtllm_prompt_cached_tokens_total", note="at the end of a request"),
        row(signals.ENGINE_PROMPT_TOKENS, "trtllm_prompt_tokens_total", note="at the end of a request"),
        row(signals.ENGINE_GENERATION_TOKENS, "trtllm_generation_tokens_total", note="at the end of a request"),
        row(signals.ENGINE_SPEC_DRAFTED, "trtllm_spec_decode_num_draft_tokens_total"),
        row(signals.ENGINE_SPEC_ACCEPTED, "trtllm_spec_decode_num_accepted_tokens_total"),
        row(signals.ENGINE_TTFT, "trtllm_time_to_first_token_seconds", "time_to_first_token_seconds"),
        row(
            signals.ENGINE_TPOT,
            "trtllm_time_per_output_token_seconds",
            "time_per_output_token_seconds",
            note="a mean per request, although vLLM gave this name to gaps",
        ),
        row(signals.ENGINE_DURATION, "trtllm_e2e_request_latency_seconds", "e2e_request_latency_seconds"),
        row(signals.ENGINE_QUEUE, "trtllm_request_queue_time_seconds", "request_queue_time_seconds"),
        row(signals.ENGINE_PREFILL, "trtllm_request_prefill_time_seconds", note="first scheduled to first token"),
        row(signals.ENGINE_DECODE, "trtllm_request_decode_time_seconds"),
    ),
    model_label="model_name",
    capacity=Blocks("trtllm_kv_cache_max_blocks", "trtllm_kv_cache_tokens_per_block"),
)

LLAMA_CPP = Engine(
    type="llama_cpp",
    marks=("llamacpp:",),
    rows=(
        row(signals.ENGINE_RUNNING, "llamacpp:requests_processing", note="busy slots"),
        row(signals.ENGINE_WAITING, "llamacpp:requests_deferred"),
        row(signals.ENGINE_KV_USAGE, "llamacpp:kv_cache_usage_ratio", note="older builds only"),
        row(signals.ENGINE_PROMPT_TOKENS, "llamacpp:prompt_tokens_total", note="without cached tokens"),
        row(signals.ENGINE_GENERATION_TOKENS, "llamacpp:tokens_predicted_total", note="at the end of a request"),
    ),
    version_page=("/props", "build_info"),
)

TGI = Engine(
    type="tgi",
    marks=("tgi_",),
    rows=(
        row(signals.ENGINE_RUNNING, "tgi_batch_current_size"),
        row(signals.ENGINE_WAITING, "tgi_queue_size"),
        row(
            signals.ENGINE_PROMPT_TOKENS,
            "tgi_request_input_length_sum",
            note="the sum of a histogram of requests: moves when one ends",
        ),
        row(signals.ENGINE_GENERATION_TOKENS, "tgi_request_generated_tokens_sum", note="as above"),
        row(signals.ENGINE_TPOT, "tgi_request_mean_time_per_token_duration", note="seconds, though no name says so"),
        row(signals.ENGINE_DURATION, "tgi_request_duration", note="seconds"),
        row(signals.ENGINE_QUEUE, "tgi_request_queue_duration", note="seconds"),
    ),
    version_page=("/info", "version"),
)

DYNAMO = Engine(
    type="dynamo",
    marks=("dynamo_",),
    rows=(
        row(
            signals.ENGINE_WAITING,
            "dynamo_frontend_queued_requests",
            note="until the first token: requests in prefill count as waiting. There is no running: "
            "`dynamo_frontend_inflight_requests` holds the waiting ones too",
        ),
        row(
            signals.ENGINE_KV_USAGE,
            "dynamo_component_gpu_cache_usage_percent",
            note="`percent`, but 0 to 1; on a worker's page, not on the frontend's",
        ),
        row(
            signals.ENGINE_CACHE_QUERIES,
            "dynamo_frontend_input_sequence_tokens_sum",
            note="all prompt tokens, by the frontend's count",
        ),
        row(
            signals.ENGINE_CACHE_HITS,
            "dynamo_frontend_cached_tokens_sum",
            "dynamo_frontend_cached_sequence_length_sum",
        ),
        row(signals.ENGINE_PROMPT_TOKENS, "dynamo_frontend_input_sequence_tokens_sum"),
        row(signals.ENGINE_GENERATION_TOKENS, "dynamo_frontend_output_tokens_total", note="as they stream"),
        row(
            signals.ENGINE_TTFT, "dynamo_frontend_time_to_first_token_seconds", note="at the frontend, routing included"
        ),
        row(signals.ENGINE_INTER_TOKEN, "dynamo_frontend_inter_token_latency_seconds"),
        row(signals.ENGINE_DURATION, "dynamo_frontend_request_duration_seconds"),
    ),
    rank_labels=("dp_rank",),
    model_label="model",
    counts_live=True,
)

# In this order: a worker of Dynamo shows the families of the engine inside it beside its own, and those say more.
ENGINES = (VLLM, RAY, SGLANG, TENSORRT_LLM, LLAMA_CPP, TGI, DYNAMO)

SIGNALS = (signals.ENGINE_KV_CAPACITY, *(each.signal for each in _VLLM_ROWS))
"""Every signal that some engine may expose; vLLM has them all."""


def _names() -> Iterable[str]:
    for engine in ENGINES:
        for each in engine.rows:
            suffixes = ("_bucket", "_sum") if each.signal.kind is Kind.HISTOGRAM else ("",)
            yield from (f"{family.name}{suffix}" for family in each.families for suffix in suffixes)
        match engine.capacity:
            case Stated(name) | Labelled(name):
                yield name
            case Blocks(blocks, tokens_per_block):
                yield from (blocks, tokens_per_block)


START_TIME = "process_start_time_seconds"

WANTED = frozenset(plain(name) for name in (START_TIME, *_names()))
"""The plain names of all samples that are read; all others are ignored."""
