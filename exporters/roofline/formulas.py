"""The ceilings of prefill, decode and KV cache: the roofline model of Williams, Waterman and Patterson (2009).

A step takes at least as long as its FLOP at the card's peak, and at least as long as its bytes at the card's bandwidth;
kernels, scheduling and, with tensor parallelism, the exchange between cards come on top. For transformers: Pope et al.,
"Efficiently Scaling Transformer Inference" (2022), section 2.
"""

from dataclasses import dataclass

from exporters.roofline.gpus import Dtype, Gpu
from exporters.roofline.model_shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What serves: a model of `shape` on `tensor_parallel` cards, each of which lends `utilization` of its memory."""

    gpu: Gpu
    shape: Shape
    dtype: Dtype
    """In which matrices are multiplied: decides the FLOP per second."""
    weight_dtype: Dtype
    kv_dtype: Dtype
    tensor_parallel: int = 1
    utilization: float = 0.9
    context: int = 0
    """Tokens that each request holds in the KV cache while decode is looked at."""


def flop_per_token(setup: Setup, attended: float = 0) -> float:
    """2 per parameter that a token is multiplied with, and 4 x layers x heads x head size per token attended to.

    Kaplan et al., "Scaling Laws for Neural Language Models" (2020), table 1, for the first; Chowdhery et al., "PaLM"
    (2022), appendix B, for the second (a third of its 12, which counts training). The head counts for each prompt
    token, though engines compute it for the last one only.
    """
    shape = setup.shape
    return 2 * shape.multiplied + 4 * shape.layers * shape.heads * shape.head_size * attended


def prefill_rate(setup: Setup) -> float:
    """Prompt tokens per second, when nothing but FLOP limits; a prompt's token attends to half of it on average."""
    return _flops(setup) / flop_per_token(setup, setup.context / 2)


def weight_bytes(setup: Setup) -> float:
    """Of all cards together; quantisation leaves embedding and head in 16 bits (vLLM does unless told otherwise)."""
    return _stored(setup, setup.shape.parameters, setup.shape.vocabulary)


def kv_bytes_per_token(setup: Setup) -> float:
    """Key and value of every KV head in every layer: Pope et al., section 3.3; vLLM's `FullAttentionSpec`.

    Of all cards together: with more cards than KV heads each head is kept more than once.
    """
    shape = setup.shape
    copies = max(1.0, setup.tensor_parallel / shape.kv_heads)
    return 2 * shape.layers * shape.kv_heads * copies * shape.head_size * setup.kv_dtype.bytes


def room(setup: Setup) -> float:
    """Bytes that the cards lend: vLLM's `--gpu-memory-utilization` of each."""
    return setup.gpu.memory * setup.utilization * setup.tensor_parallel


def kv_tokens(setup: Setup) -> int:
    """Tokens in what the weights leave; 0 where they do not fit. Activations and CUDA graphs take some of it."""
    return max(0, int((room(setup) - weight_bytes(setup)) // kv_bytes_per_token(setup)))


def compute_seconds(setup: Setup, batch: int) -> float:
    """How long a decode step of `batch` requests computes."""
    return batch * flop_per_token(setup, setup.context) / _flops(setup)


def memory_seconds(setup: Setup, batch: int) -> float:
    """How long it reads: the weights once for the whole batch, and the KV cache of each request."""
    shape = setup.shape
    weights = _stored(setup, shape.read_for(batch), shape.vocabulary - shape.looked_up)
    kv = batch * setup.context * kv_bytes_per_token(setup)
    return (weights + kv) / (setup.gpu.bandwidth * setup.tensor_parallel)


def decode_rate(setup: Setup, batch: int) -> float:
    """Output tokens per second of all `batch` requests together: one each per step."""
    return batch / max(compute_seconds(setup, batch), memory_seconds(setup, batch))


def crossover(setup: Setup) -> int | None:
    """The largest batch that still waits for memory; beyond it decode is compute-bound. None: there is no end.

    Without context this is (FLOP per second / bandwidth) x bytes per weight / 2.
    """

    def waits(batch: int) -> bool:
        return memory_seconds(setup, batch) > compute_seconds(setup, batch)

    low, high = 0, 1
    while waits(high):  # compute grows with each request, weights at most to all experts: it crosses once or never
        low, high = high, 2 * high
        if high > 2**24:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if waits(middle) else (low, middle)
    return low


def _flops(setup: Setup) -> float:
    return setup.gpu.flops[setup.dtype] * setup.tensor_parallel


def _stored(setup: Setup, parameters: float, vocabulary: float) -> float:
    width = setup.weight_dtype.bytes
    return (parameters - vocabulary) * width + vocabulary * max(width, Dtype.BF16.bytes)
