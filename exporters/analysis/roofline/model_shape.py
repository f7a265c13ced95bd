"""The sizes of a model that determine its throughput and memory, from its config.json on Hugging Face."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from exporters.analysis.roofline.gpus import Dtype
from exporters.text.errors import UsageError
from exporters.vocabulary.ceilings import read_json

DENSE = frozenset(
    {"gemma", "gemma2", "gemma3_text", "granite", "llama", "mistral", "olmo", "olmo2", "phi3", "qwen2", "qwen3"}
)
"""Architectures (`model_type`) whose layers are attention and a gated MLP of three matrices."""

MIXTURES = {
    "deepseek_v2": ("n_routed_experts", "moe_intermediate_size"),
    "deepseek_v3": ("n_routed_experts", "moe_intermediate_size"),
    "gpt_oss": ("num_local_experts", "intermediate_size"),
    "kimi_k2": ("n_routed_experts", "moe_intermediate_size"),
    "minimax_m2": ("num_local_experts", "intermediate_size"),
    "mixtral": ("num_local_experts", "intermediate_size"),
    "qwen2_moe": ("num_experts", "moe_intermediate_size"),
    "qwen3_moe": ("num_experts", "moe_intermediate_size"),
}
"""Architectures with experts instead of the MLP, and the keys of the number of experts and of the width of one."""

_EAGLE3 = "LlamaForCausalLMEagle3"
"""A draft head: Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large Language Models" (2025), section 3."""

MAX_SIZE = 10_000_000
"""The largest plausible value of any key in a config.json."""

_SUPPORTED_LAYERS = frozenset({"full_attention", "sliding_attention"})


