"""What the pages of an engine tell of its settings, each under one name and in one spelling."""

from collections.abc import Iterator, Mapping
from typing import Any

from exporters.engines.normalisation import NOT_SETTINGS

LONGEST = 200
"""Characters of a value that become a label; a chat template is not shown whole."""

# Sections of vLLM's configuration whose keys are its flags; of the last ones only what somebody sets, as they hold
# addresses and caches of this start too.
_FLAGS: dict[str, tuple[str, ...] | None] = {
    "cache_config": None,
    "model_config": None,
    "scheduler_config": None,
    "parallel_config": (
        *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel"),
        *("enable_eplb", "enable_dbo", "disable_custom_all_reduce"),
    ),
    "load_config": ("load_format",),
}
_PREFIXED = frozenset({"attention_config", "lora_config", "speculative_config"})
"""Sections whose keys mean something else elsewhere: a draft model is a model too."""

_AS_FLAG = {"policy": "scheduling_policy"}

_NOT_FLAGS = NOT_SETTINGS | {"served_model_name"}
"""Of several served names only the first is there."""

_SECRET = ("token", "key", "secret", "password")
_OF_THIS_START = ("port", "rank", "local")
_WORDS = ("backend", "format", "layout", "method", "mode", "policy", "precision", "quantization", "strategy", "type")
"""How variables end whose values are words to choose from; others are names and paths, some made anew at each start."""


def of_models(told: Any) -> dict[str, str]:
    """Of /v1/models: what is served, but not the adapters, which come and go while the engine runs.

    Raises:
        KeyError, TypeError, AttributeError: it has another shape.
    """
    served = [model for model in told["data"] if model.get("parent") is None]
    values = {
        "served_model_name": [str(model["id"]) for model in served],
        "model": [str(model["root"]) for model in served if model.get("root")],
        "max_model_len": [str(model["max_model_len"]) for model in served if model.get("max_model_len")],
    }
    return {name: ",".join(sorted(set(found)))[:LONGEST] for name, found in values.items() if found}


def of_server_info(told: Any) -> dict[str, str]:
    """Of vLLM's /server_info?config_format=json, there with VLLM_SERVER_DEV_MODE=1; older ones tell no JSON.

    Raises:
        KeyError, TypeError, AttributeError: it has another shape.
    """
    found: dict[str, str] = {}
    config, environment = told["vllm_config"], told.get("vllm_env")
    if isinstance(config, Mapping):
        for section, values in config.items():
            if isinstance(values, Mapping):
                found.update(_of_section(section, values))
    if isinstance(environment, Mapping):
        found.update((name, str(value)) for name, value in environment.items() if _is_set_by_somebody(name, value))
    return {name: value[:LONGEST] for name, value in found.items()}


def _of_section(section: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    wanted = _FLAGS.get(section) or tuple(values)
    for key, value in values.items():
        if isinstance(value, dict) or _ends_in(key, _SECRET):
            continue
        if section in _FLAGS and key in wanted and key not in _NOT_FLAGS:
            yield _AS_FLAG.get(key, key), str(value)
        elif section in _PREFIXED:
            yield f"{section}.{key}", str(value)


def _is_set_by_somebody(name: str, value: Any) -> bool:
    """Not what differs from start to start by itself: each restart would look like a flip."""
    if isinstance(value, str):
        return _ends_in(name, _WORDS)
    return isinstance(value, int | float) and not _ends_in(name, _OF_THIS_START)


def _ends_in(name: str, words: tuple[str, ...]) -> bool:
    return name.lower().rpartition("_")[2] in words
