"""Runs the searches of an experiment for the largest rate of each configuration; each probe is a cell."""

from collections.abc import Callable, Sequence
from pathlib import Path

from compose.experiment import experiment_run
from compose.experiment.cell_store import Cell, CellStatus, ExperimentRecord
from compose.experiment.experiment_file import Experiment, mean_turns
from compose.experiment.experiment_folder import opened
from compose.experiment.experiment_run import CellPlan
from compose.experiment.load_level import Level
from compose.experiment.rate_judgement import RateJudgement, answer_text, judgement
from exporters import slos
from loadgen.attainment import Verdicts
from loadgen.find_max_report import reasons
from loadgen.rate_search import Limits, search
from loadgen.request_record import read_records


class ProbeFailedError(Exception):
    """A probe that has no valid measurement."""


def check(experiment: Experiment) -> RateJudgement:
    """How the probes are decided.

    Raises:
        UsageError: no probe could be met.
    """
    found = judgement(experiment.load.scenario, slos.loads(experiment.slos))
    found.check(experiment.requests or 0, mean_turns(experiment.load.scenario))
    return found


def run(
    experiment: Experiment,
    limits: Limits,
    searches: Sequence[CellPlan],
    record: ExperimentRecord,
    directory: Path,
    measure: Callable[[CellPlan], Cell],
    report: Callable[[str], None],
) -> Sequence[Cell]:
    """Search the largest rate of each configuration and repeat of `searches`; returns the cells of all probes.

    A probe that was measured in an earlier run is not measured again. One without a valid measurement ends its search.

    Raises:
        UsageError: no probe could be met, or the folder is in use, has other settings, or cannot be written.
    """
    judged_by, cells = check(experiment), list[Cell]()
    with opened(directory, record, experiment.slos):
        for number, each in enumerate(searches, start=1):
            label = f"search {number} of {len(searches)}"

            def probe(rate: float, each: CellPlan = each, label: str = label) -> Verdicts:
                plan = experiment_run.plan(experiment, directory, each.configuration, Level(rate), each.repeat)
                cells.append(experiment_run.measured(plan, label, measure, report))
                if cells[-1].status is not CellStatus.DONE:
                    raise ProbeFailedError
                verdicts = judged_by.verdicts(read_records(plan.folder), plan.seconds)
                report("; ".join([f"    {verdicts.attainment}", *reasons(verdicts, 1)]))
                return verdicts

            try:
                text = answer_text(search(probe, limits))
            except ProbeFailedError:
                text = "the search has stopped at a cell without a valid measurement"
            report(f"{label}: {each.name}: largest rate: {text}")
    return cells
