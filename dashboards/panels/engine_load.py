"""Panels on the load of the engine, from its own metrics."""

from collections.abc import Iterable
from dataclasses import dataclass

from grafana_foundation_sdk.builders import stat, timeseries
from grafana_foundation_sdk.models import units

from alerts.causes.engine import KV_CACHE_FULL
from alerts.links import PanelTitle
from alerts.promql.build import aggregate, max_by, rises, sum_by
from alerts.promql.expression import Expression
from dashboards.grafana import style
from dashboards.grafana.ranking import highest
from dashboards.grafana.style import GOOD, NO_TRAFFIC, WARN
from dashboards.queries.rates import RANGE, cache_hit_ratio, rate_by
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label


def requests_now(text: str, *, may_be_empty: str = "") -> stat.Panel:
    return style.below_each_other(
        style.stat_panel(
            *("Requests now", text, style.COUNT, 4, 5),
            (aggregate("sum", signals.ENGINE_RUNNING), "running"),
            (aggregate("sum", signals.ENGINE_WAITING), "waiting"),
            may_be_empty=may_be_empty,
            decimals=0,
        )
    )


def kv_cache_now(title: str, width: int, by: Iterable[Label], *, may_be_empty: str = "") -> stat.Panel:
    text = (
        "Share of the KV cache in use, of the engine with the fullest rank. Good: below the threshold of the alert "
        "(orange). From the engines' metrics."
    )
    panel = style.stat_panel(
        *(title, text, units.PercentUnit, width, 5),
        may_be_empty=may_be_empty,
        decimals=1,
        base=GOOD,
        steps=((KV_CACHE_FULL, WARN),),
    )
    return highest(panel, max_by(signals.ENGINE_KV_USAGE, by), "{{engine}}")


def restarts(by: Iterable[Label], colour: str, *, may_be_empty: str = "", decimals: int | None = None) -> stat.Panel:
    text = (
        "Restarts in the time range of the engine with the most; each loses the open requests and the prefix cache. "
        "Good: 0. From the engines' metrics."
    )
    panel = style.stat_panel(
        *(PanelTitle.RESTARTS, text, style.COUNT, 5, 5),
        may_be_empty=may_be_empty,
        decimals=decimals,
        base=GOOD,
        steps=((1, colour),),
    )
    return highest(panel, max_by(rises(signals.ENGINE_START_TIME, RANGE, "1m"), by), "{{engine}}")


def batch() -> timeseries.Panel:
    text = (
        "Waiting and running requests in all engines, by their own count; Fleet has those of each. Good: few wait. "
        "From the engines' metrics."
    )
    return style.time_series_panel(
        *("Engine: running and waiting", text, units.Short, 8),
        (aggregate("sum", signals.ENGINE_RUNNING), "running", style.BLUE),
        (aggregate("sum", signals.ENGINE_WAITING), "waiting", style.PINK),
        may_be_empty="some engines expose no queue",
    )


def kv_cache() -> timeseries.Panel:
    text = (
        "Share of the KV cache in use, of the fullest rank of each engine. Near 100 % new requests queue and running "
        "ones are preempted. Good: below the line. From the engines' metrics."
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
    return style.ratio_panel(title, text, 8, (hits, legend), may_be_empty=reason)


@dataclass(frozen=True, slots=True)
class OfRanks:
    """Panels with a line per rank of an engine."""

    by: tuple[Label, ...]
    """The labels of a rank."""
    legend: str
    missing: str = ""
    """Why running requests and preemptions may be missing; empty if they may not."""
    missing_queue: str = ""
    """Why waiting requests may be missing."""

    def running(self) -> timeseries.Panel:
        text = (
            "Requests in the running batch of each rank. Good: below `max_num_seqs`, the limit at which the line "
            "becomes flat. From the engines' metrics."
        )
        line = (sum_by(signals.ENGINE_RUNNING, self.by), self.legend)
        return style.time_series_panel("Running", text, units.Short, 8, line, may_be_empty=self.missing)

    def waiting(self) -> timeseries.Panel:
        text = (
            "Requests in the queue of each rank. Deferred requests (dotted) wait for a LoRA slot or a KV transfer "
            "(vLLM from 0.20 on); the others wait for a place in the batch or for KV cache. Good: close to 0. From the "
            "engines' metrics."
        )
        return style.time_series_panel(
            *(PanelTitle.WAITING, text, units.Short, 8),
            (sum_by(signals.ENGINE_WAITING, self.by), f"waiting: {self.legend}"),
            (sum_by(signals.ENGINE_DEFERRED, self.by), f"deferred: {self.legend}"),
            may_be_empty=self.missing_queue,
        ).override_by_regexp("/^deferred/", style.DOTTED)

    def preemptions(self) -> timeseries.Panel:
        text = (
            "Running requests preempted per second, by rank, because the KV cache was full. Good: 0. From the engines' "
            "metrics."
        )
        line = (rate_by(signals.ENGINE_PREEMPTIONS, *self.by), self.legend)
        return style.time_series_panel("Preemptions", text, style.PER_SECOND, 8, line, may_be_empty=self.missing)

    def kv_cache(self) -> timeseries.Panel:
        text = (
            "Share of the KV cache in use, by rank. Near 100 % new requests queue and running ones are preempted. "
            "Good: below the line. From the engines' metrics."
        )
        return kv_cache_panel(PanelTitle.KV_CACHE, text, max_by(signals.ENGINE_KV_USAGE, self.by), self.legend)

    def prefix_cache(self) -> timeseries.Panel:
        text = (
            "Share of prompt tokens found in the prefix cache of each rank. Good: as high as before; a drop costs "
            f"prefill. Gaps are {NO_TRAFFIC}. From the engines' metrics."
        )
        return prefix_cache_panel(PanelTitle.PREFIX_CACHE, text, cache_hit_ratio(*self.by), self.legend)
