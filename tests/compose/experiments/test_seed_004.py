"""The figures of the page of seed 004 are those of its experiments in virtual time; one row of each table, for time."""

from pathlib import Path

import pytest

from compose.cli import main
from compose.experiments.cells import cell_run, measurement
from compose.experiments.report.estimates import cell
from compose.experiments.report.found_rates import FoundRate, found_rates
from compose.experiments.report.groups import Group, read_groups
from compose.experiments.report.metrics import METRICS, TPOT_P99, TTFT_P99
from compose.experiments.setup import experiment_file
from compose.experiments.setup.cell_store import Metric
from compose.experiments.setup.level import Level
from loadgen.search.rate_search import Finding
from tests.compose.experiments.report.report_folders import figure
from tests.support.markdown_tables import DOCS, table_rows

PAGE = DOCS / "design" / "seed-004.md"
ENDS = [("phase0", 1, (3.512, 3.668)), ("moderate", 2, (3.22, 3.363)), ("no-prefix", 1, (0.5,))]


def measured(name: str, out: Path, *flags: str) -> list[Group]:
    """The groups of phase0, one for each rate."""
    arguments = ["--virtual", "--configurations", "phase0", *flags, "--out", str(out)]
    assert main(["experiment", "run", name, *arguments]) == 0
    return [group for group in read_groups(out, None) if group.repeats]


def tpot(group: Group) -> str:
    return f"{1000 * figure(TPOT_P99, group):.0f} ms"


def both(group: Group) -> str:
    ttft = figure(TTFT_P99, group)
    return f"{ttft:.{0 if ttft >= 10 else 2}f} s, {tpot(group)}"


@pytest.mark.slow
def test_the_page_has_the_figures_of_a_few_single_turns(tmp_path: Path) -> None:
    few = measured("seed-004-single", tmp_path, "--rates", "1,2.5", "--requests", "150")
    lowest, *_, highest = table_rows(PAGE, "Single turns")["virtual time (`--virtual`)"][1:]
    assert [lowest, highest] == [both(group) for group in few]


@pytest.mark.long
def test_the_page_has_the_figures_of_single_turns(tmp_path: Path) -> None:
    rows = table_rows(PAGE, "Single turns")
    assert rows["phase0"][1:] == [tpot(group) for group in measured("seed-004-single", tmp_path / "all")]
    few = measured("seed-004-single", tmp_path / "few", "--rates", "1,1.5,2,2.5", "--requests", "150")
    assert rows["virtual time (`--virtual`)"][1:] == [both(group) for group in few]


@pytest.mark.long
def test_the_page_has_the_figures_of_conversations(tmp_path: Path) -> None:
    groups = measured("seed-004", tmp_path, "--rates", "2,3,4")
    low, _, high = (f"{100 * figure(METRICS[Metric.HIT_RATIO], group):.0f} %" for group in groups)
    row = table_rows(PAGE, "Conversations that continue")["phase0"]
    assert row[1:] == [*map(both, groups), f"{low}, {high}"]


@pytest.mark.long
@pytest.mark.parametrize("configuration, repeat, ends", ENDS)
def test_the_page_has_the_probes_at_the_ends_of_each_answer(
    tmp_path: Path, configuration: str, repeat: int, ends: tuple[float, ...]
) -> None:
    """The probes at both ends alone decide the answer: they are as near to each other as the search goes."""
    experiment, out = experiment_file.load(experiment_file.find("seed-004-max")), tmp_path / "out"
    plans = [cell_run.plan(experiment, out, configuration, Level(rate), repeat) for rate in ends]
    record = cell_run.described(experiment, virtual=True, engine="simulator")
    measure = measurement.in_virtual_time(experiment)
    cell_run.run(plans, record, experiment.slos, out, measure, lambda _: None)
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
