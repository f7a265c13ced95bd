"""The summary of a run as JSON and CSV."""

import csv
import io
import json
from dataclasses import fields
from pathlib import Path

import pytest
from msgspec import structs

from compose.cli import main
from exporters.vocabulary.signals import Verdict
from loadgen.results.export import as_csv
from loadgen.results.record import ClientOutcome, Record, Run
from loadgen.results.summary import ClassSummary, Quantiles, summarise
from tests.loadgen.load_records import record, run, write_run

GOOD = record(
    phase="calm", ttft=0.25, slo={"ttft": Verdict.GOOD}, good=True, prompt_tokens=50, max_tokens=7, completion_tokens=7
)
BAD = record(phase="busy", outcome=ClientOutcome.UPSTREAM_ERROR, slo={"ttft": Verdict.BAD}, good=False)
RECORDS = [GOOD, GOOD, GOOD, BAD]


def rows(made: Run, records: list[Record]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(as_csv(made, summarise(made, records)))))


def test_there_is_a_row_for_each_phase_and_class() -> None:
    table = rows(run(), RECORDS)
    assert [(row["phase"], row["class"], row["offered"]) for row in table] == [
        ("calm", "siso", "3"),
        ("calm", "all", "3"),
        ("busy", "siso", "1"),
        ("busy", "all", "1"),
        ("whole run", "siso", "4"),
        ("whole run", "all", "4"),
    ]
    calm, total = table[0], table[-1]
    expected = {"validity": "valid", "ok": "3", "upstream_error": "1", "goodput": "0.75", "slo_ttft_bad": "1"}
    expected |= {"slo_ttft_judged": "4", "prompt_tokens": "150", "ttft_p50": "0.25", "ttft_of_started_p99": "0.25"}
    expected |= {"ttft_p95": "", "ttft_p99": ""}  # the percentile falls on the failed stream
    assert expected.items() <= total.items()
    # output tokens only, over the 2 s of the run; a phase has no throughput
    assert (total["output_tokens_per_second"], calm["output_tokens_per_second"]) == ("10.5", "")


def test_every_figure_of_a_class_is_a_column() -> None:
    header = rows(run(), RECORDS)[0].keys()
    for field in fields(ClassSummary):
        if field.type == Quantiles:
            assert f"{field.name}_p50" in header
        elif field.name not in {"name", "outcomes", "slos"}:
            assert field.name in header
    assert {outcome.value for outcome in ClientOutcome} <= header


def test_an_invalid_run_says_so_in_every_row() -> None:
    late = [structs.replace(each, send_lag=1.0) for each in RECORDS]
    assert {row["validity"] for row in rows(run(), late)} == {"INVALID"}


@pytest.mark.parametrize(
    "name, cell",
    [
        pytest.param("a, b", "a, b", id="a comma stays in its column"),
        pytest.param("=1+1", "'=1+1", id="what a spreadsheet would execute is a text"),
    ],
)
def test_any_name_of_a_class_is_one_text(name: str, cell: str) -> None:
    assert rows(run(classes=[name]), [structs.replace(GOOD, request_class=name)])[0]["class"] == cell


def test_the_report_is_also_json_and_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path, run(), RECORDS)
    assert main(["load", "report", folder, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"]["offered"] == 4
    assert main(["load", "report", folder, "--format", "csv"]) == 0
    assert capsys.readouterr().out == as_csv(run(), summarise(run(), RECORDS))
