"""Adds the tab "SLO" to Locust's web page: a row per class, with the goodput and the TTFT that Locust does not know."""

from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask, Response, json, request
from locust.web import WebUI

from loadgen.run.live_figures import ClassFigures, LiveFigures

_KEY = "slo"
_Cell = str | int | float
_COLUMNS: dict[str, tuple[str, Callable[[ClassFigures, float], _Cell]]] = {
    "class": ("Class", lambda row, _: row.name),
    "offered": ("Offered", lambda row, _: row.offered),
    "open": ("Open", lambda row, _: row.open),
    "ok": ("Ok", lambda row, _: row.ok),
    "failed": ("Not ok", lambda row, _: row.ended - row.ok),
    "goodput": ("Goodput (%)", lambda row, _: "-" if row.goodput is None else round(row.goodput * 100, 2)),
    "ttft50": ("TTFT p50 (ms)", lambda row, _: _milliseconds(row.ttft.percentile(50))),
    "ttft95": ("TTFT p95 (ms)", lambda row, _: _milliseconds(row.ttft.percentile(95))),
    "ttft99": ("TTFT p99 (ms)", lambda row, _: _milliseconds(row.ttft.percentile(99))),
    "end50": ("E2E p50 (ms)", lambda row, _: _milliseconds(row.e2e.percentile(50))),
    "end99": ("E2E p99 (ms)", lambda row, _: _milliseconds(row.e2e.percentile(99))),
    "tokens": ("Output tokens/s (last 10 s)", lambda row, now: round(row.recent(now).tokens_per_second, 1)),
    "lag": ("Send lag p99 (ms)", lambda row, _: _milliseconds(row.lag.percentile(99))),
}
"""Title and cell by key, at a time in seconds since the start; Locust's page changes keys with an underscore."""

_Current = Callable[[], tuple[LiveFigures, float] | None]


def add_tab(web_ui: WebUI, current: _Current) -> None:
    """Show the figures of the run that `current` returns with the seconds since its start; None before the first."""
    structure = [{"key": key, "title": title} for key, (title, _) in _COLUMNS.items()]
    web_ui.template_args["extended_tabs"] = [{"title": "SLO", "key": _KEY}]
    web_ui.template_args["extended_tables"] = [{"key": _KEY, "structure": structure}]

    def add_rows(response: Response) -> Response:
        if request.path.endswith("/stats/requests") and response.is_json:
            run = current()
            rows = [] if run is None else list(_rows(*run))
            body: dict[str, Any] = response.get_json()
            response.set_data(json.dumps({**body, "extended_stats": [{"key": _KEY, "data": rows}]}))
        return response

    app: Flask | None = web_ui.app
    if app is not None:
        app.after_request(add_rows)


def _rows(figures: LiveFigures, now: float) -> Iterable[dict[str, _Cell]]:
    return ({key: cell(row, now) for key, (_, cell) in _COLUMNS.items()} for row in figures.rows)


def _milliseconds(seconds: float | None) -> str | float:
    if seconds is None:
        return "-"
    return "∞" if seconds == float("inf") else round(seconds * 1000, 1)
