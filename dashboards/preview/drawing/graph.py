"""The document of a time series panel."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dashboards.preview.drawing.scales import Axis, axis_of, labels, tick_increment
from dashboards.preview.frames import colours
from dashboards.preview.frames.calculations import CALCS, reduce, sort_table_rows
from dashboards.preview.frames.field_config import FieldConfig, FieldConfigSource
from dashboards.preview.frames.frame import Field, Frame, Kind, TimeGrid
from dashboards.preview.grid import grid_position

_ROW, _PER_TICK = 38, 45
"""Pixels of one unit of the grid, and per tick."""


@dataclass(frozen=True, slots=True)
class _Series:
    column: Field
    config: FieldConfig
    title: str
    low: float
    high: float
    """The ends of all values of the panel."""

    @property
    def colour(self) -> str:
        return self.config.colour_of_series(self.column.values, self.low, self.high)

    @property
    def stack(self) -> str:
        options = self.config.custom("stacking") or {}
        return "" if options.get("mode", "none") == "none" else str(options.get("group") or "A")

    @property
    def is_visible(self) -> bool:
        return not (self.config.custom("hideFrom") or {}).get("viz")


def graph(
    panel: Mapping[str, Any], frames: Iterable[Frame], configs: FieldConfigSource, grid: TimeGrid
) -> dict[str, Any]:
    """Series, axes, thresholds and legend, in the coordinates of the plot."""
    every = _series(frames, configs)
    series = [line for line in every if line.is_visible]
    # if all lines are hidden, the axes are theirs
    measured = series or every
    keys = list(dict.fromkeys(map(_axis_key, measured)))
    # at most two axes: further units share the second
    numbers = [min(keys.index(_axis_key(line)), 1) for line in measured]
    axes = []
    for number in sorted(set(numbers)):
        lines = [line for line, line_number in zip(measured, numbers, strict=True) if line_number == number]
        axes.append(_axis(lines, tick_count(panel), is_right=number == 1))
    return {
        "start": grid.start * 1000,
        "step": grid.step * 1000,
        "axes": [axis_json for _, axis_json in axes],
        "series": [_line(line, axes[number][0], number) for line, number in zip(series, numbers, strict=False)],
        "limits": _limits(measured[0].config, axes[0][0]) if measured else [],
        "legend": _legend(panel, series),
        "order": (panel.get("options", {}).get("tooltip") or {}).get("sort", "none"),
    }


def tick_count(panel: Mapping[str, Any]) -> int:
    """The number of ticks that fit the height of the panel."""
    *_, height = grid_position(panel)
    return max(2, int(_ROW * height) // _PER_TICK - 1)


def _series(frames: Iterable[Frame], configs: FieldConfigSource) -> list[_Series]:
    # Grafana removes NaN and infinity before it draws lines, legend and tooltip
    drawn = [
        (replace(column, values=[_finite(value) for value in column.values]), configs.of(column, frame.ref))
        for frame in frames
        for column in frame.fields
        if column.kind is Kind.NUMBER
    ]
    present = [value for column, _ in drawn for value in column.values if value is not None]
    ends = min(present, default=0.0), max(present, default=0.0)
    return [_Series(column, config, config.title(column), *ends) for column, config in drawn]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _axis_key(line: _Series) -> tuple[str, bool]:
    """Series with the same unit on the same side share an axis."""
    return str(line.config.settings.get("unit", "")), line.config.custom("axisPlacement") == "right"


def _axis(series: list[_Series], most: int, *, is_right: bool) -> tuple[Axis, dict[str, Any]]:
    config = series[0].config
    axis = axis_of(config, _axis_values(series))
    unit = str(config.settings.get("unit", ""))
    ticks = axis.scale.ticks(axis.low, axis.high, most, unit)
    if config.custom("axisPlacement") == "hidden":
        ticks = []
    increment = tick_increment(axis.low, axis.high, most, unit)
    # Grafana 10 prints the text for null at ticks whose label is hidden; 11.6 does not
    hidden = axis.scale.hidden_ticks(axis.low, axis.high) if config.no_value else []
    return axis, {
        "range": axis.range,
        "at": [axis.scale.place(tick) for tick in (*ticks, *hidden)],
        "text": [*labels(ticks, config, increment), *(config.no_value for _ in hidden)],
        "title": str(config.custom("axisLabel") or ""),
        "side": "right" if is_right or config.custom("axisPlacement") == "right" else "left",
    }


def _axis_values(series: Iterable[_Series]) -> Iterable[float]:
    """The values that the axis must show; for a stack, its sums."""
    stacks: dict[str, list[float]] = defaultdict(list)
    for line in series:
        if not line.stack:
            yield from (value for value in line.column.values if value is not None)
            continue
        sums = stacks[line.stack] or [0.0] * len(line.column.values)
        stacks[line.stack] = [total + (value or 0.0) for total, value in zip(sums, line.column.values, strict=True)]
    for sums in stacks.values():
        yield from sums


def _line(line: _Series, axis: Axis, number: int) -> dict[str, Any]:
    config = line.config
    return {
        "name": line.title,
        "colour": line.colour,
        "y": [_position(axis, value) for value in line.column.values],
        # the tooltip has a row for a missing value if there is a text for it
        "text": [config.display(value).text or None for value in line.column.values],
        "axis": number,
        "stack": line.stack,
        "fill": float(config.custom("fillOpacity", 0)) / 100,
        "width": float(config.custom("lineWidth", 1)),
        "dash": (config.custom("lineStyle") or {}).get("fill") in {"dash", "dot"},
    }


def _position(axis: Axis, value: float | None) -> float | None:
    position = None if value is None else axis.scale.place(value)
    return None if position is None else float(f"{position:.6g}")


def _limits(config: FieldConfig, axis: Axis) -> list[dict[str, Any]]:
    """The thresholds to draw as dashed lines."""
    if (config.custom("thresholdsStyle") or {}).get("mode") != "dashed":
        return []
    return [
        {"y": _position(axis, value), "colour": colour}
        for value, colour in colours.threshold_steps(config.settings.get("thresholds") or {})
        if colour != colours.TRANSPARENT and axis.low <= value <= axis.high
    ]


def _legend(panel: Mapping[str, Any], series: list[_Series]) -> dict[str, Any] | None:
    """A row per series with its calculations, sorted by the options of the panel."""
    options = (panel.get("options") or {}).get("legend") or {}
    if options.get("showLegend") is False or options.get("displayMode") == "hidden":
        return None
    calcs = [name for name in options.get("calcs") or [] if name in CALCS]
    headings = [CALCS[name][0] for name in calcs]
    values = [[reduce(name, line.column.values) for name in calcs] for line in series]
    order = [index for index, line in enumerate(series) if not (line.config.custom("hideFrom") or {}).get("legend")]
    if options.get("sortBy") in headings:
        by = headings.index(options["sortBy"])
        order = sort_table_rows(order, lambda index: values[index][by], descending=bool(options.get("sortDesc")))
    return {
        "placement": options.get("placement", "bottom"),
        "table": options.get("displayMode") == "table",
        "heads": headings,
        "rows": [
            {"series": index, "cells": [series[index].config.display(figure).text for figure in values[index]]}
            for index in order
        ],
    }
