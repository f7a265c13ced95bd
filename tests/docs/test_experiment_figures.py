"""The tables of docs/design/seed-00*.md have the figures of their commands."""

from pathlib import Path

import pytest

from compose.cli import main
from compose.experiments.report.contents import contents
from compose.experiments.report.estimates import cell
from compose.experiments.report.groups import Group, read_groups
from compose.experiments.report.metrics import COMPLETION, GOODPUT, METRICS, ReportMetric
from compose.experiments.report.tables import Grid
from compose.experiments.setup.cell_store import Metric
from loadgen.results.summary import TOTAL
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


def row(group: Group, *figures: tuple[ReportMetric, str]) -> list[str]:
    return [group.configuration, *(cell(metric, group, name) for metric, name in figures)]


PREEMPTIONS = (METRICS[Metric.PREEMPTIONS], TOTAL)


@pytest.mark.parametrize(
    "experiment, page, title, figures",
    [
        pytest.param(
            "seed-000-limits",
            "seed-000.md",
            "Chunked prefill and admission control",
            [PREEMPTIONS, (GOODPUT, "silo"), (GOODPUT, "lilo"), (COMPLETION, TOTAL)],
            id="seed-000-limits",
        ),
        pytest.param(
            "seed-001-memory",
            "seed-001.md",
            "Memory for the KV cache",
            [
                (METRICS[Metric.KV_CAPACITY_TOKENS], TOTAL),
                (METRICS[Metric.OUTPUT_TOKENS_PER_SECOND], TOTAL),
                PREEMPTIONS,
            ],
            id="seed-001-memory",
        ),
        pytest.param(
            "seed-001-stack",
            "seed-001.md",
            "The model of the source",
            [
                (METRICS[metric], TOTAL)
                for metric in (Metric.OUTPUT_TOKENS_PER_SECOND, Metric.TTFT_P50, Metric.TPOT_P50)
            ],
            id="seed-001-stack",
        ),
        pytest.param(
            "seed-000-clusters",
            "seed-000.md",
            "Separate clusters",
            [(GOODPUT, name) for name in ("siso", "silo", "liso", "lilo", TOTAL)],
            id="seed-000-clusters",
        ),
        pytest.param(
            "seed-002-engines",
            "seed-002.md",
            "Two engines",
            [
                (METRICS[metric], TOTAL)
                for metric in (Metric.OUTPUT_TOKENS_PER_SECOND, Metric.TTFT_P50, Metric.TPOT_P50)
            ],
            id="seed-002-engines",
        ),
        pytest.param(
            "seed-003-noisy",
            "seed-003.md",
            "A noisy neighbour",
            [
                (GOODPUT, "quiet"),
                (METRICS[Metric.TTFT_P50], "quiet"),
                (METRICS[Metric.TTFT_P99], "quiet"),
                (METRICS[Metric.TPOT_P99], "quiet"),
                (GOODPUT, "noisy"),
                (COMPLETION, "noisy"),
            ],
            id="seed-003-noisy",
        ),
        pytest.param(
            "seed-004-routing",
            "seed-004.md",
            "Routing",
            [
                (METRICS[metric], TOTAL)
                for metric in (Metric.GOODPUT, Metric.HIT_RATIO, Metric.TTFT_P50, Metric.TTFT_P99, Metric.TPOT_P99)
            ],
            id="seed-004-routing",
        ),
    ],
)
@pytest.mark.long
def test_a_table_by_configuration_has_the_figures_of_its_command(
    tmp_path: Path, experiment: str, page: str, title: str, figures: list[tuple[ReportMetric, str]]
) -> None:
    assert main(["experiment", "run", experiment, "--virtual", "--out", str(tmp_path)]) == 0
    (groups,) = read_groups(tmp_path, None).groups.values()
    (table,) = tables(DOCS / "design" / page, title)
    shown = [cells[: 1 + len(figures)] for cells in table[1:] if "in the source" not in cells[0]]
    assert shown == [row(group, *figures) for group in groups]


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
