"""Presets of a GPU and a model: memory traffic, arithmetic and KV cache size, with the sources of the numbers."""

from dataclasses import dataclass, replace

from compose.simulator.presets.speculative_decoding import Speculation
from exporters.analysis.roofline.formulas import read_seconds

BF16_BYTES = 2
BLOCK_SIZE = 16  # vLLM's default on CUDA


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One GPU with one model, and the default flags."""

    name: str
    model: str
    gpu: str
    compute_capability: tuple[int, int]
    weight_bytes: float  # read once per step, of a mixture only the experts that its tokens use
    expert_share: float = 0.0  # of the weights, in experts that a router chooses among
    active_share: float = 1.0  # of those experts, for one token
    expert_flop_share: float = 0.0  # of `flop_per_token`
    expert_efficiency: float = 1.0  # share of the peak for that
    expert_padding: float = 0.0  # tokens more that the product of each used expert computes, to fill its tiles
    kv_cache_dtype: str = "auto"
    kv_bytes_per_token: float  # read once per step for each token of context
    kv_bandwidth: float = 1.0  # share of the memory's bandwidth at which it is read
    flop_per_token: float
    flop_per_pair: float = 0.0  # of attention, for a token and one that it attends to
    attention_efficiency: float = 1.0  # share of the peak for that
    memory_bytes_per_second: float
    flop_per_second: float  # dense peak in the data sheet
    efficiency: float  # share of that peak for large matrix products
    overhead_seconds: float  # scheduling, kernel launches and sampling per step
    sequence_seconds: float = 0.0  # more for each request in a step
    token_seconds: float = 0.0  # more for each token: all-reduce between GPUs
    request_seconds: float = 0.0  # before a request reaches the scheduler, in virtual time; else HTTP takes it
    eager_seconds: float  # more per step without CUDA graphs
    memory_bytes: float  # of the GPU, as nvidia-smi reports it
    gpu_memory_utilization: float = 0.92  # at which it has `num_gpu_blocks`
    num_gpu_blocks: int
    max_num_seqs: int = 128
    max_num_batched_tokens: int = 2048
    max_model_len: int = 8192
    speculation: Speculation | None = None

    def step_seconds(self, *, tokens: int, context: float, sequences: int = 0, pairs: float = 0.0) -> float:
        """The duration of a step that computes `tokens` of `sequences` and attends over `context` tokens in total.

        By the roofline model, matrix products take the longer of reading the weights and computing; a layer computes
        those of experts separately. Attention adds reading the KV cache, and the arithmetic of `pairs`: the sum, over
        the tokens, of those that each attends to. The page docs/design/step-model.md has the formula and its error.
        """
        more = sequences * self.sequence_seconds + tokens * self.token_seconds
        attention = pairs * self.flop_per_pair / (self.flop_per_second * self.attention_efficiency)
        products = self._product_seconds(
            self.weight_bytes * (1 - self.expert_share),
            tokens * self.flop_per_token * (1 - self.expert_flop_share),
            self.efficiency,
        )
        forward = products + self._cache_seconds(context, self.kv_bytes_per_token)
        return self.overhead_seconds + forward + self._expert_seconds(tokens) + attention + more

    def draft_seconds(self, *, requests: int, context: int) -> float:
        """The time to draft for `requests` with `context` cached tokens in total: one forward pass for each token.

        The prompts and the launches of the kernels of the draft model are not included.
        """
        if self.speculation is None or self.speculation.draft is None:
            return 0.0
        draft = self.speculation.draft
        products = self._product_seconds(draft.weight_bytes, requests * draft.flop_per_token, self.efficiency)
        return self.speculation.tokens * (products + self._cache_seconds(context, draft.kv_bytes_per_token))

    def tpot_floor(self, context: float) -> float:
        """The least TPOT in seconds of a batch with `context` cached tokens in total, without speculative decoding."""
        return read_seconds(
            weight_bytes=self.weight_bytes * (1 - self.expert_share * (1 - self._used_experts(1))),
            kv_bytes=context * self.kv_bytes_per_token,
            bandwidth=self.memory_bytes_per_second,
        )

    def _product_seconds(self, weights: float, flop: float, efficiency: float) -> float:
        """The longer of reading `weights` bytes and computing at a share `efficiency` of the peak."""
        return max(weights / self.memory_bytes_per_second, flop / (self.flop_per_second * efficiency))

    def _cache_seconds(self, context: float, kv_bytes_per_token: float) -> float:
        return context * kv_bytes_per_token / (self.memory_bytes_per_second * self.kv_bandwidth)

    def _expert_seconds(self, tokens: int) -> float:
        if not self.expert_share:
            return 0.0
        used = self._used_experts(tokens)
        padded = tokens + self.expert_padding * used / self.active_share
        flop = padded * self.flop_per_token * self.expert_flop_share
        return self._product_seconds(self.weight_bytes * self.expert_share * used, flop, self.expert_efficiency)

    def _used_experts(self, tokens: int) -> float:
        """The share of the experts that a step over `tokens` uses, with even routing."""
        return 1 - (1 - self.active_share) ** tokens


def _kv_bytes(*, layers: int, kv_heads: int, head_size: int) -> float:
    """Bytes of the keys and values of one token."""
    return 2 * layers * kv_heads * head_size * BF16_BYTES


_RTX_6000_ADA = Preset(
    name="rtx6000ada-qwen2.5-14b",
    model="Qwen/Qwen2.5-14B-Instruct",
    gpu="RTX 6000 Ada",
    compute_capability=(8, 9),
    # From the model's config.json: 48 layers, 8 KV heads of 128; 14 G parameters (without the embedding, which needs no
    # arithmetic) at 2 B and 2 flop each.
    weight_bytes=28e9,
    kv_bytes_per_token=_kv_bytes(layers=48, kv_heads=8, head_size=128),
    flop_per_token=28e9,
    # Data sheet: 960 GB/s GDDR6, 364 TFLOPS dense bf16. Reading the weights takes 29 ms per step.
    memory_bytes_per_second=960e9,
    flop_per_second=364e12,
    efficiency=0.5,  # assumed: prefill on this card is power-bound; gives 6,500 prompt tokens/s
    overhead_seconds=0.0015,
    eager_seconds=0.005,  # assumed: 10 kernels in each of 48 layers, 10 us each
    memory_bytes=51.5e9,
    num_gpu_blocks=3562,  # 57k tokens, the rest of 48 GB after the weights
)

_T4 = Preset(
    name="t4-qwen2.5-0.5b",
    model="Qwen/Qwen2.5-0.5B-Instruct",
    gpu="Tesla T4",
    compute_capability=(7, 5),
    # config.json: 24 layers, 2 KV heads of 64; 0.49 G parameters, fp16 because a T4 has no bf16.
    weight_bytes=0.99e9,
    kv_bytes_per_token=_kv_bytes(layers=24, kv_heads=2, head_size=64),
    flop_per_token=0.99e9,
    # Data sheet: 320 GB/s GDDR6, 65 TFLOPS fp16 (far less at 70 W, hence the efficiency).
    memory_bytes_per_second=320e9,
    flop_per_second=65e12,
    efficiency=0.3,  # assumed
    overhead_seconds=0.006,  # assumed: T4 hosts typically have two slow cores
    # TPOT at 50 concurrent requests rose from 14.2 to 24.6 ms in a published run (vLLM 0.15.1).
    eager_seconds=0.0104,
    memory_bytes=16.1e9,
    # (15 GB x 0.9 - weights - 1.5 GB of activations) / 196,608 B per block
    num_gpu_blocks=56_000,
)

_H200_70B = Preset(
    name="h200-llama-70b-fp8",
    model="nvidia/Llama-3.1-70B-Instruct-FP8",
    gpu="H200",
    compute_capability=(9, 0),
    # From the model's config.json: 80 layers, 8 KV heads of 128; 70 G parameters and KV cache at 1 B.
    weight_bytes=70e9,
    kv_cache_dtype="fp8",
    kv_bytes_per_token=_kv_bytes(layers=80, kv_heads=8, head_size=128) / BF16_BYTES,
    flop_per_token=140e9,
    # Data sheet: 4.8 TB/s HBM3e, 1,979 TFLOPS dense fp8.
    memory_bytes_per_second=4.8e12,
    flop_per_second=1979e12,
    efficiency=0.5,  # assumed; gives 7,000 prompt tokens/s
    overhead_seconds=0.004,  # assumed: the host takes longer than the GPU for small steps
    eager_seconds=0.008,  # assumed: 10 kernels in each of 80 layers, 10 us each
    memory_bytes=150.7e9,
    gpu_memory_utilization=0.9,
    num_gpu_blocks=21_770,  # 53.15 GiB, as vLLM 0.14.1 reports
    max_num_seqs=1024,
    max_num_batched_tokens=8192,
    max_model_len=16384,
)

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        _RTX_6000_ADA,
        replace(
            _RTX_6000_ADA,  # with as many blocks, as in the recording on an H200
            name="h200-qwen2.5-14b",
            gpu="H200",
            compute_capability=(9, 0),
            # Data sheet: 4.8 TB/s HBM3e, 989 TFLOPS dense bf16.
            memory_bytes_per_second=4.8e12,
            flop_per_second=989e12,
            overhead_seconds=0.004,  # assumed: the host takes longer than the GPU for small steps
            memory_bytes=150.7e9,
        ),
        _H200_70B,
        replace(
            _H200_70B,  # as recorded with dynamic scales of the activations: slower matrix products and launches
            name="h200-llama-70b-fp8-dynamic",
            # Fitted to the recording at 1.0/s; the page docs/design/seed-004.md has the errors at other rates.
            memory_bytes_per_second=0.721 * _H200_70B.memory_bytes_per_second,
            flop_per_second=0.864 * _H200_70B.flop_per_second,
            overhead_seconds=_H200_70B.overhead_seconds / 0.721,
        ),
        _T4,
        replace(
            _T4,  # one of two engines that share the GPU: half of its time, while the work of their hosts overlaps
            name="half-t4-qwen2.5-0.5b",
            memory_bytes_per_second=_T4.memory_bytes_per_second / 2,
            flop_per_second=_T4.flop_per_second / 2,
            memory_bytes=_T4.memory_bytes / 2,
            num_gpu_blocks=23_000,  # half of the memory, without the second copy of weights and activations
        ),
        Preset(
            name="a100-qwen3.5-35b-a3b",
            model="Qwen/Qwen3.5-35B-A3B",
            gpu="A100 80GB",
            compute_capability=(8, 0),
            # Model card: 40 layers, each with 256 experts (8 active) and a shared one of 3 x 2048 x 512; attention with
            # 2 KV heads of 256 in 10 layers, Gated DeltaNet in 30. 34.1 G parameters without the embedding, 2.9 G
            # active.
            weight_bytes=68.2e9,
            expert_share=32.2 / 34.1,
            active_share=8 / 256,
            expert_flop_share=1.0 / 2.9,
            expert_efficiency=0.3,  # assumed: each expert multiplies few tokens
            kv_bytes_per_token=_kv_bytes(layers=10, kv_heads=2, head_size=256),
            flop_per_token=5.8e9,
            # Data sheet: 2,039 GB/s HBM2e, 312 TFLOPS dense bf16.
            memory_bytes_per_second=2.039e12,
            flop_per_second=312e12,
            efficiency=0.3,  # assumed
            overhead_seconds=0.006,  # assumed
            # The state of a request, 30 layers x 32 heads x 128 x 128 in 32 bits, is read and written in each step. Its
            # 63 MB are not taken from the KV cache.
            sequence_seconds=2 * 30 * 32 * 128 * 128 * 4 / 2.039e12,
            eager_seconds=0.012,  # assumed: 30 kernels in each of 40 layers, 10 us each
            memory_bytes=85.9e9,
            gpu_memory_utilization=0.9,
            num_gpu_blocks=9_000,  # assumed: 3 GB beside 69.2 GB of weights and 5 GB of vision encoder and activations
            max_num_seqs=256,  # vLLM's default on an A100
            max_num_batched_tokens=8192,
        ),
        Preset(
            name="toy",
            model="toy",
            gpu="toy",
            compute_capability=(9, 0),
            # Not a real GPU: 1 ms steps, 20k prompt tokens/s and a small KV cache, for fast tests.
            weight_bytes=1e6,
            kv_bytes_per_token=100,
            flop_per_token=1e6,
            memory_bytes_per_second=1e9,
            flop_per_second=2e10,
            efficiency=1.0,
            overhead_seconds=0.0,
            eager_seconds=0.001,
            memory_bytes=10e6,
            num_gpu_blocks=1024,
            max_num_seqs=64,
            max_num_batched_tokens=512,
            max_model_len=4096,
        ),
    )
}
DEFAULT_PRESET = "rtx6000ada-qwen2.5-14b"
