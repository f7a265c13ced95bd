"""Adds the tab "SLO" to Locust's web page: a row per class, with the goodput and the TTFT that Locust does not know."""

from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask, Response, json, request
from locust.web import WebUI

from loadgen.run.live_figures import ClassFigures, LiveFigures

_KEY = "slo"
_COLUMNS = {
    "class": "Class",
    "offered": "Offered",
    "open": "Open",
    "ok": "Ok",
    "failed": "Not ok",
    "goodput": "Goodput (%)",
    "ttft50": "TTFT p50 (ms)",
    "ttft95": "TTFT p95 (ms)",
    "ttft99": "TTFT p99 (ms)",
    "end50": "E2E p50 (ms)",
    "end99": "E2E p99 (ms)",
    "tokens": "Output tokens/s (last 10 s)",
    "lag": "Send lag p99 (ms)",
}
"""The titles by key; Locust's page changes keys with an underscore."""

_Current = Callable[[], tuple[LiveFigures, float] | None]


def add_tab(web_ui: WebUI, current: _Current) -> None:
    """Show the figures of the run that `current` returns with the seconds since its start; None before the first."""
    structure = [{"key": key, "title": title} for key, title in _COLUMNS.items()]
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


def _rows(figures: LiveFigures, now: float) -> Iterable[dict[str, str | int | float]]:
    for row in figures.rows:
        yield {
            "class": row.name,
            "offered": row.offered,
            "open": row.open,
            "ok": row.ok,
            "failed": row.ended - row.ok,
            "goodput": "-" if row.goodput is None else round(row.goodput * 100, 2),
            **_latencies(row),
            "tokens": round(row.recent(now).tokens_per_second, 1),
            "lag": _milliseconds(row.lag.percentile(99)),
        }


def _latencies(row: ClassFigures) -> dict[str, str | float]:
    times = {"ttft50": row.ttft.percentile(50), "ttft95": row.ttft.percentile(95), "ttft99": row.ttft.percentile(99)}
    times |= {"end50": row.e2e.percentile(50), "end99": row.e2e.percentile(99)}
    return {key: _milliseconds(value) for key, value in times.items()}


def _milliseconds(seconds: float | None) -> str | float:
    if seconds is None:
        return "-"
    return "∞" if seconds == float("inf") else round(seconds * 1000, 1)
