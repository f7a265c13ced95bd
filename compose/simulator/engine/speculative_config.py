"""vLLM's `--speculative-config`, a JSON object, as the simulator applies it."""

from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Annotated

from compose.simulator.engine.flags import EngineFlagsError
from compose.simulator.engine.presets import BLOCK_SIZE, PRESETS, Preset
from compose.simulator.engine.speculative_decoding import DraftModel, Speculation, independent
from exporters.text.yaml_keys import COUNT, TEXT, Kind, choice, list_of, read
from exporters.text.yaml_reader import FileError, Node, nearest, parse_yaml

ACCEPTANCE = 0.7
"""Assumed probability that a draft token is accepted."""
_FLAG = "speculative_config"


class Method(StrEnum):
    """The methods that are simulated, with vLLM's names."""

    NGRAM = "ngram"
    DRAFT_MODEL = "draft_model"


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


def _models() -> dict[str, Preset]:
    """The presets by model; those of the same model differ in the GPU only."""
    return {preset.model: preset for preset in PRESETS.values()}


def _check(keys: _Keys, node: Node) -> None:
    """Check what concerns several keys."""
    nodes, rates = node.mapping(), keys.synthetic_acceptance_rates
    if keys.method is Method.DRAFT_MODEL and keys.model not in _models():
        known = nearest(keys.model or "", _models())
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
