"""Flags that change the cost of a step or the size of the KV cache."""

import math
from dataclasses import replace

import pytest

from compose.simulator.errors import EngineFlagsError
from compose.simulator.presets.preset import BLOCK_SIZE, PRESETS
from compose.simulator.presets.variants import QUANTIZED_WEIGHTS, Variant, vary

ADA = PRESETS["rtx6000ada-qwen2.5-14b"]


def test_no_flag_changes_nothing() -> None:
    assert vary(ADA, {}) == ADA
    assert vary(ADA, {Variant.ENFORCE_EAGER: "false", Variant.GPU_MEMORY_UTILIZATION: "0.92"}) == ADA


@pytest.mark.parametrize("method", QUANTIZED_WEIGHTS)
def test_the_memory_of_the_weights_goes_to_the_kv_cache(method: str) -> None:
    varied = vary(ADA, {Variant.QUANTIZATION: method})
    saved = ADA.weight_bytes * (1 - QUANTIZED_WEIGHTS[method])
    gained = (varied.num_gpu_blocks - ADA.num_gpu_blocks) * BLOCK_SIZE * ADA.kv_bytes_per_token
    assert gained == pytest.approx(saved, rel=1e-3)


@pytest.mark.parametrize(
    "method,slower",
    [
        pytest.param("awq", True, id="dequantizes in each step"),
        pytest.param("awq_marlin", False, id="the same weights with another kernel"),
        pytest.param("fp8", False, id="8 bits"),
    ],
)
def test_a_decode_step_is_faster_unless_the_kernel_dequantizes(method: str, slower: bool) -> None:
    varied = vary(ADA, {Variant.QUANTIZATION: method})
    step, before = (preset.step_seconds(tokens=32, context=32_000) for preset in (varied, ADA))
    assert step != before
    assert (step > before) is slower


def test_without_cuda_graphs_a_step_has_more_overhead() -> None:
    varied = vary(ADA, {Variant.ENFORCE_EAGER: "true"})
    assert varied == replace(ADA, overhead_seconds=ADA.overhead_seconds + ADA.eager_seconds)


def test_a_larger_share_of_the_memory_is_kv_cache() -> None:
    """As vLLM 0.14.1 reports: 53.15 GiB at 0.9 and 60.14 GiB at 0.95 for Llama 70B in FP8 on an H200."""
    preset = PRESETS["h200-llama-70b-fp8"]
    sizes = [
        vary(preset, {Variant.GPU_MEMORY_UTILIZATION: share}).num_gpu_blocks * BLOCK_SIZE * preset.kv_bytes_per_token
        for share in ("0.9", "0.95")
    ]
    assert [size / 2**30 for size in sizes] == pytest.approx([53.15, 60.14], abs=0.05)


def test_an_fp8_kv_cache_has_twice_the_tokens_in_the_same_memory() -> None:
    varied = vary(ADA, {Variant.KV_CACHE_DTYPE: "fp8"})
    sizes = [each.num_gpu_blocks * each.kv_bytes_per_token for each in (varied, ADA)]
    assert sizes[0] == sizes[1]
    assert varied.num_gpu_blocks == 2 * ADA.num_gpu_blocks
    assert vary(ADA, {Variant.KV_CACHE_DTYPE: "auto"}) == ADA


def test_memory_that_another_flag_frees_is_filled_with_8_bit_tokens() -> None:
    changes = {Variant.QUANTIZATION: "awq_marlin", Variant.KV_CACHE_DTYPE: "fp8_e4m3"}
    freed = vary(ADA, changes).num_gpu_blocks - 2 * ADA.num_gpu_blocks
    assert freed * BLOCK_SIZE * ADA.kv_bytes_per_token / 2 == pytest.approx(0.7 * ADA.weight_bytes, rel=1e-3)


def test_a_preset_with_an_fp8_kv_cache_stays_as_it_is() -> None:
    preset = PRESETS["h200-llama-70b-fp8"]
    assert vary(preset, {Variant.KV_CACHE_DTYPE: "fp8"}) == preset


@pytest.mark.parametrize(
    "preset, dtype, mistake",
    [
        pytest.param(
            "t4-qwen2.5-0.5b",
            "fp8",
            "kv_cache_dtype: fp8 is not supported on a Tesla T4 (compute capability 7.5), as in vLLM: native FP8 needs "
            "8.9 or newer; use auto",
            id="no FP8 arithmetic",
        ),
        pytest.param(
            "toy",
            "int8",
            "kv_cache_dtype: 'int8' is not simulated; known: auto, fp8, fp8_e4m3",
            id="unknown",
        ),
    ],
)
def test_an_impossible_kv_cache_is_refused(preset: str, dtype: str, mistake: str) -> None:
    with pytest.raises(EngineFlagsError) as caught:
        vary(PRESETS[preset], {Variant.KV_CACHE_DTYPE: dtype})
    assert caught.value.mistakes == [mistake]


def test_all_mistakes_are_reported() -> None:
    changes = {
        Variant.QUANTIZATION: "awk",
        Variant.ENFORCE_EAGER: "yes",
        Variant.GPU_MEMORY_UTILIZATION: "0.1",
    }
    with pytest.raises(EngineFlagsError) as caught:
        vary(ADA, changes)
    assert caught.value.mistakes == [
        "quantization: 'awk' is not simulated; did you mean 'awq'?",
        "enforce_eager: 'yes' is not true or false",
        "gpu_memory_utilization: 0.1 leaves no memory for the KV cache; write a larger share",
    ]


def test_a_step_of_a_mixture_reads_the_experts_that_its_tokens_use() -> None:
    """2.9 of 34.1 G parameters for one token, nearly all for a batch."""
    preset = replace(PRESETS["a100-qwen3.5-35b-a3b"], flop_per_second=math.inf)
    read = preset.memory_bytes_per_second * preset.tpot_floor(0)
    assert read == pytest.approx(2 * 2.9e9, rel=0.02)
    one, many = (preset.step_seconds(tokens=tokens, context=0) - preset.overhead_seconds for tokens in (1, 512))
    assert one * preset.memory_bytes_per_second == pytest.approx(read)
    assert many * preset.memory_bytes_per_second == pytest.approx(preset.weight_bytes, rel=0.001)


def test_the_arithmetic_of_experts_is_apart_from_that_of_the_other_weights() -> None:
    """Each layer has both in turn, so one part may wait for the memory and the other for the arithmetic."""
    preset = replace(PRESETS["toy"], expert_share=0.9, active_share=0.1, expert_flop_share=0.5, expert_efficiency=0.5)
    large = preset.step_seconds(tokens=100_000, context=0)
    assert large == pytest.approx(100_000 * preset.flop_per_token / preset.flop_per_second * (0.5 + 0.5 / 0.5))
    padded = replace(preset, expert_padding=64.0)
    more = padded.step_seconds(tokens=100_000, context=0) - large
    assert more == pytest.approx(64 / 0.1 * preset.flop_per_token / preset.flop_per_second)  # all ten are used
