"""Expands the variables of a query as Grafana does."""

import re
from collections.abc import Mapping
from typing import Any

_VARIABLE = re.compile(r"\$(?P<bare>\w+)|\$\{(?P<braced>\w+)(?::[^}]*)?\}|\[\[(?P<old>\w+)(?::[^\]]*)?\]\]")

POINTS = 500
"""About as many points as a panel is wide; Prometheus refuses more than 11,000."""


class UnknownVariableError(Exception):
    """A query names a variable that has no value."""


def expand(expression: str, values: Mapping[str, str]) -> str:
    """The expression with every `$name`, `${name}`, `${name:format}` and `[[name]]` replaced.

    Raises:
        UnknownVariableError: `values` lacks one of them.
    """

    def value(match: re.Match[str]) -> str:
        name = match["bare"] or match["braced"] or match["old"]
        if name not in values:
            raise UnknownVariableError(f"nothing gives ${name} a value; known: {', '.join(sorted(values))}")
        return values[name]

    return _VARIABLE.sub(value, expression)


def first_option(data: Any, pattern: str) -> str | None:
    """The initial value of a variable over a query result; None where there is no option."""
    return next((value for _, value in options_from(data, pattern)), None)


def options_from(data: Any, pattern: str) -> list[tuple[str, str]]:
    """The options of a variable over a query result, as text and value.

    `pattern` is JavaScript's and extracts both from a label's value, or from the line that Grafana writes for a series.
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
    return [_option(match) for line in lines if (match := regex.search(line))]


def _series_line(labels: Mapping[str, str], at: float, value: str) -> str:
    pairs = ",".join(f'{name}="{text}"' for name, text in labels.items() if name != "__name__")
    return f"{labels.get('__name__', '')}{{{pairs}}} {value} {round(at * 1000)}"


def _option(match: re.Match[str]) -> tuple[str, str]:
    groups = match.groupdict()
    value = groups.get("value") or match[min(1, match.re.groups)]
    return groups.get("text") or value, value


def step_of(seconds: float, scrape_interval: float) -> float:
    """The step of a range query in seconds; at least the scrape interval."""
    return max(scrape_interval, float(-(-seconds // POINTS)))


def intervals(seconds: float, scrape_interval: float) -> dict[str, str]:
    """Grafana's built-in variables for a time range of `seconds`."""
    step = step_of(seconds, scrape_interval)
    return {
        **_interval("__interval", step),
        # Grafana's rule: at least four scrapes, so that one missing scrape leaves no gap
        **_interval("__rate_interval", max(step + scrape_interval, 4 * scrape_interval)),
        **_interval("__range", seconds),
        "__range_s": f"{round(seconds)}",
    }


def _interval(name: str, seconds: float) -> dict[str, str]:
    return {name: f"{round(seconds * 1000)}ms", f"{name}_ms": f"{round(seconds * 1000)}"}
