"""Counters and histograms as plain numbers, and their lines of a metrics page.

prometheus_client writes the start of each line, once: a page of 50,000 series takes it 0.4 s, and streams that share
the core feel that. What changes from scrape to scrape is numbers, and those are written here.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

from exporters.quantities import number
from exporters.signals import Signal

Labels = tuple[str, ...]

Traced = tuple[float, str]
"""When a request ended (unix) and the id, in hex, of its trace, which can be looked up."""

TRACE_ID = "trace_id"
"""The label of an exemplar."""

_as_go: Callable[[float], str] = floatToGoString


class Families(Collector):
    """Families at hand, as prometheus_client's encoders want them."""

    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class Accumulator(ABC):
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

    def lines(self, *, exemplars: bool) -> str:
        """The lines of all samples: the same in both formats but for exemplars, which only OpenMetrics has."""
        if self._started < len(self._labels()):
            family = self._family(islice(self._labels(), self._started, None))
            new = generate_latest(Families(family)).decode().removesuffix("\n").split("\n")
            self._starts += [line[: line.rindex(" ") + 1] for line in new if not line.startswith("#")]
            self._started = len(self._labels())
        numbers = zip(self._starts, self._numbers(), strict=True)
        lines = [f"{start}{value if value < 1e6 else _as_go(value)}\n" for start, value in numbers]
        if exemplars:
            for index, exemplar in self._exemplars():
                lines[index] = f"{lines[index][:-1]}{exemplar}\n"
        return "".join(lines)

    @abstractmethod
    def _labels(self) -> Collection[Labels]: ...

    @abstractmethod
    def _family(self, labels: Iterable[Labels]) -> Metric: ...

    @abstractmethod
    def _numbers(self) -> Iterable[float]:
        """The values of all lines, floats, in the order of the lines."""

    def _exemplars(self) -> Iterable[tuple[int, str]]:
        """The index of each line that has one, and how it stands there."""
        return ()


class Counter(Accumulator):
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


class Histogram(Accumulator):
    """One classic histogram family by label values."""

    def __init__(self, signal: Signal, bounds: Sequence[float]) -> None:
        super().__init__()
        self._signal = signal
        self._bounds = bounds
        self._names = [*(number(bound) if bound % 1 else f"{bound:.1f}" for bound in bounds), "+Inf"]
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        self._newest: dict[Labels, dict[int, tuple[Traced, float]]] = {}  # by bucket

    def born(self, labels: Labels) -> None:
        if labels not in self._counts:
            self._counts[labels] = [0] * (len(self._bounds) + 1)
            self._sums[labels] = 0.0

    def observe(self, labels: Labels, value: float, traced: Traced | None = None) -> None:
        self.born(labels)
        bucket = bisect_left(self._bounds, value)
        self._counts[labels][bucket] += 1
        self._sums[labels] += value
        if traced is not None:
            newest, this = self._newest.setdefault(labels, {}), (traced, value)
            newest[bucket] = max(newest.get(bucket, this), this)  # Prometheus refuses one older than what it has

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
            buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = [*zip(self._names, running, strict=True)]
            for bucket, ((at, trace_id), value) in self._newest.get(each, {}).items():
                buckets[bucket] = (*buckets[bucket][:2], Exemplar({TRACE_ID: trace_id}, value, at))
            family.add_metric(each, buckets, self._sums[each])
        return family

    def _numbers(self) -> Iterable[float]:
        return chain.from_iterable(
            (*(running := list(map(float, accumulate(counts)))), running[-1], total)
            for counts, total in zip(self._counts.values(), self._sums.values(), strict=True)
        )

    def _exemplars(self) -> Iterator[tuple[int, str]]:
        for row, labels in enumerate(self._counts):
            for bucket, ((at, trace_id), value) in self._newest.get(labels, {}).items():
                index = row * (len(self._names) + 2) + bucket  # a row ends with its count and its sum
                yield index, f' # {{{TRACE_ID}="{trace_id}"}} {_as_go(value)} {at}'


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
