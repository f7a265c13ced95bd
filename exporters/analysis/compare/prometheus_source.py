"""Prometheus as a source: counters and histograms, without individual requests."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import groupby

from exporters.analysis.compare.prometheus_figures import PrometheusFigures
from exporters.analysis.estimates.windows import Change, Coverage, Window
from exporters.analysis.prometheus_api import FlagPrometheus, Series
from exporters.text.errors import UsageError
from exporters.text.units import number
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label
from exporters.vocabulary.slo_file import SloFile

POINTS = 5000
"""The most points of a range query; Prometheus rejects more than 11,000."""


class PrometheusSource(PrometheusFigures):
    """The series of sidecars in one Prometheus, from `span.start` to `span.end`."""

    def __init__(self, url: str, spec: SloFile, span: Window) -> None:
        super().__init__(FlagPrometheus(url), spec)
        self.name = url
        self._span = span

    @property
    def coverage(self) -> Coverage:
        """The time from the first to the last sample of the request counter."""
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

    def notes(self, before: Window, after: Window) -> Sequence[str]:
        """Remarks on how the figures are counted."""
        return [
            (
                "Limits of Prometheus as a source: a request counts at its end, also if it was in flight during the "
                "change; the interval of a quantile is at least as wide as its bucket; the intervals of shares and "
                "quantiles assume independent requests; there is no ITL by request. A request log (--request-log) has "
                "none of these limits. Streams without a first token and requests that did not complete are slower "
                "than any other. Throughput of all classes is counted by the engine; prompt tokens exclude cached "
                "tokens."
            )
        ]

    def _range(self, query: str, within: Window | None = None) -> list[Series]:
        span = within or self._span
        return self._prometheus.query_range(query, span.start, span.end, max(1.0, math.ceil(span.seconds / POINTS)))
