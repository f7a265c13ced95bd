"""Cells without figures are shown as such in every table, and every file that cannot be read is reported."""

from pathlib import Path

import pytest

from compose.cli import main
from compose.experiments.report.conclusions import Verdict, beside, conclusions, judged
from compose.experiments.report.contents import contents, facts
from compose.experiments.report.groups import read_groups
from compose.experiments.report.tables import Grid
from compose.experiments.setup.cell_store import (
    CellStatus,
    Configuration,
    Direction,
    ExpectedFigure,
    Metric,
    Prediction,
)
from compose.experiments.setup.level import Level
from exporters.text.errors import UsageError
from loadgen.results.record import REQUESTS, RUN
from tests.compose.experiments.report.report_folders import Made, requests, write
from tests.compose.experiments.toy_experiment import write_experiment

GOOD = requests(0.9)
CLAIMS = """\
predictions:
  - {configuration: prefix, metric: ttft_p50, baseline: base, direction: lower}
expected:
  - {configuration: base, metric: goodput, value: 0.25}
  - {configuration: base, metric: goodput, rate: 4, value: 0.5}
  - {configuration: base, metric: goodput, rate: 2, value: 0.75}
  - {configuration: prefix, metric: goodput, value: 1}
"""
WRONG_BLOCKS = "block_size is 16, expected 32"
INVALID, FAILED = CellStatus.INVALID, CellStatus.FAILED
STALLED = "the event loop stalled 0 times, for 50.0 s in total: chunk times are late; "
STALLED += "give the load generator a core of its own"
STATES = {
    "invalid": (Made("odd", status=INVALID, reason=WRONG_BLOCKS), "INVALID", WRONG_BLOCKS),
    # what an invalid cell has measured does not count
    "invalid with records": (Made("odd", GOOD, status=INVALID, reason=WRONG_BLOCKS), "INVALID", WRONG_BLOCKS),
    "failed": (Made("odd", status=FAILED, reason="the engine exited with 1"), "FAILED", "the engine exited with 1"),
    "no reason": (Made("odd", status=FAILED), "FAILED", "no reason was recorded"),
    "load generator overloaded": (Made("odd", GOOD, stalled=50.0), "INVALID", STALLED),
}


@pytest.mark.parametrize("odd, state, reason", STATES.values(), ids=STATES)
def test_every_table_names_the_state_of_a_configuration_without_figures(
    tmp_path: Path, odd: Made, state: str, reason: str
) -> None:
    names = [Configuration(name, {}) for name in ("base", "odd", "prefix")]
    cells = [Made("base", GOOD), odd, Made("prefix", GOOD)]
    experiment = read_groups(write(tmp_path / "out", cells, configurations=names), None)
    grids = {part.title: part for part in contents(experiment) if isinstance(part, Grid)}
    assert grids["Cells without figures"].rows == [["odd", "1", state, reason]]
    for title in ("Goodput", "Figures by class", "Engine"):
        grid = grids[title]
        column = grid.headings.index(f"odd\n({state})")
        assert {row[column] for row in grid.rows} == {state}
        assert state not in {cell for row in grid.rows for cell in [*row[:column], *row[column + 1 :]]}
    assert facts(experiment)["cells"] == f"2 valid, 1 {state}"
    assert str(next(iter(conclusions(experiment)))) == f"odd: not compared, because odd is {state}."


def test_nothing_is_compared_with_a_first_configuration_without_figures(tmp_path: Path) -> None:
    prediction = Prediction(configuration="prefix", metric=Metric.GOODPUT, baseline="base", direction=Direction.HIGHER)
    expected = ExpectedFigure(configuration="base", metric=Metric.GOODPUT, value=0.2)
    cells = [Made("base", status=CellStatus.FAILED, reason="exit 1"), Made("prefix", GOOD)]
    experiment = read_groups(write(tmp_path / "out", cells, predictions=[prediction], expected=[expected]), None)
    assert [str(each) for each in conclusions(experiment)] == ["prefix: not compared, because base is FAILED."]
    assert [(each.verdict, each.numbers) for each in judged(experiment)] == [(Verdict.UNDECIDED, "base is FAILED")]
    assert [each.problem for each in beside(experiment)] == ["base is FAILED"]


def test_valid_repeats_are_pooled_without_the_others_and_counted(tmp_path: Path) -> None:
    made = [requests(0.5), requests(0.7, seed=2)]
    cells = [Made("base", records, repeat=repeat) for repeat, records in enumerate(made, start=1)]
    cells.append(Made("base", repeat=3, status=CellStatus.FAILED, reason="exit 1"))
    experiment = read_groups(write(tmp_path / "out", cells), None)
    goodput = next(part for part in contents(experiment) if isinstance(part, Grid) and part.title == "Goodput")
    assert goodput.headings == ["class", "of", "base\n(2 of 3 valid)"]
    shares = [sum(each.good is True for each in records) / len(records) * 100 for records in made]
    low, high = sorted(shares)
    assert goodput.rows[-1] == ["", "judged", f"{sum(shares) / 2:.3g} % [{low:.3g}..{high:.3g}]"]


def test_every_file_that_cannot_be_read_is_reported_in_one_run(tmp_path: Path) -> None:
    out = write(tmp_path / "out", [Made("base", GOOD), Made("odd", GOOD), Made("prefix", GOOD)])
    base, odd = out / "cells" / "base" / "phases-1", out / "cells" / "odd" / "phases-1"
    (base / RUN).unlink()
    (odd / REQUESTS).write_text("{}\n")
    with pytest.raises(UsageError) as caught:
        read_groups(out, None)
    assert str(caught.value).splitlines() == [
        f"{base}: not the output of a load run: run.json cannot be read",
        f"{odd / REQUESTS}:1: not a request record: Object missing required field `class`",
    ]


@pytest.mark.slow
def test_configurations_and_rates_that_no_run_has_chosen_are_left_out(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, more="rates: [2, 4]\nrequests: 20\n" + CLAIMS)
    out = tmp_path / "out"
    run = ["experiment", "run", str(path), "--virtual", "--out", str(out)]
    assert main([*run, "--configurations", "base", "--rates", "4"]) == 0
    part = read_groups(out, None)
    assert [group.name for group in part] == ["base"]
    assert part.record.levels == [Level(4.0)]
    assert (part.record.predictions, [each.value for each in part.record.expected]) == ([], [0.25, 0.5])
    assert facts(part)["cells"] == "1 valid, 3 of other configurations and loads not run"
    assert main(run) == 0
    whole = read_groups(out, None)
    assert len([*whole]) == 4
    assert facts(whole)["cells"] == "4 valid"
    assert (len(whole.record.predictions), len(whole.record.expected)) == (1, 4)


def test_a_cell_that_has_not_run_has_this_state_beside_those_that_have(tmp_path: Path) -> None:
    path, out = write_experiment(tmp_path, more="rates: [2, 4]\nrequests: 20\n"), tmp_path / "out"
    for name, rate in (("base", "4"), ("prefix", "2")):
        run = ["experiment", "run", str(path), "--virtual", "--out", str(out)]
        assert main([*run, "--configurations", name, "--rates", rate]) == 0
    groups = [*read_groups(out, None)]
    assert {group.name: group.state for group in groups} == {
        "base at 2/s": "not run",
        "prefix at 2/s": "",
        "base at 4/s": "",
        "prefix at 4/s": "not run",
    }
    assert groups[0].excluded[0].reason == "the experiment has not measured it yet"
