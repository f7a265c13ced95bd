"""The upper bounds of prefill, decode and KV cache: the roofline model of Williams, Waterman and Patterson (2009).

A step takes at least the time of its FLOP at the GPU's peak rate, and at least the time of its memory reads at the
GPU's bandwidth; overheads of kernels, scheduling and communication between GPUs are not included. For transformers:
Pope et al., "Efficiently Scaling Transformer Inference" (2022), section 2.
"""

from dataclasses import dataclass

from exporters.analysis.roofline.gpus import Dtype, Gpu
from exporters.analysis.roofline.model_shape import ModelShape


def read_seconds(*, weight_bytes: float, kv_bytes: float, bandwidth: float) -> float:
    """The time to read weights and KV cache once at `bandwidth` bytes/s, as each decode step must.

    A step gives each request of its batch one token, so this is the floor of TPOT: Pope et al. (2022), section 2.
    """
    return (weight_bytes + kv_bytes) / bandwidth


@dataclass(frozen=True, slots=True)
class Drafts:
    """Speculative decoding: the draft model, and the share of its tokens that are accepted if all before them are."""

    shape: ModelShape
    tokens: int
    acceptance: float

    @property
    def output_per_step(self) -> float:
        """Expected output tokens of a request in a step: Leviathan et al. (2023), equation 1."""
        return sum(self.acceptance**position for position in range(self.tokens + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A model on `tensor_parallel` GPUs, and the share `utilization` of their memory to use."""

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
    drafts: Drafts | None = None

    def flop_per_token(self, attended: float = 0) -> float:
        """2 per active parameter, and 4 x full layers x heads x head size per token that a token attends to.

        Kaplan et al., "Scaling Laws for Neural Language Models" (2020), table 1, for the first; Chowdhery et al.,
        "PaLM" (2022), appendix B, for the second (a third of its 12, which includes training). The head counts for
        each prompt token, although engines compute it only for the last one.
        """
        shape = self.shape
        return 2 * shape.active_parameters + 4 * shape.full_layers * shape.heads * shape.head_size * attended

    def prefill_rate(self) -> float:
        """Compute-bound prompt tokens per second; a prompt token attends to half of the prompt on average."""
        return self._flops() / self.flop_per_token(self.context / 2)

    def weight_bytes(self) -> float:
        """Bytes on all GPUs together; quantisation leaves embedding and head in 16 bits, as vLLM does by default."""
        shape, experts = self.shape, self.shape.experts
        return self._stored_bytes(shape.parameters, shape.embeddings, experts.count if experts else 0.0)

    def expert_bytes(self) -> float:
        """The part of `weight_bytes` in experts that a router chooses among."""
        experts = self.shape.experts
        return self._bytes_of_experts(experts.count) if experts else 0.0

    def kv_bytes_per_token(self) -> float:
        """Key and value of every KV head in every layer: Pope et al., section 3.3; vLLM's `FullAttentionSpec`.

        Without layers that have a sliding window, whose cache does not grow. On all GPUs together: with more GPUs than
        KV heads, each head is stored more than once; the vector of multi-head latent attention counts as one head.
        """
        return self._kv_bytes(self.shape)

    def usable_memory(self) -> float:
        """Bytes on all GPUs together: vLLM's `--gpu-memory-utilization` of each."""
        return self.gpu.memory * self.utilization * self.tensor_parallel

    def kv_tokens(self) -> int:
        """Tokens of KV cache that fit beside the weights, or 0; without the memory of activations and CUDA graphs."""
        drafts = self.drafts
        each = self.kv_bytes_per_token() + (self._kv_bytes(drafts.shape) if drafts else 0.0)
        weights = self.weight_bytes() + (drafts.shape.parameters * Dtype.BF16.bytes if drafts else 0.0)
        return max(0, int((self.usable_memory() - weights) // each))

    def compute_seconds(self, batch: int) -> float:
        """Time of the arithmetic of a decode step of `batch` requests."""
        return self._verified(batch) * self.flop_per_token(self.context) / self._flops()

    def memory_seconds(self, batch: int) -> float:
        """Time of the memory reads of a decode step: the weights once, and the KV cache of each request."""
        shape, tokens = self.shape, self._verified(batch)
        weights = self._stored_bytes(
            shape.weights_read(tokens),
            shape.embeddings - shape.lookup_table,
            shape.experts.activated(tokens) if shape.experts else 0.0,
        )
        kv = batch * self.context * self.kv_bytes_per_token()
        return read_seconds(weight_bytes=weights, kv_bytes=kv, bandwidth=self.gpu.bandwidth * self.tensor_parallel)

    def is_memory_bound(self, batch: int) -> bool:
        return self.memory_seconds(batch) > self.compute_seconds(batch)

    def decode_rate(self, batch: int) -> float:
        """Output tokens per second of all `batch` requests together: one per request and step, or those accepted."""
        output = self.drafts.output_per_step if self.drafts else 1.0
        return (
            batch * output / (max(self.compute_seconds(batch), self.memory_seconds(batch)) + self._draft_seconds(batch))
        )

    def crossover(self) -> int | None:
        """The largest memory-bound batch; larger ones are compute-bound. None if every batch is memory-bound.

        Without context this is (FLOP per second / bandwidth) x bytes per weight / 2.
        """
        low, high = 0, 1
        # Compute grows with each request, weights only up to all experts, so there is at most one crossover.
        while self.is_memory_bound(high):
            low, high = high, 2 * high
            if high > 2**24:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.is_memory_bound(middle) else (low, middle)
        return low

    def _verified(self, batch: int) -> int:
        """The tokens of a decode step: one of each request, and its draft tokens."""
        return batch * (1 + self.drafts.tokens) if self.drafts else batch

    def _draft_seconds(self, batch: int) -> float:
        """Time of one pass of the draft model for each draft token."""
        if self.drafts is None:
            return 0.0
        shape = self.drafts.shape
        compute = batch * 2 * shape.active_parameters / self._flops()
        memory = read_seconds(
            weight_bytes=shape.weights_read(batch) * Dtype.BF16.bytes,
            kv_bytes=batch * self.context * self._kv_bytes(shape),
            bandwidth=self.gpu.bandwidth * self.tensor_parallel,
        )
        return self.drafts.tokens * max(compute, memory)

    def _kv_bytes(self, shape: ModelShape) -> float:
        return (
            shape.full_layers * shape.kv_values * max(1.0, self.tensor_parallel / shape.kv_heads) * self.kv_dtype.bytes
        )

    def _flops(self) -> float:
        return self.gpu.flops[self.dtype] * self.tensor_parallel

    def _stored_bytes(self, parameters: float, embeddings: float, experts: float) -> float:
        """The bytes of `parameters`, with those of the embeddings and of a number of `experts`."""
        width, each = self.weight_dtype.bytes, self.shape.experts.parameters if self.shape.experts else 0.0
        dense = (parameters - embeddings - experts * each) * width + embeddings * max(width, Dtype.BF16.bytes)
        return dense + self._bytes_of_experts(experts)

    def _bytes_of_experts(self, number: float) -> float:
        experts = self.shape.experts
        return number * experts.parameters * (experts.dtype or self.weight_dtype).bytes if experts else 0.0
