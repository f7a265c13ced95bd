"""What variables hold: as a pattern in queries, as words in titles, and what else could be chosen."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.audit import QUERY_RESULT, Way, is_prometheus
from dashboards.interpolation import UnknownVariableError, choices_of
from dashboards.preview.queries import Asker
from exporters.prometheus_api import QueryError

ALL = "$__all"

Option = tuple[str, str]
"""What a reader sees, and what a query gets."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One variable: `chosen` are all its options when everything is."""

    name: str
    label: str
    pattern: str
    words: str
    chosen: tuple[Option, ...]
    options: tuple[Option, ...]
    is_all: bool
    has_all: bool
    is_shown: bool


def choices(tree: Mapping[str, Any], asker: Asker) -> list[Choice]:
    """The variables in their order; a query may name those before it."""
    found: list[Choice] = []
    for variable in (tree.get("templating") or {}).get("list") or []:
        values = {choice.name: choice.pattern for choice in found}
        found.append(_choice(variable, tuple(_options(variable, asker, values)), asker.view.chosen))
    return found


def _choice(variable: Mapping[str, Any], options: tuple[Option, ...], given: Mapping[str, tuple[str, ...]]) -> Choice:
    name, has_all = str(variable["name"]), bool(variable.get("includeAll"))
    texts = {value: text for text, value in options}
    current = _many((variable.get("current") or {}).get("value"))
    values = given.get(name) or [value for value in current if value == ALL or not options or value in texts]
    is_all = has_all and (not values or ALL in values)
    if not values and not is_all:
        values = [value for _, value in options[:1]] or current
    chosen = options if is_all else tuple((texts.get(value, value), value) for value in values)
    return Choice(
        name=name,
        label=str(variable.get("label") or name),
        pattern=str(variable.get("allValue") or ".*")
        if is_all
        else pattern_of(variable, [value for _, value in chosen]),
        words="All" if is_all else " + ".join(text for text, _ in chosen),
        chosen=chosen,
        options=options,
        is_all=is_all,
        has_all=has_all,
        is_shown=variable.get("type") != "datasource" and variable.get("hide") != 2,
    )


def pattern_of(variable: Mapping[str, Any], values: Iterable[str]) -> str:
    """Values within a query: those of which several could be chosen stand in a pattern, so they are escaped."""
    if not variable.get("multi") and not variable.get("includeAll"):
        return next(iter(values), "")
    escaped = ["".join(f"\\\\{each}" if each in "\\^$.*+?()[]{}|" else each for each in value) for value in values]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def _options(variable: Mapping[str, Any], asker: Asker, values: Mapping[str, str]) -> list[Option]:
    given = variable.get("query")
    text = str(given.get("query", "") if isinstance(given, Mapping) else given or "")
    match variable.get("type"):
        case "custom" | "interval":
            pairs = (part.partition(" : ") for part in re.split(r"(?<!\\),", text) if part.strip())
            return [(name.strip(), (value if colon else name).strip()) for name, colon, value in pairs]
        case "constant" | "textbox":
            return [(text, text)]
        case "query" if is_prometheus(variable):
            asked = QUERY_RESULT.fullmatch(text)
            way, text = (Way.QUERY_RESULT, asked["expression"]) if asked else (Way.LABEL_VALUES, text)
            try:
                return choices_of(asker.data(text, way, values), str(variable.get("regex") or ""))
            except (QueryError, UnknownVariableError, re.error):
                return []  # the panels that need it say what is wrong
    return []


def _many(value: Any) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else [str(value)] if value is not None else []
