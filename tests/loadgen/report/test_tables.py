"""The report fits the width of its output."""

import io
import math
from pathlib import Path

import pytest
from msgspec import structs
from rich.console import Console

from exporters.vocabulary.signals import Verdict
from loadgen.report.tables import FOLDED, format_percent, format_seconds, render, show
from loadgen.results.record import ClientOutcome, Objective, Record, Run, read_records, read_run
from loadgen.results.steady_state import Timed
from loadgen.results.summary import summarise
from loadgen.schedule.phases import Steady
from tests.loadgen.load_records import record, run
from tests.loadgen.queues import queue, seeded
from tests.loadgen.run_flags import refusal

RUN = run()
SIZES = {"prompt_tokens": 100_000, "completion_tokens": 20_000, "cached_tokens": 90_000, "send_lag": 0.001}
GOOD = record(**SIZES, phase="calm", ttft=0.25, slo={"ttft": Verdict.GOOD}, good=True)
BAD = record(**SIZES, phase="busy", outcome=ClientOutcome.UPSTREAM_ERROR, slo={"ttft": Verdict.BAD}, good=False)
RECORDS = [GOOD] * 6 + [BAD] * 4


def rendered(width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    narrow = width < FOLDED
    console.print(render(RUN, summarise(RUN, RECORDS), narrow=narrow))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 100, FOLDED, 160])
def test_nothing_is_cut_off_at(width: int) -> None:
    text = rendered(width)
    assert "…" not in text
    assert all(len(line) <= width for line in text.splitlines())
    texts = ("calm", "busy", "whole run", "upstream_error 4", "100 %", "60 %", "250 ms", "1000000", "200000", "900000")
    assert [each for each in texts if each not in text] == []


def shown(of: Run, records: list[Record]) -> list[str]:
    """The lines of a report."""
    out = io.StringIO()
    show(of, summarise(of, records), Console(file=out, width=160))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_an_slo_on_valid_output_is_reported_as_not_judged() -> None:
    judged = structs.replace(RUN, slos=[*RUN.slos, Objective("json", "valid_output", None, 0.99)])
    assert shown(judged, RECORDS)[-1] == (
        "! the SLO 'json' is not judged: its signal is valid_output, and the requests of a scenario neither ask for "
        "JSON nor offer tools"
    )


def test_a_quantile_that_no_stream_reached_is_infinite() -> None:
    line = next(line for line in rendered(160).split("whole run")[1].splitlines() if "siso" in line)
    assert line.split()[:14] == "siso 10 6 upstream_error 4 60 % 250 ms ∞ ∞ 4 - 1 ms".split()[:14]  # noqa: SIM905


def test_a_percentile_is_infinite_only_where_requests_failed() -> None:
    """Without streams there is no TTFT and no TPOT, which is not an infinite one."""
    unary = [record(stream=False, e2e=1.0), record(stream=False, outcome=ClientOutcome.TIMEOUT)]
    lines = {name: table_line(unary, name) for name in ("TTFT", "E2E", "TPOT")}
    assert {name: line.split()[2:] for name, line in lines.items()} == {
        "TTFT": ["-"] * 6,
        "E2E": ["1", "s"] * 4 + ["∞"] * 2,
        "TPOT": ["-"] * 6,
    }
    started = [record(ttft=0.25), record(outcome=ClientOutcome.TIMEOUT)]
    assert table_line(started, "TTFT").split()[2:] == ["250", "ms"] * 4 + ["∞"] * 2
    # The stream of one token, which has no TPOT, ended ok.
    assert table_line([record(e2e=1.0), unary[1]], "TPOT").split()[2:] == ["-"] * 6


def table_line(records: list[Record], signal: str) -> str:
    """The latencies of the whole run of one class."""
    lines = shown(RUN, records)
    begin = next(number for number, line in enumerate(lines) if line.startswith("latencies of the whole run"))
    return next(line for line in lines[begin:] if line.split()[:2] == ["siso", signal])


def test_throughput_counts_output_tokens_only() -> None:
    assert "throughput: 100000.0 output tokens/s and 3.00 ok requests/s; prompt tokens, which" in rendered(160)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    assert refusal(lambda: read_run(tmp_path)) == f"{tmp_path}: not the output of a load run: run.json cannot be read"
    (tmp_path / "requests.jsonl").write_text("{}\n")
    assert refusal(lambda: read_records(tmp_path)) == (
        f"{tmp_path / 'requests.jsonl'}:1: not a request record: Object missing required field `class`"
    )


def test_the_report_is_wide_when_the_output_is_not_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=40)
    show(RUN, summarise(RUN, RECORDS), console)
    assert console.width == 160


@pytest.mark.parametrize(
    "seconds, text",
    [
        (None, "-"),
        (0.00042, "0.42 ms"),
        (0.0123, "12.3 ms"),
        (0.25, "250 ms"),
        (0.9999, "1 s"),
        (2.345, "2.35 s"),
        (180.4, "180 s"),
        (math.inf, "∞"),
    ],
)
def test_a_duration_has_three_digits(seconds: float | None, text: str) -> None:
    assert format_seconds(seconds) == text


def test_a_share_is_a_percentage() -> None:
    assert (format_percent(None), format_percent(0.995), format_percent(2 / 3)) == ("-", "99.5 %", "66.67 %")


def test_the_stable_window_is_a_table_beside_the_whole_phase() -> None:
    steady = run(phases=[Steady("calm", 200, 10), Steady("busy", 100, 10), Steady("brief", 1, 10)])
    records = [
        *(timed_record("calm", each) for each in queue(0.5, 2000, seeded(4), rate=10)),
        *(timed_record("busy", each) for each in queue(1.5, 1000, seeded(4), rate=10)),
        *(timed_record("brief", each) for each in queue(0.5, 10, seeded(4), rate=10)),
    ]
    result, lines = summarise(steady, records), shown(steady, records)
    assert [line for line in lines if line.endswith("stable window")] == ["calm, stable window"]
    (line,) = [line for line in lines if line.startswith("steady state of calm: steady (latency ")]
    window = result.stable["calm"]
    assert window.steady.start is not None
    left_out = format_percent(window.left_out)
    assert line.endswith(f"; stable window from {window.steady.start:.1f} s, without {left_out} of its requests")
    (line,) = [line for line in lines if line.startswith("steady state of busy: not steady (latency +0.")]
    assert line.endswith(" per request)")
    assert "steady state of brief: too short to say" in lines


def timed_record(phase: str, times: Timed) -> Record:
    return record(phase=phase, due=times.due, sent=times.due, ttft=times.wait, first=times.closed, closed=times.closed)
