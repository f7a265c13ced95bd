"""The shape of a model, as far as speed and memory depend on it, from the config.json that Hugging Face keeps."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from exporters.errors import UsageError, system_reason

DENSE = frozenset(
    {"gemma", "gemma2", "gemma3_text", "granite", "llama", "mistral", "olmo", "olmo2", "phi3", "qwen2", "qwen3"}
)
"""Decoders whose layer is attention and a gated MLP of three matrices."""

MIXTURES = {"mixtral": "num_local_experts", "qwen2_moe": "num_experts", "qwen3_moe": "num_experts"}
"""The same with experts in place of the MLP, and where each keeps their number."""

LARGEST = 10_000_000
"""Of any size in a config.json: no vocabulary is near it."""

_FULL = frozenset({"full_attention", "sliding_attention"})


@dataclass(frozen=True, slots=True)
class Experts:
    """Of `count` experts a token passes through `active`; `parameters` are those of one, in all layers together."""

    count: int
    active: int
    parameters: float

    def touched(self, batch: int) -> float:
        """Experts that at least one of `batch` tokens passes through, when routing is even."""
        return self.count * (1 - (1 - self.active / self.count) ** batch)


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes that count."""

    layers: int
    heads: int
    kv_heads: int
    head_size: int
    parameters: float
    vocabulary: float
    """Parameters of the embedding and the head, which stay in 16 bits where other weights are quantised."""
    looked_up: float
    """Those of an embedding that is not the head too: a token reads one row of it."""
    experts: Experts | None = None

    @property
    def multiplied(self) -> float:
        """Parameters that one token is multiplied with."""
        return self.read_for(1)

    def read_for(self, batch: int) -> float:
        """Parameters that a step over `batch` tokens reads."""
        idle = (self.experts.count - self.experts.touched(batch)) * self.experts.parameters if self.experts else 0.0
        return self.parameters - self.looked_up - idle

    @property
    def tensor_parallel_sizes(self) -> tuple[int, ...]:
        """Into how many parts vLLM can cut it: heads are shared out evenly, KV heads too or repeated evenly."""
        parts = range(1, self.heads + 1)
        return tuple(n for n in parts if self.heads % n == 0 and (self.kv_heads % n == 0 or n % self.kv_heads == 0))


def read_shape(path: Path, parameters: float | None = None) -> Shape:
    """The shape that a config.json describes; `parameters` replaces what can be counted from it.

    Norms, biases and routers, less than 0.1 % of a model, are not counted; nor is a part that sees or hears.

    Raises:
        UsageError: the file cannot be read, describes no model that is understood, or has mistakes: all of them.
    """
    config = read_json(path)
    nested = config.get("text_config")
    keys = _Keys(path, nested if isinstance(nested, dict) else config)
    if "kv_lora_rank" in keys.config:
        raise UsageError(
            f"{path}: kv_lora_rank: multi-head latent attention (DeepSeek V2, V3, Kimi K2) keeps its KV cache in "
            "another form, which is not supported"
        )
    kinds = keys.config.get("layer_types")
    if odd := sorted({str(kind) for kind in kinds} - _FULL if isinstance(kinds, list) else ()):
        raise UsageError(f"{path}: layer_types: layers of {', '.join(odd)} keep no KV cache per token; not supported")
    shape = _counted(keys, parameters)
    keys.finish()
    return shape if parameters is None else _stated(shape, parameters)


