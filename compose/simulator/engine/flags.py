"""The flags of the simulated engine, changes to them, and the combinations that vLLM rejects."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any

from compose.simulator.errors import EngineFlagsError
from compose.simulator.presets.preset import BLOCK_SIZE, Preset
from exporters.text.yaml_reader import nearest


class SchedulingPolicy(StrEnum):
    """The order of waiting requests, and which running one is preempted: the last, or that of the lowest priority."""

    FCFS = "fcfs"
    PRIORITY = "priority"


VERSION = "0.33.0+simulated"
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlags:
    """The flags, with vLLM's names.

    The last three are of the simulator: a cache of whole responses in front of the engine, and an outage, in seconds
    after the first start. Without `outage_seconds` there is none.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    num_gpu_blocks: int
    block_size: int
    max_model_len: int
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    seed: int
    scheduler_reserve_full_isl: bool = True
    scheduling_policy: SchedulingPolicy = SchedulingPolicy.FCFS
    response_cache: bool = False
    outage_after: int = 0
    outage_seconds: int = 0

    @property
    def kv_tokens(self) -> int:
        """Tokens that requests can use; vLLM reserves block 0."""
        return (self.num_gpu_blocks - 1) * self.block_size

    def fingerprint(self) -> str:
        """The last part of `system_fingerprint`; as in vLLM, it excludes prefix caching, KV cache size and seed."""
        visible = {
            name: value for name, value in asdict(self).items() if name not in {*_NOT_IN_FINGERPRINT, *_NOT_OF_VLLM}
        }
        return hashlib.sha256(repr(sorted(visible.items())).encode()).hexdigest()[:8]


NAMES: tuple[str, ...] = tuple(field.name for field in fields(EngineFlags))
SWITCHES = frozenset(field.name for field in fields(EngineFlags) if field.type is bool)
POLICY = "scheduling_policy"
_NOT_IN_FINGERPRINT = frozenset(
    {"enable_prefix_caching", "num_gpu_blocks", "seed", "scheduler_reserve_full_isl", POLICY}
)
_NOT_OF_VLLM = frozenset({"response_cache", "outage_after", "outage_seconds"})
_FROM_ZERO = frozenset({"seed", "outage_after", "outage_seconds"})


def preset_flags(preset: Preset) -> EngineFlags:
    """The preset's flags, with vLLM's defaults for the others."""
    return EngineFlags(
        max_num_seqs=preset.max_num_seqs,
        max_num_batched_tokens=preset.max_num_batched_tokens,
        num_gpu_blocks=preset.num_gpu_blocks,
        block_size=BLOCK_SIZE,
        max_model_len=preset.max_model_len,
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        seed=0,
    )


def apply_changes(flags: EngineFlags, changes: Any) -> EngineFlags:
    """`flags` with `changes`, a mapping from names to values.

    Raises:
        EngineFlagsError: every mistake in the changes.
    """
    if not isinstance(changes, Mapping):
        raise EngineFlagsError([f"expected an object of settings, found {changes!r}"])
    mistakes: list[str] = []
    values: dict[str, int | bool | SchedulingPolicy] = {}
    for name, value in changes.items():
        if name not in NAMES:
            mistakes.append(f"{name}: unknown setting; {nearest(name, NAMES)}")
            continue
        if name == POLICY:
            if value in set(SchedulingPolicy):
                values[name] = SchedulingPolicy(value)
            else:
                mistakes.append(f"{name}: {value!r} is unknown; {nearest(str(value), SchedulingPolicy)}")
            continue
        least = 0 if name in _FROM_ZERO else 1
        checked = _switch(value) if name in SWITCHES else _count(value, least=least)
        if checked is None:
            wanted = "true or false" if name in SWITCHES else f"a whole number from {least}"
            mistakes.append(f"{name}: {value!r} is not {wanted}")
        else:
            values[name] = checked
    changed = replace(flags, **values)  # type: ignore[arg-type]  # each value was checked for its own field
    mistakes += _contradictions(changed)
    if mistakes:
        raise EngineFlagsError(mistakes)
    return changed


def _switch(value: Any) -> bool | None:
    if isinstance(value, str):
        return _BOOLEANS.get(value.lower())
    return value if isinstance(value, bool) else None


def _count(value: Any, *, least: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= least else None


def _contradictions(flags: EngineFlags) -> list[str]:
    """The combinations that vLLM rejects at start, because some requests could never be scheduled."""
    mistakes = []
    if flags.kv_tokens < flags.max_model_len:
        needed = -(-flags.max_model_len // flags.block_size) + 1
        mistakes.append(
            f"num_gpu_blocks: {flags.num_gpu_blocks} blocks of {flags.block_size} tokens are too few for one request "
            f"of max_model_len {flags.max_model_len}; use {needed} blocks or more, or a max_model_len of "
            f"{flags.kv_tokens} or less"
        )
    if not flags.enable_chunked_prefill and flags.max_num_batched_tokens < flags.max_model_len:
        mistakes.append(
            f"max_num_batched_tokens: {flags.max_num_batched_tokens} is less than max_model_len "
            f"{flags.max_model_len}, so without chunked prefill a long prompt would never be scheduled"
        )
    if flags.max_num_batched_tokens < flags.max_num_seqs:
        mistakes.append(
            f"max_num_batched_tokens: {flags.max_num_batched_tokens} is less than max_num_seqs "
            f"{flags.max_num_seqs}, so a full batch cannot decode in one step"
        )
    return mistakes
