"""The engine's flags: which there are, which values make sense together, and how a running engine's are changed."""

import difflib
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from compose.simulator.presets import BLOCK_SIZE, Preset

VERSION = "0.33.0+simulated"
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The flags, named as vLLM names them."""

    max_num_seqs: int
    max_num_batched_tokens: int
    num_gpu_blocks: int
    block_size: int
    max_model_len: int
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    seed: int

    @property
    def kv_tokens(self) -> int:
        """Tokens that requests can hold: vLLM keeps block 0 for itself."""
        return (self.num_gpu_blocks - 1) * self.block_size

    def fingerprint(self) -> str:
        """The end of `system_fingerprint`: as in vLLM, prefix caching, KV size and seed do not show in it."""
        seen = {
            name: value
            for name, value in asdict(self).items()
            if name not in {"enable_prefix_caching", "num_gpu_blocks", "seed"}
        }
        return hashlib.sha256(repr(sorted(seen.items())).encode()).hexdigest()[:8]


NAMES: tuple[str, ...] = tuple(field.name for field in fields(Settings))
SWITCHES = frozenset({"enable_prefix_caching", "enable_chunked_prefill"})


class SettingsError(Exception):
    """Every mistake in a set of changes, one text each."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = mistakes


def of_preset(preset: Preset) -> Settings:
    """The preset's flags, and vLLM's defaults where it has no say."""
    return Settings(
        max_num_seqs=preset.max_num_seqs,
        max_num_batched_tokens=preset.max_num_batched_tokens,
        num_gpu_blocks=preset.num_gpu_blocks,
        block_size=BLOCK_SIZE,
        max_model_len=preset.max_model_len,
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        seed=0,
    )


def change(settings: Settings, changes: Any) -> Settings:
    """`settings` with `changes`, a mapping from names to values, or all that is wrong with them."""
    if not isinstance(changes, Mapping):
        raise SettingsError([f"settings come as an object of names and values, not as {changes!r}"])
    mistakes: list[str] = []
    good: dict[str, int | bool] = {}
    for name, value in changes.items():
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            mistakes.append(f"{name}: no such setting; " + (f"did you mean {near[0]}" if near else _known()))
            continue
        checked = _switch(value) if name in SWITCHES else _count(value, least=0 if name == "seed" else 1)
        if checked is None:
            wanted = "true or false" if name in SWITCHES else "a whole number from " + ("0" if name == "seed" else "1")
            mistakes.append(f"{name}: {value!r} is not {wanted}")
        else:
            good[name] = checked
    changed = replace(settings, **good)  # type: ignore[arg-type]  # each value was checked for its own field
    mistakes += _contradictions(changed)
    if mistakes:
        raise SettingsError(mistakes)
    return changed


def _known() -> str:
    return "there are " + ", ".join(NAMES)


def _switch(value: Any) -> bool | None:
    if isinstance(value, str):
        return _TRUTH.get(value.lower())
    return value if isinstance(value, bool) else None


def _count(value: Any, *, least: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= least else None


def _contradictions(settings: Settings) -> list[str]:
    """What vLLM refuses at start: each would leave a request that can never be scheduled."""
    mistakes = []
    if settings.kv_tokens < settings.max_model_len:
        needed = -(-settings.max_model_len // settings.block_size) + 1
        mistakes.append(
            f"num_gpu_blocks: {settings.num_gpu_blocks} blocks of {settings.block_size} tokens hold less than one "
            f"request of max_model_len {settings.max_model_len}; take at least {needed} blocks, "
            f"or a max_model_len of {settings.kv_tokens} at most"
        )
    if not settings.enable_chunked_prefill and settings.max_num_batched_tokens < settings.max_model_len:
        mistakes.append(
            f"max_num_batched_tokens: without chunked prefill a prompt must fit one step, so "
            f"{settings.max_num_batched_tokens} must be at least max_model_len {settings.max_model_len}"
        )
    if settings.max_num_batched_tokens < settings.max_num_seqs:
        mistakes.append(
            f"max_num_batched_tokens: {settings.max_num_batched_tokens} is less than max_num_seqs "
            f"{settings.max_num_seqs}, so a full batch could not decode in one step"
        )
    return mistakes
