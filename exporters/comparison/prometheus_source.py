"""Prometheus as a source: counters and histograms, without individual requests."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby

from exporters import signals
from exporters.comparison.comparison_windows import Change, Coverage, Window
from exporters.comparison.estimates import BucketQuantile, PointEstimate, Rate, Share
from exporters.comparison.figures import (
    CACHE_HITS,
    CLIENT_ERRORS,
    GOODPUT,
    OFFERED,
    QUEUE,
    TOKENS,
    TPOT,
    TTFT,
    Figure,
    Measurement,
    Measurements,
    attainment,
)
from exporters.errors import UsageError
from exporters.prometheus_api import Prometheus, QueryError, Series
from exporters.quantities import number
from exporters.signals import Label, Outcome, Signal
from exporters.slos import SloFile

Counts = Mapping[str, float]
"""By class."""

POINTS = 5000
"""The most points of a range query; Prometheus rejects more than 11,000."""


class PrometheusSource:
    """The series of sidecars in one Prometheus, from `span.start` to `span.end`."""

    def __init__(self, url: str, spec: SloFile, span: Window) -> None:
        self.name = url
        self._prometheus = Prometheus(url)
        self._spec = spec
        self._span = span

    @property
    def coverage(self) -> Coverage:
        """From the first to the last sample of the request counter."""
        times = [at for series in self._range(f"sum({signals.REQUESTS.name})") for at, _ in series.points]
        if not times:
            raise UsageError(
                f"--prometheus: {self.name} has no {signals.REQUESTS.name} between {number(self._span.start)} and "
                f"{number(self._span.end)} (unix seconds); is the sidecar scraped?"
            )
        return Coverage(times[0], times[-1], "the record in Prometheus")

    @cached_property
    def changes(self) -> Sequence[Change]:
        """Settings that changed at the same time are one change."""
        settings: dict[float, set[str]] = defaultdict(set)
        for series in self._range(signals.ENGINE_CONFIG_CHANGE.name):
            setting, old, new = (series.labels.get(each, "?") for each in (Label.SETTING, Label.OLD, Label.NEW))
            for _, at in series.points:
                settings[at].add(f"{setting}: {old} -> {new}")
        return [Change(at, at, ", ".join(sorted(settings[at]))) for at in sorted(settings)]

    @property
    def search_scope(self) -> str:
        """The records in which changes are searched for."""
        return f"the last day of {self.name} ({signals.ENGINE_CONFIG_CHANGE.name})"

    @property
    def changes_by_revision(self) -> Mapping[str, Change]:
        """The change to each revision: the last change before the first sample of the revision."""
        first_samples: dict[str, float] = {}
        for series in self._range(signals.ENGINE_CONFIG_INFO.name):
            name = series.labels.get(Label.REVISION, "")
            first_samples[name] = min(first_samples.get(name, math.inf), series.points[0][0])
        return {
            name: change
            for change in self.changes
            for name, first_sample in sorted(first_samples.items())
            if change.start <= first_sample
        }

    def outages(self, near: Window) -> Sequence[Window]:
        """Periods in which no engine responded to the sidecar's scrapes."""
        outages = []
        for series in self._range(f"max({signals.ENGINE_UP.name})", near):
            for down, consecutive in groupby(series.points, lambda point: point[1] == 0):
                times = [at for at, _ in consecutive]
                if down:
                    outages.append(Window(times[0], times[-1]))
        return outages

    def measurements(self, window: Window, lead: float) -> Measurements:
        ended = self._increase(signals.REQUESTS, window)
        client_errors = self._increase(signals.REQUESTS, window, f'{{{Label.OUTCOME}="{Outcome.CLIENT_ERROR}"}}')
        in_flight_growth = self._by_class(
            f"sum by (class) ({signals.IN_FLIGHT.name}) - "
            f"sum by (class) ({signals.IN_FLIGHT.name} offset {_seconds(window)})",
            window.end,
        )
        judged, good = (self._increase(each, window) for each in (signals.GOODPUT_EVENTS, signals.GOODPUT_REQUESTS))
        events, bad = (
            self._increase_by(Label.SLO, each.name, window) for each in (signals.SLO_EVENTS, signals.SLO_BAD)
        )
        prompt, completion, cached = (
            self._increase(each, window)
            for each in (signals.PROMPT_TOKENS, signals.COMPLETION_TOKENS, signals.CACHED_TOKENS)
        )
        buckets = {
            percentiles: self._increase_by("le", signal.bucket, window)
            for signal, percentiles in ((signals.TTFT, TTFT), (signals.TPOT, TPOT), (signals.QUEUE, QUEUE))
        }
        order = [name for name in self._spec.class_names if name in ended]
        by_class: dict[str, dict[Figure, Measurement]] = {}
        for name in [*order, *sorted(ended.keys() - set(order))]:
            offered = max(ended[name] + in_flight_growth.get(name, 0.0), 0.0)
            tokens = prompt.get(name, 0.0) + completion.get(name, 0.0)
            by_class[name] = {
                OFFERED: Measurement(round(offered), Rate(offered / window.seconds, offered, 1 / window.seconds)),
                **{
                    attainment(slo.name): _share(count - bad.get(name, {}).get(slo.name, 0.0), count)
                    for slo in self._spec.slos
                    if (count := events.get(name, {}).get(slo.name)) is not None
                },
                GOODPUT: _share(good.get(name, 0.0), judged.get(name, 0.0)),
                **{
                    figure: _quantile(by_name.get(name, {}), figure.percent or 0)
                    for percentiles, by_name in buckets.items()
                    for figure in percentiles
                },
                CLIENT_ERRORS: _share(client_errors.get(name, 0.0), ended[name]),
                TOKENS: Measurement(round(ended[name]) if tokens else 0, PointEstimate(tokens / window.seconds)),
                CACHE_HITS: Measurement(
                    round(ended[name]),
                    PointEstimate(cached.get(name, 0.0) / prompt[name]) if prompt.get(name) else None,
                ),
            }
        return by_class

    def notes(self, before: Window, after: Window) -> Sequence[str]:
        """Remarks on how the figures are counted."""
        return [
            (
                "Limits of Prometheus as a source: a request counts at its end, also if it was in flight during the "
                "change; the interval of a quantile is at least as wide as its bucket; TTFT covers only streams with a "
                "first token; the intervals assume independent requests; tokens and the cache hit ratio have no "
                "interval and no verdict, and the ratio is 0 % if the engine does not report it. A request log "
                "(--request-log) has none of these limits."
            )
        ]

    def _increase(self, counter: Signal, window: Window, where: str = "") -> Counts:
        return self._by_class(f"sum by (class) (increase({counter.name}{where}[{_seconds(window)}]))", window.end)

    def _by_class(self, query: str, at: float) -> Counts:
        with self._usage_errors():
            return self._prometheus.query_by(Label.CLASS, query, at)

    def _increase_by(self, label: str, counter: str, window: Window) -> Mapping[str, Counts]:
        """By class, then by `label`."""
        groups: dict[str, dict[str, float]] = defaultdict(dict)
        with self._usage_errors():
            samples = self._prometheus.query(
                f"sum by (class, {label}) (increase({counter}[{_seconds(window)}]))", window.end
            )
        for sample in samples:
            if Label.CLASS in sample.labels and label in sample.labels:
                groups[sample.labels[Label.CLASS]][sample.labels[label]] = sample.value
        return groups

    def _range(self, query: str, within: Window | None = None) -> list[Series]:
        span = within or self._span
        with self._usage_errors():
            return self._prometheus.query_range(query, span.start, span.end, max(1.0, math.ceil(span.seconds / POINTS)))

    @contextmanager
    def _usage_errors(self) -> Iterator[None]:
        try:
            yield
        except QueryError as error:
            raise UsageError(f"--prometheus: a query of {self.name} failed: {error.reason}") from error


def _seconds(window: Window) -> str:
    return f"{max(1, round(window.seconds))}s"


def _share(part: float, whole: float) -> Measurement:
    if whole <= 0:
        return Measurement(0, None)
    return Measurement(round(whole), Share(min(max(part / whole, 0.0), 1.0), whole))


def _quantile(buckets: Counts, percent: int) -> Measurement:
    """`increase` extrapolates each bucket separately, so the counts may decrease; the maximum so far corrects that."""
    bounds = sorted(buckets, key=float)
    counts: list[float] = []
    for bound in bounds:
        counts.append(max(buckets[bound], counts[-1] if counts else 0.0))
    if not counts or counts[-1] <= 0:
        return Measurement(0, None)
    return Measurement(round(counts[-1]), BucketQuantile([float(bound) for bound in bounds], counts, percent))