@dataclass(frozen=True, slots=True)
class Experts:
    """A token uses `active` of `count` experts; `parameters` is the sum of one expert's parameters in all layers."""

    count: int
    active: int
    parameters: float
    dtype: Dtype | None = None
    """That of the experts' weights, if the config.json states that only they are quantised."""

    def activated(self, batch: int) -> float:
        """Experts that at least one of `batch` tokens uses, with even routing."""
        return self.count * (1 - (1 - self.active / self.count) ** batch)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of one model."""

    layers: int
    full_layers: int
    """Layers whose KV cache grows with the context; in the others a sliding window limits it. All, if each has one."""
    heads: int
    kv_heads: int
    head_size: int
    """Half of the multiply-adds of a head for a token and one that it attends to, over a prompt."""
    kv_values: int
    """Numbers in the KV cache of a layer for a token."""
    parameters: float
    embeddings: float
    """Parameters of embedding and head, which stay in 16 bits if other weights are quantised."""
    lookup_table: float
    """Parameters of an embedding that is not also the head; a token reads only one row of it."""
    experts: Experts | None = None
    hidden: int = 0
    """The width of a token between layers."""

    @property
    def active_parameters(self) -> float:
        """Parameters in the matrix products of one token."""
        return self.weights_read(1)

    def weights_read(self, batch: int) -> float:
        """Parameters that a step over `batch` tokens reads."""
        idle = (self.experts.count - self.experts.activated(batch)) * self.experts.parameters if self.experts else 0.0
        return self.parameters - self.lookup_table - idle

    @property
    def tensor_parallel_sizes(self) -> tuple[int, ...]:
        """The sizes that vLLM supports: heads are divided evenly, KV heads are divided or repeated evenly."""
        sizes = range(1, self.heads + 1)
        return tuple(n for n in sizes if self.heads % n == 0 and (self.kv_heads % n == 0 or n % self.kv_heads == 0))


def read_shape(path: Path, parameters: float | None = None) -> ModelShape:
    """The shape of the model in a config.json; `parameters` replaces the counted number.

    Norms, biases and routers (less than 0.1 % of a model) and encoders for vision and audio are not counted.

    Raises:
        UsageError: the file cannot be read, has mistakes (all are listed), or its architecture is not supported.
    """
    config = read_json(path)
    nested = config.get("text_config")
    keys = _ConfigKeys(path, nested if isinstance(nested, dict) else config)
    kinds = keys.config.get("layer_types")
    if unsupported := sorted({str(kind) for kind in kinds} - _SUPPORTED_LAYERS if isinstance(kinds, list) else ()):
        raise UsageError(
            f"{path}: layer_types: {', '.join(unsupported)} is not supported, because it has no KV cache per token"
        )
    shape = _count_parameters(keys, parameters)
    keys.finish()
    return shape if parameters is None else _replace_parameters(shape, parameters)


@dataclass(slots=True)
class _ConfigKeys:
    """Reads whole numbers by name and collects the problems."""

    source: Path
    config: Mapping[str, Any]
    missing: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def whole(self, name: str, default: int | None = None) -> int:
        # In these files, null means the default.
        value = self.config.get(name)
        if value is None and default is None:
            self.missing.append(name)
        elif value is None:
            return default or 0
        elif isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_SIZE:
            self.problems.append(f"{name}: expected a whole number from 1 to {MAX_SIZE:,}, found {value!r}")
        else:
            return value
        return 1

    def count(self, name: str) -> int:
        """A number that may be 0 or missing."""
        return self.whole(name) if self.config.get(name) else 0

    def finish(self) -> None:
        if self.missing:
            names = ", ".join(self.missing)
            self.problems.insert(0, f"missing: {names}; the config.json of a decoder on Hugging Face has them")
        if self.problems:
            raise UsageError("\n".join(f"{self.source}: {problem}" for problem in self.problems))


def _count_parameters(keys: _ConfigKeys, parameters: float | None) -> ModelShape:
    layers, hidden = keys.whole("num_hidden_layers"), keys.whole("hidden_size")
    attention = _latent_attention(keys, hidden) if "kv_lora_rank" in keys.config else _attention(keys, hidden)
    embedding = keys.whole("vocab_size") * hidden
    # The file omits the library's default.
    tied = keys.config.get("tie_word_embeddings", True)
    kinds = keys.config.get("layer_types")
    shape = ModelShape(
        layers=layers,
        full_layers=(kinds.count("full_attention") if isinstance(kinds, list) else 0) or layers,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        head_size=attention.head_size,
        kv_values=attention.kv_values,
        parameters=0.0,
        embeddings=embedding * (1 if tied else 2),
        lookup_table=0 if tied else embedding,
        experts=_experts(keys, layers, hidden),
        hidden=hidden,
    )
    if _EAGLE3 in keys.config.get("architectures", ()):
        # Queries, keys and values read a token beside its hidden state, made from those of three layers of the model,
        # whose embedding the head uses.
        head = keys.whole("draft_vocab_size") * hidden
        more = hidden * shape.head_size * (shape.heads + 2 * shape.kv_heads)
        mlp = _mlp(keys, layers, hidden, parameters) + 3 * hidden * hidden
        return replace(
            shape, parameters=head + layers * (attention.parameters + more) + mlp, embeddings=head, lookup_table=0
        )
    mlp = _mlp(keys, layers, hidden, parameters) + (
        shape.experts.count * shape.experts.parameters if shape.experts else 0
    )
    return replace(shape, parameters=shape.embeddings + layers * attention.parameters + mlp)


@dataclass(frozen=True, slots=True)
class _Attention:
    """Sizes of one layer, as in `ModelShape`."""

    heads: int
    kv_heads: int
    head_size: int
    kv_values: int
    parameters: int


def _attention(keys: _ConfigKeys, hidden: int) -> _Attention:
    heads = keys.whole("num_attention_heads")
    kv_heads, size = keys.whole("num_key_value_heads", heads), keys.whole("head_dim", max(1, hidden // heads))
    # Queries and output; keys and values.
    return _Attention(heads, kv_heads, size, 2 * kv_heads * size, 2 * hidden * size * (heads + kv_heads))


def _latent_attention(keys: _ConfigKeys, hidden: int) -> _Attention:
    """Multi-head latent attention, in which heads share one cached vector: "DeepSeek-V2" (2024), section 2.1."""
    heads, latent = keys.whole("num_attention_heads"), keys.whole("kv_lora_rank")
    plain, rotary, value = (keys.whole(name) for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    query, latent_query = heads * (plain + rotary), keys.whole("q_lora_rank", 0)
    queries = (hidden + query) * latent_query if latent_query else hidden * query
    keys_and_values = hidden * (latent + rotary) + latent * heads * (plain + value)
    return _Attention(
        heads,
        kv_heads=1,
        head_size=(plain + rotary + value) // 2,
        kv_values=latent + rotary,
        parameters=queries + keys_and_values + heads * value * hidden,
    )


def _mlp(keys: _ConfigKeys, layers: int, hidden: int, parameters: float | None) -> float:
    """Parameters of the MLPs that every token uses: all of a dense model, the shared ones of a mixture of experts."""
    kind = str(keys.config.get("model_type"))
    if kind in MIXTURES:
        dense, experts = keys.count("first_k_dense_replace"), keys.count("n_shared_experts")
        shared = experts * keys.whole("moe_intermediate_size") if experts else 0
        shared += keys.whole("shared_expert_intermediate_size", 0)
        in_dense_layers = dense * keys.whole("intermediate_size") if dense else 0
        return 3 * hidden * ((layers - dense) * shared + in_dense_layers)
    if kind not in DENSE and parameters is None:
        keys.problems.append(
            f"model_type: the parameters of {kind!r} cannot be counted; add --parameters (known: "
            f"{', '.join(sorted(DENSE | MIXTURES.keys()))})"
        )
        return 0.0
    return 0.0 if parameters is not None else 3 * hidden * layers * keys.whole("intermediate_size")


def _experts(keys: _ConfigKeys, layers: int, hidden: int) -> Experts | None:
    kind = str(keys.config.get("model_type"))
    if kind not in MIXTURES:
        if unsupported := sorted({"num_experts", "num_local_experts", "n_routed_experts"} & keys.config.keys()):
            keys.problems.append(
                f"{unsupported[0]}: the experts of model_type {kind!r} are not supported; known: {', '.join(MIXTURES)}"
            )
        return None
    name, width = MIXTURES[kind]
    count, active = keys.whole(name), keys.whole("num_experts_per_tok")
    if active > count:
        keys.problems.append(f"num_experts_per_tok: {active} is more than the {count} experts")
    if (
        keys.config.get("mlp_only_layers")
        or keys.whole("decoder_sparse_step", 1) != 1
        or keys.whole("moe_layer_freq", 1) != 1
    ):
        keys.problems.append("experts in some layers only are not supported")
    parameters = 3.0 * hidden * keys.whole(width) * (layers - keys.count("first_k_dense_replace"))
    return Experts(count, active, parameters, _expert_dtype(keys.config.get("quantization_config")))


def _expert_dtype(quantization: Any) -> Dtype | None:
    """The dtype of experts that alone have 4 bits, as in gpt-oss and Kimi K2.5."""
    match quantization:
        case {"quant_method": "mxfp4"}:
            return Dtype.FP4
        case {"config_groups": {"group_0": {"weights": {"num_bits": 4}}}, "ignore": [*ignored]} if any(
            "self_attn" in str(name) for name in ignored
        ):
            return Dtype.INT4
    return None


def _replace_parameters(shape: ModelShape, parameters: float) -> ModelShape:
    counted = shape.embeddings + (shape.experts.count * shape.experts.parameters if shape.experts else 0)
    if parameters <= counted:
        raise UsageError(f"--parameters: {parameters:g} is less than those of embedding, head and experts: {counted:g}")
    return replace(shape, parameters=parameters)
