"""Rates, increases and shares over the windows that Grafana computes from the time range."""

from collections.abc import Collection

from alerts.promql.build import Series, aggregate, increase, rate, ratio, regex, select
from alerts.promql.expression import Expression, Matcher, Selector
from alerts.scrape_jobs import job_pattern
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Outcome, Signal
from exporters.vocabulary.slo_file import SloFile

RATE, RANGE = "$__rate_interval", "$__range"
PER_CLASS = "{{class}}"
NOT_OK = "|".join(outcome for outcome in Outcome if outcome is not Outcome.OK)
ENGINE_LABELS, PER_ENGINE = (Label.INSTANCE, Label.ENGINE), "{{engine}} at {{instance}}"
RANK_LABELS, PER_RANK = (*ENGINE_LABELS, Label.RANK), "{{engine}}/{{rank}} at {{instance}}"


def rate_by(counter: Expression | Series, *labels: str) -> Expression:
    """The increase per second, summed by the labels."""
    return aggregate("sum", rate(counter, RATE), by=labels or None)


def increase_by(counter: Expression | Series, *labels: str) -> Expression:
    """The increase in the time range, summed by the labels."""
    return aggregate("sum", increase(counter, RANGE), by=labels or None)


def at_sidecars(series: str, spec: SloFile) -> Selector:
    """A series that Prometheus writes for each target, of the sidecars."""
    return select(series, regex(Label.JOB, job_pattern(spec.scrape_job)))


def ratio_by(part: Series, whole: Series, *labels: str) -> Expression:
    """The share of two counters; absent if the whole does not increase."""
    return ratio(rate_by(part, *labels), rate_by(whole, *labels))


def mean(histogram: Signal, matchers: Collection[Matcher] = ()) -> Expression:
    """The mean of a histogram over `RATE`, absent without observations."""
    total, count = (rate_by(select(series, *matchers)) for series in (histogram.sum, histogram.count))
    return ratio(total, count)


def goodput_ratio(*labels: str) -> Expression:
    return ratio_by(signals.GOODPUT_REQUESTS, signals.GOODPUT_EVENTS, *labels)


def cache_hit_ratio(*labels: str) -> Expression:
    """The share of prompt tokens found in the prefix cache of engines."""
    return ratio_by(signals.ENGINE_CACHE_HITS, signals.ENGINE_CACHE_QUERIES, *labels)
