"""Panels on the ends of requests: E2E latency, and the share of requests that are completed."""

from grafana_foundation_sdk.builders import timeseries

from alerts.promql_text import rate, ratio, sum_by
from dashboards import style
from dashboards.label_selectors import PER_CLASS, RATE, select_model_class
from dashboards.panels.latency import quantile_panel
from dashboards.panels.traffic import arrival_rate
from dashboards.style import NO_TRAFFIC, query
from exporters import signals
from exporters.signals import Label
from exporters.slos import Measure, SloFile


def end_to_end(spec: SloFile) -> timeseries.Panel:
    text = (
        "Time from the arrival of a request to the end of its response, by class, of streams and unary requests that "
        "ended with ok."
    )
    return quantile_panel("E2E latency", text, signals.DURATION, Measure.E2E, spec)


def completion_rate(spec: SloFile) -> timeseries.Panel:
    text = (
        "Requests that ended with ok over requests that arrived, by class, whatever their latency. Open, aborted, "
        "rejected and failed requests are excluded from the completed. It is below 100 % while the number of "
        f"open requests grows. Good: close to 100 %. Gaps are {NO_TRAFFIC}. From the sidecars' counters and histograms."
    )
    # has far fewer series than the counter of ended requests
    completed = sum_by(rate(select_model_class(signals.DURATION.count), RATE), [Label.CLASS])
    panel = style.limit_points(style.ratio_panel("Completion rate", text, 12)).no_value(NO_TRAFFIC)
    # over a minute: shares of few requests jump between 0 and 100 %
    panel.interval("1m")
    # when a queue drains, more requests end than arrive
    panel.with_target(query(f"clamp_max({ratio(completed, arrival_rate())}, 1)", PER_CLASS))
    return style.colour_by_class(panel, spec)
