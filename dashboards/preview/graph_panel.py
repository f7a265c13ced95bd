"""The document of a panel of lines over time."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.preview import colours
from dashboards.preview.calculations import CALCS, in_order, reduce
from dashboards.preview.data_frames import Field, Frame, Grid, Kind
from dashboards.preview.field_config import Look, Style
from dashboards.preview.grid_layout import place_of
from dashboards.preview.scales import Axis, axis_of, labels

_ROW = 38  # pixels of a unit of the grid
_PER_TICK = 45


@dataclass(frozen=True, slots=True)
class _Series:
    column: Field
    look: Look
    title: str
    colour: str

    @property
    def stack(self) -> str:
        given = self.look.custom("stacking") or {}
        return "" if given.get("mode", "none") == "none" else str(given.get("group") or "A")

    @property
    def is_drawn(self) -> bool:
        return not (self.look.custom("hideFrom") or {}).get("viz")


def graph(panel: Mapping[str, Any], frames: Iterable[Frame], style: Style, grid: Grid) -> dict[str, Any]:
    """Lines, axes, thresholds and legend, in coordinates that need no more thought than drawing."""
    series = [one for one in _series(frames, style) if one.is_drawn]
    # two axes are all that a reader can follow; further units share the second
    keys = list(dict.fromkeys(_axis_key(one) for one in series))
    numbers = [min(keys.index(_axis_key(one)), 1) for one in series]
    axes = [
        _axis([one for one, on in zip(series, numbers, strict=True) if on == number], ticks_in(panel))
        for number in sorted(set(numbers))
    ]
    return {
        "start": grid.start * 1000,
        "step": grid.step * 1000,
        "points": grid.points,
        "axes": [{**drawn, "side": "right" if number else drawn["side"]} for number, (_, drawn) in enumerate(axes)],
        "series": [_line(one, axes[on][0], number=on) for one, on in zip(series, numbers, strict=True)],
        "limits": _limits(series[0].look, axes[0][0]) if series else [],
        "legend": _legend(panel, series),
        "order": (panel.get("options", {}).get("tooltip") or {}).get("sort", "none"),
    }


def ticks_in(panel: Mapping[str, Any]) -> int:
    """How many ticks its height has room for."""
    *_, height = place_of(panel)
    return max(2, int(_ROW * height) // _PER_TICK - 1)


def _series(frames: Iterable[Frame], style: Style) -> list[_Series]:
    found: list[_Series] = []
    for frame in frames:
        for column in frame.fields:
            if column.kind is Kind.NUMBER:
                look = style.of(column, frame.ref)
                title = look.title(column)
                colour = look.colour_of(reduce("lastNotNull", column.values), title, len(found))
                found.append(_Series(column, look, title, colour))
    return found


def _axis_key(one: _Series) -> tuple[str, bool]:
    """What shares an axis: the same unit on the same side."""
    return str(one.look.settings.get("unit", "")), one.look.custom("axisPlacement") == "right"


def _axis(series: list[_Series], most: int) -> tuple[Axis, dict[str, Any]]:
    look = series[0].look
    axis = axis_of(look, _reach(series))
    ticks = axis.scale.ticks(axis.low, axis.high, most, str(look.settings.get("unit", "")))
    return axis, {
        "range": axis.range,
        "at": [axis.scale.place(tick) for tick in ticks],
        "text": labels(ticks, look),
        "title": str(look.custom("axisLabel") or ""),
        "side": "right" if look.custom("axisPlacement") == "right" else "left",
    }


def _reach(series: Iterable[_Series]) -> Iterable[float]:
    """Every value that the axis must show; of a stack, its sums."""
    stacks: dict[str, list[float]] = defaultdict(list)
    for one in series:
        if not one.stack:
            yield from (value for value in one.column.values if value is not None)
            continue
        sums = stacks[one.stack] or [0.0] * len(one.column.values)
        stacks[one.stack] = [total + (value or 0.0) for total, value in zip(sums, one.column.values, strict=True)]
    for sums in stacks.values():
        yield from sums


def _line(one: _Series, axis: Axis, *, number: int) -> dict[str, Any]:
    look = one.look
    bars = look.custom("drawStyle") == "bars"
    return {
        "name": one.title,
        "colour": one.colour,
        "y": [_place(axis, value) for value in one.column.values],
        "text": [None if value is None else look.show(value).text for value in one.column.values],
        "axis": number,
        "stack": one.stack,
        "fill": float(look.custom("fillOpacity", 0)) / 100,
        "width": float(look.custom("lineWidth", 1)),
        "dash": (look.custom("lineStyle") or {}).get("fill") in {"dash", "dot"},
        "bars": bars,
        "points": look.custom("drawStyle") == "points" or look.custom("showPoints") == "always",
        "steps": look.custom("lineInterpolation") in {"stepAfter", "stepBefore"},
        "join": look.custom("spanNulls") is True,
    }


def _place(axis: Axis, value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    placed = axis.scale.place(value)
    return None if placed is None else float(f"{placed:.6g}")


def _limits(look: Look, axis: Axis) -> list[dict[str, Any]]:
    """The thresholds that are drawn: lines at them, or areas above them."""
    mode = str((look.custom("thresholdsStyle") or {}).get("mode", "off"))
    if mode == "off":
        return []
    steps = colours.limits(look.settings.get("thresholds") or {})
    tops = [*(value for value, _ in steps[1:]), math.inf]
    return [
        {
            "y": _place(axis, value),
            "to": _place(axis, min(top, axis.high)),
            "colour": colour,
            "dash": "dashed" in mode,
            "line": "line" in mode or "dashed" in mode,
            "area": "area" in mode,
        }
        for (value, colour), top in zip(steps, tops, strict=False)
        if colour != colours.TRANSPARENT and axis.low <= value <= axis.high
    ]


def _legend(panel: Mapping[str, Any], series: list[_Series]) -> dict[str, Any] | None:
    """One row for each series with its calculations, sorted as the panel says."""
    given = (panel.get("options") or {}).get("legend") or {}
    if given.get("showLegend") is False or given.get("displayMode") == "hidden":
        return None
    calcs = [name for name in given.get("calcs") or [] if name in CALCS]
    heads = [CALCS[name][0] for name in calcs]
    figures = [[reduce(name, one.column.values) for name in calcs] for one in series]
    places = [place for place, one in enumerate(series) if not (one.look.custom("hideFrom") or {}).get("legend")]
    if given.get("sortBy") in heads:
        by = heads.index(given["sortBy"])
        places = in_order(places, lambda place: figures[place][by], descending=bool(given.get("sortDesc")))
    return {
        "place": given.get("placement", "bottom"),
        "table": given.get("displayMode") == "table",
        "heads": heads,
        "rows": [
            {"series": place, "cells": [series[place].look.show(figure).text for figure in figures[place]]}
            for place in places
        ],
    }
