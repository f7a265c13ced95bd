"""The values of a stat panel or bar gauge in a stable order: by value, and equal ones by their labels."""

import re
from collections.abc import Sequence
from typing import TypeVar

from grafana_foundation_sdk.builders import bargauge, common, stat
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from alerts.promql.build import aggregate
from alerts.promql.expression import Expression
from dashboards.grafana.style import TEXT, Query, query
from dashboards.grafana.tables import transform, value_names

_Panel = TypeVar("_Panel", stat.Panel, bargauge.Panel)

_LABEL = re.compile(r"\{\{(\w+)\}\}")
"""A label in a legend."""

_MOST_VALUES = 100
"""Grafana shows 25 rows by default."""


def highest(panel: _Panel, expression: Expression, legend: str) -> _Panel:
    """The highest value and its name: the values of a fleet would not fit."""
    return highest_first(panel, (aggregate("topk", expression, parameter=1), legend))


def lowest(panel: _Panel, expression: Expression, legend: str) -> _Panel:
    return lowest_first(panel, (aggregate("bottomk", expression, parameter=1), legend))


def lowest_first(panel: _Panel, *queries: Query) -> _Panel:
    """One value per series of the queries, which are an expression and a legend each."""
    return _rank(panel, queries, descending=False)


def highest_first(panel: _Panel, *queries: Query) -> _Panel:
    """The reverse order of `lowest_first`."""
    return _rank(panel, queries, descending=True)


def _rank(panel: _Panel, queries: Sequence[Query], *, descending: bool) -> _Panel:
    """The rows of a sorted table: `sort` of PromQL returns equal values in any order.

    Grafana sorts by one column at a time and keeps the order of equal rows, so the last sort is by value. A name refers
    to the column of a label by its position, which all releases of Grafana understand.
    """
    labels: list[str] = list(dict.fromkeys(label for _, legend in queries for label in _LABEL.findall(legend)))
    values: list[str] = value_names(len(queries))
    for value, (expression, legend) in zip(values, queries, strict=True):
        panel.with_target(query(expression, legend, instant=True).format(PromQueryFormat.TABLE))
        panel.override_by_name(value, [model.DynamicConfigValue("displayName", _display_name(legend))])
    for label in reversed(labels):
        panel.override_by_name(label, TEXT)
        transform(panel, "sortBy", sort=[{"field": label}])
    for value in values:
        transform(panel, "sortBy", sort=[{"field": value, "desc": descending}])
    positions = {name: position for position, name in enumerate([*labels, *values])}
    transform(panel, "organize", indexByName=positions, excludeByName={"Time": True})
    return panel.reduce_options(common.ReduceDataOptions().values(True).limit(_MOST_VALUES).calcs([]))


def _display_name(legend: str) -> str:
    """The legend with the position of the column instead of each label."""
    for position, label in enumerate(dict.fromkeys(_LABEL.findall(legend))):
        legend = legend.replace(f"{{{{{label}}}}}", f"${{__cell_{position}}}")
    return legend
