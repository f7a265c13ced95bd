"""Reads dashboards and lists their queries, with the request that Grafana makes for each."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from dashboards.interpolation import step_of
from dashboards.style import MAY_BE_EMPTY
from exporters.errors import UsageError

_LABEL_VALUES = re.compile(r"\s*label_values\(\s*(?:(?P<series>.+?)\s*,)?\s*(?P<label>\w+)\s*\)\s*", re.DOTALL)

QUERY_RESULT = re.compile(r"query_result\((?P<expression>.+)\)\s*", re.DOTALL)


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
    values = {str(variable["name"]): default_value(variable) for variable in variables}
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


def default_value(variable: Mapping[str, Any]) -> str:
    """The value of a variable when everything is selected, else the current one of the file."""
    if variable.get("includeAll"):
        return str(variable.get("allValue") or ".*")
    value = variable.get("current", {}).get("value", "")
    return "|".join(value) if isinstance(value, list) else str(value)


def is_prometheus(element: Mapping[str, Any]) -> bool:
    source = element.get("datasource")
    return source is None or (isinstance(source, dict) and source.get("type", "prometheus") == "prometheus")


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
