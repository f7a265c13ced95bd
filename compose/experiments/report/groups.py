"""The cells of an experiment, grouped for the report: valid and excluded repeats of a configuration at a level."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from compose.experiments.cells.cell_run import SCENARIO
from compose.experiments.setup.cell_store import (
    SLOS,
    CellStatus,
    EngineReading,
    ExpectedFigure,
    ExperimentRecord,
    Prediction,
    StoredCell,
    read_experiment,
)
from compose.experiments.setup.level import PHASES, Level, at_level
from compose.experiments.setup.rate_judgement import RateJudgement, judgement
from exporters.text.errors import UsageError
from exporters.vocabulary import slo_file
from loadgen.report.tables import INVALID
from loadgen.results.record import Record, Run, read_records, read_run
from loadgen.results.regrading import regrade_run
from loadgen.results.summary import summarise
from loadgen.schedule import scenario

FAILED = "FAILED"
NOT_RUN = "not run"
_STATES = {CellStatus.INVALID: INVALID, CellStatus.FAILED: FAILED}


@dataclass(frozen=True, slots=True)
class Repeat:
    """One valid cell: its run and requests, and what the engine reported; `number` counts from 1."""

    run: Run
    records: Sequence[Record]
    engine: EngineReading
    number: int = 1


@dataclass(frozen=True, slots=True)
class Excluded:
    """A cell without figures in the report: its state, and the reason."""

    repeat: int
    state: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)  # without eq, it is hashed by identity
class Group:
    """All repeats of one configuration at one level.

    `name` has the level if the experiment has several.
    """

    configuration: str
    name: str
    level: Level
    repeats: tuple[Repeat, ...]
    excluded: tuple[Excluded, ...]

    @property
    def state(self) -> str:
        """Why the group has no figures; empty if it has some."""
        if self.repeats:
            return ""
        states = {each.state for each in self.excluded}
        return next(state for state in (INVALID, FAILED, NOT_RUN) if state in states)

    @property
    def title(self) -> str:
        """The name of the configuration, with its state in a second line if not all repeats are valid."""
        if not self.excluded:
            return self.configuration
        valid, count = len(self.repeats), len(self.repeats) + len(self.excluded)
        return f"{self.configuration}\n({self.state or f'{valid} of {count} valid'})"


@dataclass(frozen=True, slots=True)
class Rule:
    """The SLO file by which the requests are judged; `regraded` if it is not that of the runs."""

    path: Path
    file: slo_file.SloFile
    regraded: bool


@dataclass(frozen=True, slots=True)
class Experiment:
    """What the report describes; `groups` by level, in the order of the configurations.

    Of a search for the largest rate, `groups` are the probes, and `judgement` decides them, None before the first one.
    `record` has only the configurations and levels with a cell; `left_out` is the number of cells of the others.
    """

    record: ExperimentRecord
    rule: Rule
    classes: tuple[str, ...]
    groups: dict[Level, list[Group]]
    judgement: RateJudgement | None = None
    left_out: int = 0

    def __iter__(self) -> Iterator[Group]:
        for groups in self.groups.values():
            yield from groups

    def at(self, level: Level) -> str:
        """The level after the name of what is measured at it; empty if there is only one."""
        return at_level(level, self.groups)

    @property
    def timeout(self) -> float | None:
        """The client timeout in seconds; None without a valid cell."""
        return next((repeat.run.timeout for group in self for repeat in group.repeats), None)


def read_groups(directory: Path, rule: Path | None) -> Experiment:
    """Read an experiment; with a `rule`, its requests are judged again by that SLO file.

    Raises:
        UsageError: the folder is not the output of an experiment, or files of cells cannot be read (all of them).
        FileError: the mistakes in the SLO file.
    """
    whole, cells = read_experiment(directory)
    record = _measured(whole, cells)
    path = rule or directory / SLOS
    used = Rule(path, slo_file.load(path), regraded=rule is not None)
    by_place = {(each.cell.configuration, each.cell.level, each.cell.repeat): each for each in cells}
    groups: dict[Level, list[Group]] = {}
    problems: list[str] = []
    searched, levels = record.find_max is not None, record.levels
    if searched:
        levels = sorted({each.cell.level for each in cells}, key=lambda level: level.rate or 0.0)
    for level in levels:
        groups[level] = []
        for configuration in record.configurations:
            repeats: list[Repeat] = []
            excluded: list[Excluded] = []
            for number in range(1, record.repeats + 1):
                place = (configuration.name, level, number)
                if searched and place not in by_place:
                    continue
                try:
                    found = _read(by_place.get(place), number, used)
                except UsageError as error:
                    problems.append(str(error))
                    continue
                if isinstance(found, Repeat):
                    repeats.append(found)
                else:
                    excluded.append(found)
            if repeats or excluded:
                name = configuration.name + at_level(level, levels)
                groups[level].append(Group(configuration.name, name, level, tuple(repeats), tuple(excluded)))
    if problems:
        raise UsageError("\n".join(problems))
    judged_by = judgement(scenario.load(cells[0].folder / SCENARIO), used.file) if searched and cells else None
    left_out = 0 if searched else _count(whole) - _count(record)
    return Experiment(record, used, _classes(groups, used.file), groups, judged_by, left_out)


def _measured(record: ExperimentRecord, cells: Sequence[StoredCell]) -> ExperimentRecord:
    """The record without the configurations and levels that no run has chosen yet, and their expectations."""
    if record.find_max is not None or not cells:
        return record
    configurations = {each.cell.configuration for each in cells}
    levels = {each.cell.level for each in cells}

    def has_cells(claim: Prediction | ExpectedFigure) -> bool:
        return claim.configuration in configurations and claim.level in (PHASES, *levels)

    return msgspec.structs.replace(
        record,
        configurations=[each for each in record.configurations if each.name in configurations],
        rates=[rate for rate in record.rates if Level(rate) in levels],
        concurrencies=[users for users in record.concurrencies if Level(concurrency=users) in levels],
        predictions=[
            each for each in record.predictions if has_cells(each) and each.baseline in (None, *configurations)
        ],
        expected=[each for each in record.expected if has_cells(each)],
    )


def _count(record: ExperimentRecord) -> int:
    return len(record.configurations) * len(record.levels) * record.repeats


def _read(stored: StoredCell | None, number: int, rule: Rule) -> Repeat | Excluded:
    if stored is None:
        return Excluded(number, NOT_RUN, "the experiment has not measured it yet")
    cell = stored.cell
    if cell.status is not CellStatus.DONE:
        return Excluded(number, _STATES[cell.status], cell.reason or "no reason was recorded")
    run, records = read_run(stored.folder), read_records(stored.folder)
    if faults := summarise(run, records).health.faults:
        return Excluded(number, INVALID, "; ".join(faults))
    if rule.regraded:
        run, records = regrade_run(run, records, rule.file, rule.path)
    return Repeat(run, records, cell.engine, number)


def _classes(groups: dict[Level, list[Group]], file: slo_file.SloFile) -> tuple[str, ...]:
    """Classes in the order of the scenario; those of the SLO file if no cell is valid."""
    runs = [repeat.run for each in groups.values() for group in each for repeat in group.repeats]
    return tuple(dict.fromkeys(name for run in runs for name in run.classes)) or tuple(c.name for c in file.classes)
