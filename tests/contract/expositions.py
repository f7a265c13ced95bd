"""Expositions of every engine and version, generated from recorded families, with different values."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from zlib import crc32

DATA = Path(__file__).parent / "data"
RECORDED = json.loads((DATA / "vllm-families.json").read_text())
VLLM_VERSIONS: tuple[str, ...] = tuple(RECORDED["versions"])

Labels = Mapping[str, str]
Family = tuple[str, str, Sequence[Labels]]
"""Type, exposed name (without the suffixes of a histogram), and the labels of each sample."""

BOUNDS = ("0.3", "1.0", "60.0", "+Inf")
CACHE_CONFIG = {"block_size": "16", "num_gpu_blocks": "1000", "enable_prefix_caching": "True", "cache_dtype": "auto"}


def exposition(families: Iterable[Family]) -> str:
    """An exposition in the text format 0.0.4."""
    lines: list[str] = []
    for kind, name, samples in families:
        lines += [f"# HELP {name} As recorded.", f"# TYPE {name} {kind}"]
        for number, labels in enumerate(samples):
            value = crc32(name.encode()) % 89 + 100 * number
            if kind == "histogram":
                for index, bound in enumerate(BOUNDS):
                    lines.append(_line(f"{name}_bucket", {**labels, "le": bound}, value * (index + 1)))
                lines.append(_line(f"{name}_count", labels, value * len(BOUNDS)))
                lines.append(_line(f"{name}_sum", labels, value * 1.5))
            elif name.endswith("_info"):
                lines.append(_line(name, labels, 1))
            else:
                ratio = name.endswith(("_perc", "_percent", "_usage", "_utilization", "_usage_ratio"))
                lines.append(_line(name, labels, value / 400 if ratio else value))
    return "\n".join(lines) + "\n"


def _line(name: str, labels: Labels, value: float) -> str:
    label_text = ",".join(f'{key}="{text}"' for key, text in sorted(labels.items()))
    return f"{name}{{{label_text}}} {float(value)}" if label_text else f"{name} {float(value)}"


def vllm(version: str, ranks: int = 1) -> str:
    """The default engine of this version: V0 in 0.6.6, then V1."""
    return exposition(_vllm(version, ranks))


def _vllm(version: str, ranks: int) -> Iterator[Family]:
    for name, family in RECORDED["families"].items():
        if version in family["in"].split():
            kind = family["type"]
            label, *values = family.get("label", ("", ""))
            total = "_total" if kind == "counter" else ""
            # The API server counts rejections for all ranks.
            has_ranks = version != "0.6.6" and name != "admission_rejections"
            yield (
                kind,
                f"vllm:{name}{total}",
                [
                    {
                        **(CACHE_CONFIG if name == "cache_config_info" else {"model_name": "org/model"}),
                        **({"engine": str(rank)} if has_ranks else {}),
                        **({label: value} if label else {}),
                    }
                    for rank in range(ranks if has_ranks else 1)
                    for value in values
                ],
            )
    yield "gauge", "process_start_time_seconds", [{}]


def ray() -> str:
    """Two replicas of vLLM 0.33 on Ray: no colons, Ray's labels, each counter above 0 with and without `_total`."""

    def families() -> Iterator[Family]:
        for kind, name, samples in _vllm("0.33.0", 1):
            if name.startswith("vllm:"):
                on_ray = f"ray_{name.replace(':', '_')}"
                tags = [
                    {**labels, "ReplicaId": replica, "WorkerId": f"w-{replica}", "SessionName": "session_1"}
                    for replica in ("a1", "b2")
                    for labels in samples
                ]
                yield kind, on_ray, tags
                if kind == "counter":
                    yield kind, on_ray.removesuffix("_total"), tags

    return exposition(families())


_ONE: Sequence[Labels] = ({"model_name": "org/model"},)


def sglang() -> str:
    """Two data-parallel ranks with two tensor-parallel ranks each, which all expose their values."""
    model = {"model_name": "org/model", "engine_type": "unified"}
    scheduler = [
        {**model, "dp_rank": dp, "tp_rank": tp, "pp_rank": "0", "moe_ep_rank": "0"} for dp in "01" for tp in "01"
    ]
    return exposition(
        [
            *(("gauge", f"sglang:{name}", scheduler) for name in ("num_running_reqs", "num_queue_reqs", "token_usage")),
            ("gauge", "sglang:gen_throughput", scheduler),
            ("gauge", "sglang:cache_hit_rate", scheduler),
            ("gauge", "sglang:max_total_num_tokens", scheduler),
            ("counter", "sglang:num_retracted_requests_total", scheduler),
            ("counter", "sglang:num_transfer_failed_reqs_total", scheduler),
            (
                "counter",
                "sglang:realtime_tokens_total",
                [
                    {**labels, "mode": mode}
                    for labels in scheduler
                    for mode in ("prefill_compute", "prefill_cache", "decode")
                ],
            ),
            ("histogram", "sglang:queue_time_seconds", scheduler),
            ("counter", "sglang:prompt_tokens_total", [model]),
            ("counter", "sglang:generation_tokens_total", [model]),
            ("counter", "sglang:cached_tokens_total", [{**model, "cache_source": at} for at in ("device", "host")]),
            ("counter", "sglang:num_requests_total", [model]),
            ("histogram", "sglang:time_to_first_token_seconds", [model]),
            ("histogram", "sglang:inter_token_latency_seconds", [model]),
            ("histogram", "sglang:request_time_per_output_token_seconds", [model]),
            ("histogram", "sglang:e2e_request_latency_seconds", [model]),
        ]
    )


