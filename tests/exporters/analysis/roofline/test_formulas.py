"""The formulas, against published figures and properties of any GPU and model."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compose.simulator.presets.speculative_config import EAGLE3_HEADS
from exporters.analysis.roofline.formulas import Drafts, Setup
from exporters.analysis.roofline.gpus import SHIPPED, Dtype, Gpu, find_gpu, read_gpus
from exporters.analysis.roofline.model_shape import Experts, ModelShape, read_shape
from tests.exporters.analysis.roofline.model_configs import (
    DEEPSEEK_V3,
    EAGLE3_70B,
    GPT_OSS,
    LLAMA_8B,
    LLAMA_70B,
    QWEN_14B,
    QWEN_HALF_B,
    write,
)

GPUS = read_gpus(SHIPPED)


def setup(gpu: str, shape: ModelShape, dtype: Dtype = Dtype.BF16, kv_dtype: Dtype = Dtype.BF16) -> Setup:
    return Setup(gpu=find_gpu(gpu, GPUS), shape=shape, dtype=dtype, weight_dtype=dtype, kv_dtype=kv_dtype)


def test_qwen_14b_on_an_rtx_6000_ada_has_the_published_bounds(tmp_path: Path) -> None:
    """28 GFLOP per prompt token, about 13k tok/s of prefill, 34 tok/s alone, 196 kB, 80k to 90k tokens of KV cache."""
    ada = setup("RTX 6000 Ada", read_shape(write(tmp_path, QWEN_14B)))
    assert ada.flop_per_token() == pytest.approx(28e9, rel=0.002)
    assert ada.prefill_rate() == pytest.approx(13_000, rel=0.01)
    assert ada.decode_rate(1) == pytest.approx(34, abs=0.5)
    assert ada.kv_bytes_per_token() == 196_608
    assert 80_000 < ada.kv_tokens() < 90_000


def test_qwen_half_b_on_a_t4_has_the_published_bounds(tmp_path: Path) -> None:
    """12,288 B per token, 327 tok/s alone, 16,327 in a batch of 50, memory-bound up to 203, then 66,327."""
    t4 = setup("T4", read_shape(write(tmp_path, QWEN_HALF_B), 0.49e9), Dtype.FP16, Dtype.FP16)
    assert t4.kv_bytes_per_token() == 12_288
    assert round(t4.decode_rate(1)) == 327
    assert round(t4.decode_rate(10)) == 3_265
    assert round(t4.decode_rate(50)) == 16_327
    assert t4.crossover() == 203
    assert round(t4.decode_rate(500)) == 66_327


def test_an_eagle_3_head_for_llama_70b_has_its_published_size(tmp_path: Path) -> None:
    """Its checkpoint has 1.4 G parameters: one layer, the reduction of three hidden states, 32,000 tokens of output."""
    head = read_shape(write(tmp_path, EAGLE3_70B))
    assert head.parameters == pytest.approx(1.4e9, rel=0.01)
    assert EAGLE3_HEADS["yuhuili/EAGLE3-LLaMA3.3-Instruct-70B"].parameters == head.parameters


@pytest.mark.parametrize("tokens,acceptance,expected", [(3, 0.7, 2.533), (3, 0.0, 1.0), (3, 1.0, 4.0), (5, 0.8, 3.689)])
def test_the_output_of_a_step_is_that_of_leviathan(
    tmp_path: Path, tokens: int, acceptance: float, expected: float
) -> None:
    drafts = Drafts(read_shape(write(tmp_path, EAGLE3_70B)), tokens, acceptance)
    assert drafts.output_per_step == pytest.approx(expected, abs=0.001)


def test_drafts_help_small_batches_and_cost_large_ones(tmp_path: Path) -> None:
    """A small batch waits for the memory, so verification is free; a large one for the arithmetic of all tokens."""
    plain = setup("H200", read_shape(write(tmp_path, LLAMA_70B)), Dtype.FP8, Dtype.FP8)
    eagle, dense = (
        replace(plain, drafts=Drafts(read_shape(write(tmp_path, draft)), 3, 0.7)) for draft in (EAGLE3_70B, LLAMA_8B)
    )
    assert eagle.decode_rate(1) / plain.decode_rate(1) == pytest.approx(2.26, abs=0.05)
    assert dense.decode_rate(1) < eagle.decode_rate(1)
    assert eagle.decode_rate(2000) < plain.decode_rate(2000)
    assert dense.kv_tokens() < eagle.kv_tokens() < plain.kv_tokens()
    useless = replace(plain, drafts=Drafts(eagle.shape, 3, 0.0))
    assert useless.decode_rate(1) < plain.decode_rate(1)


def test_quantised_weights_leave_embedding_and_head_in_16_bits(tmp_path: Path) -> None:
    shape = read_shape(write(tmp_path, LLAMA_70B))
    fp8 = setup("H200", shape, Dtype.FP8)
    assert fp8.weight_bytes() == shape.parameters + shape.embeddings
    # A step reads only the head, which has as many bytes in 16 bits as both in 8 bits.
    assert fp8.memory_seconds(1) * fp8.gpu.bandwidth == pytest.approx(shape.parameters)
    int4 = replace(setup("H200", shape), weight_dtype=Dtype.INT4)
    assert int4.weight_bytes() == (shape.parameters - shape.embeddings) / 2 + shape.embeddings * 2


def test_the_kv_cache_of_a_70b_in_fp8_is_that_of_vllm_on_an_h200_plus_its_overhead(tmp_path: Path) -> None:
    """Measured with vLLM 0.25.1 at 0.92: 382,672 tokens; activations and CUDA graphs use the rest."""
    h200 = replace(setup("H200", read_shape(write(tmp_path, LLAMA_70B)), Dtype.FP8, Dtype.FP8), utilization=0.92)
    assert 382_672 < h200.kv_tokens() < 382_672 * 1.07


def test_more_gpus_than_kv_heads_store_each_head_more_than_once(tmp_path: Path) -> None:
    half = setup("T4", read_shape(write(tmp_path, QWEN_HALF_B)), Dtype.FP16)
    assert replace(half, tensor_parallel=2).kv_bytes_per_token() == half.kv_bytes_per_token()
    assert replace(half, tensor_parallel=14).kv_bytes_per_token() == 7 * half.kv_bytes_per_token()


def test_layers_with_a_sliding_window_have_no_growing_cache(tmp_path: Path) -> None:
    oss = setup("H200", read_shape(write(tmp_path, GPT_OSS)))
    assert oss.kv_bytes_per_token() == 2 * 18 * 8 * 64 * 2
    assert oss.flop_per_token(1000) - oss.flop_per_token() == 4 * 18 * 64 * 64 * 1000


def test_each_gpu_stores_the_whole_vector_of_latent_attention(tmp_path: Path) -> None:
    """DeepSeek-V2's table 1: (d_c + d_h^R) numbers a layer, here 512 + 64."""
    v3 = setup("H200", read_shape(write(tmp_path, DEEPSEEK_V3)))
    assert v3.kv_bytes_per_token() == 61 * 576 * 2
    assert replace(v3, tensor_parallel=8).kv_bytes_per_token() == 8 * v3.kv_bytes_per_token()


