"""Runs the searches of an experiment for the largest rate of each configuration; each probe is a cell."""

from collections.abc import Callable, Sequence
from pathlib import Path

from compose.experiments.cells import cell_run
from compose.experiments.cells.cell_run import CellPlan
from compose.experiments.setup.cell_store import Cell, CellStatus, ExperimentRecord
from compose.experiments.setup.experiment_file import Experiment, mean_turns
from compose.experiments.setup.folder import opened
from compose.experiments.setup.level import Level
from compose.experiments.setup.rate_judgement import RateJudgement, answer_text, judgement
from exporters.vocabulary import slo_file
from loadgen.results.record import read_records
from loadgen.search.attainment import Verdicts
from loadgen.search.rate_search import Limits, search
from loadgen.search.report import reasons


class ProbeFailedError(Exception):
    """A probe that has no valid measurement."""


def check(experiment: Experiment) -> RateJudgement:
    """How the probes are decided.

    Raises:
        UsageError: no probe could be met.
    """
    found = judgement(experiment.load.scenario, slo_file.loads(experiment.slos))
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

    A probe that was measured in an earlier run is not measured again. One without a valid measurement ends its search,
    and in a sweep one that misses a rate which an earlier cell of the same repeat has met.

    Raises:
        UsageError: no probe could be met, or the folder is in use, has other settings, or cannot be written.
    """
    judged_by, cells, met = check(experiment), list[Cell](), dict[int, float]()
    with opened(directory, record, experiment.slos):
        for number, each in enumerate(searches, start=1):
            label = f"search {number} of {len(searches)}"

            def probe(rate: float, each: CellPlan = each, label: str = label) -> Verdicts:
                plan = cell_run.plan(experiment, directory, each.configuration, Level(rate), each.repeat)
                cells.append(cell_run.measured(plan, label, measure, report))
                if cells[-1].status is not CellStatus.DONE:
                    raise ProbeFailedError
                verdicts = judged_by.verdicts(read_records(plan.folder), plan.seconds)
                report("; ".join([f"    {verdicts.attainment}", *reasons(verdicts, 1)]))
                return verdicts

            try:
                found = search(probe, limits, met.get(each.repeat, 0.0))
                text = answer_text(found)
                if experiment.swept:
                    met[each.repeat] = max(met.get(each.repeat, 0.0), found.low or 0.0)
            except ProbeFailedError:
                text = "the search has stopped at a cell without a valid measurement"
            report(f"{label}: {each.name}: largest rate: {text}")
    return cells
