"""Selectors of series by the variables of a dashboard, and queries with these selectors."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from alerts.promql_text import increase, rate, ratio, select, sum_by
from alerts.scrape_jobs import job_pattern
from dashboards.style import MODEL_AND_CLASS
from exporters import signals
from exporters.signals import Label, Outcome, Recorded, Signal
from exporters.slos import SloFile

RATE, RANGE = "$__rate_interval", "$__range"
PER_CLASS = "{{class}}"
NOT_OK = "|".join(outcome for outcome in Outcome if outcome is not Outcome.OK)
ENGINE_LABELS, PER_ENGINE = (Label.INSTANCE, Label.ENGINE), "{{engine}} at {{instance}}"
RANK_LABELS, PER_RANK = (*ENGINE_LABELS, Label.RANK), "{{engine}}/{{rank}} at {{instance}}"


def select_model_class(series: Signal | Recorded | str) -> str:
    return select(series, MODEL_AND_CLASS, regex=True)


def select_model(series: Signal) -> str:
    return select(series, {Label.MODEL: MODEL_AND_CLASS[Label.MODEL]}, regex=True)


def select_sidecar(series: Signal | Recorded | str, where: Mapping[Label, str] | None = None) -> str:
    return select(series, {Label.INSTANCE: "$instance", **(where or {})}, regex=True)


def sidecar_job(spec: SloFile) -> dict[Label, str]:
    """The scrape jobs of the sidecars, as a pattern."""
    return {Label.JOB: job_pattern(spec.scrape_job)}


def select_engine(series: Signal, where: Mapping[Label, str] | None = None) -> str:
    return select_sidecar(series, {Label.ENGINE: "$engine", **(where or {})})


def rate_by_class(counter: Signal) -> str:
    return sum_by(rate(select_model_class(counter), RATE), [Label.CLASS])


def increase_in_range(
    counter: Signal | str, by: Iterable[Label | str] = (Label.CLASS,), where: Mapping[Label, str] | None = None
) -> str:
    return sum_by(increase(select(counter, {**MODEL_AND_CLASS, **(where or {})}, regex=True), RANGE), by)


def mean(histogram: Signal, select_series: Callable[[str], str]) -> str:
    """The mean of a histogram over `RATE`, absent without observations; `select_series` adds the matchers."""
    total, count = (f"sum ({rate(select_series(series), RATE)})" for series in (histogram.sum, histogram.count))
    return ratio(total, count)


def goodput_ratio() -> str:
    return ratio(rate_by_class(signals.GOODPUT_REQUESTS), rate_by_class(signals.GOODPUT_EVENTS))


def cache_hit_ratio(select_series: Callable[[Signal], str], by: Sequence[Label]) -> str:
    """The share of prompt tokens found in the prefix cache of engines."""
    hits, queries = (
        sum_by(rate(select_series(counter), RATE), by)
        for counter in (signals.ENGINE_CACHE_HITS, signals.ENGINE_CACHE_QUERIES)
    )
    return ratio(hits, queries)