def test_experts_of_4_bits_take_a_quarter_of_the_memory(tmp_path: Path) -> None:
    """gpt-oss-120b's checkpoint has 65 GB, of which scales are 3."""
    oss = setup("H200", read_shape(write(tmp_path, GPT_OSS)))
    assert oss.expert_bytes() == pytest.approx(57.3e9, rel=0.01)
    assert oss.weight_bytes() == pytest.approx(61.6e9, rel=0.01)
    all_read = oss.memory_seconds(1000) * oss.gpu.bandwidth
    assert all_read == pytest.approx(oss.weight_bytes() - 2 * oss.shape.lookup_table, rel=1e-3)


SIZES = st.integers(1, 128)


@st.composite
def shapes(draw: st.DrawFn) -> ModelShape:
    kv_heads, head_size, layers = draw(st.sampled_from((1, 2, 8))), draw(st.sampled_from((64, 128, 256))), draw(SIZES)
    dense, table = draw(st.floats(1e8, 1e11)), draw(st.floats(1e6, 1e9))
    tied, count = draw(st.booleans()), draw(st.integers(2, 256))
    experts = draw(st.none() | st.builds(Experts, st.just(count), st.integers(1, count), st.floats(1e7, 1e9)))
    embeddings = table if tied else 2 * table
    return ModelShape(
        layers=layers,
        full_layers=layers,
        heads=kv_heads * draw(st.integers(1, 8)),
        kv_heads=kv_heads,
        head_size=head_size,
        kv_values=2 * kv_heads * head_size,
        parameters=embeddings + dense + (experts.count * experts.parameters if experts else 0),
        embeddings=embeddings,
        lookup_table=0 if tied else table,
        experts=experts,
    )