def read_json(path: Path) -> Mapping[str, Any]:
    """A file that holds one JSON object.

    Raises:
        UsageError: it cannot be read or holds something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {system_reason(error)}") from error
    except ValueError as error:  # no JSON, or no UTF-8
        raise UsageError(f"{path}: is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path}: expected a JSON object, found {type(found).__name__}")
    return found


@dataclass(slots=True)
class _Keys:
    """Whole numbers by name, and what is wrong with them."""

    source: Path
    config: Mapping[str, Any]
    missing: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def whole(self, name: str, default: int | None = None) -> int:
        value = self.config.get(name)  # null is Hugging Face's word for "the default"
        if value is None and default is None:
            self.missing.append(name)
        elif value is None:
            return default or 0
        elif isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
            self.wrong.append(f"{self.source}: {name}: expected a whole number from 1 to {LARGEST:,}, found {value!r}")
        else:
            return value
        return 1

    def finish(self) -> None:
        if self.missing:
            names = ", ".join(self.missing)
            self.wrong.insert(
                0, f"{self.source}: missing: {names}; the config.json of a decoder on Hugging Face has them"
            )
        if self.wrong:
            raise UsageError("\n".join(self.wrong))


def _counted(keys: _Keys, parameters: float | None) -> Shape:
    layers, hidden = keys.whole("num_hidden_layers"), keys.whole("hidden_size")
    heads = keys.whole("num_attention_heads")
    kv_heads, head_size = keys.whole("num_key_value_heads", heads), keys.whole("head_dim", max(1, hidden // heads))
    table = keys.whole("vocab_size") * hidden
    tied = keys.config.get("tie_word_embeddings", True)  # left out of the file where it is the library's default
    shape = Shape(
        layers,
        heads,
        kv_heads,
        head_size,
        parameters=0.0,
        vocabulary=table * (1 if tied else 2),
        looked_up=0 if tied else table,
        experts=_experts(keys, layers, hidden),
    )
    attention = 2 * hidden * head_size * (heads + kv_heads)  # queries and output, keys and values
    mlp = _mlp(keys, layers, hidden, parameters) + (
        shape.experts.count * shape.experts.parameters if shape.experts else 0
    )
    return replace(shape, parameters=shape.vocabulary + layers * attention + mlp)


def _mlp(keys: _Keys, layers: int, hidden: int, parameters: float | None) -> float:
    """The MLPs that every token passes through: of all layers, or shared beside the experts."""
    kind = str(keys.config.get("model_type"))
    if kind in MIXTURES:
        return 3 * hidden * layers * keys.whole("shared_expert_intermediate_size", 0)
    if kind not in DENSE and parameters is None:
        keys.wrong.append(
            f"{keys.source}: model_type: the parameters of {kind!r} cannot be counted; add --parameters (known: "
            f"{', '.join(sorted(DENSE | MIXTURES.keys()))})"
        )
        return 0.0
    return 0.0 if parameters is not None else 3 * hidden * layers * keys.whole("intermediate_size")


def _experts(keys: _Keys, layers: int, hidden: int) -> Experts | None:
    kind = str(keys.config.get("model_type"))
    if kind not in MIXTURES:
        if found := sorted({"num_experts", "num_local_experts", "n_routed_experts"} & keys.config.keys()):
            keys.wrong.append(
                f"{keys.source}: {found[0]}: the experts of model_type {kind!r} are not supported; known: "
                f"{', '.join(MIXTURES)}"
            )
        return None
    count, active = keys.whole(MIXTURES[kind]), keys.whole("num_experts_per_tok")
    if active > count:
        keys.wrong.append(f"{keys.source}: num_experts_per_tok: {active} is more than the {count} experts")
    if keys.config.get("mlp_only_layers") or keys.whole("decoder_sparse_step", 1) != 1:
        keys.wrong.append(f"{keys.source}: experts in some layers only are not supported")
    width = keys.whole("intermediate_size" if kind == "mixtral" else "moe_intermediate_size")
    return Experts(count, active, 3.0 * hidden * width * layers)


def _stated(shape: Shape, parameters: float) -> Shape:
    known = shape.vocabulary + (shape.experts.count * shape.experts.parameters if shape.experts else 0)
    if parameters <= known:
        raise UsageError(
            f"--parameters: {parameters:g} is less than embedding, head and experts have, which are {known:g}"
        )
    return replace(shape, parameters=parameters)
