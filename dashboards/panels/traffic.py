"""Panels on traffic: offered requests, tokens, outcomes, requests in flight and waits."""

from grafana_foundation_sdk.builders import stat, timeseries
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units

from alerts.links import PanelTitle
from alerts.promql import max_by, rate, sum_by
from dashboards import style
from dashboards.label_selectors import PER_CLASS, RATE, rate_by_class, select_model_class
from dashboards.panels.latency import quantile_panel, thresholds_of
from dashboards.style import BAD, GOOD, PLAIN, WARN, query
from exporters import signals
from exporters.signals import Label, Phase
from exporters.slos import Measure, SloFile


def in_flight_now() -> stat.Panel:
    text = "How many requests are open now? Those with no first token yet and those that stream."
    return style.stat_panel("Requests in flight", text, units.Short, 5).with_target(
        query(sum_by(select_model_class(signals.IN_FLIGHT), [Label.CLASS]), PER_CLASS, instant=True)
    )


def oldest_wait_now(spec: SloFile) -> stat.Panel:
    text = (
        "What is the longest wait for a first token now? Age of the oldest open request without one; 0 if none waits."
    )
    return (
        style.stat_panel("Oldest wait", text, units.Seconds, 5)
        .with_target(query(_oldest_wait_query(), PER_CLASS, instant=True))
        .thresholds(style.thresholds(PLAIN, *_wait_limits(spec)))
    )


def tokens(spec: SloFile) -> timeseries.Panel:
    text = (
        "How many tokens does it write, and how many of them were worth it? The stack is output by class, counted "
        "when a request ends; the line is the part that belongs to requests good for all their SLOs. The space "
        "between is waste."
    )
    panel = (
        style.time_series_panel(PanelTitle.THROUGHPUT, text, "tokens/s", 8)
        .with_target(query(rate_by_class(signals.COMPLETION_TOKENS), PER_CLASS))
        .with_target(query(f"sum ({rate(select_model_class(signals.GOODPUT_TOKENS), RATE)})", "of good requests"))
    )
    return style.colour_by_class(style.stack(panel), spec).override_by_name(
        "of good requests",
        [
            model.DynamicConfigValue("custom.stacking", {"group": "A", "mode": "none"}),
            model.DynamicConfigValue("custom.fillOpacity", 0),
            model.DynamicConfigValue("custom.lineWidth", 2),
            style.fixed_colour(GOOD),
        ],
    )


def requests_offered(spec: SloFile) -> timeseries.Panel:
    text = "How much is asked of it? Requests that arrive per second: those that end, and the growth of those open."
    # Ended requests alone would show an idle service exactly when the engine hangs.
    growth = sum_by(f"deriv({select_model_class(signals.IN_FLIGHT)}[{RATE}])", [Label.CLASS])
    arrivals = f"clamp_min({rate_by_class(signals.REQUESTS)} + {growth}, 0)"
    panel = style.time_series_panel(PanelTitle.OFFERED, text, units.RequestsPerSecond, 8)
    return style.colour_by_class(style.stack(panel.with_target(query(arrivals, PER_CLASS))), spec)


def outcomes() -> timeseries.Panel:
    text = (
        "How do requests end? Ended requests per second by outcome; those that never finished (client gave up, "
        "timed out, cut short) are in it, which the engine's own counters leave out."
    )
    panel = style.time_series_panel(PanelTitle.OUTCOMES, text, units.RequestsPerSecond, 12).with_target(
        query(sum_by(rate(select_model_class(signals.REQUESTS), RATE), [Label.OUTCOME]), "{{outcome}}")
    )
    return style.colour_by_outcome(style.stack(panel))


def in_flight(spec: SloFile) -> timeseries.Panel:
    text = (
        "Do requests pile up? Open requests before (waiting) and after (streaming) their first token. Waiting that "
        "grows while streaming does not is a queue, or an engine that hangs; it is drawn darker."
    )
    panel = style.time_series_panel("Requests in flight over time", text, units.Short, 12).with_target(
        query(sum_by(select_model_class(signals.IN_FLIGHT), [Label.CLASS, Label.PHASE]), "{{class}} {{phase}}")
    )
    darker = model.DynamicConfigValue("custom.fillOpacity", 90)
    return style.colour_by_class(style.stack(panel), spec).override_by_regexp(f"/ {Phase.WAITING}$/", [darker])


def time_to_first_token(spec: SloFile) -> timeseries.Panel:
    """Quantiles of TTFT; the lines are the thresholds of the SLO file."""
    text = (
        "Is the first word prompt? Half of the requests that got a first token got it within p50, 95 % within p95. "
        "The line is the threshold of the SLO file. Who still waits is in no quantile: see the oldest wait."
    )
    return quantile_panel("Time to first token", text, signals.TTFT, Measure.TTFT, spec)


def oldest_wait(spec: SloFile) -> timeseries.Panel:
    text = (
        "What is the longest wait? Age of the oldest open request without a first token. A straight "
        "climb is an engine that hangs. The lines are the TTFT threshold and the time after which no first token is "
        "bad for every SLO."
    )
    panel = style.time_series_panel("Oldest wait over time", text, units.Seconds, 12).with_target(
        query(_oldest_wait_query(), PER_CLASS)
    )
    return style.with_threshold_lines(style.colour_by_class(panel, spec), *_wait_limits(spec))


def _oldest_wait_query() -> str:
    return max_by(select_model_class(signals.OLDEST_WAIT), [Label.CLASS])


def _wait_limits(spec: SloFile) -> tuple[tuple[float, str], ...]:
    return *((seconds, WARN) for seconds in thresholds_of(spec, Measure.TTFT)[:1]), (spec.first_token_timeout, BAD)
