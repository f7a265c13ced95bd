"""The display settings of one column: the panel's defaults and every override that matches it."""

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any

from dashboards.preview.frames import colours
from dashboards.preview.frames.calculations import is_absent, reduce
from dashboards.preview.frames.frame import Field, Kind
from dashboards.preview.frames.units import format_time, format_value


@dataclass(frozen=True, slots=True)
class DisplayValue:
    """A value as text, and its colour by a value mapping."""

    text: str
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Context:
    """Shared by all columns: the current time (unix seconds), the time zone, variables as texts and in URLs."""

    now: float
    zone: tzinfo = UTC
    variable_texts: Mapping[str, str] = field(default_factory=dict)
    variable_parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FieldConfig:
    """The settings of one column."""

    settings: Mapping[str, Any]
    context: Context

    def custom(self, name: str, default: Any = None) -> Any:
        """A setting that is specific to the type of panel."""
        return self.settings.get("custom", {}).get(name, default)

    @property
    def no_value(self) -> str:
        return str(self.settings.get("noValue", ""))

    def title(self, column: Field) -> str:
        template = self.settings.get("displayName")
        if not template:
            return column.title
        text = re.sub(r"\$\{__field\.labels\.(\w+)\}", lambda match: column.labels.get(match[1], ""), str(template))
        return text.replace("${__field.name}", column.title).replace("${__series.name}", column.title)

    def display(self, value: Any) -> DisplayValue:
        for mapping in self.settings.get("mappings") or []:
            result = _mapping_result(mapping, value)
            if result is not None:
                text, colour = result.get("text"), result.get("color")
                return DisplayValue(
                    self._format(value) if text is None else str(text), colours.colour(colour) if colour else ""
                )
        return DisplayValue(self._format(value))

    def _format(self, value: Any) -> str:
        if value is None or value == "":
            return self.no_value
        if is_absent(value):
            # Grafana shows the text of `noValue` for null only
            return "NaN"
        if not isinstance(value, int | float):
            return str(value)
        unit, decimals = str(self.settings.get("unit", "")), self.settings.get("decimals")
        return format_value(float(value), unit, decimals, now=self.context.now, zone=self.context.zone)

    def display_time(self, milliseconds: float) -> DisplayValue:
        unit = str(self.settings.get("unit", ""))
        if unit.startswith(("dateTime", "time:")):
            return DisplayValue(self._format(milliseconds))
        return DisplayValue(format_time(milliseconds / 1000, self.context.zone))

    def colour_of(self, value: float | None) -> str:
        """The colour of a single value: fixed, else by thresholds."""
        scheme = self.settings.get("color") or {}
        if scheme.get("mode") == "fixed":
            return colours.colour(str(scheme.get("fixedColor", colours.TEXT)))
        low, high = (self.settings.get(end, default) for end, default in (("min", 0.0), ("max", 100.0)))
        return colours.threshold_colour(value, self.settings.get("thresholds") or {}, low, high)

    def colour_of_series(self, values: Sequence[float | None], low: float, high: float) -> str:
        """The colour of a line: from blue to purple by its maximum, else that of its last value."""
        scheme = self.settings.get("color") or {}
        if scheme.get("mode") != "continuous-BlPu":
            return self.colour_of(reduce("lastNotNull", values))
        value = reduce(str(scheme.get("seriesBy", "last")), values) or 0
        low, high = (float(self.settings.get(name, end)) for name, end in (("min", low), ("max", high)))
        return colours.between("blue", "purple", (value - low) / (high - low) if high > low else 0.0)


@dataclass(frozen=True, slots=True)
class FieldConfigSource:
    """The settings of a panel for all its columns."""

    defaults: Mapping[str, Any]
    overrides: tuple[Mapping[str, Any], ...]
    context: Context

    def of(self, column: Field, ref: str) -> FieldConfig:
        """The defaults with all matching overrides; later overrides win."""
        settings: dict[str, Any] = copy.deepcopy(dict(self.defaults))
        for override in self.overrides:
            if _matches(override.get("matcher") or {}, column, ref):
                for property_ in override.get("properties") or []:
                    _set_path(settings, str(property_["id"]), property_.get("value"))
        return FieldConfig(settings, self.context)


def field_config_source(panel: Mapping[str, Any], context: Context) -> FieldConfigSource:
    config = panel.get("fieldConfig") or {}
    return FieldConfigSource(config.get("defaults") or {}, tuple(config.get("overrides") or ()), context)


def compile_pattern(text: str) -> re.Pattern[str]:
    """A pattern in Grafana's notation: between slashes with flags, or bare."""
    delimited = re.fullmatch(r"/(.*)/([gimsuy]*)", text, re.DOTALL)
    bare, flags = (delimited[1], delimited[2]) if delimited else (text, "")
    try:
        return re.compile(bare, re.IGNORECASE if "i" in flags else 0)
    except re.error:
        # a pattern that only JavaScript accepts matches nothing
        return re.compile(r"(?!)")


def expand_groups(pattern: re.Pattern[str], replacement: str, text: str) -> str:
    """The text with each match replaced; `$1` in the replacement is the first group."""
    return pattern.sub(re.sub(r"\$(\d)", r"\\\1", replacement), text)


def _matches(matcher: Mapping[str, Any], column: Field, ref: str) -> bool:
    expected = matcher.get("options")
    match matcher.get("id"):
        case "byName":
            return expected in (column.title, column.name)
        case "byNames":
            names: Iterable[str] = (expected or {}).get("names", [])
            return (column.title in names) != ((expected or {}).get("mode") == "exclude")
        case "byRegexp":
            return compile_pattern(str(expected)).search(column.title) is not None
        case "byType":
            return expected == column.kind
        case "numeric":
            return column.kind is Kind.NUMBER
        case "byValue":  # the shipped dashboards use one reducer
            return (expected or {}).get("reducer") == "allIsZero" and _is_all_zero(column)
        case "byFrameRefID":
            return bool(expected == ref)
    return False


def _is_all_zero(column: Field) -> bool:
    """Grafana's `allIsZero`, which ignores missing values but needs one value."""
    values = [value for value in column.values if value is not None]
    return bool(values) and not any(values)


def _set_path(settings: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        settings = settings.setdefault(parent, {})
    settings[last] = value


def _mapping_result(mapping: Mapping[str, Any], value: Any) -> Mapping[str, Any] | None:
    """The text and colour of a value by a mapping, or None."""
    options = mapping.get("options") or {}
    result = options.get("result")
    match mapping.get("type"):
        case "value":
            result = options.get(_key(value))
            return result if isinstance(result, Mapping) else None
        case "range" if not is_absent(number := _number(value)):
            low, high = options.get("from"), options.get("to")
            inside = (low is None or number >= low) and (high is None or number <= high)
            return result if inside else None
        case "regex" if isinstance(value, str) and result:
            pattern = compile_pattern(str(options.get("pattern", "")))
            text = result.get("text")
            changed = {**result, "text": expand_groups(pattern, str(text), value)} if text else result
            return changed if pattern.search(value) else None
        case "special":
            is_null = value is None
            is_nan = is_absent(value) and not is_null
            matches = {"null": is_null, "nan": is_nan, "null+nan": is_null or is_nan, "empty": value == ""}
            return result if matches.get(str(options.get("match"))) else None
    return None


def _number(value: Any) -> float | None:
    """JavaScript's `Number`, but None for a missing value: a text may be a number."""
    try:
        return None if value is None else float(value or 0)
    except ValueError:
        return None


def _key(value: Any) -> str:
    # in JavaScript the text of -0 is 0
    return f"{value + 0.0:g}" if isinstance(value, float) else str(value)
