"""Finds every query of a dashboard's file and judges what a live Prometheus answers to it."""

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

from dashboards.interpolation import UnknownVariableError, expand, first_choice, intervals, step_of
from dashboards.style import MAY_BE_EMPTY
from exporters.errors import UsageError
from exporters.prometheus_api import Prometheus, QueryError

_LABEL_VALUES = re.compile(r"\s*label_values\(\s*(?:(?P<series>.+?)\s*,)?\s*(?P<label>\w+)\s*\)\s*", re.DOTALL)

QUERY_RESULT = re.compile(r"query_result\((?P<expression>.+)\)\s*", re.DOTALL)

# Enough to overlap the network with the work, too few to be a load on a server that also evaluates the alerts.
_AT_ONCE = 2


class Way(StrEnum):
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
    way: Way
    values: Mapping[str, str]
    may_be_empty: str = ""
    variable: str = ""
    """That takes its value from this query's answer, by `pattern`."""
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """The time range to ask about, unix seconds, and how often the targets are scraped."""

    start: float
    end: float
    scrape_interval: float = 15.0

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request returned: `samples` leaves out NaN, which is drawn as nothing; `error` when it failed."""

    series: int
    samples: int
    seconds: float
    error: str = ""


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


def audit(checks: Iterable[Check], prometheus: Prometheus, span: Span, at_once: int = _AT_ONCE) -> list[Finding]:
    """Run every check.

    Raises:
        UsageError: nothing answers at the server's address.
    """
    filled: list[Check] = []
    for _, group in groupby(checks, attrgetter("dashboard")):
        page = list(group)
        answers = first_answers(page, prometheus, span)
        filled += [replace(check, values={**check.values, **answers}) for check in page]
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda check: Finding(check, _ask(check, prometheus, span)), filled))


def first_answers(checks: Iterable[Check], prometheus: Prometheus, span: Span) -> dict[str, str]:
    """What a dashboard's variables over answers hold at first: the first line of each; a query may name those before.

    Raises:
        UsageError: nothing answers at the server's address.
    """
    found: dict[str, str] = {}
    for check in checks:
        if check.variable:
            with suppress(UnknownVariableError, QueryError):  # said of the check itself
                text = _filled(replace(check, values={**check.values, **found}), span)
                answer = prometheus.get("/api/v1/query", {"query": text, "time": f"{span.end:.3f}"})
                if (choice := first_choice(answer, check.pattern)) is not None:
                    found[check.variable] = choice
    return found


def read_dashboards(folder: Path) -> list[Check]:
    """The checks of every dashboard in a folder.

    Raises:
        UsageError: there is none, or a file is no dashboard.
    """
    return [check for tree in read_trees(folder).values() for check in checks_of(tree)]


def read_trees(folder: Path) -> dict[str, dict[str, Any]]:
    """The dashboards of a folder by the names of their files, without the ending.

    Raises:
        UsageError: there is none, or a file is no dashboard.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise UsageError(f"{folder}: holds no dashboard; write one with: vllm-slo dashboards render --out {folder}")
    found = {}
    for path in files:
        try:
            tree = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: cannot be read as JSON: {error}") from error
        if not isinstance(tree, dict) or "panels" not in tree:
            raise UsageError(f"{path}: is no dashboard of the classic schema: it has no panels")
        found[path.stem] = tree
    return found


