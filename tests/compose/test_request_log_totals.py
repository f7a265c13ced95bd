"""Totals of the request log in a window."""

import json
from pathlib import Path
from typing import Any

import pytest

from compose import request_log_totals
from compose.request_log_totals import ClassFigures
from exporters.comparison.comparison_windows import Window
from exporters.errors import UsageError

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
    assert siso.tokens_per_second == 150 / 4
    assert siso.cache_hit_ratio == 80 / 200
    assert (liso.offered, liso.ttft_p50, liso.tokens_per_second) == (1, None, 0)
    assert (every.name, every.offered) == ("all", 3)


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
