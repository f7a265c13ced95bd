"""Places rows and panels on the grid, and expands repeated rows and panels."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.preview.variables import Option, VariableState

_COLUMNS = 24


@dataclass(frozen=True, slots=True)
class PanelPlacement:
    """A panel, its position on the grid (x, y, width, height), and the variables that its repetition sets."""

    panel: Mapping[str, Any]
    position: tuple[float, float, float, float]
    repeat_values: Mapping[str, Option]


@dataclass(frozen=True, slots=True)
class Section:
    """A row of the dashboard; the panels above the first row form a section without a title."""

    title: str
    is_closed: bool
    panels: tuple[PanelPlacement, ...]
    repeat_values: Mapping[str, Option]


def sections(dashboard: Mapping[str, Any], variables: Iterable[VariableState]) -> list[Section]:
    """The rows of the dashboard from top to bottom."""
    options = {variable.name: variable.selection for variable in variables}
    result = []
    for row, panels in _rows(dashboard["panels"]):
        for repeat_values in _repetitions(row, options):
            placements = tuple(_place_panels(panels, options, repeat_values))
            result.append(Section(str(row.get("title") or ""), bool(row.get("collapsed")), placements, repeat_values))
    return [section for section in result if section.title or section.panels]


def grid_position(panel: Mapping[str, Any]) -> tuple[float, float, float, float]:
    """x, y, width and height in units of the grid."""
    position = {"x": 0, "y": 0, "w": 12, "h": 8, **(panel.get("gridPos") or {})}
    return float(position["x"]), float(position["y"]), float(position["w"]), float(position["h"])


def _rows(panels: Iterable[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], list[Mapping[str, Any]]]]:
    rows: list[tuple[Mapping[str, Any], list[Mapping[str, Any]]]] = [({}, [])]
    for panel in panels:
        if panel.get("type") == "row":
            # a collapsed row contains its panels
            rows.append((panel, list(panel.get("panels") or [])))
        else:
            rows[-1][1].append(panel)
    return rows


def _repetitions(element: Mapping[str, Any], options: Mapping[str, tuple[Option, ...]]) -> list[dict[str, Option]]:
    name = str(element.get("repeat") or "")
    return [{name: option} for option in options.get(name, ())] or [{}]


def _place_panels(
    panels: Iterable[Mapping[str, Any]], options: Mapping[str, tuple[Option, ...]], outer: Mapping[str, Option]
) -> Iterator[PanelPlacement]:
    """Repetitions next to or below each other; the panels below move down."""
    offset = 0.0
    for panel in panels:
        x, y, width, height = grid_position(panel)
        repetitions = _repetitions(panel, options)
        upright = panel.get("repeatDirection") == "v"
        per_line = 1 if upright else min(len(repetitions), int(panel.get("maxPerRow") or 4))
        if len(repetitions) > 1 and not upright:
            x, width = 0.0, _COLUMNS // per_line
        for index, repeat_values in enumerate(repetitions):
            line, column = divmod(index, per_line)
            yield PanelPlacement(
                panel, (x + column * width, y + offset + line * height, width, height), {**outer, **repeat_values}
            )
        offset += (-(-len(repetitions) // per_line) - 1) * height
