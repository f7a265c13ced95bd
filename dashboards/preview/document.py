"""Turns a dashboard's file and live answers into the document that the page draws."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from typing import Any

from markdown_it import MarkdownIt

from dashboards.audit import is_prometheus
from dashboards.interpolation import UnknownVariableError, expand
from dashboards.preview.data_frames import Frame, Grid
from dashboards.preview.field_config import Context, Style, style_of
from dashboards.preview.graph_panel import graph
from dashboards.preview.grid_layout import Placed, sections
from dashboards.preview.heatmap_panel import heatmap
from dashboards.preview.queries import Asker, queries_of
from dashboards.preview.stat_panel import bar_gauge, stat
from dashboards.preview.table_panel import table
from dashboards.preview.transformations import transformed
from dashboards.preview.variable_options import Choice, choices, pattern_of
from dashboards.preview.view_state import View
from exporters.prometheus_api import Prometheus

_AT_ONCE = 2  # as the audit: no load on a server that also evaluates the alerts


def document(
    tree: Mapping[str, Any], prometheus: Prometheus, view: View, told: Callable[[int, int], None] = lambda *_: None
) -> dict[str, Any]:
    """Everything on the page; `told` gets how many queries of how many are answered.

    Raises:
        UsageError: nothing answers at the server's address.
    """
    chosen = choices(tree, Asker(prometheus, view))
    patterns, words = ({choice.name: getattr(choice, what) for choice in chosen} for what in ("pattern", "words"))
    rows, annotations = sections(tree, chosen), _annotations(tree)
    placed = [one for row in rows for one in row.panels]
    total, done = sum(len(queries_of(one.panel)) for one in placed) + len(annotations), count(1)
    asker = Asker(prometheus, view, lambda: told(next(done), total))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        drawn = iter(list(pool.map(lambda one: _panel(one, asker, patterns, words), placed)))
        marks = list(pool.map(lambda each: asker.marks(each, patterns), annotations))
    return {
        "title": str(tree.get("title", "")),
        "from": view.aligned.start * 1000,
        "to": view.aligned.end * 1000,
        "zone": view.local.tzname(),
        "shift": (view.local.utcoffset() or timedelta()).total_seconds() * 1000,
        "choices": [_choice(choice) for choice in chosen if choice.is_shown],
        "sections": [
            {
                "title": _fill(row.title, {**words, **{name: text for name, (text, _) in row.repeated.items()}}),
                "closed": row.is_closed,
                "panels": [next(drawn) for _ in row.panels],
            }
            for row in rows
        ],
        "marks": [mark for found, _ in marks for mark in found],
        "errors": [error for _, errors in marks for error in errors],
    }


def _panel(placed: Placed, asker: Asker, patterns: Mapping[str, str], words: Mapping[str, str]) -> dict[str, Any]:
    panel, repeated = placed.panel, placed.repeated
    patterns = {**patterns, **{name: pattern_of({"multi": True}, [value]) for name, (_, value) in repeated.items()}}
    words = {**words, **{name: text for name, (text, _) in repeated.items()}}
    found, errors = asker.panel(queries_of(panel), patterns)
    style = style_of(panel, Context(asker.view.span.end, asker.view.zone, words))
    found = transformed(found, panel.get("transformations") or [])
    kind, body = _body(panel, found, style, asker.view.grid)
    has_values = any(value is not None for frame in found for column in frame.values for value in column.values)
    return {
        "id": panel.get("id"),
        "kind": kind,
        "type": str(panel.get("type") or "of a library"),
        "title": _fill(str(panel.get("title", "")), words),
        "description": _fill(str(panel.get("description", "")), words),
        "place": placed.place,
        "errors": errors,
        # what a panel without any value says instead
        "empty": "" if has_values or kind in {"text", "unknown"} else str(style.defaults.get("noValue") or "No data"),
        **body,
    }


def _body(panel: Mapping[str, Any], found: list[Frame], style: Style, grid: Grid) -> tuple[str, dict[str, Any]]:
    """What the page draws, and the part of the document that only this kind of panel has."""
    match panel.get("type"):
        case "timeseries":
            return "graph", graph(panel, found, style, grid)
        case "heatmap":
            return "heatmap", heatmap(panel, found, style, grid)
        case "stat" | "gauge":
            return "stat", stat(panel, found, style)
        case "bargauge":
            return "bars", bar_gauge(panel, found, style)
        case "table":
            return "table", table(panel, found, style)
        case "text":
            # HTML is shown as it is written: the file may come from anybody
            content = _fill(str((panel.get("options") or {}).get("content", "")), style.context.words)
            return "text", {"html": MarkdownIt("js-default").render(content)}
    return "unknown", {}


def _choice(choice: Choice) -> dict[str, Any]:
    values = ["$__all"] if choice.is_all else [value for _, value in choice.chosen]
    options = [("All", "$__all")] if choice.has_all else []
    return {
        "name": choice.name,
        "label": choice.label,
        "words": choice.words,
        "values": values,
        "options": [*options, *choice.options],
    }


def _annotations(tree: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        each
        for each in (tree.get("annotations") or {}).get("list") or []
        if ((each.get("target") or {}).get("expr") or each.get("expr"))
        and each.get("enable", True)
        and is_prometheus(each)
    ]


def _fill(text: str, words: Mapping[str, str]) -> str:
    try:
        return expand(text, words)
    except UnknownVariableError:
        return text  # a dollar sign of its own
