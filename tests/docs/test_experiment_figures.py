"""The tables of docs/design/seed-001.md have the figures of their commands."""

from pathlib import Path

import pytest

from compose.cli import main
from compose.experiments.report.contents import contents
from compose.experiments.report.groups import read_groups
from compose.experiments.report.tables import Grid
from tests.support.markdown_tables import DOCS, section, tables

PAGE = DOCS / "design" / "seed-001.md"


def reported(folder: Path) -> list[list[str]]:
    """The rows of the report with the figures of all classes and of the engine, after their headings."""
    rows = []
    for grid in contents(read_groups(folder, None)):
        if isinstance(grid, Grid) and "figure" in grid.headings:
            first = grid.headings.index("figure")
            rows += [[*row[first:]] for row in (grid.headings, *grid.rows)]
    return rows


@pytest.mark.parametrize(
    "title, number, command",
    [
        pytest.param("Response cache", 0, ["seed-001-cache"], marks=pytest.mark.slow),
        pytest.param("Cold start", 0, ["seed-001-cold"], marks=pytest.mark.slow),
        pytest.param("Cold start", 1, ["seed-001-cold", "--requests", "400"], marks=pytest.mark.long),
    ],
)
def test_each_row_of_a_table_is_a_row_of_the_report(
    tmp_path: Path, title: str, number: int, command: list[str]
) -> None:
    assert main(["experiment", "run", *command, "--virtual", "--out", str(tmp_path)]) == 0
    table, rows = tables(PAGE, title)[number], reported(tmp_path)
    assert len(table) > 2
    assert [row for row in table if row not in rows] == []
    assert all(word in " ".join(section(PAGE, title)) for word in command)


@pytest.mark.long
def test_the_table_of_the_windows_is_the_output_of_its_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["experiment", "run", "seed-001-window", "--virtual", "--out", str(tmp_path)])
    capsys.readouterr()
    command = "vllm-slo experiment windows results/seed-001-window --skip 6h25m"
    lines = section(PAGE, "Rolling error window")
    assert f"    {command}" in lines
    assert main(["experiment", "windows", str(tmp_path), *command.split()[4:]]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    start = lines.index(f"    {printed[0]}")
    shown = [line.removeprefix("    ") for line in lines[start : start + len(printed)]]
    assert [line for line in printed if line] == [line for line in shown if line]
