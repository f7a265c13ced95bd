"""The state of each variable: its options, and its selection as a pattern for queries and as text for titles."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from dashboards.live.interpolation import UnknownVariableError, options_from
from dashboards.live.reader import is_prometheus, variable_query
from dashboards.preview.queries import QueryRunner
from exporters.analysis.prometheus_api import QueryError

ALL = "$__all"

Option = tuple[str, str]
"""The text to display, and the value for queries."""


@dataclass(frozen=True, slots=True)
class VariableState:
    """One variable; if All is selected, `selection` has all options."""

    name: str
    label: str
    pattern: str
    text: str
    selection: tuple[Option, ...]
    options: tuple[Option, ...]
    is_all: bool
    include_all: bool
    is_visible: bool

    @property
    def parameters(self) -> str:
        """The selection in the URL of a link; empty if the preview has no options, as for data sources."""
        return parameters_of(self.name, ["All"] if self.is_all else [value for _, value in self.selection])


def parameters_of(name: str, values: Iterable[str]) -> str:
    return "&".join(f"var-{name}={quote(value, safe='')}" for value in values if value)


def variable_states(dashboard: Mapping[str, Any], runner: QueryRunner) -> list[VariableState]:
    """The variables in order; a query may refer to earlier variables."""
    states: list[VariableState] = []
    for variable in (dashboard.get("templating") or {}).get("list") or []:
        values = {state.name: state.pattern for state in states}
        states.append(_variable_state(variable, tuple(_options(variable, runner, values)), runner.view.selection))
    return states


def _variable_state(
    variable: Mapping[str, Any], options: tuple[Option, ...], requested: Mapping[str, tuple[str, ...]]
) -> VariableState:
    name, include_all = str(variable["name"]), bool(variable.get("includeAll"))
    texts = {value: text for text, value in options}
    current = _as_list((variable.get("current") or {}).get("value"))
    values = requested.get(name) or [value for value in current if value == ALL or not options or value in texts]
    # the text is the value in links of Grafana
    is_all = include_all and (not values or ALL in values or tuple(values) == ("All",))
    if not values and not is_all:
        values = [value for _, value in options[:1]] or current
    selection = options if is_all else tuple((texts.get(value, value), value) for value in values)
    return VariableState(
        name=name,
        label=str(variable.get("label") or name),
        pattern=str(variable["allValue"])
        if is_all and variable.get("allValue")
        else pattern_of(variable, [value for _, value in selection]),
        text="All" if is_all else " + ".join(text for text, _ in selection),
        selection=selection,
        options=options,
        is_all=is_all,
        include_all=include_all,
        is_visible=variable.get("type") != "datasource" and variable.get("hide") != 2,
    )


def pattern_of(variable: Mapping[str, Any], values: Iterable[str]) -> str:
    """The values as text in a query; escaped if the variable allows several values and is therefore a pattern."""
    if not variable.get("multi") and not variable.get("includeAll"):
        return next(iter(values), "")
    escaped = ["".join(f"\\\\{each}" if each in "\\^$.*+?()[]{}|" else each for each in value) for value in values]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def _options(variable: Mapping[str, Any], runner: QueryRunner, values: Mapping[str, str]) -> list[Option]:
    query_type, text = variable_query(variable)
    match variable.get("type"):
        case "custom" | "interval":
            parts = (part.replace("\\,", ",") for part in re.split(r"(?<!\\),", text) if part.strip())
            pairs = (part.partition(" : ") for part in parts)
            return [(name.strip(), (value if colon else name).strip()) for name, colon, value in pairs]
        case "constant" | "textbox":
            return [(text, text)]
        case "query" if is_prometheus(variable):
            try:
                return options_from(runner.fetch(text, query_type, values), str(variable.get("regex") or ""))
            except (QueryError, UnknownVariableError, re.error):
                # the panels that use the variable report the error
                return []
    return []


def _as_list(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [str(each) for each in values if each is not None]
