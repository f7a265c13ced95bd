"""Runs every query of the dashboards on a live Prometheus and reports those that fail or are empty."""

import math
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from dashboards.live.interpolation import UnknownVariableError, expand, intervals, options_from, step_of
from dashboards.live.reader import Check, QueryType, TimeRange, api_request, checks_of, read_dashboards
from exporters.analysis.prometheus_api import Prometheus, QueryError

# Overlaps network and evaluation; more would slow down the evaluation of alerts.
_CONCURRENCY = 2


@dataclass(frozen=True, slots=True)
class Measurement:
    """The response to one request; `samples` does not count NaN, which Grafana does not draw."""

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
            return f"empty, allowed: {self.check.may_be_empty}"
        return "empty: only NaN" if self.measurement.series else "empty"


def audit(
    checks: Iterable[Check], prometheus: Prometheus, time_range: TimeRange, concurrency: int = _CONCURRENCY
) -> list[Finding]:
    """Run every check.

    Raises:
        UsageError: the server is not reachable.
    """
    complete_checks: list[Check] = []
    for _, group in groupby(checks, attrgetter("dashboard")):
        dashboard_checks = list(group)
        values = query_result_values(dashboard_checks, prometheus, time_range)
        complete_checks += [replace(check, values={**check.values, **values}) for check in dashboard_checks]
    with ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(lambda check: Finding(check, _run(check, prometheus, time_range)), complete_checks))


def query_result_values(checks: Iterable[Check], prometheus: Prometheus, time_range: TimeRange) -> dict[str, str]:
    """The initial values of query result variables; a query may refer to earlier variables.

    Raises:
        UsageError: the server is not reachable.
    """
    values: dict[str, str] = {}
    for check in checks:
        if check.query_type is QueryType.QUERY_RESULT:
            # the check itself reports a failure
            with suppress(UnknownVariableError, QueryError):
                request = _request(replace(check, values={**check.values, **values}), time_range)
                options = [value for _, value in options_from(prometheus.get(*request), check.pattern)]
                if options:
                    values[check.variable] = "|".join(options) if check.is_all else options[0]
    return values


def read_checks(folder: Path) -> list[Check]:
    """The checks of every dashboard in a folder.

    Raises:
        UsageError: there is none, or a file is not a dashboard.
    """
    return [check for dashboard in read_dashboards(folder).values() for check in checks_of(dashboard)]


def _run(check: Check, prometheus: Prometheus, time_range: TimeRange) -> Measurement:
    try:
        request = _request(check, time_range)
    except (UnknownVariableError, QueryError) as error:
        return Measurement(0, 0, 0.0, str(error))
    return measure(prometheus, *request)


def measure(prometheus: Prometheus, path: str, parameters: Mapping[str, str]) -> Measurement:
    """Send one request and measure it.

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
        case [*values]:
            return len(values), len(values)
        case _:
            return 0, 0


def _is_number(value: str) -> bool:
    try:
        return not math.isnan(float(value))
    except ValueError:
        # a string, or a native histogram
        return True


def _request(check: Check, time_range: TimeRange) -> tuple[str, dict[str, str]]:
    seconds, scrape_interval = time_range.seconds, time_range.scrape_interval
    values = {**check.values, **intervals(seconds, scrape_interval, check.least_step, check.points)}
    step = step_of(seconds, max(scrape_interval, check.least_step), check.points)
    return api_request(check.query_type, expand(check.expression, values), time_range, step)
