"""`vllm-slo experiment report`: each format has all configurations, and no text is cut."""

import argparse
import json
import math
import re
from io import StringIO
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from compose.experiments.report import contents, experiment_report
from compose.experiments.report.frontier import LATENCIES, Point, frontier, pareto_plots
from compose.experiments.report.groups import read_groups
from compose.experiments.report.tables import show
from compose.experiments.setup.cell_store import (
    CellStatus,
    Configuration,
    Direction,
    ExpectedFigure,
    Metric,
    Prediction,
)
from exporters.vocabulary.slo_file import SHIPPED
from tests.compose.experiments.report.report_folders import Made, requests, write

NAMES = ["base", "prefix", "chunked-prefill", "awq", "awq-chunked", "admission", "prefix-chunked"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven configurations with two repeats each; one is invalid, one has failed once."""
    names = [Configuration(name, {"max-num-seqs": "8"}) for name in NAMES]
    cells = [
        Made(name, requests(0.2 + index / 10, seed=index * 2 + repeat), repeat=repeat)
        for index, name in enumerate(NAMES)
        for repeat in (1, 2)
        if name != "awq" and (name, repeat) != ("admission", 2)
    ]
    cells += [Made("awq", repeat=repeat, status=CellStatus.INVALID, reason="block_size is 16") for repeat in (1, 2)]
    cells.append(Made("admission", repeat=2, status=CellStatus.FAILED, reason="exit 1 | out of memory"))
    return write(
        tmp_path_factory.mktemp("experiment") / "out",
        cells,
        configurations=names,
        predictions=[
            Prediction(configuration="prefix", metric=Metric.GOODPUT, baseline="base", direction=Direction.HIGHER)
        ],
        expected=[ExpectedFigure(configuration="awq", metric=Metric.TTFT_P50, value=57.6, note="another GPU")],
    )


def report(*flags: str) -> int:
    parser = argparse.ArgumentParser()
    experiment_report.configure(parser)
    arguments = parser.parse_args(flags)
    status: int = arguments.run(arguments)
    return status


@pytest.mark.slow
@pytest.mark.parametrize("width", [100, 160])
def test_no_text_of_the_terminal_is_cut_or_wider_than_it(out: Path, width: int) -> None:
    file = StringIO()
    show(
        contents.report(read_groups(out, None)),
        Console(file=file, width=width, force_terminal=True, color_system=None),
    )
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for name in NAMES:
        assert text.count(name) >= 4  # goodput, figures, engine and flags


@pytest.mark.slow
def test_each_row_of_a_markdown_table_has_its_columns(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(str(out), "--format", "markdown") == 0
    tables = re.findall(r"(?:^\|.*\n)+", capsys.readouterr().out, re.MULTILINE)
    assert len(tables) == 9
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
    assert sum("awq (INVALID)" in table.splitlines()[0] for table in tables) == 3
    assert sum("admission (1 of 2 valid)" in table.splitlines()[0] for table in tables) == 3


@pytest.mark.slow
def test_json_has_every_configuration_and_no_infinite_number(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(str(out), "--format", "json", "--slos", str(SHIPPED)) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["configuration"] for each in found["groups"]] == NAMES
    assert [each["state"] for each in found["groups"]] == ["valid"] * 3 + ["INVALID"] + ["valid"] * 3
    assert found["regraded"] is True
    base, awq = found["groups"][0], found["groups"][3]
    assert base["classes"]["all"]["ttft_p99"] == {"value": None, "repeats": [None, None]}
    assert base["engine"]["hit_ratio"] == {"value": 0.737, "repeats": [0.737, 0.737]}
    assert awq["classes"]["siso"]["goodput"] is None
    assert [each["state"] for each in awq["excluded"]] == ["INVALID", "INVALID"]
    assert [each["verdict"] for each in found["predictions"]] == ["kept"]
    assert found["expected"][0]["problem"] == "awq is INVALID"


@pytest.mark.slow
def test_the_page_has_plots_that_name_what_they_do_not_draw(out: Path, tmp_path: Path) -> None:
    assert report(str(out), "--html", str(tmp_path / "page" / "report.html")) == 0
    page = (tmp_path / "page" / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == len(LATENCIES)
    assert page.count("awq, repeat 1 (INVALID), awq, repeat 2 (INVALID), admission, repeat 2 (FAILED).") == len(
        LATENCIES
    )


def test_every_group_with_figures_is_a_dot(out: Path) -> None:
    for plot in pareto_plots(read_groups(out, None)):
        dots = [tip(each) for each in plot.iter("circle")]
        assert [dot.partition(":")[0] for dot in dots] == [name for name in NAMES if name != "awq"]


def tip(mark: Element) -> str:
    return mark.findtext("title") or ""


points = st.builds(
    Point, st.just("p"), st.just(""), st.integers(0, 5).map(float), st.sampled_from([1.0, 2.0, 3.0, math.inf])
)


@given(st.lists(points, max_size=12))
def test_a_point_is_on_the_frontier_unless_another_is_at_least_as_good_in_both_and_better_in_one(
    found: list[Point],
) -> None:
    def exceeded(point: Point) -> bool:
        return any(
            other.gain >= point.gain
            and other.cost <= point.cost
            and (other.gain, other.cost) != (point.gain, point.cost)
            for other in found
        )

    kept = frontier(found)
    assert all((point in kept) is not exceeded(point) for point in found)
