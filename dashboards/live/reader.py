"""Reads dashboards and lists their queries, with the request that Grafana sends for each."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from dashboards.live.interpolation import POINTS
from exporters.analysis.prometheus_api import QueryError
from exporters.text.errors import UsageError
from exporters.text.units import parse_duration

_LABEL_VALUES = re.compile(r"\s*label_values\(\s*(?:(?P<series>.+?)\s*,)?\s*(?P<label>\w+)\s*\)\s*", re.DOTALL)
_QUERY_RESULT = re.compile(r"query_result\((?P<expression>.+)\)\s*", re.DOTALL)

MAY_BE_EMPTY = "May be empty: "
"""Starts the last sentence of a description, the reason why the panel may be empty."""


class QueryType(StrEnum):
    """The endpoint of the HTTP API that Grafana uses."""

    RANGE = "range"
    INSTANT = "instant"
    LABEL_VALUES = "label values"
    QUERY_RESULT = "query result"


@dataclass(frozen=True, slots=True)
class Check:
    """One query of a dashboard, with its variables unexpanded, and the reason why it may be empty."""

    dashboard: str
    panel: str
    ref: str
    expression: str
    query_type: QueryType
    values: Mapping[str, str]
    may_be_empty: str = ""
    variable: str = ""
    """The variable whose options are the result of the query, extracted by `pattern`."""
    pattern: str = ""
    is_all: bool = False
    """Whether all options are selected, without a value for them."""
    least_step: float = 0.0
    """The minimum interval of the panel in seconds."""
    points: int = POINTS
    """The greatest number of points of a series."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The time range of the queries in unix seconds, and the scrape interval of the targets."""

    start: float
    end: float
    scrape_interval: float = 15.0

    @property
    def seconds(self) -> float:
        return self.end - self.start


def read_dashboards(folder: Path) -> dict[str, dict[str, Any]]:
    """The dashboards of a folder by file name without suffix.

    Raises:
        UsageError: there is none, or a file is not a dashboard.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise UsageError(f"{folder}: contains no dashboard; write one with: vllm-slo dashboards render --out {folder}")
    dashboards = {}
    for path in files:
        try:
            dashboard = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(f"{path}: cannot be read as JSON: {error}") from error
        if not isinstance(dashboard, dict) or "panels" not in dashboard:
            raise UsageError(f"{path}: is not a dashboard of the classic schema: it has no panels")
        try:
            list(checks_of(dashboard))
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise UsageError(f"{path}: is not a dashboard of the classic schema: {error}") from error
        dashboards[path.stem] = dashboard
    return dashboards


def checks_of(dashboard: Mapping[str, Any]) -> Iterator[Check]:
    """Every query of a dashboard in the order in which Grafana shows them: variables, annotations, panels."""
    title = str(dashboard.get("title", ""))
    variables = dashboard.get("templating", {}).get("list", [])
    values = {str(variable["name"]): default_value(variable) for variable in variables}
    for variable in variables:
        if variable["type"] == "query" and is_prometheus(variable):
            query_type, text = variable_query(variable)
            name, pattern = str(variable["name"]), str(variable.get("regex") or "")
            yield Check(
                *(title, f"variable {name}", "", text, query_type, values),
                variable=name,
                pattern=pattern,
                is_all=bool(variable.get("includeAll")) and not variable.get("allValue"),
            )
    for annotation in annotations_of(dashboard):
        name, text = f"annotation {annotation['name']}", annotation_query(annotation)
        yield Check(
            *(title, name, "", text, QueryType.RANGE, values, "no event in the time range"),
            least_step=parse_duration(str(annotation["step"])) if annotation.get("step") else 0.0,
        )
    for panel in panels_of(dashboard["panels"]):
        reason = str(panel.get("description", "")).partition(MAY_BE_EMPTY)[2].rstrip(".")
        for target in targets_of(panel):
            query_type, ref = query_type_of(target), target.get("refId", "")
            yield Check(
                title,
                str(panel.get("title", "")),
                ref,
                str(target["expr"]),
                query_type,
                values,
                reason,
                least_step=least_step_of(panel),
                points=int(panel.get("maxDataPoints") or POINTS),
            )


def panels_of(panels: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for panel in panels:
        yield panel
        # a collapsed row contains its panels
        yield from panels_of(panel.get("panels", []))


def variable_query(variable: Mapping[str, Any]) -> tuple[QueryType, str]:
    query = variable.get("query")
    text = str(query.get("query", "") if isinstance(query, Mapping) else query or "")
    if match := _QUERY_RESULT.fullmatch(text):
        return QueryType.QUERY_RESULT, match["expression"]
    return QueryType.LABEL_VALUES, text


def annotations_of(dashboard: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The annotations that query a Prometheus."""
    annotations = (dashboard.get("annotations") or {}).get("list") or []
    return [each for each in annotations if annotation_query(each) and is_prometheus(each)]


def annotation_query(annotation: Mapping[str, Any]) -> str:
    return str((annotation.get("target") or {}).get("expr") or annotation.get("expr") or "")


def targets_of(panel: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The queries of a panel that a Prometheus evaluates."""
    return [
        target
        for target in panel.get("targets") or []
        if target.get("expr") and is_prometheus(target if "datasource" in target else panel)
    ]


def least_step_of(panel: Mapping[str, Any]) -> float:
    """The minimum interval of a panel in seconds; 0 if it has none."""
    return parse_duration(str(panel["interval"])) if panel.get("interval") else 0.0


def query_type_of(target: Mapping[str, Any]) -> QueryType:
    return QueryType.INSTANT if target.get("instant") and not target.get("range") else QueryType.RANGE


def default_value(variable: Mapping[str, Any]) -> str:
    """The value of a variable with everything selected, else the current value in the file."""
    if variable.get("includeAll"):
        return str(variable.get("allValue") or ".*")
    value = variable.get("current", {}).get("value", "")
    return "|".join(value) if isinstance(value, list) else str(value)


def is_prometheus(element: Mapping[str, Any]) -> bool:
    source = element.get("datasource")
    return source is None or (isinstance(source, dict) and source.get("type", "prometheus") == "prometheus")


def api_request(query_type: QueryType, text: str, time_range: TimeRange, step: float) -> tuple[str, dict[str, str]]:
    """The path and parameters of a query with its variables expanded; `step` in seconds is that of a range query.

    Raises:
        QueryError: a query of label values has another form.
    """
    times = {"start": f"{time_range.start:.3f}", "end": f"{time_range.end:.3f}"}
    match query_type:
        case QueryType.RANGE:
            return "/api/v1/query_range", {"query": text, **times, "step": f"{step:g}"}
        case QueryType.INSTANT | QueryType.QUERY_RESULT:
            return "/api/v1/query", {"query": text, "time": times["end"]}
        case QueryType.LABEL_VALUES:
            match = _LABEL_VALUES.fullmatch(text)
            if match is None:
                raise QueryError(f"{text!r} is not label_values(series, label)")
            series = {"match[]": match["series"]} if match["series"] else {}
            return f"/api/v1/label/{match['label']}/values", {**series, **times}
