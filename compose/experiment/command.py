"""`vllm-slo experiment`: measures engine configurations under the same requests."""

import argparse
from functools import partial
from pathlib import Path

from compose.experiment import experiment_file, experiment_run, simulated_engine, virtual_cell
from compose.experiment.cell_store import Cell, CellStatus
from compose.experiment.experiment_file import Experiment
from compose.experiment.experiment_run import CellPlan
from exporters import slos
from exporters.quantities import spell_duration
from exporters.slos import SloFile

SIMULATOR = "simulator"


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "measure every configuration of an experiment, and continue an interrupted one"
    run = actions.add_parser("run", help=text, description=f"{text.capitalize()}.")
    run.add_argument("experiment", metavar="EXPERIMENT", help="a file, or a built-in experiment (see list)")
    run.add_argument("--out", type=Path, required=True, metavar="DIR", help="output folder of the experiment")
    run.add_argument(
        "--virtual",
        action="store_true",
        help="run the scheduler of the simulator in virtual time: no processes, the same result each time",
    )
    run.add_argument(
        "--engine",
        default=SIMULATOR,
        metavar="ENGINE",
        help="simulator, vllm-cpu, or a command that contains {port}; the flags of the configuration are appended "
        "(default: %(default)s)",
    )
    run.set_defaults(run=_run)
    text = "list the built-in experiments"
    actions.add_parser("list", help=text, description=f"{text.capitalize()}.").set_defaults(run=_list)


def _list(_: argparse.Namespace) -> int:
    for name in experiment_file.names():
        experiment = experiment_file.load(experiment_file.find(name))
        print(f"{name}: {experiment.description} ({experiment.source})")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    """Exit status 1 when a cell is invalid or failed."""
    experiment = experiment_file.load(experiment_file.find(arguments.experiment))
    simulated_engine.check(experiment)
    record = experiment_run.described(experiment, virtual=arguments.virtual, engine=arguments.engine)
    every = experiment_run.plans(experiment, arguments.out)
    total = spell_duration(round(sum(plan.seconds for plan in every)))
    print(f"{experiment.name}: {len(every)} cells, {total} of load in virtual time")
    measure = partial(_measure_virtually, experiment, slos.loads(experiment.slos))
    cells = experiment_run.run(experiment, record, arguments.out, measure, partial(print, flush=True))
    return 0 if all(cell.status is CellStatus.DONE for cell in cells) else 1


def _measure_virtually(experiment: Experiment, rule: SloFile, plan: CellPlan) -> Cell:
    preset, flags = simulated_engine.simulated(plan.engine)
    seconds, reading = virtual_cell.measure(plan.folder, plan.scenario, rule, preset, flags, experiment.max_concurrency)
    return Cell(
        configuration=plan.configuration,
        rate=plan.rate,
        repeat=plan.repeat,
        status=CellStatus.DONE,
        seconds=round(seconds, 3),
        engine=reading,
    )
