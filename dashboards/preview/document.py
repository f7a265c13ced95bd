"""Converts a dashboard and the results of its queries to the JSON document that the page draws."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from typing import Any

from markdown_it import MarkdownIt

from dashboards.live.interpolation import UnknownVariableError, expand
from dashboards.live.reader import annotations_of
from dashboards.preview.drawing.graph import graph
from dashboards.preview.drawing.heatmap import heatmap
from dashboards.preview.drawing.stat_panel import bar_gauge, stat
from dashboards.preview.drawing.table import table
from dashboards.preview.frames.field_config import Context, FieldConfigSource, field_config_source
from dashboards.preview.frames.frame import Frame, TimeGrid
from dashboards.preview.frames.transformations import transform
from dashboards.preview.grid import PanelPlacement, sections
from dashboards.preview.queries import QueryRunner, queries_of
from dashboards.preview.variables import VariableState, parameters_of, pattern_of, variable_states
from dashboards.preview.view import View
from exporters.analysis.prometheus_api import Prometheus

# More would slow down the evaluation of alerts, as in the audit.
_CONCURRENCY = 2


def document(
    dashboard: Mapping[str, Any],
    prometheus: Prometheus,
    view: View,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> dict[str, Any]:
    """Everything on the page; `on_progress` is called with the numbers of finished and of all queries.

    Raises:
        UsageError: the server is not reachable.
    """
    variables = variable_states(dashboard, QueryRunner(prometheus, view))
    patterns, texts, parameters = (
        {variable.name: getattr(variable, attribute) for variable in variables}
        for attribute in ("pattern", "text", "parameters")
    )
    texts |= {
        name: f"{round(end * 1000)}" for name, end in (("__from", view.time_range.start), ("__to", view.time_range.end))
    }
    rows = sections(dashboard, variables)
    annotations = [each for each in annotations_of(dashboard) if each.get("enable", True)]
    placements = [placement for row in rows for placement in row.panels]
    total, done = sum(len(queries_of(placement.panel)) for placement in placements) + len(annotations), count(1)
    runner = QueryRunner(prometheus, view, lambda: on_progress(next(done), total))
    with ThreadPoolExecutor(_CONCURRENCY) as pool:
        drawn = pool.map(lambda placement: _panel(placement, runner, patterns, texts, parameters), placements)
        panels = iter(list(drawn))
        annotation_results = list(pool.map(lambda each: runner.annotation_events(each, patterns), annotations))
    return {
        "title": str(dashboard.get("title", "")),
        "from": view.aligned.start * 1000,
        "to": view.aligned.end * 1000,
        "zone": view.local_end.tzname(),
        "shift": (view.local_end.utcoffset() or timedelta()).total_seconds() * 1000,
        "variables": [_variable_json(variable) for variable in variables if variable.is_visible],
        "sections": [
            {
                "title": _expand_text(
                    row.title, {**texts, **{name: text for name, (text, _) in row.repeat_values.items()}}
                ),
                "closed": row.is_closed,
                "panels": [next(panels) for _ in row.panels],
            }
            for row in rows
        ],
        "annotations": [event for events, _ in annotation_results for event in events],
        "errors": [error for _, errors in annotation_results for error in errors],
    }


def _panel(
    placement: PanelPlacement,
    runner: QueryRunner,
    patterns: Mapping[str, str],
    texts: Mapping[str, str],
    parameters: Mapping[str, str],
) -> dict[str, Any]:
    panel, repeat_values = placement.panel, placement.repeat_values
    patterns = {
        **patterns,
        **{name: pattern_of({"multi": True}, [value]) for name, (_, value) in repeat_values.items()},
    }
    texts = {**texts, **{name: text for name, (text, _) in repeat_values.items()}}
    parameters = {**parameters, **{name: parameters_of(name, [value]) for name, (_, value) in repeat_values.items()}}
    frames, errors = runner.panel_frames(queries_of(panel), patterns)
    configs = field_config_source(panel, Context(runner.view.time_range.end, runner.view.zone, texts, parameters))
    frames = transform(frames, panel.get("transformations") or [])
    kind, body = _body(panel, frames, configs, runner.view.grid)
    return {
        "id": panel.get("id"),
        "kind": kind,
        "type": str(panel.get("type") or "of a library"),
        "title": _expand_text(str(panel.get("title", "")), texts),
        "description": _expand_text(str(panel.get("description", "")), texts),
        "position": placement.position,
        "errors": errors,
        # the text of a panel without data; a stat and a bar gauge draw it as a value
        "empty": str(configs.defaults.get("noValue") or "No data")
        if kind in {"graph", "heatmap", "table"} and not any(frame.rows for frame in frames)
        else "",
        **body,
    }


def _body(
    panel: Mapping[str, Any], frames: list[Frame], configs: FieldConfigSource, grid: TimeGrid
) -> tuple[str, dict[str, Any]]:
    """The kind of drawing, and the part of the document that is specific to it."""
    match panel.get("type"):
        case "timeseries":
            return "graph", graph(panel, frames, configs, grid)
        case "heatmap":
            return "heatmap", heatmap(panel, frames, configs, grid)
        case "stat" | "gauge":
            return "stat", stat(panel, frames, configs)
        case "bargauge":
            return "bars", bar_gauge(panel, frames, configs)
        case "table":
            return "table", table(panel, frames, configs)
        case "text":
            # HTML is escaped, because the file is untrusted
            content = _expand_text(str((panel.get("options") or {}).get("content", "")), configs.context.variable_texts)
            return "text", {"html": MarkdownIt("js-default").render(content)}
    return "unknown", {}


def _variable_json(variable: VariableState) -> dict[str, Any]:
    values = ["$__all"] if variable.is_all else [value for _, value in variable.selection]
    options = [("All", "$__all")] if variable.include_all else []
    return {
        "name": variable.name,
        "label": variable.label,
        "text": variable.text,
        "values": values,
        "options": [*options, *variable.options],
    }


def _expand_text(text: str, texts: Mapping[str, str]) -> str:
    try:
        return expand(text, texts)
    except UnknownVariableError:
        # a literal dollar sign
        return text
