"""What an engine reports of itself becomes the figures of a cell."""

from collections.abc import Mapping

import pytest

from compose.experiments.cells.engine_samples import (
    ACCEPTED,
    DRAFT_TOKENS,
    DRAFTS,
    GENERATED,
    HITS,
    PREEMPTIONS,
    QUERIES,
    EngineSample,
    differences,
    merged,
    parse_sample,
    reading,
)
from compose.experiments.setup.cell_store import EngineReading

EXPOSITION = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:num_preemptions_total{engine="0",model_name="m"} 7.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 10.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 5.0
vllm:generation_tokens_total{engine="0",model_name="m"} 80.0
vllm:generation_tokens_total{engine="1",model_name="m"} 20.0
vllm:cache_config_info{block_size="16",enable_prefix_caching="False",num_gpu_blocks="101"} 1.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 9.0
"""


def test_a_sample_adds_up_the_ranks_of_an_engine_and_has_the_highest_usage() -> None:
    assert parse_sample(EXPOSITION, 5.0) == EngineSample(
        at=5.0,
        running=7.0,
        waiting=0.0,
        usage=0.75,
        counters=dict.fromkeys((QUERIES, HITS, DRAFTS, ACCEPTED))
        | {PREEMPTIONS: 7.0, GENERATED: 100.0, DRAFT_TOKENS: 15.0},
        settings={"block_size": "16", "enable_prefix_caching": "False", "num_gpu_blocks": "101"},
    )


def sample(at: float, *, running: float = 0.0, usage: float = 0.0, preemptions: float = 0.0) -> EngineSample:
    return EngineSample(
        at=at,
        running=running,
        waiting=2 * running,
        usage=usage,
        counters=dict.fromkeys((QUERIES, HITS, DRAFTS, DRAFT_TOKENS, ACCEPTED))
        | {PREEMPTIONS: preemptions, GENERATED: 100 * preemptions},
        settings={},
    )


def test_counters_start_at_the_last_sample_before_the_load_and_gauges_after_it() -> None:
    samples = [
        sample(1, running=50, usage=0.9, preemptions=3),  # the warm-up
        sample(2, preemptions=5),
        sample(3, running=4, usage=0.5, preemptions=5),
        sample(4, running=2, usage=0.25, preemptions=9),
    ]
    settings = {"num_gpu_blocks": "101", "block_size": "16"}
    assert reading(samples, settings, 2.5) == EngineReading(
        settings=settings,
        kv_capacity_tokens=1600,
        kv_usage_max=0.5,
        kv_usage_mean=0.375,
        preemptions=4,
        generated_tokens=400,
        waiting_max=8,
        waiting_mean=6,
        running_max=4,
    )


def test_counters_go_on_after_a_restart_of_the_engine() -> None:
    samples = [sample(1, preemptions=5), sample(2, preemptions=9), sample(3, preemptions=2), sample(4, preemptions=3)]
    found = reading(samples, {}, 1.5)
    assert (found.preemptions, found.generated_tokens) == (4 + 2 + 1, 700)


def test_an_engine_without_metrics_has_no_figures() -> None:
    assert reading([], {}, 0.0) == EngineReading()


@pytest.mark.parametrize(
    "flags,found",
    [
        pytest.param({"enable-prefix-caching": "false"}, [], id="equal but for the case"),
        pytest.param({"gpu-memory-utilization": "0.90"}, [], id="equal as numbers"),
        pytest.param({"max-num-seqs": "4"}, [], id="not reported"),
        pytest.param(
            {"enable-prefix-caching": "true"},
            ["enable-prefix-caching is False in the engine, not true"],
            id="another switch",
        ),
        pytest.param({"kv-cache-dtype": "fp8"}, ["kv-cache-dtype is auto in the engine, not fp8"], id="another name"),
        pytest.param({"block-size": "32"}, ["block-size is 16 in the engine, not 32"], id="another number"),
    ],
)
def test_flags_that_the_engine_reports_otherwise_are_found(flags: Mapping[str, str], found: list[str]) -> None:
    settings = {
        "enable_prefix_caching": "False",
        "gpu_memory_utilization": "0.9",
        "cache_dtype": "auto",
        "block_size": "16",
    }
    assert differences(flags, settings) == found


def test_several_engines_are_read_as_one() -> None:
    one = EngineReading(kv_usage_max=0.5, kv_usage_mean=0.25, generated_tokens=7, waiting_max=3, waiting_mean=1.5)
    other = EngineReading(kv_usage_max=0.9, kv_usage_mean=0.5, generated_tokens=4, waiting_max=1, waiting_mean=0.5)
    both = merged([one, other])
    assert (both.kv_usage_max, both.kv_usage_mean) == (0.9, 0.375)
    assert (both.generated_tokens, both.waiting_max, both.waiting_mean) == (11, 3, 2.0)
    assert both.preemptions is None
    assert merged([one]) == one
