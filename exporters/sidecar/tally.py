"""Counters and histograms as plain numbers, and their lines of a metrics page.

prometheus_client writes the start of each line, once: a page of 50,000 series takes it 0.4 s, and streams that share
the core feel that. What changes from scrape to scrape is numbers, and those are written here.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate, chain, islice

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from exporters.signals import Signal
from exporters.yamlfile import number

Labels = tuple[str, ...]

_as_go: Callable[[float], str] = floatToGoString


class Families(Collector):
    """Families at hand, as prometheus_client's encoders want them."""

    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class Tally(ABC):
    """One family by label values; combinations are only ever added."""

    def __init__(self) -> None:
        self._starts: list[str] = []
        self._started = 0  # how many combinations have their lines' starts

    def family(self) -> Metric:
        """All of it as prometheus_client's own family."""
        return self._family(self._labels())

    def head(self) -> Metric:
        """The family without a sample."""
        return self._family(())

    def lines(self) -> str:
        """The lines of all samples, which are the same in both formats."""
        if self._started < len(self._labels()):
            family = self._family(islice(self._labels(), self._started, None))
            new = generate_latest(Families(family)).decode().removesuffix("\n").split("\n")
            self._starts += [line[: line.rindex(" ") + 1] for line in new if not line.startswith("#")]
            self._started = len(self._labels())
        numbers = zip(self._starts, self._numbers(), strict=True)
        return "".join([f"{start}{value if value < 1e6 else _as_go(value)}\n" for start, value in numbers])

    @abstractmethod
    def _labels(self) -> Collection[Labels]: ...

    @abstractmethod
    def _family(self, labels: Iterable[Labels]) -> Metric: ...

    @abstractmethod
    def _numbers(self) -> Iterable[float]:
        """The values of all lines, floats, in the order of the lines."""


class Counter(Tally):
    """One counter family by label values."""

    def __init__(self, signal: Signal) -> None:
        super().__init__()
        self._signal = signal
        self._values: dict[Labels, float] = {}

    def born(self, labels: Labels) -> None:
        """Make a combination exist at 0: a counter born at 7 shows an increase of 0."""
        self._values.setdefault(labels, 0.0)

    def add(self, labels: Labels, amount: float = 1.0) -> None:
        self._values[labels] = self._values.get(labels, 0.0) + amount

    def _labels(self) -> Collection[Labels]:
        return self._values.keys()

    def _family(self, labels: Iterable[Labels]) -> Metric:
        return counter(self._signal, ((each, self._values[each]) for each in labels))

    def _numbers(self) -> Iterable[float]:
        return self._values.values()


class Histogram(Tally):
    """One classic histogram family by label values."""

    def __init__(self, signal: Signal, bounds: Sequence[float]) -> None:
        super().__init__()
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

    def _labels(self) -> Collection[Labels]:
        return self._counts.keys()

    def _family(self, labels: Iterable[Labels]) -> Metric:
        family = HistogramMetricFamily(self._signal.name, self._signal.help, labels=list(self._signal.labels))
        for each in labels:
            running = map(float, accumulate(self._counts[each]))
            family.add_metric(each, list(zip(self._names, running, strict=True)), self._sums[each])
        return family

    def _numbers(self) -> Iterable[float]:
        return chain.from_iterable(
            (*(running := list(map(float, accumulate(counts)))), running[-1], total)
            for counts, total in zip(self._counts.values(), self._sums.values(), strict=True)
        )


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
