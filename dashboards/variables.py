"""Fills in the variables of a query as Grafana would."""

import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"\$(?P<bare>\w+)|\$\{(?P<braced>\w+)(?::[^}]*)?\}|\[\[(?P<old>\w+)(?::[^\]]*)?\]\]")

POINTS = 500
"""About as many points as a panel is wide; Prometheus refuses more than 11,000."""


class UnknownVariableError(Exception):
    """A query names a variable that nobody has given a value."""


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


def step_of(seconds: float, scrape_interval: float) -> float:
    """The distance of points over a time range; never finer than the scrapes."""
    return max(scrape_interval, float(-(-seconds // POINTS)))


def intervals(seconds: float, scrape_interval: float) -> dict[str, str]:
    """Grafana's own variables for a time range of `seconds`."""
    step = step_of(seconds, scrape_interval)
    return {
        **_spelled("__interval", step),
        # Grafana's rule: at least four scrapes, so that a lost one leaves a rate to be had
        **_spelled("__rate_interval", max(step + scrape_interval, 4 * scrape_interval)),
        **_spelled("__range", seconds),
        "__range_s": f"{round(seconds)}",
    }


def _spelled(name: str, seconds: float) -> dict[str, str]:
    return {name: f"{round(seconds * 1000)}ms", f"{name}_ms": f"{round(seconds * 1000)}"}
