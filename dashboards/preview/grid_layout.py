"""Where panels stand: rows and what is under them, with repeated rows and panels written out."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.preview.variable_options import Choice, Option

_COLUMNS = 24


@dataclass(frozen=True, slots=True)
class Placed:
    """A panel, its place in the grid (x, y, width, height), and the variables that a repetition has set."""

    panel: Mapping[str, Any]
    place: tuple[float, float, float, float]
    repeated: Mapping[str, Option]


@dataclass(frozen=True, slots=True)
class Section:
    """A row of the dashboard; what stands before the first one has no title."""

    title: str
    is_closed: bool
    panels: tuple[Placed, ...]
    repeated: Mapping[str, Option]


def sections(tree: Mapping[str, Any], choices: Iterable[Choice]) -> list[Section]:
    """The dashboard from top to bottom."""
    options = {choice.name: choice.chosen for choice in choices}
    found = []
    for row, panels in _rows(tree["panels"]):
        for repeated in _repetitions(row, options):
            placed = tuple(_placed(panels, options, repeated))
            found.append(Section(str(row.get("title") or ""), bool(row.get("collapsed")), placed, repeated))
    return [section for section in found if section.title or section.panels]


def place_of(panel: Mapping[str, Any]) -> tuple[float, float, float, float]:
    """Its x, y, width and height in units of the grid."""
    place = {"x": 0, "y": 0, "w": 12, "h": 8, **(panel.get("gridPos") or {})}
    return float(place["x"]), float(place["y"]), float(place["w"]), float(place["h"])


def _rows(panels: Iterable[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], list[Mapping[str, Any]]]]:
    rows: list[tuple[Mapping[str, Any], list[Mapping[str, Any]]]] = [({}, [])]
    for panel in panels:
        if panel.get("type") == "row":
            rows.append((panel, list(panel.get("panels") or [])))  # a collapsed row keeps its panels inside
        else:
            rows[-1][1].append(panel)
    return rows


def _repetitions(one: Mapping[str, Any], options: Mapping[str, tuple[Option, ...]]) -> list[dict[str, Option]]:
    name = str(one.get("repeat") or "")
    return [{name: option} for option in options.get(name, ())] or [{}]


def _placed(
    panels: Iterable[Mapping[str, Any]], options: Mapping[str, tuple[Option, ...]], outer: Mapping[str, Option]
) -> Iterator[Placed]:
    """Side by side or below each other, as the panel says; what is further down moves down."""
    moved = 0.0
    for panel in panels:
        x, y, width, height = place_of(panel)
        repetitions = _repetitions(panel, options)
        upright = panel.get("repeatDirection") == "v"
        per_line = 1 if upright else min(len(repetitions), int(panel.get("maxPerRow") or 4))
        if len(repetitions) > 1 and not upright:
            x, width = 0.0, _COLUMNS // per_line
        for number, repeated in enumerate(repetitions):
            line, column = divmod(number, per_line)
            yield Placed(panel, (x + column * width, y + moved + line * height, width, height), {**outer, **repeated})
        moved += (-(-len(repetitions) // per_line) - 1) * height
