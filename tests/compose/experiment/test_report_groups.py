"""Cells without figures are shown as such in every table, and every file that cannot be read is reported."""

from pathlib import Path

import pytest

from compose.experiment.cell_store import CellStatus, Configuration, Direction, ExpectedFigure, Metric, Prediction
from compose.experiment.report_conclusions import conclusions
from compose.experiment.report_grids import contents, facts
from compose.experiment.report_groups import read_groups
from compose.experiment.report_predictions import Verdict, beside, judged
from compose.experiment.report_tables import Grid
from exporters.errors import UsageError
from loadgen.request_record import REQUESTS, RUN
from tests.compose.experiment.report_folders import Made, requests, write

GOOD = requests(0.9)
STATES = [
    pytest.param(
        Made("odd", status=CellStatus.INVALID, reason="block_size is 16, expected 32"),
        "INVALID",
        "block_size is 16, expected 32",
        id="invalid",
    ),
    pytest.param(
        # what an invalid cell has measured does not count
        Made("odd", GOOD, status=CellStatus.INVALID, reason="block_size is 16, expected 32"),
        "INVALID",
        "block_size is 16, expected 32",
        id="invalid with records",
    ),
    pytest.param(
        Made("odd", status=CellStatus.FAILED, reason="the engine exited with 1"),
        "FAILED",
        "the engine exited with 1",
        id="failed",
    ),
    pytest.param(Made("odd", status=CellStatus.FAILED), "FAILED", "no reason was recorded", id="no reason"),
    pytest.param(
        Made("odd", GOOD, stalled=50.0),
        "INVALID",
        "the event loop stalled 0 times, for 50.0 s in total: chunk times are late; "
        "give the load generator a core of its own",
        id="load generator overloaded",
    ),
    pytest.param(None, "not run", "the experiment has not measured it yet", id="interrupted"),
]


@pytest.mark.parametrize("odd, state, reason", STATES)
def test_every_table_names_the_state_of_a_configuration_without_figures(
    tmp_path: Path, odd: Made | None, state: str, reason: str
) -> None:
    names = [Configuration(name, {}) for name in ("base", "odd", "prefix")]
    cells = [Made("base", GOOD), *([] if odd is None else [odd]), Made("prefix", GOOD)]
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
