"""How one column is to look: the panel's defaults and every override that matches it."""

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any

from dashboards.preview import colours
from dashboards.preview.data_frames import Field, Kind
from dashboards.preview.units import moment, spell


@dataclass(frozen=True, slots=True)
class Shown:
    """A value as text, and the colour that a mapping gives it."""

    text: str
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Context:
    """What all columns share: the moment that others are held against (unix seconds), its zone, variables' words."""

    now: float
    zone: tzinfo = UTC
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Look:
    """The settings of one column."""

    settings: Mapping[str, Any]
    context: Context

    def custom(self, name: str, otherwise: Any = None) -> Any:
        """A setting that only this type of panel knows."""
        return self.settings.get("custom", {}).get(name, otherwise)

    @property
    def no_value(self) -> str:
        return str(self.settings.get("noValue", ""))

    def title(self, column: Field) -> str:
        given = self.settings.get("displayName")
        if not given:
            return column.title
        text = re.sub(r"\$\{__field\.labels\.(\w+)\}", lambda match: column.labels.get(match[1], ""), str(given))
        return text.replace("${__field.name}", column.title).replace("${__series.name}", column.title)

    def show(self, value: Any) -> Shown:
        """The text of a value."""
        for mapping in self.settings.get("mappings") or []:
            found = _mapped(mapping, value)
            if found is not None:
                text, colour = found.get("text"), found.get("color")
                return Shown(
                    self._plain(value) if text is None else str(text), colours.colour(colour) if colour else ""
                )
        return Shown(self._plain(value))

    def _plain(self, value: Any) -> str:
        if value is None or value == "":
            return self.no_value
        if not isinstance(value, int | float):
            return str(value)
        unit, decimals = str(self.settings.get("unit", "")), self.settings.get("decimals")
        return spell(float(value), unit, decimals, now=self.context.now, zone=self.context.zone)

    def show_time(self, milliseconds: float) -> Shown:
        unit = str(self.settings.get("unit", ""))
        if unit.startswith(("dateTime", "time:")):
            return Shown(self._plain(milliseconds))
        return Shown(moment(milliseconds / 1000, self.context.zone))

    def colour_of(self, value: float | None, title: str, index: int) -> str:
        """What `color` says: one for the value, the name, the place in the list, or always the same."""
        scheme = self.settings.get("color") or {"mode": "thresholds"}
        match scheme.get("mode"):
            case "fixed" | "shades":
                return colours.colour(str(scheme.get("fixedColor", colours.TEXT)))
            case "palette-classic":
                return colours.of_number(index)
            case "palette-classic-by-name":
                return colours.of_name(title)
        return self.colour_by_threshold(value)

    def colour_by_threshold(self, value: float | None) -> str:
        low, high = (self.settings.get(end, otherwise) for end, otherwise in (("min", 0.0), ("max", 100.0)))
        return colours.of_value(value, self.settings.get("thresholds") or {}, low, high)


@dataclass(frozen=True, slots=True)
class Style:
    """The settings of a panel for all its columns."""

    defaults: Mapping[str, Any]
    overrides: tuple[Mapping[str, Any], ...]
    context: Context

    def of(self, column: Field, ref: str) -> Look:
        """The defaults with every override that matches, later ones last."""
        settings: dict[str, Any] = copy.deepcopy(dict(self.defaults))
        for override in self.overrides:
            if _matches(override.get("matcher") or {}, column, ref):
                for given in override.get("properties") or []:
                    _put(settings, str(given["id"]), given.get("value"))
        return Look(settings, self.context)


def style_of(panel: Mapping[str, Any], context: Context) -> Style:
    config = panel.get("fieldConfig") or {}
    # what Grafana has where the file says nothing
    usual = {"color": {"mode": "palette-classic"}} if panel.get("type") == "timeseries" else {}
    return Style({**usual, **(config.get("defaults") or {})}, tuple(config.get("overrides") or ()), context)


def pattern(text: str) -> re.Pattern[str]:
    """A pattern as Grafana writes it: between slashes with flags, or bare."""
    written = re.fullmatch(r"/(.*)/([gimsuy]*)", text, re.DOTALL)
    bare, flags = (written[1], written[2]) if written else (text, "")
    try:
        return re.compile(bare, re.IGNORECASE if "i" in flags else 0)
    except re.error:
        return re.compile(r"(?!)")  # what only JavaScript understands matches nothing here


def _matches(matcher: Mapping[str, Any], column: Field, ref: str) -> bool:
    wanted = matcher.get("options")
    match matcher.get("id"):
        case "byName":
            return wanted in (column.title, column.name)
        case "byNames":
            names: Iterable[str] = (wanted or {}).get("names", [])
            return (column.title in names) != ((wanted or {}).get("mode") == "exclude")
        case "byRegexp":
            return pattern(str(wanted)).search(column.title) is not None
        case "byType":
            return wanted == column.kind
        case "numeric":
            return column.kind is Kind.NUMBER
        case "byFrameRefID":
            return bool(wanted == ref)
    return False


def _put(settings: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        settings = settings.setdefault(parent, {})
    settings[last] = value


def _mapped(mapping: Mapping[str, Any], value: Any) -> Mapping[str, Any] | None:
    """The text and colour that a mapping has for a value."""
    options = mapping.get("options") or {}
    result = options.get("result")
    match mapping.get("type"):
        case "value":
            found = options.get(_key(value))
            return found if isinstance(found, Mapping) else None
        case "range" if isinstance(value, int | float):
            low, high = options.get("from"), options.get("to")
            inside = (low is None or value >= low) and (high is None or value <= high)
            return result if inside else None
        case "regex" if isinstance(value, str):
            return result if pattern(str(options.get("pattern", ""))).search(value) else None
        case "special":
            hit = {"null": value is None, "null+nan": value is None, "empty": value == ""}
            return result if hit.get(str(options.get("match"))) else None
    return None


def _key(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
