"""The documents of stat and bar gauge panels: one value per series, as text or as a bar."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dashboards.preview.frames.calculations import is_absent, reduce
from dashboards.preview.frames.field_config import FieldConfig, FieldConfigSource, compile_pattern
from dashboards.preview.frames.frame import Field, Frame, Kind


@dataclass(frozen=True, slots=True)
class _Figure:
    title: str
    config: FieldConfig
    value: Any
    text: str
    colour: str


def stat(panel: Mapping[str, Any], frames: Iterable[Frame], configs: FieldConfigSource) -> dict[str, Any]:
    """One text per series, in the colour of its value."""
    options = panel.get("options") or {}
    figures = _figures(options, frames, configs)
    mode = options.get("textMode", "auto")
    with_name = mode == "value_and_name" or (mode == "auto" and len(figures) > 1)
    return {
        "items": [
            {
                "name": figure.title if with_name else "",
                "text": figure.title if mode == "name" else "" if mode == "none" else figure.text,
                "colour": figure.colour,
            }
            for figure in figures
        ],
        "sizes": {name: size for name in ("titleSize", "valueSize") if (size := (options.get("text") or {}).get(name))},
        "orientation": options.get("orientation", "auto"),
    }


def bar_gauge(panel: Mapping[str, Any], frames: Iterable[Frame], configs: FieldConfigSource) -> dict[str, Any]:
    options = panel.get("options") or {}
    frame_list = list(frames)
    figures = _figures(options, frame_list, configs)
    numbers = [
        value
        for frame in frame_list
        for column in frame.fields
        if column.kind is Kind.NUMBER
        for value in column.values
        if not is_absent(value)
    ]
    return {
        "items": [
            {
                # Grafana hides the name of a single bar that has no display name
                "name": figure.title if len(figures) > 1 or figure.config.settings.get("displayName") else "",
                "text": figure.text,
                "colour": figure.colour,
                "share": share(figure.config, figure.value, numbers),
            }
            for figure in figures
        ]
    }


def share(config: FieldConfig, value: Any, all_values: list[float]) -> float:
    """The position of a value between the minimum and the maximum, 0 to 1; by default these are those of the values."""
    low, high = config.settings.get("min"), config.settings.get("max")
    finite = [each for each in all_values if math.isfinite(each)]
    low = min(finite, default=0.0) if low is None else low
    high = max(finite, default=0.0) if high is None else high
    if not isinstance(value, int | float) or is_absent(value) or high <= low:
        return 0.0
    return round(min(1.0, max(0.0, (value - low) / (high - low))), 4)


def _figures(options: Mapping[str, Any], frames: Iterable[Frame], configs: FieldConfigSource) -> list[_Figure]:
    """A figure per column of numbers; with the option `values`, a figure per row; without any, one that says so."""
    reducing = options.get("reduceOptions") or {}
    calc = next(iter(reducing.get("calcs") or ["lastNotNull"]))
    figures: list[_Figure] = []
    for frame in frames:
        for column in frame.fields:
            if not _is_selected(column, str(reducing.get("fields") or "")):
                continue
            config = configs.of(column, frame.ref)
            if reducing.get("values"):
                for row in range(min(frame.rows, (reducing.get("limit") or 25) - len(figures))):
                    title = _row_title(config, column, frame, row)
                    figures.append(_figure(title, config, column.values[row]))
            else:
                value = reduce(calc, column.values)
                figures.append(_figure(config.title(column), config, value))
    if not figures:
        config = FieldConfig(configs.defaults, configs.context)
        nothing = _figure("", config, None)
        # coloured like a value below all thresholds, as in Grafana
        return [replace(nothing, text=nothing.text or "No data")]
    return figures


def _row_title(config: FieldConfig, column: Field, frame: Frame, row: int) -> str:
    """The display name, which refers to columns by position, or the texts of the row."""
    if config.settings.get("displayName"):
        return re.sub(
            r"\$\{__cell_(\d+)\}", lambda match: str(frame.fields[int(match[1])].values[row]), config.title(column)
        )
    texts = [str(each.values[row]) for each in frame.fields if each.kind is Kind.STRING and each.values[row]]
    is_only_number = [each.kind for each in frame.fields].count(Kind.NUMBER) == 1
    return " ".join(texts if texts and is_only_number else [*texts, column.title])


def _is_selected(column: Field, fields: str) -> bool:
    if not fields:
        return column.kind is Kind.NUMBER
    return compile_pattern(fields).search(column.title) is not None


def _figure(title: str, config: FieldConfig, value: Any) -> _Figure:
    display = config.display(value)
    number = value if isinstance(value, int | float) else None
    return _Figure(title, config, value, display.text, display.colour or config.colour_of(number))
