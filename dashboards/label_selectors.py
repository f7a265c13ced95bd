"""Selectors of series by the variables of a dashboard, and queries that are built of them."""

from collections.abc import Callable, Iterable, Mapping

from alerts.promql import rate, ratio, select, sum_by
from dashboards.style import MODEL_AND_CLASS
from exporters import signals
from exporters.signals import Label, Recorded, Signal

RATE = "$__rate_interval"
PER_CLASS = "{{class}}"


def select_model_class(series: Signal | Recorded | str) -> str:
    return select(series, MODEL_AND_CLASS, regex=True)


def select_model(series: Signal) -> str:
    return select(series, {Label.MODEL: MODEL_AND_CLASS[Label.MODEL]}, regex=True)


def select_sidecar(series: Signal | Recorded | str, where: Mapping[Label, str] | None = None) -> str:
    return select(series, {Label.INSTANCE: "$instance", **(where or {})}, regex=True)


def select_engine(series: Signal, where: Mapping[Label, str] | None = None) -> str:
    return select_sidecar(series, {Label.ENGINE: "$engine", **(where or {})})


def rate_by_class(counter: Signal) -> str:
    return sum_by(rate(select_model_class(counter), RATE), [Label.CLASS])


def mean(histogram: Signal, select_series: Callable[[str], str]) -> str:
    """The mean of a histogram in the window, absent without observations; `select_series` adds the matchers."""
    total, count = (f"sum ({rate(select_series(series), RATE)})" for series in (histogram.sum, histogram.count))
    return ratio(total, count)


def goodput_ratio() -> str:
    return ratio(rate_by_class(signals.GOODPUT_REQUESTS), rate_by_class(signals.GOODPUT_EVENTS))


def cache_hit_ratio(select_series: Callable[[Signal], str], by: Iterable[Label]) -> str:
    """The share of prompt tokens found in the prefix cache of engines."""
    labels = list(by)
    hits, queries = (
        sum_by(rate(select_series(counter), RATE), labels)
        for counter in (signals.ENGINE_CACHE_HITS, signals.ENGINE_CACHE_QUERIES)
    )
    return ratio(hits, queries)
