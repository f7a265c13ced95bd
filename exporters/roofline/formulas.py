"""The ceilings of prefill, decode and KV cache: the roofline model of Williams, Waterman and Patterson (2009).

A step takes at least as long as its FLOP at the GPU's peak rate, and at least as long as its bytes at the GPU's
bandwidth; overheads of kernels, scheduling and communication between GPUs are not included. For transformers: Pope et
al., "Efficiently Scaling Transformer Inference" (2022), section 2.
"""

from dataclasses import dataclass

from exporters.roofline.gpus import Dtype, Gpu
from exporters.roofline.model_shape import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A model of `shape` on `tensor_parallel` GPUs, `utilization` of whose memory it may use."""

    gpu: Gpu
    shape: ModelShape
    dtype: Dtype
    """The dtype of matrix products, which determines the FLOP per second."""
    weight_dtype: Dtype
    kv_dtype: Dtype
    tensor_parallel: int = 1
    utilization: float = 0.9
    context: int = 0
    """Tokens of each request in the KV cache during decode."""


def flop_per_token(setup: Setup, attended: float = 0) -> float:
    """2 per active parameter, and 4 x layers x heads x head size per token that a token attends to.

    Kaplan et al., "Scaling Laws for Neural Language Models" (2020), table 1, for the first; Chowdhery et al., "PaLM"
    (2022), appendix B, for the second (a third of its 12, which includes training). The head counts for each prompt
    token, although engines compute it only for the last one.
    """
    shape = setup.shape
    return 2 * shape.active_parameters + 4 * shape.layers * shape.heads * shape.head_size * attended


def prefill_rate(setup: Setup) -> float:
    """Prompt tokens per second when only FLOP limit; a prompt token attends to half of the prompt on average."""
    return _flops(setup) / flop_per_token(setup, setup.context / 2)


def weight_bytes(setup: Setup) -> float:
    """Bytes on all GPUs together; quantisation leaves embedding and head in 16 bits, as vLLM does by default."""
    return _stored_bytes(setup, setup.shape.parameters, setup.shape.embeddings)


def kv_bytes_per_token(setup: Setup) -> float:
    """Key and value of every KV head in every layer: Pope et al., section 3.3; vLLM's `FullAttentionSpec`.

    On all GPUs together: with more GPUs than KV heads, each head is stored more than once.
    """
    shape = setup.shape
    copies = max(1.0, setup.tensor_parallel / shape.kv_heads)
    return 2 * shape.layers * shape.kv_heads * copies * shape.head_size * setup.kv_dtype.bytes


def usable_memory(setup: Setup) -> float:
    """Bytes on all GPUs together: vLLM's `--gpu-memory-utilization` of each."""
    return setup.gpu.memory * setup.utilization * setup.tensor_parallel


def kv_tokens(setup: Setup) -> int:
    """Tokens that fit beside the weights, or 0. Activations and CUDA graphs, which use memory too, are not included."""
    return max(0, int((usable_memory(setup) - weight_bytes(setup)) // kv_bytes_per_token(setup)))


def compute_seconds(setup: Setup, batch: int) -> float:
    """The time of the arithmetic of a decode step of `batch` requests."""
    return batch * flop_per_token(setup, setup.context) / _flops(setup)


def memory_seconds(setup: Setup, batch: int) -> float:
    """The time of its memory reads: the weights once for the whole batch, and the KV cache of each request."""
    shape = setup.shape
    weights = _stored_bytes(setup, shape.weights_read(batch), shape.embeddings - shape.lookup_table)
    kv = batch * setup.context * kv_bytes_per_token(setup)
    return (weights + kv) / (setup.gpu.bandwidth * setup.tensor_parallel)


def decode_rate(setup: Setup, batch: int) -> float:
    """Output tokens per second of all `batch` requests together: one per request and step."""
    return batch / max(compute_seconds(setup, batch), memory_seconds(setup, batch))


def crossover(setup: Setup) -> int | None:
    """The largest memory-bound batch; larger ones are compute-bound. None where every batch is memory-bound.

    Without context this is (FLOP per second / bandwidth) x bytes per weight / 2.
    """

    def is_memory_bound(batch: int) -> bool:
        return memory_seconds(setup, batch) > compute_seconds(setup, batch)

    low, high = 0, 1
    while is_memory_bound(high):  # compute grows with each request, weights up to all experts: one crossover or none
        low, high = high, 2 * high
        if high > 2**24:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_memory_bound(middle) else (low, middle)
    return low


def _flops(setup: Setup) -> float:
    return setup.gpu.flops[setup.dtype] * setup.tensor_parallel


def _stored_bytes(setup: Setup, parameters: float, embeddings: float) -> float:
    width = setup.weight_dtype.bytes
    return (parameters - embeddings) * width + embeddings * max(width, Dtype.BF16.bytes)
