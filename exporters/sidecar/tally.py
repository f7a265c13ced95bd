"""Counters and histograms as plain numbers, handed to prometheus_client when a scrape asks."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from exporters.signals import Signal
from exporters.yamlfile import number

Labels = tuple[str, ...]


class Counter:
    """One counter family by label values."""

    def __init__(self, signal: Signal) -> None:
        self._signal = signal
        self._values: dict[Labels, float] = {}

    def born(self, labels: Labels) -> None:
        """Make a combination exist at 0: a counter born at 7 shows an increase of 0."""
        self._values.setdefault(labels, 0.0)

    def add(self, labels: Labels, amount: float = 1.0) -> None:
        self._values[labels] = self._values.get(labels, 0.0) + amount

    def family(self) -> Metric:
        family = CounterMetricFamily(self._signal.name, self._signal.help, labels=list(self._signal.labels))
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        return family


class Histogram:
    """One classic histogram family by label values."""

    def __init__(self, signal: Signal, bounds: Sequence[float]) -> None:
        self._signal = signal
        self._bounds = bounds
        self._names = [*(number(bound) if bound % 1 else f"{bound:.1f}" for bound in bounds), "+Inf"]
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def born(self, labels: Labels) -> None:
        if labels not in self._counts:
            self._counts[labels] = [0] * (len(self._bounds) + 1)
            self._sums[labels] = 0.0

    def observe(self, labels: Labels, value: float) -> None:
        self.born(labels)
        self._counts[labels][bisect_left(self._bounds, value)] += 1
        self._sums[labels] += value

    def merge(self, labels: Labels, counts: Iterable[int], total: float) -> None:
        """Add counts per bucket, +Inf last, not cumulative."""
        self.born(labels)
        for index, count in enumerate(counts):
            self._counts[labels][index] += count
        self._sums[labels] += total

    def family(self) -> Metric:
        family = HistogramMetricFamily(self._signal.name, self._signal.help, labels=list(self._signal.labels))
        for labels, counts in self._counts.items():
            running, buckets = 0, []
            for name, count in zip(self._names, counts, strict=True):
                running += count
                buckets.append((name, float(running)))
            family.add_metric(labels, buckets, self._sums[labels])
        return family


def gauge(signal: Signal, samples: Iterable[tuple[Labels, float]]) -> Metric:
    """A gauge family of what is known now."""
    family = GaugeMetricFamily(signal.name, signal.help, labels=list(signal.labels))
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def counter(signal: Signal, samples: Iterable[tuple[Labels, float]]) -> Metric:
    """A counter family whose values come from elsewhere."""
    family = CounterMetricFamily(signal.name, signal.help, labels=list(signal.labels))
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def families(tallies: Iterable[Counter | Histogram]) -> Iterator[Metric]:
    return (tally.family() for tally in tallies)
