"""The simulator's flags and preset for a configuration of an experiment."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from compose.experiments.setup.experiment_file import Engine, Experiment
from compose.simulator.engine.cache_config import cache_config
from compose.simulator.engine.flags import NAMES, SWITCHES, EngineFlags, apply_changes, preset_flags
from compose.simulator.errors import EngineFlagsError
from compose.simulator.presets.preset import DEFAULT_PRESET, PRESETS, Preset
from compose.simulator.presets.variants import Variant, vary
from exporters.text.errors import UsageError
from exporters.text.yaml_reader import nearest


def simulated(engine: Engine) -> tuple[Preset, EngineFlags]:
    """The preset and the flags of a configuration.

    Raises:
        EngineFlagsError: every mistake.
    """
    name = engine.preset or DEFAULT_PRESET
    if name not in PRESETS:
        raise EngineFlagsError([f"preset: {name!r} is unknown; {nearest(name, PRESETS)}"])
    return varied(PRESETS[name], {flag.replace("-", "_"): value for flag, value in (engine.flags or {}).items()})


def varied(preset: Preset, changes: Mapping[str, str]) -> tuple[Preset, EngineFlags]:
    """The preset and the flags under these settings, by vLLM's names with `_`.

    Raises:
        EngineFlagsError: every mistake.
    """
    mistakes: list[str] = []
    try:
        preset = vary(preset, {Variant(flag): value for flag, value in changes.items() if flag in set(Variant)})
    except EngineFlagsError as error:
        mistakes += error.mistakes
    try:
        rest = {flag: _value(flag, value) for flag, value in changes.items() if flag not in set(Variant)}
        flags = apply_changes(preset_flags(preset), rest)
    except EngineFlagsError as error:
        mistakes += error.mistakes
    if mistakes:
        raise EngineFlagsError(mistakes)
    return preset, flags


def check(experiment: Experiment) -> None:
    """Check that the simulator accepts every configuration.

    Raises:
        UsageError: every mistake.
    """
    mistakes: list[str] = []
    for name, engine in experiment.configurations.items():
        try:
            simulated(engine)
        except EngineFlagsError as error:
            mistakes += [f"configurations.{name}: {mistake}" for mistake in error.mistakes]
    if mistakes:
        raise UsageError("\n".join(mistakes))


def settings(preset: Preset, flags: EngineFlags) -> dict[str, str]:
    """What the simulator reports of its settings."""
    return cache_config(flags, preset) | {name: str(value) for name, value in asdict(flags).items()}


def _value(flag: str, text: str) -> Any:
    if flag in NAMES and flag not in SWITCHES and text.isdecimal():
        return int(text)
    return text
