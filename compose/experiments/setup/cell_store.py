"""The output folder of an experiment: its settings, its SLO file, and a folder for each cell with a load run."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from compose.experiments.setup.level import Level, levels
from compose.experiments.setup.pools import Pools
from exporters.text.errors import UsageError, system_reason
from exporters.text.yaml_keys import COUNT, TEXT, Key, Kind, choice
from exporters.text.yaml_reader import Node
from loadgen.schedule.phases import POSITIVE
from loadgen.search.rate_search import Limits

_T = TypeVar("_T")
_NUMBER = Kind(Node.number, {})

EXPERIMENT = "experiment.json"
SLOS = "slos.yaml"
CELLS = "cells"
CELL = "cell.json"


class Metric(StrEnum):
    """The metrics of predictions and expected figures; times in seconds, shares from 0 to 1.

    `goodput` and `completion` are over the offered requests. `itl_p50` is the median over the streams of their own
    median gap, `itl_p99` the 99th percentile of their own 95th percentile; `tpot_*` are over the requests. The metrics
    from `preemptions` on are of the engine and have no class.
    """

    GOODPUT = "goodput"
    COMPLETION = "completion"
    VALID_JSON = "valid_json"
    OUTPUT_TOKENS_PER_SECOND = "output_tokens_per_second"
    TTFT_MEAN = "ttft_mean"
    TTFT_P50 = "ttft_p50"
    TTFT_P99 = "ttft_p99"
    TPOT_P50 = "tpot_p50"
    TPOT_P99 = "tpot_p99"
    ITL_P50 = "itl_p50"
    ITL_P99 = "itl_p99"
    E2E_P50 = "e2e_p50"
    E2E_P99 = "e2e_p99"
    PREEMPTIONS = "preemptions"
    GENERATED_TOKENS = "generated_tokens"
    KV_CAPACITY_TOKENS = "kv_capacity_tokens"
    KV_USAGE_MAX = "kv_usage_max"
    HIT_RATIO = "hit_ratio"
    WAITING_MAX = "waiting_max"


class Configuration(msgspec.Struct, frozen=True):
    """The engine flags of one configuration, by name without the leading dashes; a switch has `true` or `false`.

    `preset` is the GPU and the model that the file names. `warm_up` is the largest wave of the warm-up, None without
    one. `pools` are empty in the output of releases that had a single engine.
    """

    name: str
    flags: dict[str, str]
    preset: str | None = None
    warm_up: int | None = None
    pools: Pools = ()


class Direction(StrEnum):
    """How a metric of a configuration is expected to differ from that of the baseline."""

    HIGHER = "higher"
    LOWER = "lower"
    SAME = "same"


class Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is said of a metric of one class, or of all if it is empty, at one level, or at all without one."""

    configuration: Annotated[str, TEXT]
    request_class: Annotated[str, Key(TEXT, "class")] = msgspec.field(name="class", default="")
    metric: Annotated[Metric, choice(Metric)]
    rate: Annotated[float | None, POSITIVE] = None  # in requests/s
    concurrency: Annotated[int | None, COUNT] = None  # users

    @property
    def level(self) -> Level:
        return Level(self.rate, self.concurrency)


class Prediction(Claim, frozen=True, kw_only=True, omit_defaults=True):
    """What was expected before the measurement: a `direction` from `baseline`, or a value from `low` to `high`."""

    baseline: Annotated[str | None, TEXT] = None
    direction: Annotated[Direction | None, choice(Direction)] = None
    low: Annotated[float | None, _NUMBER] = None
    high: Annotated[float | None, _NUMBER] = None


class ExpectedFigure(Claim, frozen=True, kw_only=True, omit_defaults=True):
    """A figure of the source; `note` says what may differ."""

    value: Annotated[float, _NUMBER]
    note: Annotated[str, TEXT] = ""


class Scoring(StrEnum):
    """How the points of a criterion depend on the measurement."""

    PROPORTION = "proportion"
    LIMIT = "limit"
    LEAST = "least"


class Criterion(msgspec.Struct, frozen=True, kw_only=True):
    """The points of a score for a metric over all classes; a measurement of `value` has all of them.

    `proportion`: in proportion to the measurement, without an upper limit; `limit`: `value` / measurement of them above
    `value`; `least`: none below `value`.
    """

    metric: Annotated[Metric, choice(Metric)]
    points: Annotated[float, POSITIVE]
    by: Annotated[Scoring, choice(Scoring)]
    value: Annotated[float, POSITIVE]


class ExperimentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an experiment; `rates` in requests/s, `concurrencies` in users of a closed loop.

    Both are empty where the phases of the scenario are used. `requests` is the number of requests of each rate, None
    where the length of the phase sets it. With `find_max`, the rates of each configuration are those of its probes.
    """

    name: str
    source: str
    description: str
    file_sha256: str
    virtual: bool
    engine: str
    configurations: list[Configuration]
    rates: list[float]
    concurrencies: list[int] = []
    requests: int | None = None
    find_max: Limits | None = None
    repeats: int
    predictions: list[Prediction] = []
    expected: list[ExpectedFigure] = []
    score: list[Criterion] = []

    @property
    def levels(self) -> list[Level]:
        return levels(self.rates, self.concurrencies)


class CellStatus(StrEnum):
    """`invalid`: the measurement does not describe the configuration; `failed`: there is no measurement."""

    DONE = "done"
    INVALID = "invalid"
    FAILED = "failed"


class EngineReading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the engine's own /metrics reported in a cell; usages from 0 to 1, None where it reports nothing.

    `settings` are those of `vllm:cache_config_info`. The gauges were sampled during the load.
    """

    settings: dict[str, str] = {}
    kv_capacity_tokens: int | None = None
    kv_usage_max: float | None = None
    kv_usage_mean: float | None = None
    preemptions: int | None = None
    generated_tokens: int | None = None
    prefix_query_tokens: int | None = None
    prefix_hit_tokens: int | None = None
    waiting_max: float | None = None
    waiting_mean: float | None = None
    running_max: float | None = None
    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_draft_tokens: int | None = None


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration at one level, measured once; `rate` in requests/s, `concurrency` in users.

    `seconds` includes start and end of the engine. `repeat` counts from 1. `reason` says why a cell is not done.
    `engine_start` is the time from the start of the engine's process until it was healthy, in seconds, None in virtual
    time.
    """

    configuration: str
    rate: float | None
    concurrency: int | None = None
    repeat: int
    status: CellStatus
    reason: str | None = None
    seconds: float
    engine_start: float | None = None
    engine: EngineReading = EngineReading()

    @property
    def level(self) -> Level:
        return Level(self.rate, self.concurrency)


@dataclass(frozen=True, slots=True)
class StoredCell:
    """A cell and its folder, which is that of its load run too."""

    cell: Cell
    folder: Path


def cell_folder(directory: Path, configuration: str, level: Level, repeat: int) -> Path:
    """The folder of a cell, such as `cells/prefix/32-1` for 32 requests/s, `50-users-1` or `phases-1`."""
    return directory / CELLS / configuration / f"{level.name}-{repeat}"


def read_experiment(directory: Path) -> tuple[ExperimentRecord, list[StoredCell]]:
    """The settings, and the cells that have ended, in the order of the experiment.

    Raises:
        UsageError: the folder is not the output of an experiment.
    """
    record = read_record(directory)
    cells = []
    for configuration in record.configurations:
        if record.find_max is not None:
            cells += _probes(directory / CELLS / configuration.name)
            continue
        for level in record.levels:
            for repeat in range(1, record.repeats + 1):
                folder = cell_folder(directory, configuration.name, level, repeat)
                if (cell := read_cell(folder)) is not None:
                    cells.append(StoredCell(cell, folder))
    return record, cells


def _probes(directory: Path) -> list[StoredCell]:
    """The cells of a configuration, whose rates only the folders know, by repeat and rate."""
    found = [StoredCell(_read(path, Cell), path.parent) for path in directory.glob(f"*/{CELL}")]
    return sorted(found, key=lambda each: (each.cell.repeat, each.cell.rate or 0.0))


def read_record(directory: Path) -> ExperimentRecord:
    """The settings of an experiment.

    Raises:
        UsageError: the folder is not the output of an experiment.
    """
    return _read(directory / EXPERIMENT, ExperimentRecord)


def read_cell(folder: Path) -> Cell | None:
    """The cell of a folder; None if it has not ended.

    Raises:
        UsageError: its file cannot be read.
    """
    path = folder / CELL
    return _read(path, Cell) if path.exists() else None


def _read(path: Path, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise UsageError(f"{path}: not the output of an experiment: {system_reason(error)}") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: not the output of an experiment: {error}") from error
