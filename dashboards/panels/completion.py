"""Panels on the ends of requests: E2E latency, and the share of requests that are completed."""

from grafana_foundation_sdk.builders import timeseries

from alerts.promql.build import call, ratio, select
from dashboards.grafana import style
from dashboards.grafana.style import NO_TRAFFIC
from dashboards.panels.latency import quantile_panel
from dashboards.panels.traffic import arrival_rate
from dashboards.queries.rates import PER_CLASS, rate_by
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label
from exporters.vocabulary.slo_file import Measure, SloFile


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
    completed = rate_by(select(signals.DURATION.count), Label.CLASS)
    # when a queue drains, more requests end than arrive
    share = call("clamp_max", ratio(completed, arrival_rate()), 1)
    panel = style.limit_points(style.ratio_panel("Completion rate", text, 12, (share, PER_CLASS)))
    # over a minute: shares of few requests jump between 0 and 100 %
    return style.colour_by_class(panel.interval("1m"), spec)
