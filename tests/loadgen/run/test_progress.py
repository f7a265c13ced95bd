"""A live table on a terminal of any width, log lines elsewhere, and a notice if requests all fail in the same way."""

import io
import logging
import sys
from collections.abc import Iterator

import pytest
from rich.console import Console

from loadgen.results.record import ClientOutcome, Record
from loadgen.results.saturation import Saturation
from loadgen.run import progress
from loadgen.run import settings as run_settings
from loadgen.run.live_figures import LiveFigures
from loadgen.run.monitor import FIRST, LATER, FailureNotice
from loadgen.run.progress import Progress
from loadgen.run.stalls import StallWatch
from tests.loadgen.load_records import record
from tests.loadgen.run_flags import parsed

CLASSES = ("siso", "a class with a long name")


def shown(width: int, *, terminal: bool = True) -> tuple[Progress, LiveFigures, Console, io.StringIO]:
    """The progress of a run of `mixed` whose requests ended 14 s after its start, its figures, console and output."""
    figures = LiveFigures(CLASSES)
    for name in CLASSES:
        for number in range(2000):
            at = 14 + number / 2000
            figures.offer(name)
            figures.dispatch(name, 0.0123, at)
            outcome = ClientOutcome.OK if number % 10 else ClientOutcome.REJECTED
            ttft = 0.123 if number % 10 else None
            figures.end(
                record(
                    request_class=name,
                    closed=at,
                    outcome=outcome,
                    ttft=ttft,
                    e2e=1.0,
                    good=ttft is not None,
                    completion_tokens=100,
                )
            )
    figures.offer("siso")
    settings = run_settings.from_arguments(
        parsed("--scenario", "mixed", "--target", "http://127.0.0.1:1", "--out", "o"), {}
    )
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None)
    return Progress(figures, 0.0, settings, StallWatch(), console), figures, console, out


def lines(width: int, now: float = 15.0) -> list[str]:
    progress_, _, console, _ = shown(width)
    with console.capture() as capture:
        console.print(progress_.render(now))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_80_columns_show_every_figure() -> None:
    assert lines(80) == [
        "steady ━                        4:45 left",
        "class        offered open   ok not ok goodput TTFT p50 p95 tok/s     lag",
        "────────────────────────────────────────────────────────────────────────",
        "siso            2001    1 1800    200    90 %   123 ms   ∞ 20000 12.3 ms",
        "a class wit…    2000    0 1800    200    90 %   123 ms   ∞ 20000 12.3 ms",
        "all             4001    1 3600    400    90 %   123 ms   ∞ 40000 12.3 ms",
        "goodput to lag: of the last 10 s",
    ]


def test_a_saturated_server_is_shown_on_a_terminal_and_in_the_log_line() -> None:
    progress_, _, console, _ = shown(80)
    progress_.saturation = Saturation(phase="steady", since=61.0, detected=130.0, offered=12.0, completed=9.96)
    with console.capture() as capture:
        console.print(progress_.render(131.0))
    text = "saturated since about 61 s: 12 requests/s offered, 9.96 end"
    assert text in [line.rstrip() for line in capture.get().splitlines()]
    assert text in progress_.line(131.0)


def test_a_wide_terminal_shows_the_figures_of_the_run_too() -> None:
    header = " ".join(lines(160)[1].split())
    assert header == "class offered open ended ok not ok goodput TTFT p50 p95 tok/s lag goodput TTFT p50 p95"
    assert lines(160)[4].startswith("a class with a long name")


@pytest.mark.parametrize("width", [40, 79, 80, 100, 160])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    assert max(map(len, lines(width))) <= width


def test_after_the_last_phase_open_requests_have_the_timeout() -> None:
    assert lines(80, now=310.0)[0] == "draining ━                        2:50 left"


def test_what_makes_the_run_invalid_is_shown_as_it_arises() -> None:
    progress_, figures, _, _ = shown(160)
    for _ in range(100):
        figures.dispatch("siso", 0.2, 14.5)
    fault = "INVALID so far: send lag p99 is 200 ms, above 50 ms: the load generator was overloaded; "
    assert fault in progress_.line(15.0)
    assert "INVALID" not in progress_.line(5.0)  # too early for a share


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logger = logging.getLogger("loadgen")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_without_a_terminal_there_is_a_log_line_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, log: io.StringIO
) -> None:
    progress_, _, _, out = shown(80, terminal=False)
    for now in (9.0, 10.0, 15.0, 19.9, 20.0):
        monkeypatch.setattr(progress, "monotonic", lambda now=now: now)
        progress_.tick()
    progress_.close()
    assert out.getvalue() == ""
    first, second = log.getvalue().splitlines()
    assert first == (
        "   10 s steady     offered 4001  open 1  ok 3600  not ok 400  last 10 s: goodput 90 %, TTFT p50 123 ms, "
        "40000 output tokens/s  worst send lag 12.3 ms"
    )
    assert second.startswith("   20 s steady ")


def test_log_lines_appear_above_the_table_and_the_log_is_as_before_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    progress_, _, _, out = shown(80)
    original = sys.stderr
    handler = logging.StreamHandler(original)
    logger = logging.getLogger()
    logger.addHandler(handler)
    try:
        progress_.tick()
        assert handler.stream is not original
        logger.warning("the first 5 requests all failed")
        progress_.tick()
        progress_.close()
    finally:
        logger.removeHandler(handler)
    assert handler.stream is original
    assert sys.stderr is original
    text = out.getvalue()
    assert text.index("the first 5 requests all failed") > text.index("siso")
    assert "\x1b[2J" not in text  # the screen is never cleared, which would flicker


def test_a_terminal_without_cursor_movement_gets_log_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    progress_, _, _, out = shown(80)
    progress_.tick()
    assert out.getvalue() == ""


WRONG_MODEL = record(outcome=ClientOutcome.CLIENT_ERROR, status=404, error="The model `m` does not exist.")
WRONG = "client_error, status 404: The model `m` does not exist.; ctrl-c stops the run"
REFUSED = record(outcome=ClientOutcome.UPSTREAM_UNREACHABLE, error="connection refused")


def notices(records: list[Record]) -> list[tuple[int, str]]:
    """Each notice, with the number of records until then."""
    notice = FailureNotice()
    return [(number, text) for number, each in enumerate(records, start=1) if (text := notice.add(each)) is not None]


def test_the_first_requests_that_all_fail_give_one_notice() -> None:
    assert notices([WRONG_MODEL] * 100) == [(FIRST, f"the first 5 requests all failed: {WRONG}")]


def test_a_target_that_dies_during_the_run_gives_one_notice_and_another_failure_one_more() -> None:
    records = [record(), *[REFUSED] * 100, record(), *[REFUSED] * 100, *[WRONG_MODEL] * LATER]
    assert notices(records) == [
        (1 + LATER, "the last 20 requests all failed: upstream_unreachable: connection refused; ctrl-c stops the run"),
        (len(records), f"the last 20 requests all failed: {WRONG}"),
    ]


def test_failures_between_successes_give_none() -> None:
    assert notices([record(), *[REFUSED] * (LATER - 1)] * 10) == []


def test_requests_that_the_client_ends_or_does_not_send_give_none() -> None:
    own = [record(outcome=ClientOutcome.CUT), record(outcome=ClientOutcome.NOT_SENT)]
    assert notices(own * 100) == []
