"""The document of a table: one frame, cell by cell."""

import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from dashboards.preview import colours
from dashboards.preview.calculations import in_order
from dashboards.preview.data_frames import Field, Frame, Kind
from dashboards.preview.field_config import Look, Style
from dashboards.preview.stat_panel import share

MOST_ROWS = 500

_IN_LINK = re.compile(
    r"\$\{__data\.fields(?:\.(?P<field>[^}\[]+)|\[\"(?P<quoted>[^\"]+)\"\])\}|\$\{(?P<variable>[^}:]+)[^}]*\}"
)


def table(panel: Mapping[str, Any], frames: Sequence[Frame], style: Style) -> dict[str, Any]:
    """The first frame, as Grafana shows it: the others are behind a menu."""
    if not frames:
        return {"columns": [], "rows": []}
    frame = frames[0]
    columns = [(column, style.of(column, frame.ref)) for column in frame.fields]
    columns = [(column, look) for column, look in columns if not _is_hidden(look)]
    numbers = {
        column.title: [value for value in column.values if isinstance(value, int | float)] for column, _ in columns
    }
    order = _order(panel, columns, frame.rows)
    notes = [f"{frame.rows - MOST_ROWS} more rows"] if frame.rows > MOST_ROWS else []
    if len(frames) > 1:
        notes.append(f"Grafana offers {len(frames) - 1} more tables in a menu")
    return {
        "columns": [
            {
                "title": look.title(column),
                "align": _align(column, look),
                "width": look.custom("width"),
                "kind": (look.custom("cellOptions") or {}).get("type", "auto"),
            }
            for column, look in columns
        ],
        "rows": [
            [_cell(column, look, column.values[row], numbers[column.title], frame, row) for column, look in columns]
            for row in order[:MOST_ROWS]
        ],
        "note": "; ".join(notes),
    }


def _is_hidden(look: Look) -> bool:
    return bool(look.custom("hidden") or (look.custom("hideFrom") or {}).get("viz"))


def _align(column: Field, look: Look) -> str:
    given = look.custom("align", "auto")
    if given in {"left", "center", "right"}:
        return str(given)
    return "right" if column.kind is Kind.NUMBER else "left"


def _order(panel: Mapping[str, Any], columns: Sequence[tuple[Field, Look]], rows: int) -> list[int]:
    """The rows as sorted by the panel; later keys first, for sorting is stable."""
    order = list(range(rows))
    for key in reversed((panel.get("options") or {}).get("sortBy") or []):
        for column, look in columns:
            if look.title(column) == key.get("displayName"):
                order = in_order(order, column.values.__getitem__, descending=bool(key.get("desc")))
    return order


def _cell(column: Field, look: Look, value: Any, numbers: list[float], frame: Frame, row: int) -> dict[str, Any]:
    shown = look.show_time(value) if column.kind is Kind.TIME and value is not None else look.show(value)
    kind = (look.custom("cellOptions") or {}).get("type", "auto")
    key = math.copysign(sys.float_info.max, value) if value in (math.inf, -math.inf) else value  # JSON has no infinity
    cell: dict[str, Any] = {"text": shown.text, "key": key}
    if kind in {"color-background", "color-text", "gauge"}:
        number = value if isinstance(value, int | float) else None
        cell["colour"] = shown.colour or ("" if number is None else look.colour_of(number, look.title(column), 0))
    elif shown.colour:
        cell["colour"] = shown.colour
    if kind == "color-background":
        cell["ink"] = colours.ink(cell["colour"])
    if kind == "gauge":
        cell["share"] = share(look, value, numbers)
    if look.settings.get("links"):
        fields = {each.name: str(each.values[row]) for each in frame.fields}
        cell["link"] = _link(str(look.settings["links"][0].get("url", "")), look.context.words, fields)
    return cell


def _link(url: str, words: Mapping[str, str], fields: Mapping[str, str]) -> str:
    """An address with the row's values and the variables filled in; the time range is the page's own affair."""

    def value(match: re.Match[str]) -> str:
        field = match["field"] or match["quoted"]
        return quote(fields.get(field, "") if field else words.get(match["variable"] or "", ""), safe="")

    return _IN_LINK.sub(value, url)
