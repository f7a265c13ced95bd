"""The floor of TPOT by memory bandwidth, for the simulator, whose GPU and model are known."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from compose.experiments.cells.engine_program import SIMULATOR
from compose.experiments.cells.simulated_engine import simulated
from compose.experiments.report.groups import Experiment, Group
from compose.experiments.setup.cell_store import Configuration, EngineReading
from compose.experiments.setup.experiment_file import Engine
from compose.simulator.errors import EngineFlagsError
from compose.simulator.presets.preset import Preset


@dataclass(frozen=True, slots=True)
class Floor:
    """The least time of a step, in seconds: reading the weights, and the mean KV cache in use.

    A prefix that several requests share is in use once, and each of them reads it, so the floor may be lower than
    possible. `tokens` is the mean of output tokens for each request and step, more than 1 with speculative decoding.
    """

    group: Group
    weights: float
    cache: float
    tokens: float

    @property
    def tpot(self) -> float:
        """Seconds per output token."""
        return (self.weights + self.cache) / self.tokens


def floors(experiment: Experiment) -> Iterator[Floor]:
    """One for each group with figures whose preset is known and whose engine reports its KV cache."""
    presets = {each.name: _preset(each) for each in experiment.record.configurations}
    if experiment.record.engine != SIMULATOR:  # another engine runs on another GPU, perhaps with another model
        return
    for group in experiment:
        preset, readings = presets[group.configuration], [repeat.engine for repeat in group.repeats]
        contexts = [found for each in readings if (found := _context(each)) is not None]
        if preset is None or not contexts:
            continue
        weights = preset.tpot_floor(0)
        yield Floor(group, weights, preset.tpot_floor(fmean(contexts)) - weights, _tokens_per_step(readings))


def _preset(configuration: Configuration) -> Preset | None:
    """The preset under the flags of a configuration; None if it is not named, or a flag is not simulated."""
    if configuration.preset is None:
        return None
    try:
        return simulated(Engine(preset=configuration.preset, flags=configuration.flags))[0]
    except EngineFlagsError:
        return None


def _context(engine: EngineReading) -> float | None:
    """The mean number of tokens in the KV cache in use."""
    if engine.kv_usage_mean is None or engine.kv_capacity_tokens is None:
        return None
    return engine.kv_usage_mean * engine.kv_capacity_tokens


def _tokens_per_step(readings: list[EngineReading]) -> float:
    drafts = sum(each.drafts or 0 for each in readings)
    return 1 + sum(each.accepted_draft_tokens or 0 for each in readings) / drafts if drafts else 1.0
