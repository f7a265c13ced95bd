"""The largest rates of the page of seed 004 are those of its experiment in virtual time."""

from pathlib import Path

import pytest

from compose.experiment import cell_measurement, experiment_file, experiment_run
from compose.experiment.load_level import Level
from compose.experiment.report_groups import read_groups
from compose.experiment.report_metrics import TPOT_P99, TTFT_P99
from compose.experiment.report_searches import FoundRate, found_rates
from compose.experiment.report_tables import cell
from loadgen.rate_search import Finding

PAGE = Path(__file__).parents[3] / "docs" / "experiments" / "seed-004.md"
ENDS = [("phase0", 1, (3.512, 3.668)), ("moderate", 2, (3.22, 3.363)), ("no-prefix", 1, (0.5,))]
"""One row for each configuration, as a probe takes seconds of CPU time."""


@pytest.mark.parametrize("configuration, repeat, ends", ENDS)
def test_the_page_has_the_probes_at_the_ends_of_each_answer(
    tmp_path: Path, configuration: str, repeat: int, ends: tuple[float, ...]
) -> None:
    """The probes at both ends alone decide the answer: they are as near to each other as the search goes."""
    experiment, out = experiment_file.load(experiment_file.find("seed-004-max")), tmp_path / "out"
    plans = [experiment_run.plan(experiment, out, configuration, Level(rate), repeat) for rate in ends]
    record = experiment_run.described(experiment, virtual=True, engine="simulator")
    measure = cell_measurement.in_virtual_time(experiment)
    experiment_run.run(plans, record, experiment.slos, out, measure, lambda _: None)
    found = {(each.configuration, each.repeat): each for each in found_rates(read_groups(out, None))}
    assert row(found[configuration, repeat]) in PAGE.read_text(encoding="utf-8").splitlines()


def row(found: FoundRate) -> str:
    answer = found.answer
    assert answer.finding is (Finding.NONE if answer.low is None else Finding.BETWEEN)
    largest = f"below {answer.high:g}/s" if answer.low is None else f"{answer.low:g} to {answer.high:g}/s"
    limits = ", ".join(tally.slo for tally in found.missed)
    figures = [
        "-" if rate is None else ", ".join(cell(metric, found.probes[rate].group) for metric in (TTFT_P99, TPOT_P99))
        for rate in (answer.low, answer.high)
    ]
    return f"| {found.configuration} | {found.repeat} | {largest} | {limits} | {' | '.join(figures)} |"
