"""Runs every query of the dashboards on a live Prometheus and reports those that fail or are empty."""

import json
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from dashboards.interpolation import UnknownVariableError, expand, first_option, intervals, step_of
from dashboards.style import MAY_BE_EMPTY
from exporters.errors import UsageError
from exporters.prometheus_api import Prometheus, QueryError

_LABEL_VALUES = re.compile(r"\s*label_values\(\s*(?:(?P<series>.+?)\s*,)?\s*(?P<label>\w+)\s*\)\s*", re.DOTALL)

QUERY_RESULT = re.compile(r"query_result\((?P<expression>.+)\)\s*", re.DOTALL)

# Overlaps network and evaluation without loading a server that also evaluates the alerts.
_CONCURRENCY = 2


class QueryType(StrEnum):
    """The endpoint of the HTTP API that Grafana uses."""

    RANGE = "range"
    INSTANT = "instant"
    LABEL_VALUES = "label values"
    QUERY_RESULT = "query result"


@dataclass(frozen=True, slots=True)
class Check:
    """One query of a dashboard, with its variables unexpanded, and the reason for which it may be empty."""

    dashboard: str
    panel: str
    ref: str
    expression: str
    query_type: QueryType
    values: Mapping[str, str]
    may_be_empty: str = ""
    variable: str = ""
    """The variable that takes its value from the result, by `pattern`."""
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The time range of the queries in unix seconds, and the scrape interval of the targets."""

    start: float
    end: float
    scrape_interval: float = 15.0

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one request returned: `samples` leaves out NaN, which is drawn as nothing; `error` when it failed."""

    series: int
    samples: int
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A check and the measurement of its query."""

    check: Check
    measurement: Measurement

    def fails(self, *, strict: bool) -> bool:
        return bool(self.measurement.error) or (
            self.measurement.samples == 0 and (strict or not self.check.may_be_empty)
        )

    @property
    def verdict(self) -> str:
        if self.measurement.error:
            return f"failed: {self.measurement.error}"
        if self.measurement.samples:
            return "ok"
        if self.check.may_be_empty:
            return f"empty, may be: {self.check.may_be_empty}"
        return "empty: only NaN" if self.measurement.series else "empty"


def audit(
    checks: Iterable[Check], prometheus: Prometheus, time_range: TimeRange, concurrency: int = _CONCURRENCY
) -> list[Finding]:
    """Run every check.

    Raises:
        UsageError: the server is not reachable.
    """
    expandable: list[Check] = []
    for _, group in groupby(checks, attrgetter("dashboard")):
        dashboard_checks = list(group)
        values = initial_values(dashboard_checks, prometheus, time_range)
        expandable += [replace(check, values={**check.values, **values}) for check in dashboard_checks]
    with ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(lambda check: Finding(check, _run(check, prometheus, time_range)), expandable))


def initial_values(checks: Iterable[Check], prometheus: Prometheus, time_range: TimeRange) -> dict[str, str]:
    """The initial values of variables over query results: the first line of each; a query may name earlier variables.

    Raises:
        UsageError: the server is not reachable.
    """
    values: dict[str, str] = {}
    for check in checks:
        if check.variable:
            with suppress(UnknownVariableError, QueryError):  # the check itself reports it
                text = _expanded(replace(check, values={**check.values, **values}), time_range)
                data = prometheus.get("/api/v1/query", {"query": text, "time": f"{time_range.end:.3f}"})
                if (value := first_option(data, check.pattern)) is not None:
                    values[check.variable] = value
    return values


def read_checks(folder: Path) -> list[Check]:
    """The checks of every dashboard in a folder.

    Raises:
        UsageError: there is none, or a file is no dashboard.
    """
    return [check for dashboard in read_dashboards(folder).values() for check in checks_of(dashboard)]


def read_dashboards(folder: Path) -> dict[str, dict[str, Any]]:
    """The dashboards of a folder by file name without suffix.

    Raises:
        UsageError: there is none, or a file is no dashboard.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise UsageError(f"{folder}: holds no dashboard; write one with: vllm-slo dashboards render --out {folder}")
    dashboards = {}
    for path in files:
        try:
            dashboard = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: cannot be read as JSON: {error}") from error
        if not isinstance(dashboard, dict) or "panels" not in dashboard:
            raise UsageError(f"{path}: is no dashboard of the classic schema: it has no panels")
        dashboards[path.stem] = dashboard
    return dashboards


