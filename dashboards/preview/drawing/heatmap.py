"""The document of a heatmap panel: the values of each bucket of a histogram, or of each series, over time."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from dashboards.preview.drawing.graph import tick_count
from dashboards.preview.frames.calculations import is_absent
from dashboards.preview.frames.field_config import FieldConfigSource
from dashboards.preview.frames.frame import Field, Frame, TimeGrid
from dashboards.preview.frames.units import format_value


def heatmap(
    panel: Mapping[str, Any], frames: Iterable[Frame], configs: FieldConfigSource, grid: TimeGrid
) -> dict[str, Any]:
    """Rows from the lowest bucket or the first series up; each cell has its intensity (0 to 1) and a text."""
    options = panel.get("options") or {}
    values = [frame.fields[-1] for frame in frames]
    bounds, rows = _buckets(values, grid)
    bound_unit = str((options.get("yAxis") or {}).get("unit") or configs.defaults.get("unit") or "")
    bound_texts = ["∞" if bound == float("inf") else format_value(bound, bound_unit) for bound in bounds]
    names = [f"{low} to {high}" for low, high in zip(["0", *bound_texts], bound_texts, strict=False)]
    if not bounds:
        names = bound_texts = [column.title for column in values]
        rows = [_present(column) for column in values]
    least = float((options.get("filterValues") or {}).get("le") or 0.0)
    scale = options.get("color") or {}
    greatest = scale.get("max") or max((value for row in rows for value in row if value), default=0.0)
    power = float(scale.get("exponent") or 1.0)
    unit = str((options.get("cellValues") or {}).get("unit") or "")
    every = max(1, -(-len(rows) // tick_count(panel)))
    return {
        "start": grid.start * 1000,
        "step": grid.step * 1000,
        "axes": [
            {
                "range": [-0.5, len(rows) - 0.5],
                "at": [place + 0.5 for place in range(len(rows))][::every],
                "text": bound_texts[::every],
                "title": "",
                "side": "left",
            }
        ],
        "limits": [],
        "rows": [[_intensity(value, least, greatest, power) for value in row] for row in rows],
        "text": [[None if value is None else format_value(value, unit) for value in row] for row in rows],
        "names": names,
        "greatest": format_value(greatest, unit),
    }


def _present(column: Field) -> list[float | None]:
    return [None if is_absent(value) else value for value in column.values]


def _buckets(columns: Iterable[Field], grid: TimeGrid) -> tuple[list[float], list[list[float | None]]]:
    """The upper bounds and the values of each bucket; Prometheus's cumulative buckets are subtracted."""
    by_bound: dict[float, list[float | None]] = {}
    for column in columns:
        if "le" in column.labels:
            by_bound[float(column.labels["le"])] = _present(column)
    bounds = sorted(by_bound)
    previous: list[float | None] = [0.0] * grid.points
    rows = []
    for bound in bounds:
        cumulative = by_bound[bound]
        rows.append(
            [None if a is None or b is None else max(0.0, a - b) for a, b in zip(cumulative, previous, strict=True)]
        )
        previous = cumulative
    return bounds, rows


def _intensity(value: float | None, least: float, greatest: float, power: float) -> float | None:
    if value is None or value <= least or not greatest:
        return None
    return round(math.pow(min(1.0, value / greatest), power), 4)
