"""The figures of the page of seed 002 are those of its experiments in virtual time."""

from pathlib import Path

import pytest

from compose.cli import main
from compose.experiments.report.floor import floors
from compose.experiments.report.frontier import frontier, points
from compose.experiments.report.groups import Experiment, read_groups
from compose.experiments.report.metrics import THROUGHPUT, TPOT_P50, TPOT_P99, TTFT_P99
from compose.experiments.setup.level import PHASES, Level
from tests.compose.experiments.report.report_folders import figure
from tests.support.markdown_tables import DOCS

PAGE = DOCS / "design" / "seed-002.md"


def run(name: str, out: Path, *flags: str) -> Experiment:
    assert main(["experiment", "run", name, "--virtual", "--out", str(out), *flags]) == 0
    return read_groups(out, None)


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    return run("seed-002", tmp_path_factory.mktemp("seed-002") / "out")


def assert_rows(users: Experiment) -> None:
    """The page has a row for each configuration that was measured."""
    least = {each.group: each.tpot for each in floors(users)}
    cells: dict[str, list[str]] = {}
    for level in (Level(concurrency=10), Level(concurrency=50)):
        for group in (each for each in users.groups[level] if each.repeats):
            tpot, floor = figure(TPOT_P50, group), least[group]
            texts = [THROUGHPUT.unit.text(figure(THROUGHPUT, group)), *map(TPOT_P50.unit.text, (tpot, floor))]
            cells.setdefault(group.configuration, []).extend(texts)
            assert tpot > floor
    assert cells
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert [line for name, row in cells.items() if (line := f"| {name} | {' | '.join(row)} |") not in lines] == []


@pytest.mark.slow
def test_the_page_has_the_row_of_the_default(tmp_path: Path) -> None:
    assert_rows(run("seed-002", tmp_path / "out", "--configurations", "default"))


@pytest.mark.long
def test_the_page_has_a_row_for_each_configuration(users: Experiment) -> None:
    assert_rows(users)


@pytest.mark.long
def test_accepted_drafts_are_the_frontier_and_rejected_ones_are_slower_with_50_users(users: Experiment) -> None:
    best = [point.name for point in frontier(points(users, TPOT_P50))]
    assert best == ["drafts-accepted with 50 users", "drafts-accepted with 10 users"]
    by_name = {group.configuration: group for group in users.groups[Level(concurrency=50)]}
    default, eager, rejected, accepted = (
        figure(THROUGHPUT, by_name[name]) for name in ("default", "eager", "drafts-rejected", "drafts-accepted")
    )
    changes = [round(100 * (after / default - 1)) for after in (eager, rejected, accepted)]
    assert changes == [-44, -43, 49]  # as the page says
    assert {name: each.tokens for each in floors(users) if (name := each.group.name).startswith("drafts")} == {
        f"drafts-{kind} with {count} users": pytest.approx((1 - rate**6) / (1 - rate), rel=0.01)
        for kind, rate in (("rejected", 0.1), ("accepted", 0.8))
        for count in (10, 50)
    }


def test_the_page_has_the_figures_of_the_burst(tmp_path: Path) -> None:
    (group,) = run("seed-002-burst", tmp_path / "out").groups[PHASES]
    page = PAGE.read_text(encoding="utf-8")
    for metric in (THROUGHPUT, TPOT_P99, TTFT_P99):
        assert f"| {metric.title} | {metric.unit.text(figure(metric, group))} |" in page
