"""Reads the settings that an engine's JSON pages show, each under one name and in one spelling."""

from collections.abc import Iterator, Mapping
from typing import Any

from exporters.engines.normalisation import NON_SETTINGS

MAX_VALUE_LENGTH = 200
"""Characters of a value that become a label; a chat template is cut."""

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
"""Sections of vLLM's configuration whose keys are flags, and which keys: the others are addresses and caches."""

_PREFIXED_SECTIONS = frozenset({"attention_config", "lora_config", "speculative_config"})
"""Sections whose keys have another meaning elsewhere: a draft model is a model too."""

_FLAG_NAMES = {"policy": "scheduling_policy"}

_NON_FLAGS = NON_SETTINGS | {"served_model_name"}
"""The server info has only the first of several served names."""

_SECRET_SUFFIXES = ("token", "key", "secret", "password")
_PROCESS_SUFFIXES = ("port", "rank", "local")
_CHOICE_SUFFIXES = (
    *("backend", "format", "layout", "method", "mode", "policy", "precision", "quantization", "strategy", "type"),
)
"""Suffixes of variables whose text is one of a few choices; other texts are names and paths, some new at each start."""


def models_settings(page: Any) -> dict[str, str]:
    """The settings of /v1/models, without adapters, which are loaded and unloaded while the engine runs.

    Raises:
        KeyError, TypeError, AttributeError: the page has another shape.
    """
    models = [model for model in page["data"] if model.get("parent") is None]
    settings = {
        "served_model_name": [str(model["id"]) for model in models],
        "model": [str(model["root"]) for model in models if model.get("root")],
        "max_model_len": [str(model["max_model_len"]) for model in models if model.get("max_model_len")],
    }
    return {name: ",".join(sorted(set(values)))[:MAX_VALUE_LENGTH] for name, values in settings.items() if values}


def server_info_settings(page: Any) -> dict[str, str]:
    """The settings of vLLM's /server_info?config_format=json; older versions show only the environment as JSON.

    Raises:
        KeyError, TypeError, AttributeError: the page has another shape.
    """
    settings: dict[str, str] = {}
    config, environment = page["vllm_config"], page.get("vllm_env")
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
    """Whether somebody chose the value; one that differs at each start would make each restart a config change."""
    if isinstance(value, str):
        return _has_suffix(variable, _CHOICE_SUFFIXES)
    return isinstance(value, int | float) and not _has_suffix(variable, _PROCESS_SUFFIXES)


def _has_suffix(name: str, suffixes: tuple[str, ...]) -> bool:
    return name.lower().rpartition("_")[2] in suffixes