def checks_of(tree: Mapping[str, Any]) -> Iterator[Check]:
    """Every query of a dashboard in the order in which Grafana shows them: variables, annotations, panels."""
    title = str(tree.get("title", ""))
    variables = tree.get("templating", {}).get("list", [])
    values = {str(variable["name"]): chosen(variable) for variable in variables}
    for variable in variables:
        if variable["type"] == "query" and is_prometheus(variable):
            text = variable["query"]["query"] if isinstance(variable["query"], dict) else variable["query"]
            name = str(variable["name"])
            if asked := QUERY_RESULT.fullmatch(text):
                choose = {"variable": name, "pattern": str(variable.get("regex") or "")}
                yield Check(title, f"variable {name}", "", asked["expression"], Way.QUERY_RESULT, values, **choose)
            else:
                yield Check(title, f"variable {name}", "", text, Way.LABEL_VALUES, values)
    for events in tree.get("annotations", {}).get("list", []):
        text = events.get("target", {}).get("expr") or events.get("expr")
        if text and is_prometheus(events):
            # an annotation marks events, so none of them is as right an answer as ten
            reason = "no such event in this time"
            yield Check(title, f"annotation {events['name']}", "", text, Way.RANGE, values, reason)
    for panel in panels_of(tree["panels"]):
        reason = str(panel.get("description", "")).partition(MAY_BE_EMPTY)[2].rstrip(".")
        for target in panel.get("targets", []):
            if target.get("expr") and is_prometheus(target if "datasource" in target else panel):
                way, ref = way_of(target), target.get("refId", "")
                yield Check(title, str(panel.get("title", "")), ref, target["expr"], way, values, reason)


def panels_of(panels: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for panel in panels:
        yield panel
        yield from panels_of(panel.get("panels", []))  # a collapsed row keeps its panels inside


def way_of(target: Mapping[str, Any]) -> Way:
    return Way.INSTANT if target.get("instant") and not target.get("range") else Way.RANGE


def chosen(variable: Mapping[str, Any]) -> str:
    """The value of a variable when everything is selected, else the one that the file has chosen."""
    if variable.get("includeAll"):
        return str(variable.get("allValue") or ".*")
    value = variable.get("current", {}).get("value", "")
    return "|".join(value) if isinstance(value, list) else str(value)


def is_prometheus(asked: Mapping[str, Any]) -> bool:
    source = asked.get("datasource")
    return source is None or (isinstance(source, dict) and source.get("type", "prometheus") == "prometheus")


def _ask(check: Check, prometheus: Prometheus, span: Span) -> Answer:
    try:
        text = _filled(check, span)
    except UnknownVariableError as error:
        return Answer(0, 0, 0.0, str(error))
    asked = request(check.way, text, span)
    return measure(prometheus, *asked) if asked else Answer(0, 0, 0.0, f"{text!r} is no label_values(series, label)")


def measure(prometheus: Prometheus, path: str, parameters: Mapping[str, str]) -> Answer:
    """What one request returns, and how long it takes.

    Raises:
        UsageError: nothing answers at the server's address.
    """
    started = time.monotonic()
    try:
        data, error = prometheus.get(path, parameters), ""
    except QueryError as failure:
        data, error = None, failure.reason
    series, samples = _count(data)
    return Answer(series, samples, time.monotonic() - started, error)


def _count(data: Any) -> tuple[int, int]:
    match data:
        case {"resultType": "matrix" | "vector", "result": list(result)}:
            drawn = [sum(_is_number(v) for _, v in one.get("values", [one.get("value")])) for one in result]
            return len(drawn), sum(drawn)
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


def _filled(check: Check, span: Span) -> str:
    return expand(check.expression, {**check.values, **intervals(span.seconds, span.scrape_interval)})


def request(way: Way, text: str, span: Span) -> tuple[str, dict[str, str]] | None:
    """The path and parameters that ask a query whose variables are filled in; None when it is not one of `way`."""
    times = {"start": f"{span.start:.3f}", "end": f"{span.end:.3f}"}
    match way:
        case Way.RANGE:
            step = f"{step_of(span.seconds, span.scrape_interval):g}"
            return "/api/v1/query_range", {"query": text, **times, "step": step}
        case Way.INSTANT | Way.QUERY_RESULT:
            return "/api/v1/query", {"query": text, "time": times["end"]}
        case Way.LABEL_VALUES:
            wanted = _LABEL_VALUES.fullmatch(text)
            if wanted is None:
                return None
            series = {"match[]": wanted["series"]} if wanted["series"] else {}
            return f"/api/v1/label/{wanted['label']}/values", {**series, **times}
