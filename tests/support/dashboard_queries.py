"""Series, labels, windows and arguments in the queries of dashboards and runbooks, which may have variables."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import promql_parser as promql

from exporters.engines.signal_table import VLLM
from exporters.vocabulary.signals import ACTIVE_SINCE, FIRING, GPU_SIGNALS, RECORDED, SIGNALS, Kind, Label

_TEXT_OR_VARIABLE = re.compile(r'"(?:\\.|[^"\\])*"|\$(?:\{(\w+)\}|(\w+))')
_LABEL_VALUES = re.compile(r"label_values\((.*), \w+\)")
_DURATIONS = {"__interval", "__rate_interval", "__range"}


@dataclass(frozen=True, slots=True)
class Series:
    labels: frozenset[str]
    is_counter: bool
    """Also true for the series of histograms."""


def _series_by_name() -> Iterator[tuple[str, Series]]:
    scraped = {str(Label.INSTANCE), "job"}
    for signal in (*SIGNALS, *GPU_SIGNALS):
        labels = frozenset(map(str, signal.labels)) | scraped
        if signal.kind is Kind.HISTOGRAM:
            yield signal.bucket, Series(labels | {"le"}, is_counter=True)
            yield signal.sum, Series(labels, is_counter=True)
            yield signal.count, Series(labels, is_counter=True)
        else:
            yield signal.name, Series(labels, is_counter=signal.kind is Kind.COUNTER)
    for recorded in RECORDED:
        yield recorded.name, Series(frozenset(map(str, recorded.labels)), is_counter=False)
    for name in (f"{family.name}_bucket" for row in VLLM.rows for family in row.families):
        yield name, Series(frozenset({"__name__", "model_name", "engine", "le", *scraped}), is_counter=True)
    of_alerts = {"alertname", "alertstate", *map(str, (Label.SEVERITY, Label.MODEL, Label.CLASS, Label.SLO))}
    for name in (FIRING, ACTIVE_SINCE):
        yield name, Series(frozenset(of_alerts) | scraped, is_counter=False)
    for name in ("up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_series_added"):  # of each scrape
        yield name, Series(frozenset(scraped), is_counter=False)


SERIES = dict(_series_by_name())


def series_in(expression: str) -> list[str]:
    """The series of each selector."""
    return [_name(node) for node in _nodes(expression) if isinstance(node, promql.VectorSelector)]


def labels_in(expression: str) -> set[str]:
    """The labels that the expression groups or joins by."""
    labels: set[str] = set()
    for node in _nodes(expression):
        match node:
            case promql.AggregateExpr(modifier=modifier) if modifier is not None:
                labels |= {*modifier.labels}
            case promql.BinaryExpr(modifier=modifier) if modifier is not None and modifier.matching is not None:
                labels |= {*modifier.matching.labels, *(modifier.group_labels or ())}
    return labels


def labels_made_in(expression: str) -> set[str]:
    """The labels that the expression itself adds."""
    labels: set[str] = set()
    for node in _nodes(expression):
        match node:
            case promql.AggregateExpr(param=param) if param and str(node.op) == "count_values":
                labels.add(str(param.val))
            case promql.Call() if node.func.name in {"label_join", "label_replace"}:
                labels.add(str(node.args[1].val))
    return labels


def matchers_in(expression: str) -> list[tuple[str, str, str]]:
    """Series, label and value of each matcher."""
    selectors = (node for node in _nodes(expression) if isinstance(node, promql.VectorSelector))
    return [(_name(node), each.name, each.value) for node in selectors for each in node.matchers.matchers]


def _name(node: promql.VectorSelector) -> str:
    """The series of a selector; those of vLLM are selected by a pattern of both spellings of their names."""
    patterns = (each.value for each in node.matchers.matchers if each.name == "__name__")
    return node.name or next(patterns, "").replace("[:_]", ":")


def windows_in(expression: str) -> list[str]:
    return re.findall(r"\[([^\]]*)\]", re.sub(r'"[^"]*"', "", expression))


def call_arguments(expression: str, calls: str) -> Iterator[str]:
    """The last argument of each function or aggregation whose name matches the pattern `calls`."""
    for node in _nodes(expression):
        match node:
            case promql.AggregateExpr() if re.fullmatch(calls, str(node.op)):
                yield node.expr.prettify()
            case promql.Call() if re.fullmatch(calls, node.func.name):
                yield node.args[-1].prettify()


def _nodes(expression: str) -> list[Any]:
    """The nodes of the syntax tree from the root down; the query of a variable over a label has those of its series."""
    match = _LABEL_VALUES.fullmatch(expression)
    return [*_below(promql.parse(_TEXT_OR_VARIABLE.sub(_constant, match[1] if match else expression)))]


def _constant(match: re.Match[str]) -> str:
    """A value in place of a variable, which the parser does not know; the text of a string remains."""
    name = match[1] or match[2]
    if name is None:
        return match[0]
    return "vector(1)" if name == "class_order" else "1m" if name in _DURATIONS else "1"


def _below(node: Any) -> Iterator[Any]:
    yield node
    match node:
        case promql.BinaryExpr():
            parts = [node.lhs, node.rhs]
        case promql.Call():
            parts = node.args
        case promql.MatrixSelector():
            parts = [node.vector_selector]
        case _:
            parts = [node.expr] if hasattr(node, "expr") else []
    for part in parts:
        yield from _below(part)
