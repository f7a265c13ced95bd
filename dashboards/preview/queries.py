"""Puts a dashboard's queries to Prometheus and hands back frames, marks and choices, or what went wrong."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.audit import Way, is_prometheus, request, way_of
from dashboards.interpolation import UnknownVariableError, expand, intervals
from dashboards.preview import data_frames
from dashboards.preview.annotations import marks_of
from dashboards.preview.data_frames import Frame
from dashboards.preview.view_state import View
from exporters.prometheus_api import Prometheus, QueryError

MOST_SERIES = 200
"""Of one query: more lines than anybody tells apart, few enough for a browser."""


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel."""

    ref: str
    expression: str
    way: Way
    legend: str
    is_table: bool


def queries_of(panel: Mapping[str, Any]) -> list[Query]:
    return [
        Query(
            str(target.get("refId", "")),
            str(target["expr"]),
            way_of(target),
            str(target.get("legendFormat") or ""),
            target.get("format") == "table",
        )
        for target in panel.get("targets") or []
        if target.get("expr") and not target.get("hide") and is_prometheus(target if "datasource" in target else panel)
    ]


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks for one view; `answered` is called after each query of a panel or an annotation."""

    prometheus: Prometheus
    view: View
    answered: Callable[[], None] = lambda: None

    def panel(self, queries: Iterable[Query], values: Mapping[str, str]) -> tuple[list[Frame], list[str]]:
        """The frames of every query, and what is to be said of those that failed or brought too much."""
        asking, found, notes = list(queries), [], []
        many = sum(query.is_table for query in asking) > 1
        for query in asking:
            try:
                result = self._result(query.expression, query.way, values)
            except (QueryError, UnknownVariableError) as error:
                notes.append(f"{query.ref}: {error}")
                continue
            finally:
                self.answered()
            if len(result) > MOST_SERIES:
                notes.append(f"{query.ref}: {len(result)} series, of which {MOST_SERIES} are drawn")
            found += self._frames(query, result[:MOST_SERIES], f"Value #{query.ref}" if many else "Value")
        return found, notes

    def marks(self, annotation: Mapping[str, Any], values: Mapping[str, str]) -> tuple[list[dict[str, Any]], list[str]]:
        """The marks of an annotation, or why there are none."""
        expression = (annotation.get("target") or {}).get("expr") or annotation["expr"]
        try:
            result = self._result(expression, Way.RANGE, values)
        except (QueryError, UnknownVariableError) as error:
            return [], [f"{annotation['name']}: {error}"]
        finally:
            self.answered()
        return marks_of(annotation, result, self.view.aligned, self.view.step), []

    def data(self, expression: str, way: Way, values: Mapping[str, str]) -> Any:
        """What the server says.

        Raises:
            QueryError: it refuses the query.
            UnknownVariableError: the query names a variable without a value.
            UsageError: nothing answers at the server's address.
        """
        span = self.view.aligned if way is Way.RANGE else self.view.span
        own = intervals(self.view.span.seconds, self.view.span.scrape_interval)
        asked = request(way, expand(expression, {**values, **own}), span)
        if asked is None:
            raise QueryError(f"{expression!r} is no label_values(series, label)")
        return self.prometheus.get(*asked)

    def _result(self, expression: str, way: Way, values: Mapping[str, str]) -> list[dict[str, Any]]:
        match self.data(expression, way, values):
            case {"resultType": "matrix" | "vector", "result": list(result)}:
                return [one for one in result if one.get("value") or one.get("values")]  # or a native histogram
            case {"resultType": "scalar", "result": value}:
                return [{"metric": {}, "value": value}]
        raise QueryError("the answer is not that of a Prometheus")

    def _frames(self, query: Query, result: list[dict[str, Any]], value: str) -> list[Frame]:
        if query.is_table:
            last = [{"metric": one["metric"], "value": one.get("value") or one["values"][-1]} for one in result]
            return data_frames.of_table(query.ref, last, value)
        if query.way is Way.RANGE:
            return data_frames.of_matrix(query.ref, result, self.view.grid, query.legend)
        return data_frames.of_vector(query.ref, result, query.legend)
