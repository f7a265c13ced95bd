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


def of(item: str, *cells: MeasuredCell, prices: Prices | None = None) -> tuple[Grade, str]:
    found = grades(*cells, prices=prices)[item]
    return found.grade, found.evidence


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


@pytest.mark.parametrize(
    "starts, expected",
    [
        pytest.param(
            [12.0, 41.0, 11.0],
            (Grade.PASS, "lab base: first start 41.0 s, restart 11.0 to 12.0 s (2)"),
            id="cold, then warm",
        ),
        pytest.param(
            [12.0, 11.0, 12.5],
            (
                Grade.UNKNOWN,
                (
                    "lab base: first start 11.0 s, restart 12.0 to 12.5 s (2); no first start was slower than its "
                    "restarts, so none was cold"
                ),
            ),
            id="warm from the first start on",
        ),
        pytest.param(
            [41.0], (Grade.UNKNOWN, "no configuration has the times of two starts of its engine"), id="one start"
        ),
    ],
)
def test_a_first_start_that_is_slower_than_the_restarts_is_cold(
    starts: list[float], expected: tuple[Grade, str]
) -> None:
    order = [3.0, 1.0, 2.0]  # the folders are not in the order of time
    cells = [measured(start=at, engine_start=seconds) for at, seconds in zip(order, starts, strict=False)]
    assert of("Model loading", *cells) == expected


TIMEOUTS = (
    "1 of 1 configurations and rates within the limit; the worst is lab base: 2 of 100 timed out or failed in the "
)
TIMEOUTS += "engine, 2.0 of 100"


@pytest.mark.parametrize(
    "failed, engine, expected",
    [
        pytest.param(2, "vllm", (Grade.PASS, TIMEOUTS), id="two of 100"),
        pytest.param(
            3,
            "vllm",
            (Grade.FAIL, TIMEOUTS.replace("1 of 1", "0 of 1").replace("2 of 100", "3 of 100").replace("2.0", "3.0")),
            id="three of 100",
        ),
        pytest.param(
            2,
            "simulator",
            (Grade.UNKNOWN, f"{TIMEOUTS}; the simulator has no GPU memory that could run out"),
            id="simulator",
        ),
    ],
)
@pytest.mark.parametrize("outcome", [ClientOutcome.TIMEOUT, ClientOutcome.UPSTREAM_ERROR])
def test_timeouts_and_failures_of_the_engine_are_counted(
    failed: int, engine: str, outcome: ClientOutcome, expected: tuple[Grade, str]
) -> None:
    sent = [*answered(100 - failed), *answered(failed, outcome=outcome)]
    assert of("Stability", measured(sent, engine=engine)) == expected


def test_fewer_than_100_requests_at_one_rate_do_not_decide_stability() -> None:
    expected = (Grade.UNKNOWN, "no configuration has 100 requests at one rate; the most are 99")
    assert of("Stability", measured(answered(99))) == expected
    assert of("Stability", measured(answered(99)), measured(answered(1)))[0] is Grade.PASS  # two repeats


def test_a_chat_call_must_have_been_answered_over_http() -> None:
    evidence = (
        "{} of 10 calls of POST /v1/chat/completions ended with an answer and its usage; they were sent by the client "
        "of the load generator, not by the package openai"
    )
    failed = answered(9, outcome=ClientOutcome.CLIENT_ERROR, completion_tokens=None)
    assert of("API compatibility", measured([*failed, *answered(1)])) == (Grade.PASS, evidence.format(1))
    assert of("API compatibility", measured([*failed, failed[0]])) == (Grade.FAIL, evidence.format(0))
    other = answered(10, endpoint="/v1/completions")
    assert of("API compatibility", measured(other)) == (Grade.UNKNOWN, "no chat call was sent over HTTP")


@pytest.mark.parametrize(
    "line, complete",
    [
        pytest.param(entry("r1"), 2, id="complete"),
        pytest.param(entry("r1", model=None), 1, id="no model"),
        pytest.param(entry("r1", completion_tokens=None), 1, id="no tokens"),
        pytest.param(entry("other"), 1, id="no line"),
    ],
)
def test_every_request_must_have_a_complete_line(line: LogEntry, complete: int) -> None:
    evidence = (
        f"{complete} of 2 requests have a line with request_id, model, e2e_ms and, if they completed, prompt_tokens "
        "and completion_tokens"
    )
    expected = (Grade.PASS if complete == 2 else Grade.FAIL, evidence)
    assert of("Observability", measured(answered(2), log=[entry("r0"), line])) == expected


def test_a_rejection_without_a_line_fails_and_the_queues_of_teams_stay_unknown() -> None:
    sent = answered(2, outcome=ClientOutcome.REJECTED)
    both = [entry(f"r{number}", outcome=Outcome.REJECTED) for number in range(2)]
    grade, evidence = of("Admission control", measured(sent, log=both))
    assert (grade, evidence.partition(";")[0]) == (
        Grade.UNKNOWN,
        "2 of 2 rejections are in the request log as rejected",
    )
    missing = (Grade.FAIL, "1 of 2 rejections are in the request log as rejected")
    assert of("Admission control", measured(sent, log=both[:1])) == missing
    without = of("Admission control", measured(sent))[1].partition(";")[0]
    assert without == "no request through a sidecar was rejected"


def test_costs_are_those_of_an_hour_at_the_measured_rate() -> None:
    cell = measured([*answered(10), *answered(5, outcome=ClientOutcome.TIMEOUT)])  # in 36 s, a hundredth of an hour
    cost = RunningCost.of(cell, API)
    assert (cost.prompt, cost.completion, cost.api) == pytest.approx((1.0, 0.1, 0.14))
    assert of("Cost", cell) == (Grade.UNKNOWN, "no prices")
    assert of("Cost", cell, prices=PRICES) == (Grade.PASS, "the table below, with 1 cells")


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


@pytest.mark.parametrize(
    "flags, code, message",
    [
        (
            ["--gpu-hour-price", "4"],
            2,
            "vllm-slo: --gpu-hour-price: needs a price to compare with; add --api-price IN/OUT\n",
        ),
        ([], 2, "vllm-slo: {}/experiment.json: not the output of an experiment: no such file or directory\n"),
    ],
)
def test_a_wrong_use_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], code: int, message: str
) -> None:
    assert main(["experiment", "grade", str(tmp_path), *flags]) == code
    assert capsys.readouterr().err == message.format(tmp_path)


def test_a_price_is_above_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "grade", str(tmp_path), "--gpu-hour-price", "0"]) == 2
    message = "--gpu-hour-price: 0 is not a price; write the price of one GPU hour, such as 2.50"
    assert capsys.readouterr().err == f"vllm-slo: {message}\n"
