"""vLLM's `--speculative-config`, a JSON object, as the simulator applies it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Annotated

from compose.simulator.errors import EngineFlagsError
from compose.simulator.presets.preset import BF16_BYTES, BLOCK_SIZE, PRESETS, Preset
from compose.simulator.presets.speculative_decoding import DraftModel, Speculation, independent
from exporters.text.yaml_keys import COUNT, TEXT, Kind, choice, list_of, read
from exporters.text.yaml_reader import FileError, Node, nearest, parse_yaml

ACCEPTANCE = 0.7
"""Assumed probability that a draft token is accepted."""
_FLAG = "speculative_config"


class Method(StrEnum):
    """The methods that are simulated, with vLLM's names."""

    NGRAM = "ngram"
    DRAFT_MODEL = "draft_model"
    EAGLE3 = "eagle3"


@dataclass(frozen=True, slots=True)
class Eagle3Head:
    """The sizes of a draft head of one layer, which reads the hidden states of three layers of its model."""

    targets: tuple[str, ...]
    """The presets' models with these hidden states."""
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    draft_vocabulary: int

    @property
    def parameters(self) -> float:
        """Attention reads a token and its hidden state side by side; the embedding is that of the model.

        Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large Language Models" (2025), section 3.
        """
        attention = 2 * self.hidden * self.head_size * (self.heads + 2 * self.kv_heads)
        output = self.head_size * self.heads * self.hidden
        return attention + output + self.hidden * (3 * self.intermediate + 3 * self.hidden + self.draft_vocabulary)


EAGLE3_HEADS = {
    # Sizes of Llama 3.1 and 3.3 70B; 32,000 of its 128,256 tokens can be drafted.
    "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B": Eagle3Head(
        ("nvidia/Llama-3.1-70B-Instruct-FP8",), 8192, 28672, 64, 8, 128, 32000
    ),
}


class RejectionSampling(StrEnum):
    """How vLLM decides about a draft token; `synthetic` accepts as many as `synthetic_acceptance_rates` says."""

    STANDARD = "standard"
    SYNTHETIC = "synthetic"


def _share(node: Node) -> float | None:
    value = node.number(least=0)
    if value is not None and value > 1:
        node.problem(f"{value:g} is above 1; write a share")
        return None
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keys:
    """The keys that are known; `prompt_lookup_*` change nothing, because each request gets a draft in each step."""

    method: Annotated[Method, choice(Method)] = Method.DRAFT_MODEL
    num_speculative_tokens: Annotated[int, COUNT]
    model: Annotated[str | None, TEXT] = None
    prompt_lookup_max: Annotated[int | None, COUNT] = None
    prompt_lookup_min: Annotated[int | None, COUNT] = None
    rejection_sample_method: Annotated[RejectionSampling, choice(RejectionSampling)] = RejectionSampling.STANDARD
    synthetic_acceptance_rates: Annotated[tuple[float, ...], list_of(Kind(_share, {}))] = ()


def speculative(preset: Preset, text: str) -> Preset:
    """The preset with speculative decoding; the weights and the KV cache of a draft model take memory.

    Raises:
        EngineFlagsError: every mistake in the JSON object.
    """
    try:
        reader = parse_yaml(text, _FLAG)  # YAML contains JSON
        keys = read(_Keys, reader.node())
        if not reader.problems:
            _check(keys, reader.node())
        reader.finish()
    except FileError as error:
        parts = ((_FLAG, problem.path, problem.text) for problem in error.problems)
        raise EngineFlagsError([": ".join(filter(None, each)) for each in parts]) from error
    rates = keys.synthetic_acceptance_rates or independent(ACCEPTANCE, keys.num_speculative_tokens)
    if keys.method is Method.NGRAM or keys.model is None:
        return replace(preset, speculation=Speculation(rates=rates))
    if keys.method is Method.EAGLE3:
        draft = _eagle3(preset, keys.model)
    else:
        model = _models()[keys.model]
        draft = DraftModel(
            weight_bytes=model.weight_bytes,
            kv_bytes_per_token=model.kv_bytes_per_token,
            flop_per_token=model.flop_per_token,
        )
    memory = preset.num_gpu_blocks * BLOCK_SIZE * preset.kv_bytes_per_token - draft.weight_bytes
    blocks = int(memory // (BLOCK_SIZE * (preset.kv_bytes_per_token + draft.kv_bytes_per_token)))
    if blocks < 2:
        raise EngineFlagsError([f"{_FLAG}: {keys.model} leaves no memory for the KV cache; use a smaller draft model"])
    return replace(preset, speculation=Speculation(rates=rates, draft=draft), num_gpu_blocks=blocks)


def _eagle3(preset: Preset, head: str) -> DraftModel:
    """The head with 16-bit weights and the number format of the model's KV cache.

    Raises:
        EngineFlagsError: the head belongs to another model.
    """
    sizes = EAGLE3_HEADS[head]
    if preset.model not in sizes.targets:
        raise EngineFlagsError(
            [f"{_FLAG}: model: {head} drafts for {' or '.join(sizes.targets)}, not for {preset.model}; use ngram"]
        )
    kv_width = BF16_BYTES if preset.kv_cache_dtype == "auto" else 1
    return DraftModel(
        weight_bytes=BF16_BYTES * sizes.parameters,
        kv_bytes_per_token=2 * sizes.kv_heads * sizes.head_size * kv_width,
        flop_per_token=2 * sizes.parameters,
    )


def _models() -> dict[str, Preset]:
    """The presets by model; those of the same model differ in the GPU only."""
    return {preset.model: preset for preset in PRESETS.values()}


def _check(keys: _Keys, node: Node) -> None:
    """Check what concerns several keys."""
    nodes, rates = node.mapping(), keys.synthetic_acceptance_rates
    sizes: Mapping[str, object] = EAGLE3_HEADS if keys.method is Method.EAGLE3 else _models()
    if keys.method is not Method.NGRAM and keys.model not in sizes:
        known = nearest(keys.model or "", sizes)
        nodes.get("model", node).problem(f"the size of {keys.model or 'the draft model'} is unknown; {known}")
    if (keys.rejection_sample_method is RejectionSampling.SYNTHETIC) is not bool(rates):
        node.problem("rejection_sample_method: synthetic and synthetic_acceptance_rates need each other; write both")
    elif rates and len(rates) != keys.num_speculative_tokens:
        nodes["synthetic_acceptance_rates"].problem(
            f"has {len(rates)} rates for {keys.num_speculative_tokens} tokens; write one for each"
        )
    elif any(later > earlier for earlier, later in pairwise(rates)):
        nodes["synthetic_acceptance_rates"].problem(
            "rises; each rate is the share of drafts whose tokens up to its position are all accepted"
        )
