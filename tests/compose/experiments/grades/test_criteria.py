"""The seven criteria of seed 003: what was not measured is unknown, and no criterion passes without figures."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from alerts.prices import ApiPrice, Prices
from compose.cli import main
from compose.experiments.grades.criteria import Grade, Graded, graded
from compose.experiments.grades.grade_command import RunningCost
from compose.experiments.grades.measured_cells import MeasuredCell, read_measured
from compose.experiments.setup.cell_store import Cell, CellStatus, Configuration, ExperimentRecord
from exporters.requestlog.entry import LogEntry
from exporters.vocabulary.signals import Outcome
from loadgen.results.record import ClientOutcome, Record
from tests.compose.experiments.report.report_folders import unpack
from tests.compose.golden_texts import assert_golden
from tests.loadgen.load_records import record, run
from tests.support.markdown_tables import DOCS, table_rows

ITEMS = [
    "Model loading",
    "API compatibility",
    "Stability",
    "Cost",
    "Observability",
    "Security",
    "Admission control",
]
GOLDEN = Path(__file__).parents[1] / "golden"
PAGE = DOCS / "design" / "seed-003.md"
API = ApiPrice(0.1, 0.1, 0.4)
PRICES = Prices(4.0, API)


def answered(count: int, **changes: Any) -> list[Record]:
    """Chat calls that ended, each with an id of its own."""
    usual: dict[str, Any] = {"prompt_tokens": 1000, "completion_tokens": 100}
    return [record(number=number, request_id=f"r{number}", **(usual | changes)) for number in range(count)]


def entry(request_id: str, **changes: Any) -> LogEntry:
    usual: dict[str, Any] = {
        "time": datetime(2026, 5, 12, tzinfo=UTC),
        "request_id": request_id,
        "model": "m",
        "request_class": "siso",
        "stream": True,
        "outcome": Outcome.OK,
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        "e2e_ms": 12.0,
    }
    return LogEntry(**(usual | changes))


def measured(
    sent: Sequence[Record] = (),
    *,
    engine: str = "vllm serve m",
    virtual: bool = False,
    start: float = 0.0,
    engine_start: float | None = None,
    log: Sequence[LogEntry] | None = None,
) -> MeasuredCell:
    return MeasuredCell(
        ExperimentRecord(
            name="lab",
            source="a test",
            description="",
            file_sha256="",
            virtual=virtual,
            engine=engine,
            configurations=[Configuration("base", {})],
            rates=[],
            repeats=1,
        ),
        Cell(configuration="base", rate=None, repeat=1, status=CellStatus.DONE, seconds=9.0, engine_start=engine_start),
        run(start=start, seconds=36.0),
        sent,
        None if log is None else {each.request_id: each for each in log},
    )


def grades(*cells: MeasuredCell, prices: Prices | None = None) -> dict[str, Graded]:
    found = {each.item: each for each in graded(cells, prices)}
    assert list(found) == ITEMS
    return found


def of(item: str, *cells: MeasuredCell, prices: Prices | None = None) -> str:
    found = grades(*cells, prices=prices)[item]
    return f"{found.grade}: {found.evidence}"


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param([], id="no cell"),
        pytest.param([measured(answered(200), engine="simulator", virtual=True)], id="virtual time"),
    ],
)
def test_without_a_measurement_nothing_passes_and_all_that_can_be_measured_says_how(cells: list[MeasuredCell]) -> None:
    for item, found in grades(*cells, prices=PRICES).items():
        assert found.grade is Grade.UNKNOWN
        assert ("vllm-slo " in found.needed) is (item != "Security")


def test_a_first_start_that_is_slower_than_the_restarts_is_cold() -> None:
    """The folders are not in the order of time."""
    order = [3.0, 1.0, 2.0]
    cases = {"cold, then warm": [12.0, 41.0, 11.0], "warm from the first on": [12.0, 11.0, 12.5], "one start": [41.0]}
    found = {}
    for name, starts in cases.items():
        cells = [measured(start=at, engine_start=seconds) for at, seconds in zip(order, starts, strict=False)]
        found[name] = of("Model loading", *cells)
    assert_golden(__file__, "model loading", found)


def test_timeouts_and_failures_of_the_engine_are_counted() -> None:
    found = {}
    for outcome in (ClientOutcome.TIMEOUT, ClientOutcome.UPSTREAM_ERROR):
        for failed, engine in ((2, "vllm"), (3, "vllm"), (2, "simulator")):
            sent = [*answered(100 - failed), *answered(failed, outcome=outcome)]
            found[f"{engine}, {failed} of 100, {outcome}"] = of("Stability", measured(sent, engine=engine))
    found["99 requests at one rate"] = of("Stability", measured(answered(99)))
    found["two repeats of 99 and 1"] = of("Stability", measured(answered(99)), measured(answered(1)))
    assert_golden(__file__, "stability", found)


def test_a_chat_call_must_have_been_answered_over_http() -> None:
    failed = answered(9, outcome=ClientOutcome.CLIENT_ERROR, completion_tokens=None)
    cases = {
        "one is answered": [*failed, *answered(1)],
        "none is answered": [*failed, failed[0]],
        "another API": answered(10, endpoint="/v1/completions"),
    }
    found = {name: of("API compatibility", measured(sent)) for name, sent in cases.items()}
    assert_golden(__file__, "api compatibility", found)


def test_every_request_must_have_a_complete_line() -> None:
    cases = {
        "complete": entry("r1"),
        "no model": entry("r1", model=None),
        "no tokens": entry("r1", completion_tokens=None),
        "no line": entry("other"),
    }
    found = {name: of("Observability", measured(answered(2), log=[entry("r0"), line])) for name, line in cases.items()}
    assert_golden(__file__, "observability", found)


def test_a_rejection_without_a_line_fails_and_the_queues_of_teams_stay_unknown() -> None:
    sent = answered(2, outcome=ClientOutcome.REJECTED)
    both = [entry(f"r{number}", outcome=Outcome.REJECTED) for number in range(2)]
    cases = {"both have a line": both, "one has a line": both[:1], "no log": None}
    found = {name: of("Admission control", measured(sent, log=log)) for name, log in cases.items()}
    assert_golden(__file__, "admission control", found)


def test_costs_are_those_of_an_hour_at_the_measured_rate() -> None:
    cell = measured([*answered(10), *answered(5, outcome=ClientOutcome.TIMEOUT)])  # in 36 s, a hundredth of an hour
    cost = RunningCost.of(cell, API)
    assert (cost.prompt, cost.completion, cost.api) == pytest.approx((1.0, 0.1, 0.14))
    assert of("Cost", cell) == "unknown: no prices"
    assert of("Cost", cell, prices=PRICES) == "pass: the table below, with 1 cells"


def test_the_page_of_seed_003_has_the_grades_of_the_recorded_run(tmp_path: Path) -> None:
    """A row ends with the grade, and with figures of the evidence after a colon."""
    found = [*graded(read_measured([unpack("h200", tmp_path / "out")]), PRICES)]
    by_item = table_rows(PAGE, "The seven criteria")
    for each in found:
        item, criterion, _, result = by_item[each.item]
        grade, _, figures = result.partition(": ")
        assert (item, criterion, grade) == (each.item, each.criterion, each.grade.value)
        assert figures in each.evidence


def test_a_recorded_run_of_a_real_engine_is_graded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--gpu-hour-price", "4", "--api-price", "0.1/0.4")
    assert main(["experiment", "grade", str(unpack("h200", tmp_path / "out")), *flags]) == 1
    assert capsys.readouterr().out == (GOLDEN / "h200-criteria.txt").read_text()


WINDOWS = ("windows --every 0s", "windows --rolling 0s")


def test_a_wrong_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for words in ("grade", "grade --gpu-hour-price 4", "grade --gpu-hour-price 0", "score --reference 0", *WINDOWS):
        assert main(["experiment", *words.split(), str(tmp_path)]) == 2
        found[words] = capsys.readouterr().err.strip()
    assert_golden(__file__, "refusals", found, {str(tmp_path): "FOLDER"})
