"""Panels on the routes of requests."""

from grafana_foundation_sdk.builders import table, timeseries
from grafana_foundation_sdk.models import units

from alerts.promql.build import call
from dashboards.grafana import style, tables
from dashboards.queries.rates import increase_by, rate_by
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label


def requests_by_route() -> timeseries.Panel:
    text = (
        "Requests that end per second, by route. Routes that are not measured, such as models, have the class "
        "other. Open requests are not in it. Good: as usual. From the sidecars' counters."
    )
    line = (rate_by(signals.REQUESTS, Label.ROUTE), "{{route}}")
    panel = style.time_series_panel("Requests by route", text, units.RequestsPerSecond, 8, line)
    return style.hide_zero_series(style.stack(style.limit_points(panel)))


def outcomes_by_route() -> table.Panel:
    text = (
        "Requests that ended in the time range: a row per outcome, a column per route. Open requests are not in "
        "it. Good: nearly all are ok. From the sidecars' counters."
    )
    panel = style.table_panel("Outcomes by route in range", text, style.COUNT, 16).min_width(150).decimals(0)
    ended = call("round", increase_by(signals.REQUESTS, Label.ROUTE, Label.OUTCOME)) > 0
    return tables.pivot(panel, ended, Label.OUTCOME, Label.ROUTE)
