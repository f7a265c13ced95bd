"""Totals of the request log in a window, and the table of them."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from compose.demo import report, request_log_totals
from compose.demo.request_log_totals import ClassFigures
from exporters.analysis.estimates.windows import Window
from exporters.text.errors import UsageError

LINE = {
    "time": "2026-01-31T12:00:10.000000+00:00",
    "request_id": "a",
    "class": "siso",
    "stream": True,
    "outcome": "ok",
    "prompt_tokens": 100,
    "completion_tokens": 50,
    "cached_tokens": 80,
    "ttft_ms": 200.0,
    "e2e_ms": 5000.0,
    "slo": {"ttft": "good", "availability": "good"},
}
NOON = 1769860800.0


def figures(folder: Path, window: Window, *lines: dict[str, Any]) -> tuple[ClassFigures, ...]:
    path = folder / "log"
    path.write_text("".join(json.dumps(LINE | line) + "\n" for line in lines))
    return request_log_totals.figures(request_log_totals.read(path), ["siso", "liso"], window)


def test_requests_count_where_they_arrive_and_tokens_where_they_end(tmp_path: Path) -> None:
    siso, liso, every = figures(
        tmp_path,
        Window(NOON + 10, NOON + 14),
        {},
        {"outcome": "upstream_error", "ttft_ms": None, "slo": {"ttft": "bad"}, "e2e_ms": 500.0, "cached_tokens": None},
        {"class": "liso", "stream": False, "ttft_ms": None},
    )
    assert (siso.offered, siso.ok, siso.goodput, siso.ttft_p50) == (2, 1, 0.5, 0.2)
    assert siso.ttft_p95 == math.inf  # the failed stream
    # only the failed request ended in the window
    assert (siso.output_tokens_per_second, siso.prompt_tokens_per_second) == (50 / 4, 100 / 4)
    assert siso.cache_hit_ratio == 80 / 200
    assert (liso.offered, liso.ttft_p50, liso.output_tokens_per_second) == (1, None, 0)
    assert (every.name, every.offered) == ("all", 3)


def test_cached_tokens_are_no_prompt_tokens(tmp_path: Path) -> None:
    siso, *_ = figures(tmp_path, Window(NOON, NOON + 60), {})
    assert (siso.output_tokens_per_second, siso.prompt_tokens_per_second) == (50 / 60, (100 - 80) / 60)


@pytest.mark.parametrize(
    "line, ttft",
    [
        pytest.param({}, 0.2, id="a first token"),
        pytest.param({"outcome": "client_abort", "ttft_ms": None}, math.inf, id="aborted by its client"),
        pytest.param({"outcome": "rejected", "ttft_ms": None}, math.inf, id="rejected"),
        pytest.param({"outcome": "timeout_first_token", "ttft_ms": None}, math.inf, id="timed out"),
        pytest.param({"outcome": "client_error", "ttft_ms": None}, None, id="an invalid request"),
        pytest.param({"ttft_ms": None}, None, id="an empty response"),
        pytest.param({"stream": False, "ttft_ms": None}, None, id="unary"),
    ],
)
def test_a_stream_without_a_first_token_is_slower_than_any(
    line: dict[str, Any], ttft: float | None, tmp_path: Path
) -> None:
    siso, *_ = figures(tmp_path, Window(NOON, NOON + 60), line)
    assert siso.ttft_p50 == ttft


def test_a_window_without_requests_has_no_goodput(tmp_path: Path) -> None:
    siso, *_ = figures(tmp_path, Window(0, 10), {})
    assert (siso.offered, siso.goodput, siso.ttft_p95, siso.cache_hit_ratio) == (0, None, None, None)


def test_an_abandoned_request_is_not_an_event(tmp_path: Path) -> None:
    siso, *_ = figures(tmp_path, Window(NOON, NOON + 60), {"slo": {"ttft": "abandoned"}})
    assert (siso.offered, siso.goodput) == (1, None)


def test_a_file_that_is_not_a_request_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_text('{"time": 1}\n')
    with pytest.raises(UsageError, match=r"log: not a request log: "):
        request_log_totals.read(tmp_path / "log")
    with pytest.raises(UsageError, match=r"none: cannot be read: no such file or directory"):
        request_log_totals.read(tmp_path / "none")


def test_the_table_has_output_and_prompt_tokens_apart_and_streams_without_a_token() -> None:
    figures = {
        "baseline": [ClassFigures("siso", 100, 100, 1.0, 0.1, 0.2, 300.0, 1200.0, 0.0)],
        "overload": [ClassFigures("siso", 100, 40, 0.1, 9.5, math.inf, 310.0, 1250.0, 0.5)],
    }
    console = Console(width=140)
    with console.capture() as printed:
        console.print(report.before_and_after(figures, {"baseline": 60.0, "overload": 75.0}))
    lines = [[cell.strip() for cell in line.strip("┃│").split(line[0])] for line in printed.get().splitlines()[1:]]
    rows = [cells for cells in lines if len(cells) > 5]
    assert rows[0][2:9] == ["offered", "ok", "goodput", "TTFT p50", "TTFT p95", "output tokens/s", "prompt tokens/s"]
    assert rows[1][1:9] == ["baseline (60 s)", "100", "100", "100.0%", "100 ms", "200 ms", "300", "1200"]
    assert rows[2][1:9] == ["overload (75 s)", "100", "40", "10.0%", "9.5 s", "no token", "310", "1250"]
