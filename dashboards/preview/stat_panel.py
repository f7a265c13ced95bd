"""The documents of panels that show one figure a series: large, or as a bar."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.preview import colours
from dashboards.preview.calculations import reduce
from dashboards.preview.data_frames import Field, Frame, Kind
from dashboards.preview.field_config import Look, Style, pattern


@dataclass(frozen=True, slots=True)
class _Figure:
    title: str
    look: Look
    value: Any
    history: list[Any]
    text: str
    colour: str


def stat(panel: Mapping[str, Any], frames: Iterable[Frame], style: Style) -> dict[str, Any]:
    options = panel.get("options") or {}
    figures = _figures(options, frames, style)
    mode = options.get("textMode", "auto")
    with_name = mode == "value_and_name" or (mode == "auto" and len(figures) > 1)
    return {
        "items": [
            {
                "name": figure.title if with_name else "",
                "text": figure.title if mode == "name" else "" if mode == "none" else figure.text,
                "colour": figure.colour,
                "ink": colours.ink(figure.colour),
                "line": _finite(figure.history) if options.get("graphMode") == "area" else [],
            }
            for figure in figures
        ],
        "fill": str(options.get("colorMode", "value")).startswith("background"),
        "plain": options.get("colorMode") == "none",
        "orientation": options.get("orientation", "auto"),
    }


def _finite(values: list[Any]) -> list[float | None]:
    return [value if isinstance(value, int | float) and math.isfinite(value) else None for value in values]


def bar_gauge(panel: Mapping[str, Any], frames: Iterable[Frame], style: Style) -> dict[str, Any]:
    options = panel.get("options") or {}
    figures = _figures(options, frames, style)
    numbers = [figure.value for figure in figures if isinstance(figure.value, int | float)]
    return {
        "items": [
            {
                "name": figure.title,
                "text": figure.text,
                "colour": figure.colour,
                "share": share(figure.look, figure.value, numbers),
            }
            for figure in figures
        ],
        "orientation": options.get("orientation", "auto"),
    }


def share(look: Look, value: Any, all_values: list[float]) -> float:
    """How much of the way from the least to the greatest a value has gone, 0 to 1."""
    low, high = look.settings.get("min"), look.settings.get("max")
    finite = [each for each in all_values if math.isfinite(each)]
    low = min([0.0, *finite]) if low is None else low
    high = max(finite, default=1.0) if high is None else high
    if not isinstance(value, int | float) or high <= low:
        return 0.0
    return round(min(1.0, max(0.0, (value - low) / (high - low))), 4)


def _figures(options: Mapping[str, Any], frames: Iterable[Frame], style: Style) -> list[_Figure]:
    """One for each column of numbers; with `values`, one for each of its rows."""
    reducing = options.get("reduceOptions") or {}
    calc = next(iter(reducing.get("calcs") or ["lastNotNull"]))
    found: list[_Figure] = []
    for frame in frames:
        for column in frame.fields:
            if not _is_wanted(column, str(reducing.get("fields") or "")):
                continue
            look = style.of(column, frame.ref)
            if reducing.get("values"):
                names = next((each.values for each in frame.fields if each.kind is Kind.STRING), None)
                rows = zip(names or [look.title(column)] * frame.rows, column.values, strict=True)
                for name, value in list(rows)[: reducing.get("limit") or 25]:
                    found.append(_figure(str(name), look, value, [], len(found)))
            else:
                value = reduce(calc, column.values)
                found.append(_figure(look.title(column), look, value, column.values, len(found)))
    return found


def _is_wanted(column: Field, fields: str) -> bool:
    if not fields:
        return column.kind is Kind.NUMBER
    return pattern(fields).search(column.title) is not None


def _figure(title: str, look: Look, value: Any, history: list[Any], index: int) -> _Figure:
    shown = look.show(value)
    number = value if isinstance(value, int | float) else None
    return _Figure(title, look, value, history, shown.text or "-", shown.colour or look.colour_of(number, title, index))
