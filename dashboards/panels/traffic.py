"""Panels on traffic: offered requests, tokens, outcomes, requests in flight and waits."""

from math import inf

from grafana_foundation_sdk.builders import stat, timeseries
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units

from alerts.links import PanelTitle
from alerts.promql.build import aggregate, call, max_by, over, regex, select, sum_by
from alerts.promql.expression import Expression, Variable
from dashboards.grafana import style
from dashboards.grafana.style import BAD, GOOD, WARN
from dashboards.panels.latency import quantile_panel, thresholds_of
from dashboards.queries.rates import PER_CLASS, RANGE, RATE, increase_by, rate_by
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Phase
from exporters.vocabulary.slo_file import Measure, SloFile


def arrivals_in_range() -> Expression:
    """Requests that arrived, by class: ended ones alone would show no load when the engine hangs."""
    now, before = (sum_by(select(signals.IN_FLIGHT, offset=offset), [Label.CLASS]) for offset in ("", RANGE))
    # a sidecar that started within the range had no requests in flight before
    return increase_by(signals.REQUESTS, Label.CLASS) + now - before.or_(0 * now)


def arrival_rate() -> Expression:
    """Requests that arrive per second, by class; `delta` extrapolates like `rate`, so a burst of ends cancels out."""
    growth = sum_by(over("delta", signals.IN_FLIGHT, RATE), [Label.CLASS]) * 1000 / Variable("$__rate_interval_ms")
    return call("clamp_min", rate_by(signals.REQUESTS, Label.CLASS) + growth, 0)


def in_flight_now() -> stat.Panel:
    text = (
        "Open requests of all selected classes: waiting for the first token, and streaming. Good: few wait. From the "
        "sidecars' gauges."
    )
    values = ((aggregate("sum", select(signals.IN_FLIGHT, regex(Label.PHASE, phase))), phase) for phase in Phase)
    return style.below_each_other(style.stat_panel(*("In flight now", text, style.COUNT, 5, 5), *values, decimals=0))


def oldest_wait_now(spec: SloFile) -> stat.Panel:
    text = (
        "Time for which the oldest open request has waited for its first token, of all selected classes; 0 if none "
        "waits. Good: below the threshold of TTFT (orange); vermilion is the timeout for the first token. From the "
        "sidecars' gauges."
    )
    panel = style.stat_panel(
        *("Oldest wait now", text, style.SECONDS, 5, 5, (aggregate("max", signals.OLDEST_WAIT), "oldest wait")),
        decimals=1,
        steps=_wait_limits(spec),
    )
    return panel.text_mode(common_model.BigValueTextMode.VALUE)


def tokens(spec: SloFile) -> timeseries.Panel:
    text = (
        "Output tokens per second by class (stacked), counted when a request ends, and those of requests that were "
        "good for all their SLOs (line). The space between is throughput without goodput. Good: the line is at the "
        "top of the stack. From the sidecars' counters."
    )
    panel = style.time_series_panel(
        *(PanelTitle.THROUGHPUT, text, "tokens/s", 8),
        (rate_by(signals.COMPLETION_TOKENS, Label.CLASS), PER_CLASS),
        (rate_by(signals.GOODPUT_TOKENS), "of good requests"),
    )
    panel = style.colour_by_class(style.stack(panel), spec).override_by_name(
        "of good requests",
        [
            model.DynamicConfigValue("custom.stacking", {"group": "A", "mode": "none"}),
            model.DynamicConfigValue("custom.fillOpacity", 0),
            model.DynamicConfigValue("custom.lineWidth", 2),
            style.fixed_colour(GOOD),
        ],
    )
    return style.hide_zero_series(panel)


def requests_offered(spec: SloFile) -> timeseries.Panel:
    text = (
        "Requests that arrive per second, by class: those that end, and the growth of those open; requests that fail "
        "together at a restart do not count twice. Good: as much as usual. From the sidecars' counters."
    )
    line = (arrival_rate(), PER_CLASS)
    panel = style.limit_points(style.time_series_panel(PanelTitle.OFFERED, text, units.RequestsPerSecond, 8, line))
    return style.hide_zero_series(style.colour_by_class(style.stack(panel), spec))


def outcomes() -> timeseries.Panel:
    text = (
        "Requests that end per second, by outcome, including those that the client aborted, that timed out or were "
        "truncated, which the engine's own counters leave out. Good: nearly all are ok. From the sidecars' counters."
    )
    line = (rate_by(signals.REQUESTS, Label.OUTCOME), "{{outcome}}")
    panel = style.limit_points(style.time_series_panel(PanelTitle.OUTCOMES, text, units.RequestsPerSecond, 12, line))
    return style.hide_zero_series(style.colour_by_name(style.stack(panel), style.OUTCOME_COLOURS))


def in_flight(spec: SloFile) -> timeseries.Panel:
    text = (
        "Open requests before (waiting, darker) and after (streaming) their first token, by class. If waiting grows "
        "and streaming does not, requests queue or the engine hangs. Good: few wait. From the sidecars' gauges."
    )
    line = (sum_by(signals.IN_FLIGHT, [Label.CLASS, Label.PHASE]), "{{class}} {{phase}}")
    panel = style.time_series_panel("Requests in flight over time", text, units.Short, 12, line)
    darker = model.DynamicConfigValue("custom.fillOpacity", 90)
    panel = style.colour_by_class(style.stack(panel), spec).override_by_regexp(f"/ {Phase.WAITING}$/", [darker])
    return style.hide_zero_series(panel)


def time_to_first_token(spec: SloFile) -> timeseries.Panel:
    """Quantiles of TTFT; the lines are the thresholds of the SLO file."""
    text = "Time to first token of streams, by class."
    return quantile_panel("Time to first token", text, signals.TTFT, Measure.TTFT, spec)


def oldest_wait(spec: SloFile) -> timeseries.Panel:
    text = (
        "Age of the oldest open request without a first token, by class. It grows linearly while an engine hangs. The "
        "lines are the TTFT threshold and the time after which no first token is bad for every SLO. Good: below both. "
        "From the sidecars' gauges."
    )
    line = (max_by(signals.OLDEST_WAIT, [Label.CLASS]), PER_CLASS)
    panel = style.hide_zero_series(style.time_series_panel("Oldest wait over time", text, style.SECONDS, 12, line))
    return style.with_threshold_lines(style.colour_by_class(panel, spec), *_wait_limits(spec))


def _wait_limits(spec: SloFile) -> tuple[tuple[float, str], ...]:
    timeout = spec.first_token_timeout
    limits = tuple((seconds, WARN) for seconds in thresholds_of(spec, Measure.TTFT)[:1])
    return (*limits, (timeout, BAD)) if timeout < inf else limits