def tensorrt_llm() -> str:
    """`/prometheus/metrics` of trtllm-serve."""
    of_model: Sequence[Labels] = ({"model_name": "org/model", "engine_type": "trtllm"},)
    gauges = (
        *("num_requests_running", "num_requests_waiting", "kv_cache_utilization", "kv_cache_hit_rate"),
        *("kv_cache_max_blocks", "kv_cache_tokens_per_block", "num_paused_requests"),
    )
    counters = (
        *("prompt_tokens", "generation_tokens", "prompt_cached_tokens", "kv_cache_reused_blocks"),
        *("spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens"),
        *("kv_cache_offload_bytes", "kv_cache_onboard_bytes"),
    )
    times = (
        *("time_to_first_token", "time_per_output_token", "e2e_request_latency", "request_queue_time"),
        *("request_prefill_time", "request_decode_time", "request_inference_time"),
    )
    positions = [{**labels, "token_position": at} for labels in of_model for at in "01"]
    return exposition(
        [
            *(("gauge", f"trtllm_{name}", of_model) for name in gauges),
            *(("counter", f"trtllm_{name}_total", of_model) for name in counters),
            *(("histogram", f"trtllm_{name}_seconds", of_model) for name in times),
            ("counter", "trtllm_spec_decode_drafted_tokens_total", positions),
            ("counter", "trtllm_request_success_total", [{**of_model[0], "finished_reason": "stop"}]),
        ]
    )


def tensorrt_llm_unprefixed() -> str:
    """Older builds, whose names have no prefix."""
    times = ("time_to_first_token", "time_per_output_token", "e2e_request_latency", "request_queue_time")
    return exposition(
        [
            ("gauge", "kv_cache_utilization", _ONE),
            ("gauge", "kv_cache_hit_rate", _ONE),
            ("counter", "request_success_total", _ONE),
            *(("histogram", f"{name}_seconds", _ONE) for name in times),
        ]
    )


def llama_cpp() -> str:
    """`llama-server --metrics`."""
    counters = ("prompt_tokens_total", "prompt_seconds_total", "tokens_predicted_total", "n_decode_total")
    gauges = ("prompt_tokens_seconds", "predicted_tokens_seconds", "requests_processing", "requests_deferred")
    return exposition(
        [
            *(("counter", f"llamacpp:{name}", [{}]) for name in counters),
            *(("gauge", f"llamacpp:{name}", [{}]) for name in gauges),
        ]
    )


def tgi() -> str:
    """The router of TGI: no labels, no units in names, no `_total`."""
    times = ("request_duration", "request_queue_duration", "request_mean_time_per_token_duration")
    lengths = ("request_input_length", "request_generated_tokens")
    return exposition(
        [
            *(("gauge", f"tgi_{name}", [{}]) for name in ("batch_current_size", "queue_size")),
            *(("counter", f"tgi_{name}", [{}]) for name in ("request_count", "request_success")),
            ("counter", "tgi_request_failure", [{"err": error} for error in ("validation", "overloaded")]),
            *(("histogram", f"tgi_{name}", [{}]) for name in (*times, *lengths)),
        ]
    )


def dynamo() -> str:
    """A frontend, and a worker with two ranks whose engine exposes no metrics."""
    model: Sequence[Labels] = ({"model": "org/model"},)
    times = ("time_to_first_token", "inter_token_latency", "request_duration")
    lengths = ("input_sequence_tokens", "cached_sequence_length")
    worker = [{"dynamo_component": "backend", "dp_rank": rank, "model": "org/model"} for rank in "01"]
    return exposition(
        [
            *(("gauge", f"dynamo_frontend_{name}", model) for name in ("inflight_requests", "queued_requests")),
            ("counter", "dynamo_frontend_requests_total", model),
            ("counter", "dynamo_frontend_output_tokens_total", model),
            *(("histogram", f"dynamo_frontend_{name}_seconds", model) for name in times),
            *(("histogram", f"dynamo_frontend_{name}", model) for name in lengths),
            ("gauge", "dynamo_component_gpu_cache_usage_percent", worker),
            ("gauge", "dynamo_component_total_blocks", worker),
        ]
    )


PAGES: dict[str, str] = {
    **{f"vllm-{version}": vllm(version, ranks=1 if version == "0.6.6" else 2) for version in VLLM_VERSIONS},
    "vllm-0.25.1-recorded": (DATA / "vllm-0.25.1.txt").read_text(),
    "vllm-0.32.0-recorded": (DATA / "vllm-0.32.0.txt").read_text(),
    "vllm-0.32.0-connector-recorded": (DATA / "vllm-0.32.0-connector.txt").read_text(),
    "vllm-0.32.0-lora-recorded": (DATA / "vllm-0.32.0-lora.txt").read_text(),
    "ray-serve-llm": ray(),
    "sglang": sglang(),
    "tensorrt-llm": tensorrt_llm(),
    "tensorrt-llm-unprefixed": tensorrt_llm_unprefixed(),
    "llama.cpp": llama_cpp(),
    "tgi": tgi(),
    "dynamo": dynamo(),
}
"""One exposition per engine and version; the generated ones of vLLM have two data-parallel ranks."""
