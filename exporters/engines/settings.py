"""Reads the settings in an engine's JSON responses, each with one name and one spelling."""

from collections.abc import Iterator, Mapping
from typing import Any

from exporters.engines.normalisation import NON_SETTINGS

SERVER_INFO = "/server_info?config_format=json"
"""Served with VLLM_SERVER_DEV_MODE=1; vLLM collects its environment for some seconds before the first response."""

MAX_VALUE_LENGTH = 200
"""Characters of a label value; longer values, such as chat templates, are truncated."""

_FLAG_SECTIONS: dict[str, tuple[str, ...] | None] = {
    "cache_config": None,
    "model_config": None,
    "scheduler_config": None,
    "parallel_config": (
        *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel"),
        *("enable_eplb", "enable_dbo", "disable_custom_all_reduce"),
    ),
    "load_config": ("load_format",),
}
"""Sections of vLLM's configuration and their keys that are flags (None: all keys)."""

_PREFIXED_SECTIONS = frozenset({"attention_config", "lora_config", "speculative_config"})
"""Sections whose keys have another meaning in other sections, such as `model`, here the draft model."""

_FLAG_NAMES = {"policy": "scheduling_policy"}

_NON_FLAGS = NON_SETTINGS | {"served_model_name"}
"""/server_info has only the first of several served names."""

_SECRET_SUFFIXES = ("token", "key", "secret", "password")
_PROCESS_SUFFIXES = ("port", "rank", "local")
_CHOICE_SUFFIXES = (
    *("backend", "format", "layout", "method", "mode", "policy", "precision", "quantization", "strategy", "type"),
)
"""Suffixes of variables with a choice as value; other texts are names and paths, which may change at each start."""


def models_settings(body: Any) -> dict[str, str]:
    """The settings in a /v1/models response, without adapters, which requests load and unload.

    Raises:
        KeyError, TypeError, AttributeError: the response has another shape.
    """
    models = [model for model in body["data"] if model.get("parent") is None]
    settings = {
        "served_model_name": [str(model["id"]) for model in models],
        "model": [str(model["root"]) for model in models if model.get("root")],
        "max_model_len": [str(model["max_model_len"]) for model in models if model.get("max_model_len")],
    }
    return {name: ",".join(sorted(set(values)))[:MAX_VALUE_LENGTH] for name, values in settings.items() if values}


def server_info_settings(body: Any) -> dict[str, str]:
    """The settings in vLLM's /server_info?config_format=json; in old versions, only the environment is JSON.

    Raises:
        KeyError, TypeError, AttributeError: the response has another shape.
    """
    settings: dict[str, str] = {}
    config, environment = body["vllm_config"], body.get("vllm_env")
    if isinstance(config, Mapping):
        for section, values in config.items():
            if isinstance(values, Mapping):
                settings.update(_section_settings(section, values))
    if isinstance(environment, Mapping):
        settings.update((name, str(value)) for name, value in environment.items() if _is_setting(name, value))
    return {name: value[:MAX_VALUE_LENGTH] for name, value in settings.items()}


def _section_settings(section: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    flags = _FLAG_SECTIONS.get(section) or tuple(values)
    for key, value in values.items():
        if isinstance(value, dict) or _has_suffix(key, _SECRET_SUFFIXES):
            continue
        if section in _FLAG_SECTIONS and key in flags and key not in _NON_FLAGS:
            yield _FLAG_NAMES.get(key, key), str(value)
        elif section in _PREFIXED_SECTIONS:
            yield f"{section}.{key}", str(value)


def _is_setting(variable: str, value: Any) -> bool:
    """Whether an operator chose the value; a value that differs at each start is not a setting."""
    if isinstance(value, str):
        return _has_suffix(variable, _CHOICE_SUFFIXES)
    return isinstance(value, int | float) and not _has_suffix(variable, _PROCESS_SUFFIXES)


def _has_suffix(name: str, suffixes: tuple[str, ...]) -> bool:
    return name.lower().rpartition("_")[2] in suffixes
