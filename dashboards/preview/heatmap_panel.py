"""The document of a heatmap panel: the values of each bucket of a histogram, over time."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from dashboards.preview.calculations import is_absent
from dashboards.preview.data_frames import Frame, TimeGrid
from dashboards.preview.field_config import FieldConfigSource
from dashboards.preview.graph_panel import tick_count
from dashboards.preview.units import format_value


def heatmap(
    panel: Mapping[str, Any], frames: Iterable[Frame], configs: FieldConfigSource, grid: TimeGrid
) -> dict[str, Any]:
    """Rows from the lowest bucket up; each cell has its intensity (0 to 1) and its value as text."""
    options = panel.get("options") or {}
    bounds, rows = _buckets(frames, grid)
    least = float((options.get("filterValues") or {}).get("le") or 0.0)
    greatest = max((value for row in rows for value in row if value), default=0.0)
    power = float((options.get("color") or {}).get("exponent") or 1.0)
    unit = str((options.get("cellValues") or {}).get("unit") or "")
    bound_unit = str((options.get("yAxis") or {}).get("unit") or configs.defaults.get("unit") or "")
    bound_texts = ["∞" if bound == float("inf") else format_value(bound, bound_unit) for bound in bounds]
    every = max(1, -(-len(bounds) // tick_count(panel)))
    return {
        "start": grid.start * 1000,
        "step": grid.step * 1000,
        "axes": [
            {
                "range": [-0.5, len(rows) - 0.5],
                "at": [place + 0.5 for place in range(len(bounds))][::every],
                "text": bound_texts[::every],
                "title": "",
                "side": "left",
            }
        ],
        "limits": [],
        "rows": [[_intensity(value, least, greatest, power) for value in row] for row in rows],
        "text": [[None if value is None else format_value(value, unit) for value in row] for row in rows],
        "names": [f"{low} to {high}" for low, high in zip(["0", *bound_texts], bound_texts, strict=False)],
        "scheme": str((options.get("color") or {}).get("scheme") or "Oranges"),
        "reverse": bool((options.get("color") or {}).get("reverse")),
        "greatest": format_value(greatest, unit),
    }


def _buckets(frames: Iterable[Frame], grid: TimeGrid) -> tuple[list[float], list[list[float | None]]]:
    """The upper bounds and the values of each bucket; Prometheus's cumulative buckets are subtracted."""
    by_bound: dict[float, list[float | None]] = {}
    for frame in frames:
        column = frame.fields[-1]
        if "le" in column.labels:
            by_bound[float(column.labels["le"])] = [None if is_absent(value) else value for value in column.values]
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
    return round(math.pow(value / greatest, power), 4)
