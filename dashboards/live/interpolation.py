"""Expands the variables of a query as Grafana does."""

import re
from collections.abc import Mapping
from typing import Any

# `$1` is a group of `label_replace`
_VARIABLE = re.compile(
    r"\$(?P<bare>[A-Za-z_]\w*)|\$\{(?P<braced>\w+)(?::(?P<format>[^}]*))?\}|\[\[(?P<old>\w+)(?::[^\]]*)?\]\]"
)

POINTS = 500
"""Roughly the width of a panel in pixels; Prometheus rejects more than 11,000 points."""


class UnknownVariableError(Exception):
    """A query contains a variable that has no value."""


def expand(expression: str, values: Mapping[str, str]) -> str:
    """The expression with every `$name`, `${name}`, `${name:format}` and `[[name]]` replaced.

    Raises:
        UnknownVariableError: `values` lacks one of them.
    """

    def value(match: re.Match[str]) -> str:
        name = match["bare"] or match["braced"] or match["old"]
        if name not in values:
            raise UnknownVariableError(f"the variable ${name} has no value; known: {', '.join(sorted(values))}")
        return formatted(values[name], match["format"])

    return _VARIABLE.sub(value, expression)


def formatted(value: str, form: str | None) -> str:
    """A value in a format of Grafana; only times have another text than without it."""
    return f"{int(value) // 1000}" if form == "date:seconds" else value


def options_from(data: Any, pattern: str) -> list[tuple[str, str]]:
    """The options of a variable over a query result, as text and value.

    `pattern` is a JavaScript regex. It extracts both from a label value, or from Grafana's text form of a series.
    """
    match data:
        case {"resultType": "scalar" | "string", "result": [_, str(value)]}:
            return [(value, value)]
        case {"resultType": "vector", "result": list(vector)}:
            lines = [_series_line(each["metric"], *each["value"]) for each in vector]
        case [*values]:
            lines = [str(value) for value in values]
        case _:
            return []
    regex = re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", pattern.strip("/")) or ".*")
    options = []
    for match in filter(None, map(regex.search, lines)):
        groups = match.groupdict()
        value = groups.get("value") or match[min(1, match.re.groups)]
        options.append((groups.get("text") or value, value))
    return options


def _series_line(labels: Mapping[str, str], at: float, value: str) -> str:
    pairs = ",".join(f'{name}="{text}"' for name, text in labels.items() if name != "__name__")
    return f"{labels.get('__name__', '')}{{{pairs}}} {value} {round(at * 1000)}"


def step_of(seconds: float, least: float, points: int = POINTS) -> float:
    """The step of a range query, in seconds; `least` is the scrape interval, or the minimum interval of a panel."""
    return max(least, float(-(-seconds // points)))


def intervals(
    seconds: float, scrape_interval: float, least: float = 0.0, points: int = POINTS, *, end: float = 0.0
) -> dict[str, str]:
    """Grafana's built-in variables for `seconds` until `end`, in a panel with this minimum interval."""
    step = step_of(seconds, max(scrape_interval, least), points)
    return {
        **_interval("__interval", step),
        # Grafana's rule: at least four scrape intervals, so that a missing scrape causes no gap
        **_interval("__rate_interval", max(step + scrape_interval, 4 * scrape_interval)),
        **_interval("__range", seconds),
        "__range_s": f"{round(seconds)}",
        "__from": f"{round((end - seconds) * 1000)}",
        "__to": f"{round(end * 1000)}",
    }


def _interval(name: str, seconds: float) -> dict[str, str]:
    return {name: f"{round(seconds * 1000)}ms", f"{name}_ms": f"{round(seconds * 1000)}"}
