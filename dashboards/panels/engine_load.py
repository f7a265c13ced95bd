"""Panels on the load of the engine, from its own metrics."""

from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.models import units

from alerts.engine_alerts import KV_CACHE_FULL
from alerts.promql_text import max_by, sum_by
from dashboards import style
from dashboards.label_selectors import cache_hit_ratio, select_model
from dashboards.style import NO_TRAFFIC, WARN, describe, query
from exporters import signals
from exporters.signals import Label


def batch() -> timeseries.Panel:
    text = describe(
        "Waiting and running (dotted) requests of each engine, by its own count. Good: few wait. From the "
        "engines' metrics.",
        may_be_empty="some engines expose no queue",
    )
    panel = style.time_series_panel("Engine: running and waiting", text, units.Short, 8)
    for state, series in (("running", signals.ENGINE_RUNNING), ("waiting", signals.ENGINE_WAITING)):
        panel.with_target(query(sum_by(select_model(series), [Label.ENGINE]), f"{state} on {{{{engine}}}}"))
    # the colours of two names may be equal
    return panel.override_by_regexp("/^running/", style.DOTTED)


def kv_cache() -> timeseries.Panel:
    text = (
        "Share of the KV cache in use, of the fullest rank. Near 100 % new requests queue and running ones are "
        "preempted. Good: below the line. From the engines' metrics."
    )
    fullest = max_by(select_model(signals.ENGINE_KV_USAGE), [Label.ENGINE])
    return kv_cache_panel("Engine: KV cache in use", text, fullest, "{{engine}}")


def kv_cache_panel(title: str, text: str, usage: str, legend: str, width: int = 8) -> timeseries.Panel:
    """The usage of the KV cache, with the threshold of the alert."""
    text = describe(text, may_be_empty="some engines expose no KV cache")
    panel = style.ratio_panel(title, text, width).with_target(query(usage, legend))
    return style.with_threshold_lines(panel, (KV_CACHE_FULL, WARN))


def prefix_cache() -> timeseries.Panel:
    text = describe(
        "Share of prompt tokens found in the prefix cache. Good: as high as before; a drop costs prefill. Gaps are "
        f"{NO_TRAFFIC}. From the engines' metrics.",
        may_be_empty="prefix caching is off, or the engine does not count it",
    )
    return (
        style.ratio_panel("Engine: prefix cache hits", text, 8)
        .with_target(query(cache_hit_ratio(select_model, [Label.ENGINE]), "{{engine}}"))
        .no_value(NO_TRAFFIC)
    )
