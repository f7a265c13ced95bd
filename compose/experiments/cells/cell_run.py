"""Runs the cells of an experiment that have not been measured, one after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from compose.experiments.setup.cell_store import Cell, Configuration, ExperimentRecord, cell_folder
from compose.experiments.setup.experiment_file import Engine, Experiment
from compose.experiments.setup.folder import finished, opened, write_cell
from compose.experiments.setup.level import Level
from exporters.text.output_files import write_file
from exporters.text.units import spell_duration
from exporters.text.yaml_reader import parse_yaml
from loadgen.schedule import scenario
from loadgen.schedule.scenario import Scenario

SCENARIO = "scenario.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPlan:
    """A cell to measure; `load` is the text of its load scenario.

    `group` is the name of all its repeats: the configuration, and the level if the experiment has several.
    """

    experiment: str
    configuration: str
    group: str
    engine: Engine
    level: Level
    repeat: int
    load: str
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.configuration}{self.level.text}, repeat {self.repeat}"

    @property
    def scenario(self) -> Scenario:
        return scenario.parse(parse_yaml(self.load, SCENARIO))

    @property
    def seconds(self) -> float:
        """The length of the phases."""
        return sum(phase.duration for phase in self.scenario.phases)


def described(experiment: Experiment, *, virtual: bool, engine: str) -> ExperimentRecord:
    return ExperimentRecord(
        name=experiment.name,
        source=experiment.source,
        description=experiment.description,
        file_sha256=experiment.sha256,
        virtual=virtual,
        engine=engine,
        configurations=[
            Configuration(name, dict(each.flags or {}), each.preset, each.warm_up, each.pools)
            for name, each in experiment.configurations.items()
        ],
        rates=list(experiment.rates),
        concurrencies=list(experiment.concurrencies),
        requests=experiment.requests,
        find_max=experiment.limits,
        repeats=experiment.repeats,
        predictions=list(experiment.predictions),
        expected=list(experiment.expected),
        score=list(experiment.score),
    )


def plans(experiment: Experiment, directory: Path) -> list[CellPlan]:
    """All cells in the order in which they run: repeats last, so that a slow change of the machine hits all alike.

    With `find_max`, one for each search.
    """
    return [
        plan(experiment, directory, name, level, repeat)
        for repeat in range(1, experiment.repeats + 1)
        for name in experiment.configurations
        for level in experiment.levels
    ]


def plan(experiment: Experiment, directory: Path, configuration: str, level: Level, repeat: int) -> CellPlan:
    return CellPlan(
        experiment=experiment.name,
        configuration=configuration,
        group=configuration + ("" if experiment.levels == [level] else level.text),
        engine=experiment.configurations[configuration],
        level=level,
        repeat=repeat,
        load=experiment.load_of(level, repeat),
        folder=cell_folder(directory, configuration, level, repeat),
    )


def run(
    every: Sequence[CellPlan],
    record: ExperimentRecord,
    slos: str,
    directory: Path,
    measure: Callable[[CellPlan], Cell],
    report: Callable[[str], None],
) -> Sequence[Cell]:
    """Measure the cells of `every` that have no result yet; returns all cells. `slos` is the text of the SLO file.

    Raises:
        UsageError: the folder is in use, has other settings, or cannot be written.
    """
    with opened(directory, record, slos):
        return [
            measured(plan, f"{number} of {len(every)}", measure, report) for number, plan in enumerate(every, start=1)
        ]


def measured(plan: CellPlan, label: str, measure: Callable[[CellPlan], Cell], report: Callable[[str], None]) -> Cell:
    """The cell of an open folder, measured unless it has a result; reports its state."""
    cell = finished(plan.folder)
    if cell is None:
        write_file(plan.folder / SCENARIO, plan.load)
        cell = measure(plan)
        write_cell(plan.folder, cell)
        state = f"{cell.status.value} in {spell_duration(round(cell.seconds))}"
    else:
        state = f"{cell.status.value}, kept from an earlier run"
    reason = "" if cell.reason is None else f": {cell.reason}"
    report(f"{label}: {plan.name}: {state}{reason}")
    return cell
