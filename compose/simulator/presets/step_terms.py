"""A preset for any model and GPU: the datasheet's peaks, and fitted coefficients of what a step really takes."""

from dataclasses import dataclass, replace

from compose.simulator.presets.preset import BLOCK_SIZE, Preset
from exporters.analysis.roofline.formulas import Setup
from exporters.analysis.roofline.gpus import Dtype
from exporters.text.errors import UsageError

RESERVED_BYTES = 4e9
"""Memory of a GPU for activations, CUDA graphs and communication, which the KV cache cannot use."""

LINK_BANDWIDTH = 450e9
"""Bytes per second in one direction between the GPUs of a host: NVLink 4 of H100 and H200, by the datasheet."""

DENSE_ERRORS, MIXTURE_ERRORS = (0.107, 0.05), (0.141, 0.114)
"""Medians of the absolute relative errors of TTFT and TPOT, on measured points that were not used for the fit."""

_LARGE_MEMORY = 70 * 2**30
_LARGE, _SMALL = (8192, 1024), (2048, 256)
"""vLLM's defaults of max_num_batched_tokens and max_num_seqs for GPUs of at least 70 GiB, and for others."""

MAX_MODEL_LEN = 32_768


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTerms:
    """Shares of the datasheet's peaks, and times in seconds.

    The default values are fitted for vLLM on H100 and H200. The page docs/design/step-model.md has the formula, the
    fit, and the errors on data that the fit did not use.
    """

    weight_bandwidth: float = 0.901
    """Share of the memory's bandwidth while weights are read."""
    kv_bandwidth: float = 0.701
    """The same while attention reads the KV cache."""
    fp8_flops: float = 0.612
    """Share of the peak in large matrix products of 8 bits."""
    bf16_flops: float = 0.525
    """The same for 16 bits."""
    attention_flops: float = 0.427
    """Share of the peak of 16 bits in attention over prompts."""
    all_reduce_seconds: float = 8.3e-6
    """Latency of each of the two all-reduces of a layer, with more than one GPU."""
    link_bandwidth: float = 0.486
    """Share of the bandwidth between GPUs during an all-reduce."""
    layer_seconds: float = 5.4e-5
    """Launches and small kernels of a layer."""
    expert_flops: float = 0.152
    """Share of the peak of 16 bits in the matrix products of experts, also in those of 8 bits."""
    expert_padding: float = 10.9
    """Tokens more that the product of each used expert computes, to fill its tiles."""
    expert_layer_seconds: float = 3.0e-5
    """Routing, and more launches, of a layer with experts."""
    request_seconds: float = 0.0182
    """The latency of HTTP server, tokenizer and processes before the queue, with that after the first token."""


def preset_of(setup: Setup, *, name: str, model: str, terms: StepTerms = StepTerms()) -> Preset:
    """The preset of a model; its sizes are those of one of `setup.tensor_parallel` GPUs.

    Raises:
        UsageError: the model does not fit.
    """
    shape, gpus, gpu, experts = setup.shape, setup.tensor_parallel, setup.gpu, setup.shape.experts
    weights, kv_bytes = setup.weight_bytes() / gpus, setup.kv_bytes_per_token() / gpus
    blocks = int((gpu.memory * setup.utilization - weights - RESERVED_BYTES) / (kv_bytes * BLOCK_SIZE))
    if blocks < 2:
        raise UsageError(f"{name}: the weights leave no memory for the KV cache; use more GPUs or smaller weights")
    peak, bf16_peak = gpu.flops[setup.dtype], gpu.flops[Dtype.BF16]
    efficiency = terms.fp8_flops if setup.dtype is Dtype.FP8 else terms.bf16_flops
    reduces = 2 * shape.layers if gpus > 1 else 0
    reduced_bytes = 2 * shape.hidden * Dtype.BF16.bytes * (gpus - 1) / gpus  # sent and received in a ring
    layer_seconds = terms.layer_seconds + (terms.expert_layer_seconds if experts else 0.0)
    read = weights - shape.lookup_table * Dtype.BF16.bytes / gpus
    large = _LARGE if gpu.memory >= _LARGE_MEMORY else _SMALL
    preset = Preset(
        name=name,
        model=model,
        gpu=gpu.name,
        compute_capability=(9, 0) if Dtype.FP8 in gpu.flops else (8, 0),
        weight_bytes=read,
        expert_share=setup.expert_bytes() / gpus / read,
        active_share=experts.active / experts.count if experts else 1.0,
        expert_flop_share=experts.active * experts.parameters / shape.active_parameters if experts else 0.0,
        expert_efficiency=terms.expert_flops * bf16_peak / peak,
        expert_padding=terms.expert_padding,
        kv_cache_dtype=str(setup.kv_dtype) if setup.kv_dtype is Dtype.FP8 else "auto",
        kv_bytes_per_token=kv_bytes,
        kv_bandwidth=terms.kv_bandwidth / terms.weight_bandwidth,
        flop_per_token=setup.flop_per_token() / gpus,
        flop_per_pair=4 * shape.full_layers * shape.heads * shape.head_size / gpus,
        attention_efficiency=terms.attention_flops * bf16_peak / peak,
        memory_bytes_per_second=gpu.bandwidth * terms.weight_bandwidth,
        flop_per_second=peak,
        efficiency=efficiency,
        overhead_seconds=shape.layers * layer_seconds + reduces * terms.all_reduce_seconds,
        token_seconds=reduces * reduced_bytes / (LINK_BANDWIDTH * terms.link_bandwidth),
        eager_seconds=shape.layers * 10 * 1e-5,  # assumed: 10 kernels in each layer, 10 us each
        memory_bytes=gpu.memory,
        gpu_memory_utilization=setup.utilization,
        num_gpu_blocks=blocks,
        max_num_batched_tokens=large[0],
        max_num_seqs=large[1],
        max_model_len=min(MAX_MODEL_LEN, blocks * BLOCK_SIZE),
    )
    # vLLM schedules a step while the one before is computed, so a new request waits for one more.
    ahead = preset.step_seconds(tokens=1, context=0)
    return replace(preset, request_seconds=terms.request_seconds + ahead)