SETUPS = st.builds(
    Setup,
    gpu=st.builds(
        Gpu,
        name=st.just("gpu"),
        memory=st.floats(1e10, 1e12),
        bandwidth=st.floats(1e11, 1e13),
        flops=st.fixed_dictionaries({Dtype.BF16: st.floats(1e13, 1e16)}),
        source=st.just("drawn"),
    ),
    shape=shapes(),
    dtype=st.just(Dtype.BF16),
    weight_dtype=st.sampled_from(Dtype),
    kv_dtype=st.sampled_from((Dtype.BF16, Dtype.FP8)),
    utilization=st.floats(0.1, 1),
    context=st.integers(0, 100_000),
)
BATCHES = st.integers(1, 5000)
ROUNDING = 1 + 1e-9


@settings(max_examples=30)
@given(SETUPS, BATCHES, st.floats(1, 10))
def test_more_bandwidth_is_never_slower_and_does_not_change_prefill(drawn: Setup, batch: int, times: float) -> None:
    faster = replace(drawn, gpu=replace(drawn.gpu, bandwidth=drawn.gpu.bandwidth * times))
    assert faster.decode_rate(batch) * ROUNDING >= drawn.decode_rate(batch)
    assert faster.prefill_rate() == drawn.prefill_rate()


@settings(max_examples=30)
@given(SETUPS, BATCHES)
def test_a_larger_batch_gives_more_tokens_and_each_request_no_more(drawn: Setup, batch: int) -> None:
    assert drawn.decode_rate(batch + 1) * ROUNDING >= drawn.decode_rate(batch)
    assert drawn.decode_rate(batch + 1) / (batch + 1) <= drawn.decode_rate(batch) / batch * ROUNDING


@settings(max_examples=30)
@given(SETUPS, BATCHES, st.sampled_from((2, 4, 8)))
def test_gpus_divide_the_work_while_kv_heads_can_be_divided(drawn: Setup, batch: int, gpus: int) -> None:
    alone = replace(drawn, shape=replace(drawn.shape, kv_heads=8, heads=64))
    together = replace(alone, tensor_parallel=gpus)
    assert together.decode_rate(batch) == pytest.approx(gpus * alone.decode_rate(batch))
    assert together.prefill_rate() == pytest.approx(gpus * alone.prefill_rate())
    assert together.weight_bytes() == alone.weight_bytes()
    assert together.kv_tokens() >= gpus * alone.kv_tokens()  # the weights are stored only once


@settings(max_examples=30)
@given(SETUPS, BATCHES)
def test_decode_is_memory_bound_exactly_up_to_the_crossover(drawn: Setup, batch: int) -> None:
    end = drawn.crossover()
    assert drawn.is_memory_bound(batch) == (end is None or batch <= end)


@settings(max_examples=30)
@given(SETUPS, BATCHES, st.integers(1, 10_000))
def test_requests_with_more_context_are_never_faster(drawn: Setup, batch: int, more: int) -> None:
    longer = replace(drawn, context=drawn.context + more)
    assert longer.decode_rate(batch) <= drawn.decode_rate(batch) * ROUNDING
    assert longer.prefill_rate() <= drawn.prefill_rate()


@settings(max_examples=30)
@given(SETUPS)
def test_weights_and_kv_cache_fit_into_the_usable_memory(drawn: Setup) -> None:
    tokens = drawn.kv_tokens()
    usable = drawn.gpu.memory * drawn.utilization
    assert not tokens or drawn.weight_bytes() + tokens * drawn.kv_bytes_per_token() <= usable * ROUNDING
    assert drawn.weight_bytes() + (tokens + 1) * drawn.kv_bytes_per_token() > usable / ROUNDING
