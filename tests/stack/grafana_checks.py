"""Reads the lab in containers as Grafana's pages do, and lists what a viewer would miss.

Boards come from Grafana's HTTP API. Queries, exemplars and traces come from the data sources behind its proxy, or from
the services themselves, if Grafana does not run. Each check returns messages that say what is missing, and where.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from compose.demo.trace_checks import exemplars
from dashboards.live.audit import audit
from dashboards.live.interpolation import expand, intervals
from dashboards.live.reader import Check, TimeRange, annotations_of, checks_of, read_dashboards
from exporters.analysis.prometheus_api import Prometheus, QueryError
from exporters.vocabulary.signals import TTFT, Label

CONFIG_CHANGES = "Config changes"
ANNOTATION_WITHIN = 10.0
"""Seconds between the request for a config change and its annotation; the engine restarts in between."""
TRACES = 5

Board = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sources:
    """The base URLs of the two data sources."""

    prometheus: str
    tempo: str

    @classmethod
    def through(cls, grafana: str) -> "Sources":
        """The data sources of `compose/grafana/provisioning` behind Grafana's proxy."""
        proxy = f"{grafana}/api/datasources/proxy/uid"
        return cls(f"{proxy}/prometheus", f"{proxy}/tempo")


def board_problems(grafana: str, folder: Path) -> list[str]:
    """Boards of a folder that Grafana does not list, and queries that it does not serve with them."""
    return [
        problem for file, board in read_dashboards(folder).items() for problem in _board_problems(grafana, file, board)
    ]


def _board_problems(grafana: str, file: str, wanted: Board) -> Iterator[str]:
    uid = wanted["uid"]
    listed, error = _get(f"{grafana}/api/search?type=dash-db")
    uids = [] if error else sorted(each["uid"] for each in listed)
    if uid not in uids:
        found = error or f"found {', '.join(uids) or 'none'}"
        yield f"{grafana}/api/search: no board {uid} ({file}.json): {found}"
        return
    served, error = _get(f"{grafana}/api/dashboards/uid/{uid}")
    if error:
        yield f"{grafana}/api/dashboards/uid/{uid}: {error}"
        return
    queries = {(each.panel, each.ref, each.expression) for each in checks_of(served["dashboard"])}
    for check in checks_of(wanted):
        if (check.panel, check.ref, check.expression) not in queries:
            yield f"{grafana}/api/dashboards/uid/{uid}: {_place(check)}: the query of {file}.json is not served"


def served_boards(grafana: str, folder: Path) -> list[Board]:
    """The boards of a folder as Grafana serves them; `board_problems` reports those that it does not."""
    uids = [board["uid"] for board in read_dashboards(folder).values()]
    answers = [_get(f"{grafana}/api/dashboards/uid/{uid}") for uid in uids]
    return [body["dashboard"] for body, error in answers if not error]


def panel_problems(boards: Sequence[Board], sources: Sources, time_range: TimeRange) -> list[str]:
    """Queries that fail or return no data, unless the description of their panel gives the reason."""
    checks = [check for board in boards for check in checks_of(board)]
    findings = audit(checks, Prometheus(sources.prometheus), time_range)
    return [
        f"{sources.prometheus}: {_place(finding.check)}: {finding.verdict}: {finding.check.expression}"
        for finding in findings
        if finding.fails(strict=False)
    ]


def annotation_problems(
    boards: Sequence[Board], sources: Sources, setting: str, changed: float, time_range: TimeRange
) -> list[str]:
    """Boards that do not draw a config change at its time, in unix seconds."""
    problems = []
    for board in boards:
        place = f"{sources.prometheus}: {board['title']} / annotation {CONFIG_CHANGES}"
        if not any(each["name"] == CONFIG_CHANGES and each.get("enable") for each in annotations_of(board)):
            problems.append(f"{place}: missing or off")
            continue
        (check,) = [each for each in checks_of(board) if each.panel == f"annotation {CONFIG_CHANGES}"]
        try:
            times = _times(check, Prometheus(sources.prometheus), setting, time_range)
        except QueryError as error:
            problems.append(f"{place}: failed: {error.reason}: {check.expression}")
            continue
        if not any(abs(at - changed) <= ANNOTATION_WITHIN for at in times):
            found = ", ".join(f"{at:.3f}" for at in times) or "none"
            problems.append(f"{place}: no {setting} within {ANNOTATION_WITHIN:g} s of {changed:.3f}: found {found}")
    return problems


def _times(check: Check, prometheus: Prometheus, setting: str, time_range: TimeRange) -> list[float]:
    """The times of the marks of one setting: the query returns them as values, in milliseconds."""
    values = intervals(time_range.seconds, time_range.scrape_interval, check.least_step)
    expression = expand(check.expression, {**check.values, **values})
    matrix = prometheus.query_range(expression, time_range.start, time_range.end, max(1.0, check.least_step))
    return sorted(
        {value / 1000 for series in matrix if series.labels.get(Label.SETTING) == setting for _, value in series.points}
    )


def exemplar_problems(sources: Sources, time_range: TimeRange) -> list[str]:
    return _trace_ids(sources, time_range)[1]


def trace_problems(sources: Sources, time_range: TimeRange) -> list[str]:
    """Traces of the latest exemplars of TTFT that Tempo does not have."""
    traces, problems = _trace_ids(sources, time_range)
    for trace_id in traces:
        url = f"{sources.tempo}/api/traces/{trace_id}"
        _, error = _get(url)
        if error:
            problems.append(f"{url}: trace of an exemplar of {TTFT.name}: {error}")
    return problems


def _trace_ids(sources: Sources, time_range: TimeRange) -> tuple[list[str], list[str]]:
    query = {"query": TTFT.bucket, "start": f"{time_range.start:.3f}", "end": f"{time_range.end:.3f}"}
    place = f"{sources.prometheus}/api/v1/query_exemplars: {TTFT.bucket}"
    try:
        found = exemplars({"data": Prometheus(sources.prometheus).get("/api/v1/query_exemplars", query)})
    except QueryError as error:
        return [], [f"{place}: {error.reason}"]
    ids = list(dict.fromkeys(each.trace_id for each in found))[:TRACES]
    return ids, [] if ids else [f"{place}: no exemplar in {time_range.seconds:.0f} s"]


def _place(check: Check) -> str:
    return f"{check.dashboard} / {check.panel}{f' [{check.ref}]' if check.ref else ''}"


def _get(url: str) -> tuple[Any, str]:
    """A JSON body, or the status with the message of Grafana or Tempo."""
    try:
        with urlopen(url, timeout=30) as response:
            return json.load(response), ""
    except HTTPError as error:
        with error:
            message = error.read().decode(errors="replace").strip()
        return None, f"HTTP {error.code} {error.reason}{f': {message}' if message else ''}"
