"""Panels on the load of the engine, from its own metrics."""

from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.models import units

from alerts.causes.engine import KV_CACHE_FULL
from alerts.promql.build import max_by, sum_by
from alerts.promql.expression import Expression
from dashboards.grafana import style
from dashboards.grafana.style import NO_TRAFFIC, WARN
from dashboards.queries.rates import cache_hit_ratio
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label


def batch() -> timeseries.Panel:
    text = (
        "Waiting and running (dotted) requests of each engine, by its own count. Good: few wait. From the "
        "engines' metrics."
    )
    return style.time_series_panel(
        *("Engine: running and waiting", text, units.Short, 8),
        (sum_by(signals.ENGINE_RUNNING, [Label.ENGINE]), "running on {{engine}}"),
        (sum_by(signals.ENGINE_WAITING, [Label.ENGINE]), "waiting on {{engine}}"),
        may_be_empty="some engines expose no queue",
        # the colours of two names may be equal
    ).override_by_regexp("/^running/", style.DOTTED)


def kv_cache() -> timeseries.Panel:
    text = (
        "Share of the KV cache in use, of the fullest rank. Near 100 % new requests queue and running ones are "
        "preempted. Good: below the line. From the engines' metrics."
    )
    fullest = max_by(signals.ENGINE_KV_USAGE, [Label.ENGINE])
    return kv_cache_panel("Engine: KV cache in use", text, fullest, "{{engine}}")


def kv_cache_panel(title: str, text: str, usage: Expression, legend: str, width: int = 8) -> timeseries.Panel:
    """The usage of the KV cache, with the threshold of the alert."""
    panel = style.ratio_panel(title, text, width, (usage, legend), may_be_empty="some engines expose no KV cache")
    return style.with_threshold_lines(panel, (KV_CACHE_FULL, WARN))


def prefix_cache() -> timeseries.Panel:
    text = (
        "Share of prompt tokens found in the prefix cache. Good: as high as before; a drop costs prefill. Gaps are "
        f"{NO_TRAFFIC}. From the engines' metrics."
    )
    return prefix_cache_panel("Engine: prefix cache hits", text, cache_hit_ratio(Label.ENGINE), "{{engine}}")


def prefix_cache_panel(title: str, text: str, hits: Expression, legend: str) -> timeseries.Panel:
    reason = "prefix caching is off, or the engine does not count it"
    return style.ratio_panel(title, text, 8, (hits, legend), may_be_empty=reason).no_value(NO_TRAFFIC)