def checks_of(dashboard: Mapping[str, Any]) -> Iterator[Check]:
    """Every query of a dashboard in the order in which Grafana shows them: variables, annotations, panels."""
    title = str(dashboard.get("title", ""))
    variables = dashboard.get("templating", {}).get("list", [])
    values = {str(variable["name"]): initial_value(variable) for variable in variables}
    for variable in variables:
        if variable["type"] == "query" and is_prometheus(variable):
            text = variable["query"]["query"] if isinstance(variable["query"], dict) else variable["query"]
            name = str(variable["name"])
            if match := QUERY_RESULT.fullmatch(text):
                options = {"variable": name, "pattern": str(variable.get("regex") or "")}
                yield Check(
                    title, f"variable {name}", "", match["expression"], QueryType.QUERY_RESULT, values, **options
                )
            else:
                yield Check(title, f"variable {name}", "", text, QueryType.LABEL_VALUES, values)
    for annotation in dashboard.get("annotations", {}).get("list", []):
        text = annotation.get("target", {}).get("expr") or annotation.get("expr")
        if text and is_prometheus(annotation):
            # an annotation shows events, and there may be none
            reason = "no such event in this time"
            yield Check(title, f"annotation {annotation['name']}", "", text, QueryType.RANGE, values, reason)
    for panel in panels_of(dashboard["panels"]):
        reason = str(panel.get("description", "")).partition(MAY_BE_EMPTY)[2].rstrip(".")
        for target in panel.get("targets", []):
            if target.get("expr") and is_prometheus(target if "datasource" in target else panel):
                query_type, ref = query_type_of(target), target.get("refId", "")
                yield Check(title, str(panel.get("title", "")), ref, target["expr"], query_type, values, reason)


def panels_of(panels: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for panel in panels:
        yield panel
        yield from panels_of(panel.get("panels", []))  # a collapsed row keeps its panels inside


def query_type_of(target: Mapping[str, Any]) -> QueryType:
    return QueryType.INSTANT if target.get("instant") and not target.get("range") else QueryType.RANGE


def initial_value(variable: Mapping[str, Any]) -> str:
    """The value of a variable when everything is selected, else the current one of the file."""
    if variable.get("includeAll"):
        return str(variable.get("allValue") or ".*")
    value = variable.get("current", {}).get("value", "")
    return "|".join(value) if isinstance(value, list) else str(value)


def is_prometheus(element: Mapping[str, Any]) -> bool:
    source = element.get("datasource")
    return source is None or (isinstance(source, dict) and source.get("type", "prometheus") == "prometheus")


def _run(check: Check, prometheus: Prometheus, time_range: TimeRange) -> Measurement:
    try:
        text = _expanded(check, time_range)
    except UnknownVariableError as error:
        return Measurement(0, 0, 0.0, str(error))
    parameters = api_request(check.query_type, text, time_range)
    if parameters is None:
        return Measurement(0, 0, 0.0, f"{text!r} is no label_values(series, label)")
    return measure(prometheus, *parameters)


def measure(prometheus: Prometheus, path: str, parameters: Mapping[str, str]) -> Measurement:
    """What one request returns, and how long it takes.

    Raises:
        UsageError: the server is not reachable.
    """
    started = time.monotonic()
    try:
        data, error = prometheus.get(path, parameters), ""
    except QueryError as failure:
        data, error = None, failure.reason
    series, samples = _count(data)
    return Measurement(series, samples, time.monotonic() - started, error)


def _count(data: Any) -> tuple[int, int]:
    match data:
        case {"resultType": "matrix" | "vector", "result": list(result)}:
            counts = [sum(_is_number(v) for _, v in one.get("values", [one.get("value")])) for one in result]
            return len(counts), sum(counts)
        case {"resultType": "scalar" | "string", "result": [_, value]}:
            return 1, int(_is_number(value))
        case [*values]:  # the values of a label
            return len(values), len(values)
        case _:
            return 0, 0


def _is_number(value: str) -> bool:
    try:
        return not math.isnan(float(value))
    except ValueError:
        return True  # a string, or a native histogram


def _expanded(check: Check, time_range: TimeRange) -> str:
    return expand(check.expression, {**check.values, **intervals(time_range.seconds, time_range.scrape_interval)})


def api_request(query_type: QueryType, text: str, time_range: TimeRange) -> tuple[str, dict[str, str]] | None:
    """The path and parameters of a query with its variables expanded; None where it has not the form of its type."""
    times = {"start": f"{time_range.start:.3f}", "end": f"{time_range.end:.3f}"}
    match query_type:
        case QueryType.RANGE:
            step = f"{step_of(time_range.seconds, time_range.scrape_interval):g}"
            return "/api/v1/query_range", {"query": text, **times, "step": step}
        case QueryType.INSTANT | QueryType.QUERY_RESULT:
            return "/api/v1/query", {"query": text, "time": times["end"]}
        case QueryType.LABEL_VALUES:
            match = _LABEL_VALUES.fullmatch(text)
            if match is None:
                return None
            series = {"match[]": match["series"]} if match["series"] else {}
            return f"/api/v1/label/{match['label']}/values", {**series, **times}
