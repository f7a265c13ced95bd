"""Runs the queries of panels and annotations on Prometheus; returns data frames, annotation events or errors."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.live.interpolation import UnknownVariableError, expand, intervals
from dashboards.live.reader import QueryType, annotation_query, api_request, least_step_of, query_type_of, targets_of
from dashboards.preview.annotations import annotation_events
from dashboards.preview.frames import frame
from dashboards.preview.frames.frame import Frame
from dashboards.preview.view import View
from exporters.analysis.prometheus_api import Prometheus, QueryError

MAX_SERIES = 200
"""Maximum per query; browsers draw this many lines without delay."""


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel."""

    ref: str
    expression: str
    query_type: QueryType
    legend: str
    is_table: bool
    min_interval: float = 0.0


def queries_of(panel: Mapping[str, Any]) -> list[Query]:
    return [
        Query(
            str(target.get("refId", "")),
            str(target["expr"]),
            query_type_of(target),
            str(target.get("legendFormat") or ""),
            target.get("format") == "table",
            least_step_of(panel),
        )
        for target in targets_of(panel)
        if not target.get("hide")
    ]


@dataclass(frozen=True, slots=True)
class QueryRunner:
    """Runs queries for one view; `on_query_done` is called after each query of a panel or an annotation."""

    prometheus: Prometheus
    view: View
    on_query_done: Callable[[], None] = lambda: None

    def panel_frames(self, queries: Iterable[Query], values: Mapping[str, str]) -> tuple[list[Frame], list[str]]:
        """The frames of every query, and a note for each query that failed or exceeded `MAX_SERIES`."""
        query_list, frames, notes = list(queries), [], []
        numbered = sum(query.is_table for query in query_list) > 1
        for query in query_list:
            try:
                result = self._result(query.expression, query.query_type, values, query.min_interval)
            except (QueryError, UnknownVariableError) as error:
                notes.append(f"{query.ref}: {error}")
                continue
            finally:
                self.on_query_done()
            if len(result) > MAX_SERIES:
                notes.append(f"{query.ref}: only {MAX_SERIES} of {len(result)} series are drawn")
            frames += self._frames(query, result[:MAX_SERIES], f"Value #{query.ref}" if numbered else "Value")
        return frames, notes

    def annotation_events(
        self, annotation: Mapping[str, Any], values: Mapping[str, str]
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """The events of an annotation, or the error of its query."""
        try:
            result = self._result(annotation_query(annotation), QueryType.RANGE, values)
        except (QueryError, UnknownVariableError) as error:
            return [], [f"{annotation['name']}: {error}"]
        finally:
            self.on_query_done()
        return annotation_events(annotation, result, self.view.aligned, self.view.step), []

    def fetch(
        self, expression: str, query_type: QueryType, values: Mapping[str, str], min_interval: float = 0.0
    ) -> Any:
        """The `data` of the response.

        Raises:
            QueryError: the query failed.
            UnknownVariableError: the query contains a variable without a value.
            UsageError: the server is not reachable.
        """
        time_range = self.view.aligned if query_type is QueryType.RANGE else self.view.time_range
        whole = self.view.time_range
        own = intervals(whole.seconds, whole.scrape_interval, min_interval, end=whole.end)
        text = expand(expression, {**values, **own})
        return self.prometheus.get(*api_request(query_type, text, time_range, self.view.step))

    def _result(
        self, expression: str, query_type: QueryType, values: Mapping[str, str], min_interval: float = 0.0
    ) -> list[dict[str, Any]]:
        match self.fetch(expression, query_type, values, min_interval):
            case {"resultType": "matrix" | "vector", "result": list(result)}:
                # without native histograms
                return [series for series in result if series.get("value") or series.get("values")]
            case {"resultType": "scalar", "result": value}:
                return [{"metric": {}, "value": value}]
        raise QueryError("the response is not a vector or matrix of Prometheus")

    def _frames(self, query: Query, result: list[dict[str, Any]], value: str) -> list[Frame]:
        if query.is_table:
            last = [
                {"metric": series["metric"], "value": series.get("value") or series["values"][-1]} for series in result
            ]
            return frame.table_frames(query.ref, last, value)
        if query.query_type is QueryType.RANGE:
            return frame.matrix_frames(query.ref, result, self.view.grid, query.legend)
        return frame.vector_frames(query.ref, result, query.legend)
