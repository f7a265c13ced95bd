"""The sizes of a model that determine its throughput and memory, from its config.json on Hugging Face."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from exporters.text.errors import UsageError
from exporters.vocabulary.ceilings import read_json

DENSE = frozenset(
    {"gemma", "gemma2", "gemma3_text", "granite", "llama", "mistral", "olmo", "olmo2", "phi3", "qwen2", "qwen3"}
)
"""Architectures (`model_type`) whose layers are attention and a gated MLP of three matrices."""

MIXTURES = {"mixtral": "num_local_experts", "qwen2_moe": "num_experts", "qwen3_moe": "num_experts"}
"""Architectures with experts instead of the MLP, and the key of the number of experts."""

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

    def activated(self, batch: int) -> float:
        """Experts that at least one of `batch` tokens uses, with even routing."""
        return self.count * (1 - (1 - self.active / self.count) ** batch)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of one model."""

    layers: int
    heads: int
    kv_heads: int
    head_size: int
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
    if "kv_lora_rank" in keys.config:
        raise UsageError(
            f"{path}: kv_lora_rank: multi-head latent attention (DeepSeek V2, V3, Kimi K2) is not supported"
        )
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

    def finish(self) -> None:
        if self.missing:
            names = ", ".join(self.missing)
            self.problems.insert(0, f"missing: {names}; the config.json of a decoder on Hugging Face has them")
        if self.problems:
            raise UsageError("\n".join(f"{self.source}: {problem}" for problem in self.problems))


def _count_parameters(keys: _ConfigKeys, parameters: float | None) -> ModelShape:
    layers, hidden = keys.whole("num_hidden_layers"), keys.whole("hidden_size")
    heads = keys.whole("num_attention_heads")
    kv_heads, head_size = keys.whole("num_key_value_heads", heads), keys.whole("head_dim", max(1, hidden // heads))
    embedding = keys.whole("vocab_size") * hidden
    # The file omits the library's default.
    tied = keys.config.get("tie_word_embeddings", True)
    shape = ModelShape(
        layers,
        heads,
        kv_heads,
        head_size,
        parameters=0.0,
        embeddings=embedding * (1 if tied else 2),
        lookup_table=0 if tied else embedding,
        experts=_experts(keys, layers, hidden),
        hidden=hidden,
    )
    # Queries and output; keys and values.
    attention = 2 * hidden * head_size * (heads + kv_heads)
    if _EAGLE3 in keys.config.get("architectures", ()):
        # Queries, keys and values read a token beside its hidden state, made from those of three layers of the model,
        # whose embedding the head uses.
        head = keys.whole("draft_vocab_size") * hidden
        attention += hidden * head_size * (heads + 2 * kv_heads)
        mlp = _mlp(keys, layers, hidden, parameters) + 3 * hidden * hidden
        return replace(shape, parameters=head + layers * attention + mlp, embeddings=head, lookup_table=0)
    mlp = _mlp(keys, layers, hidden, parameters) + (
        shape.experts.count * shape.experts.parameters if shape.experts else 0
    )
    return replace(shape, parameters=shape.embeddings + layers * attention + mlp)


def _mlp(keys: _ConfigKeys, layers: int, hidden: int, parameters: float | None) -> float:
    """Parameters of the MLPs that every token uses: all of a dense model, the shared ones of a mixture of experts."""
    kind = str(keys.config.get("model_type"))
    if kind in MIXTURES:
        return 3 * hidden * layers * keys.whole("shared_expert_intermediate_size", 0)
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
    count, active = keys.whole(MIXTURES[kind]), keys.whole("num_experts_per_tok")
    if active > count:
        keys.problems.append(f"num_experts_per_tok: {active} is more than the {count} experts")
    if keys.config.get("mlp_only_layers") or keys.whole("decoder_sparse_step", 1) != 1:
        keys.problems.append("experts in some layers only are not supported")
    width = keys.whole("intermediate_size" if kind == "mixtral" else "moe_intermediate_size")
    return Experts(count, active, 3.0 * hidden * width * layers)


def _replace_parameters(shape: ModelShape, parameters: float) -> ModelShape:
    counted = shape.embeddings + (shape.experts.count * shape.experts.parameters if shape.experts else 0)
    if parameters <= counted:
        raise UsageError(f"--parameters: {parameters:g} is less than those of embedding, head and experts: {counted:g}")
    return replace(shape, parameters=parameters)
