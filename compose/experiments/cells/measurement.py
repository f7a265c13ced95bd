"""Measures the cells of an experiment, in real time or in virtual time."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from compose.experiments.cells import real_cell, simulated_engine, virtual_cell
from compose.experiments.cells.cell_run import CellPlan
from compose.experiments.cells.engine_program import EngineProgram
from compose.experiments.cells.real_cell import CellSettings
from compose.experiments.setup.cell_store import Cell, CellStatus
from compose.experiments.setup.experiment_file import Experiment
from compose.processes import interrupt
from compose.vllm_cpu import launch
from compose.vllm_cpu.install import ensure_installed
from exporters.text.addresses import Address
from exporters.vocabulary import slo_file
from exporters.vocabulary.slo_file import SloFile


def in_real_time(
    experiment: Experiment,
    engine: str,
    directory: Path,
    *,
    metrics: Address | None,
    sidecar_metrics: Address | None,
) -> Callable[[CellPlan], Cell]:
    """Starts the engine of a cell, and a sidecar and the load generator, which write below the directory.

    Load generator and sidecar of all cells serve their metrics at these addresses, or at free ones.

    Raises:
        UsageError: vLLM on the CPU is wanted, and cannot be installed or has too little memory.
    """
    installation = None
    if engine == launch.NAME:
        installation = ensure_installed(print)
        launch.refuse_short_of_memory()
    settings = CellSettings(
        program=EngineProgram(engine, installation),
        directory=directory.absolute(),
        max_concurrency=experiment.max_concurrency,
        cool_down=experiment.cool_down,
        metrics=metrics,
        sidecar_metrics=sidecar_metrics,
        scrape_interval=slo_file.loads(experiment.slos).scrape_interval,
    )
    return lambda plan: interrupt.run(real_cell.measure(settings, plan))


def in_virtual_time(experiment: Experiment) -> Callable[[CellPlan], Cell]:
    """Runs the scheduler of the simulator without a clock."""
    return partial(_measure, experiment, slo_file.loads(experiment.slos))


def _measure(experiment: Experiment, rule: SloFile, plan: CellPlan) -> Cell:
    preset, flags = simulated_engine.simulated(plan.engine)
    seconds, reading = virtual_cell.measure(plan, rule, preset, flags, experiment.max_concurrency)
    return Cell(
        configuration=plan.configuration,
        rate=plan.level.rate,
        concurrency=plan.level.concurrency,
        repeat=plan.repeat,
        status=CellStatus.DONE,
        seconds=round(seconds, 3),
        engine=reading,
    )
