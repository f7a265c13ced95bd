"""Panels on traffic: offered requests, tokens, outcomes, requests in flight and waits."""

from math import inf

from grafana_foundation_sdk.builders import stat, timeseries
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units

from alerts.links import PanelTitle
from alerts.promql_text import increase, max_by, rate, select, sum_by
from dashboards import style
from dashboards.label_selectors import PER_CLASS, RATE, rate_by_class, select_model_class
from dashboards.panels.latency import quantile_panel, thresholds_of
from dashboards.style import BAD, GOOD, MODEL_AND_CLASS, NO_TRAFFIC, PLAIN, WARN, query
from exporters import signals
from exporters.signals import Label, Phase
from exporters.slos import Measure, SloFile


def arrivals_in(window: str) -> str:
    """Requests that arrived in a window, by class: ended ones alone would show no load when the engine hangs."""
    in_flight = select_model_class(signals.IN_FLIGHT)
    ended = sum_by(increase(select_model_class(signals.REQUESTS), window), [Label.CLASS])
    now, before = sum_by(in_flight, [Label.CLASS]), sum_by(f"{in_flight} offset {window}", [Label.CLASS])
    # a sidecar that started within the window had no requests in flight before
    return f"{ended} + {now} - ({before} or 0 * {now})"


def arrival_rate() -> str:
    """Requests that arrive per second, by class; `delta` extrapolates like `rate`, so a burst of ends cancels out."""
    growth = sum_by(f"delta({select_model_class(signals.IN_FLIGHT)}[{RATE}])", [Label.CLASS])
    return f"clamp_min({rate_by_class(signals.REQUESTS)} + {growth} * 1000 / $__rate_interval_ms, 0)"


def in_flight_now() -> stat.Panel:
    text = (
        "Open requests of all selected classes: waiting for the first token, and streaming. Good: few wait. From the "
        "sidecars' gauges."
    )
    panel = style.stat_panel("Requests in flight", text, style.COUNT, 6, 5)
    for phase in Phase:
        of_phase = select(signals.IN_FLIGHT, {**MODEL_AND_CLASS, Label.PHASE: phase}, regex=True)
        panel.with_target(query(f"sum ({of_phase})", phase, instant=True))
    return style.if_absent(panel, "no sidecar").decimals(0)


def oldest_wait_now(spec: SloFile) -> stat.Panel:
    text = (
        "Time for which the oldest open request has waited for its first token, of all selected classes; 0 if none "
        "waits. Good: below the threshold of TTFT (orange); vermilion is the timeout for the first token. From the "
        "sidecars' gauges."
    )
    panel = style.stat_panel("Oldest wait", text, units.Seconds, 6, 5).with_target(
        query(f"max ({select_model_class(signals.OLDEST_WAIT)})", "oldest wait", instant=True)
    )
    panel.text_mode(common_model.BigValueTextMode.VALUE).decimals(1)
    return style.if_absent(panel, "no sidecar").thresholds(style.thresholds(PLAIN, *_wait_limits(spec)))


def good_tokens_now() -> stat.Panel:
    text = (
        "Output tokens per second of requests that were good for all their SLOs, of all selected classes, counted "
        "when a request ends, over about the last minute. Good: close to the throughput of output tokens. From the "
        "sidecars' counters."
    )
    panel = (
        style.stat_panel("Output tokens of good requests", text, "tokens/s", 6, 5)
        .interval("1m")
        .with_target(
            query(f"sum ({rate(select_model_class(signals.GOODPUT_TOKENS), RATE)})", "of good requests", instant=True)
        )
    )
    return style.if_absent(panel.text_mode(common_model.BigValueTextMode.VALUE), NO_TRAFFIC).decimals(0)


def tokens(spec: SloFile) -> timeseries.Panel:
    text = (
        "Output tokens per second by class (stacked), counted when a request ends, and those of requests that were "
        "good for all their SLOs (line). The space between is throughput without goodput. Good: the line is at the "
        "top of the stack. From the sidecars' counters."
    )
    panel = (
        style.time_series_panel(PanelTitle.THROUGHPUT, text, "tokens/s", 8)
        .with_target(query(rate_by_class(signals.COMPLETION_TOKENS), PER_CLASS))
        .with_target(query(f"sum ({rate(select_model_class(signals.GOODPUT_TOKENS), RATE)})", "of good requests"))
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
    panel = style.limit_points(style.time_series_panel(PanelTitle.OFFERED, text, units.RequestsPerSecond, 8))
    panel.with_target(query(arrival_rate(), PER_CLASS))
    return style.hide_zero_series(style.colour_by_class(style.stack(panel), spec))


def outcomes() -> timeseries.Panel:
    text = (
        "Requests that end per second, by outcome, including those that the client aborted, that timed out or were "
        "truncated, which the engine's own counters leave out. Good: nearly all are ok. From the sidecars' counters."
    )
    panel = style.limit_points(style.time_series_panel(PanelTitle.OUTCOMES, text, units.RequestsPerSecond, 12))
    panel.with_target(query(sum_by(rate(select_model_class(signals.REQUESTS), RATE), [Label.OUTCOME]), "{{outcome}}"))
    return style.hide_zero_series(style.colour_by_outcome(style.stack(panel)))


def in_flight(spec: SloFile) -> timeseries.Panel:
    text = (
        "Open requests before (waiting, darker) and after (streaming) their first token, by class. If waiting grows "
        "and streaming does not, requests queue or the engine hangs. Good: few wait. From the sidecars' gauges."
    )
    panel = style.time_series_panel("Requests in flight over time", text, units.Short, 12).with_target(
        query(sum_by(select_model_class(signals.IN_FLIGHT), [Label.CLASS, Label.PHASE]), "{{class}} {{phase}}")
    )
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
    panel = style.time_series_panel("Oldest wait over time", text, units.Seconds, 12).with_target(
        query(_oldest_wait_query(), PER_CLASS)
    )
    style.hide_zero_series(panel)
    return style.with_threshold_lines(style.colour_by_class(panel, spec), *_wait_limits(spec))


def _oldest_wait_query() -> str:
    return max_by(select_model_class(signals.OLDEST_WAIT), [Label.CLASS])


def _wait_limits(spec: SloFile) -> tuple[tuple[float, str], ...]:
    timeout = spec.first_token_timeout
    limits = tuple((seconds, WARN) for seconds in thresholds_of(spec, Measure.TTFT)[:1])
    return (*limits, (timeout, BAD)) if timeout < inf else limits
