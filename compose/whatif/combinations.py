"""Combinations of settings: the engine's flags, the number of replicas, the GPU."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from compose.experiments.cells.simulated_engine import varied
from compose.experiments.setup.pools import Pool, Routing
from compose.simulator.engine.flags import NAMES, EngineFlags
from compose.simulator.errors import EngineFlagsError
from compose.simulator.presets.preset import Preset
from compose.simulator.presets.step_terms import preset_of
from compose.simulator.presets.variants import Variant
from compose.whatif.calibration import Speed
from exporters.analysis.roofline.formulas import Setup
from exporters.analysis.roofline.gpus import Gpu, find_gpu
from exporters.text.errors import UsageError
from exporters.text.yaml_reader import nearest

REPLICAS, ROUTING, GPU, TENSOR_PARALLEL = "replicas", "routing", "gpu", "tensor_parallel"
SETTINGS = (REPLICAS, ROUTING, GPU, TENSOR_PARALLEL, *NAMES, *Variant)
_OF_MODEL = (GPU, TENSOR_PARALLEL)


@dataclass(frozen=True, slots=True)
class Combination:
    """The engines of a pool, of one preset with these flags; `changes` are the settings that differ from the log's."""

    changes: Mapping[str, str]
    preset: Preset
    flags: EngineFlags
    pool: Pool
    gpus: int

    @property
    def name(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.changes.items()) or "as recorded"


@dataclass(frozen=True, slots=True)
class Base:
    """A preset by name, or the model and GPU from which it is calculated."""

    preset: Preset
    setup: Setup | None = None
    gpus: Sequence[Gpu] = ()
    speed: Speed = Speed()  # noqa: RUF009 - frozen


def parse_settings(flag: str, words: Iterable[str]) -> dict[str, list[str]]:
    """The values of `NAME=VALUE,VALUE` by setting, with vLLM's names.

    Raises:
        UsageError: every mistake.
    """
    found: dict[str, list[str]] = {}
    mistakes = []
    for word in words:
        name, separator, values = word.partition("=")
        setting = name.strip().lstrip("-").replace("-", "_")
        if not separator or not values:
            mistakes.append(f"{flag}: {word!r} has no value; write NAME=VALUE, such as max_num_seqs=64,128")
        elif setting not in SETTINGS:
            mistakes.append(f"{flag}: {setting!r} cannot be simulated; {nearest(setting, SETTINGS)}")
        else:
            found[setting] = [value.strip() for value in values.split(",")]
    if mistakes:
        raise UsageError("\n".join(mistakes))
    return found


def combinations(
    base: Base, recorded: Mapping[str, Sequence[str]], tried: Mapping[str, Sequence[str]]
) -> list[Combination]:
    """The recorded settings, then each combination of the tried ones, with the recorded settings for all others.

    Raises:
        UsageError: every mistake in the values.
    """
    settings = {name: values[0] for name, values in recorded.items()}
    choices = ({}, *(dict(zip(tried, values, strict=True)) for values in product(*tried.values())))
    mistakes: dict[str, None] = {}
    found: list[Combination] = []
    for changes in choices if tried else choices[:1]:
        try:
            found.append(_combination(base, settings, changes))
        except EngineFlagsError as error:
            mistakes |= dict.fromkeys(error.mistakes)
        except UsageError as error:
            mistakes |= dict.fromkeys(str(error).splitlines())
    if mistakes:
        raise UsageError("\n".join(mistakes))
    return found


def _combination(base: Base, recorded: Mapping[str, str], changes: Mapping[str, str]) -> Combination:
    settings = {**recorded, **changes}
    pool = Pool(replicas=_count(settings, REPLICAS), routing=_routing(settings))
    preset, gpus = base.preset, 1
    if base.setup is not None:
        setup = base.setup
        if GPU in settings:
            setup = replace(setup, gpu=find_gpu(settings[GPU], base.gpus))
        if TENSOR_PARALLEL in settings:
            setup = replace(setup, tensor_parallel=_count(settings, TENSOR_PARALLEL))
        preset, gpus = preset_of(setup, name=setup.gpu.name, model=base.preset.model), setup.tensor_parallel
    elif given := [name for name in _OF_MODEL if name in settings]:
        raise UsageError(f"{given[0]}: needs the sizes of the model; add --model-config and --gpu instead of --preset")
    rest = {name: value for name, value in settings.items() if name not in {REPLICAS, ROUTING, *_OF_MODEL}}
    preset, flags = varied(base.speed.of(preset), rest)
    return Combination(changes, preset, flags, pool, gpus * pool.replicas)


def _routing(settings: Mapping[str, str]) -> Routing:
    text = settings.get(ROUTING, Routing.ROUND_ROBIN)
    if text not in set(Routing):
        raise UsageError(f"{ROUTING}: {text!r} is unknown; {nearest(text, [*Routing])}")
    return Routing(text)


def _count(settings: Mapping[str, str], name: str) -> int:
    text = settings.get(name, "1")
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise UsageError(f"{name}: {text!r} is not a number from 1 to 1000")
    return int(text)
