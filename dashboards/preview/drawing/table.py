"""The document of a table panel: one frame, cell by cell."""

import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from dashboards.live.interpolation import formatted
from dashboards.preview.frames import colours
from dashboards.preview.frames.calculations import is_absent, sort_table_rows
from dashboards.preview.frames.field_config import Context, FieldConfig, FieldConfigSource
from dashboards.preview.frames.frame import Field, Frame, Kind

MAX_ROWS = 500

_MIN_WIDTH = 150
"""Grafana's lowest width in pixels of a column whose width is not set."""

_IN_LINK = re.compile(
    r"\$\{__data\.fields(?:\.(?P<field>[^}\[]+)|\[\"(?P<quoted>[^\"]+)\"\])\}"
    r"|\$\{(?P<variable>[^}:]+)(?::(?P<format>[^}]*))?\}"
)


def table(panel: Mapping[str, Any], frames: Sequence[Frame], configs: FieldConfigSource) -> dict[str, Any]:
    """The first frame; Grafana shows the others through a menu."""
    if not frames:
        return {"columns": [], "rows": []}
    frame = frames[0]
    every = [(column, configs.of(column, frame.ref)) for column in frame.fields]
    columns = [(column, config) for column, config in every if not _is_hidden(config)]
    order = _order(panel, columns, frame.rows)
    notes = [f"{frame.rows - MAX_ROWS} more rows"] if frame.rows > MAX_ROWS else []
    if len(frames) > 1:
        notes.append(f"Grafana offers {len(frames) - 1} more tables in a menu")
    return {
        "columns": [
            {
                "title": config.title(column),
                "align": _align(column, config),
                "width": config.custom("width") or 0,
                "minWidth": config.custom("minWidth") or _MIN_WIDTH,
                "kind": (config.custom("cellOptions") or {}).get("type", "auto"),
            }
            for column, config in columns
        ],
        "rows": [[_cell(column, config, every, row) for column, config in columns] for row in order[:MAX_ROWS]],
        "note": "; ".join(notes),
    }


def _is_hidden(config: FieldConfig) -> bool:
    return bool(config.custom("hidden") or (config.custom("hideFrom") or {}).get("viz"))


def _align(column: Field, config: FieldConfig) -> str:
    alignment = config.custom("align", "auto")
    if alignment in {"left", "center", "right"}:
        return str(alignment)
    return "right" if column.kind is Kind.NUMBER else "left"


def _order(panel: Mapping[str, Any], columns: Sequence[tuple[Field, FieldConfig]], rows: int) -> list[int]:
    """The rows as the panel sorts them, else as in the response; the last key is applied first."""
    order = list(range(rows))
    for key in reversed((panel.get("options") or {}).get("sortBy") or []):
        for column, config in columns:
            if config.title(column) == key.get("displayName"):
                order = sort_table_rows(order, column.values.__getitem__, descending=bool(key.get("desc")))
    return order


def _cell(column: Field, config: FieldConfig, every: Sequence[tuple[Field, FieldConfig]], row: int) -> dict[str, Any]:
    value = column.values[row]
    display = config.display_time(value) if column.kind is Kind.TIME and value is not None else config.display(value)
    kind = (config.custom("cellOptions") or {}).get("type", "auto")
    # JSON has neither infinity nor NaN
    key = math.copysign(sys.float_info.max, value) if value in (math.inf, -math.inf) else value
    key = None if is_absent(value) else key
    cell: dict[str, Any] = {"text": display.text, "key": key}
    if kind in {"color-background", "color-text"}:
        # text and missing values have the colour of a value below all thresholds, as in Grafana
        number = value if isinstance(value, int | float) else None
        cell["colour"] = display.colour or config.colour_of(number)
    if kind == "color-background":
        cell["textColour"] = colours.text_colour(cell["colour"])
    if config.settings.get("links"):
        # as in Grafana, the text of the cell
        fields = {each.name: each_config.display(each.values[row]).text for each, each_config in every}
        cell["link"] = _link(str(config.settings["links"][0].get("url", "")), config.context, fields)
    return cell


def _link(url: str, context: Context, fields: Mapping[str, str]) -> str:
    """A URL with the row's values and the variables expanded; the page adds the time range."""

    def value(match: re.Match[str]) -> str:
        if field := match["field"] or match["quoted"]:
            return quote(fields.get(field, ""), safe="")
        if match["format"] == "queryparam":
            return context.variable_parameters.get(match["variable"], "")
        return quote(formatted(context.variable_texts.get(match["variable"], ""), match["format"]), safe="")

    return _IN_LINK.sub(value, url)
