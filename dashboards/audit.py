"""Finds every query of a dashboard's file and judges what a live Prometheus answers to it."""

import json
import re
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
from dashboards.live import Answer, FailedError, Prometheus
from dashboards.style import MAY_BE_EMPTY
from exporters.errors import UsageError

_LABEL_VALUES = re.compile(r"\s*label_values\(\s*(?:(?P<series>.+?)\s*,)?\s*(?P<label>\w+)\s*\)\s*", re.DOTALL)

QUERY_RESULT = re.compile(r"query_result\((?P<expression>.+)\)\s*", re.DOTALL)

# Enough to overlap the network with the work, too few to be a load on a server that also evaluates the alerts.
_CONCURRENCY = 2


class QueryType(StrEnum):
    """How Grafana would ask."""

    RANGE = "range"
    INSTANT = "instant"
    LABEL_VALUES = "label values"
    QUERY_RESULT = "query result"


@dataclass(frozen=True, slots=True)
class Check:
    """One query of a dashboard, still with its variables, and why it may rightly be empty."""

    dashboard: str
    panel: str
    ref: str
    expression: str
    query_type: QueryType
    values: Mapping[str, str]
    may_be_empty: str = ""
    variable: str = ""
    """That takes its value from this query's answer, by `pattern`."""
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The time range to ask about, unix seconds, and how often the targets are scraped."""

    start: float
    end: float
    scrape_interval: float = 15.0

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Finding:
    """A check and what came of it."""

    check: Check
    answer: Answer

    def fails(self, *, strict: bool) -> bool:
        return bool(self.answer.error) or (self.answer.samples == 0 and (strict or not self.check.may_be_empty))

    @property
    def verdict(self) -> str:
        if self.answer.error:
            return f"failed: {self.answer.error}"
        if self.answer.samples:
            return "ok"
        if self.check.may_be_empty:
            return f"empty, may be: {self.check.may_be_empty}"
        return "empty: only NaN" if self.answer.series else "empty"


def audit(
    checks: Iterable[Check], prometheus: Prometheus, time_range: TimeRange, concurrency: int = _CONCURRENCY
) -> list[Finding]:
    """Run every check.

    Raises:
        UsageError: nothing answers at the server's address.
    """
    expandable: list[Check] = []
    for _, group in groupby(checks, attrgetter("dashboard")):
        dashboard_checks = list(group)
        values = initial_values(dashboard_checks, prometheus, time_range)
        expandable += [replace(check, values={**check.values, **values}) for check in dashboard_checks]
    with ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(lambda check: Finding(check, _run(check, prometheus, time_range)), expandable))


def initial_values(checks: Iterable[Check], prometheus: Prometheus, time_range: TimeRange) -> dict[str, str]:
    """What a dashboard's variables over answers hold at first: the first line of each; a query may name those before.

    Raises:
        UsageError: nothing answers at the server's address.
    """
    values: dict[str, str] = {}
    for check in checks:
        if check.variable:
            with suppress(UnknownVariableError, FailedError):  # said of the check itself
                text = _expanded(replace(check, values={**check.values, **values}), time_range)
                answer = prometheus.data("/api/v1/query", {"query": text, "time": f"{time_range.end:.3f}"})
                if (value := first_option(answer, check.pattern)) is not None:
                    values[check.variable] = value
    return values


def read_checks(folder: Path) -> list[Check]:
    """The checks of every dashboard in a folder.

    Raises:
        UsageError: there is none, or a file is no dashboard.
    """
    return [check for dashboard in read_dashboards(folder).values() for check in checks_of(dashboard)]


def read_dashboards(folder: Path) -> dict[str, dict[str, Any]]:
    """The dashboards of a folder by the names of their files, without the ending.

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
            # an annotation marks events, so none of them is as right an answer as ten
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
    """The value of a variable when everything is selected, else the one that the file has chosen."""
    if variable.get("includeAll"):
        return str(variable.get("allValue") or ".*")
    value = variable.get("current", {}).get("value", "")
    return "|".join(value) if isinstance(value, list) else str(value)


def is_prometheus(element: Mapping[str, Any]) -> bool:
    source = element.get("datasource")
    return source is None or (isinstance(source, dict) and source.get("type", "prometheus") == "prometheus")


def _run(check: Check, prometheus: Prometheus, time_range: TimeRange) -> Answer:
    try:
        text = _expanded(check, time_range)
    except UnknownVariableError as error:
        return Answer(0, 0, 0.0, str(error))
    parameters = api_request(check.query_type, text, time_range)
    return (
        prometheus.ask(*parameters) if parameters else Answer(0, 0, 0.0, f"{text!r} is no label_values(series, label)")
    )


def _expanded(check: Check, time_range: TimeRange) -> str:
    return expand(check.expression, {**check.values, **intervals(time_range.seconds, time_range.scrape_interval)})


def api_request(query_type: QueryType, text: str, time_range: TimeRange) -> tuple[str, dict[str, str]] | None:
    """The path and parameters that ask a query whose variables are filled in; None when it is not one of `way`."""
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
