"""Flags that change the cost of a step or the memory of the KV cache, such as quantization and CUDA graphs."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum

from compose.simulator.errors import EngineFlagsError
from compose.simulator.presets.preset import BF16_BYTES, BLOCK_SIZE, Preset
from compose.simulator.presets.speculative_config import speculative
from exporters.text.yaml_reader import nearest

QUANTIZED_WEIGHTS = {"awq": 0.30, "awq_marlin": 0.30, "gptq": 0.30, "gptq_marlin": 0.30, "fp8": 0.53}
"""Bytes of a 16-bit model's weights that remain: 4 bits and a scale for each group of 128 weights, or 8 bits.

The output layer, 6 % of the weights that a step reads, keeps 16 bits, as in the published checkpoints of Qwen2.5-14B.
"""
DEQUANTIZED = ("awq",)
"""Methods whose kernel writes the weights as 16 bits and reads them back in each step.

vLLM's awq.py does so for 256 tokens or more (its issue 2268); for fewer tokens the same cost is assumed.
"""


FP8_KV_CACHES = ("fp8", "fp8_e4m3")
_FP8_CAPABILITY = (8, 9)
"""The least compute capability with FP8 arithmetic, without which vLLM refuses to start (its issue 47549)."""


class Variant(StrEnum):
    """The flags, with vLLM's names, in the order in which they apply."""

    KV_CACHE_DTYPE = "kv_cache_dtype"
    QUANTIZATION = "quantization"
    ENFORCE_EAGER = "enforce_eager"
    GPU_MEMORY_UTILIZATION = "gpu_memory_utilization"
    SPECULATIVE_CONFIG = "speculative_config"


def vary(preset: Preset, changes: Mapping[Variant, str]) -> Preset:
    """The preset under these flags; memory that the weights no longer need goes to the KV cache.

    Raises:
        EngineFlagsError: every mistake in the changes.
    """
    mistakes: list[str] = []
    for flag in (flag for flag in Variant if flag in changes):
        try:
            preset = _varied(preset, flag, changes[flag])
        except EngineFlagsError as error:
            mistakes += error.mistakes
    if mistakes:
        raise EngineFlagsError(mistakes)
    return preset


def _varied(preset: Preset, flag: Variant, value: str) -> Preset:
    block_bytes = preset.kv_bytes_per_token * BLOCK_SIZE
    match flag:
        case Variant.KV_CACHE_DTYPE:
            return _with_kv_cache(preset, value)
        case Variant.QUANTIZATION if value in QUANTIZED_WEIGHTS:
            weights = preset.weight_bytes * QUANTIZED_WEIGHTS[value]
            return replace(
                preset,
                num_gpu_blocks=preset.num_gpu_blocks + round((preset.weight_bytes - weights) / block_bytes),
                weight_bytes=weights + (2 * preset.weight_bytes if value in DEQUANTIZED else 0.0),
            )
        case Variant.QUANTIZATION:
            raise EngineFlagsError([f"{flag}: {value!r} is not simulated; {nearest(value, QUANTIZED_WEIGHTS)}"])
        case Variant.ENFORCE_EAGER if value in {"true", "false"}:
            eager = preset.eager_seconds if value == "true" else 0.0
            return replace(preset, overhead_seconds=preset.overhead_seconds + eager)
        case Variant.ENFORCE_EAGER:
            raise EngineFlagsError([f"{flag}: {value!r} is not true or false"])
        case Variant.GPU_MEMORY_UTILIZATION:
            share = _share(value)
            more = (share - preset.gpu_memory_utilization) * preset.memory_bytes
            blocks = preset.num_gpu_blocks + round(more / block_bytes)
            if blocks < 2:
                raise EngineFlagsError([f"{flag}: {value} leaves no memory for the KV cache; write a larger share"])
            return replace(preset, num_gpu_blocks=blocks, gpu_memory_utilization=share)
        case Variant.SPECULATIVE_CONFIG:
            return speculative(preset, value)


def _with_kv_cache(preset: Preset, dtype: str) -> Preset:
    """The same memory has twice the tokens in 8 bits; `auto` is what the preset has."""
    flag = Variant.KV_CACHE_DTYPE
    if dtype in {"auto", preset.kv_cache_dtype}:
        return preset
    if dtype not in FP8_KV_CACHES:
        raise EngineFlagsError([f"{flag}: {dtype!r} is not simulated; {nearest(dtype, ('auto', *FP8_KV_CACHES))}"])
    if preset.compute_capability < _FP8_CAPABILITY:
        have, need = (".".join(map(str, each)) for each in (preset.compute_capability, _FP8_CAPABILITY))
        gpu = f"{preset.gpu} (compute capability {have})"
        why = f"{dtype} is not supported on a {gpu}, as in vLLM: native FP8 needs {need} or newer; use auto"
        raise EngineFlagsError([f"{flag}: {why}"])
    if preset.kv_cache_dtype in FP8_KV_CACHES:  # the other name of the same format
        return replace(preset, kv_cache_dtype=dtype)
    return replace(
        preset,
        kv_cache_dtype=dtype,
        kv_bytes_per_token=preset.kv_bytes_per_token / BF16_BYTES,
        num_gpu_blocks=preset.num_gpu_blocks * BF16_BYTES,
    )


def _share(text: str) -> float:
    with suppress(ValueError):
        if 0 < (value := float(text)) <= 1:
            return value
    flag = Variant.GPU_MEMORY_UTILIZATION
    raise EngineFlagsError([f"{flag}: {text!r} is not a share; write a number above 0 and up to 1, such as 0.9"])
