"""The load generator's own metrics: requests scheduled, sent, ended and good, and the send lag."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import accumulate, product

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from exporters.vocabulary import signals
from exporters.vocabulary.signals import Signal
from exporters.vocabulary.slo_file import SloFile
from loadgen.results.record import ClientOutcome
from loadgen.schedule.requests import PlannedRequest


class LoadCounts(msgspec.Struct):
    """Counts of one process, by class; `ended` by class and outcome."""

    scheduled: dict[str, int]
    sent: dict[str, int]
    ended: list[tuple[str, ClientOutcome, int]]
    good: dict[str, int]
    lags: list[int]
    lag_sum: float


class LoadCollector(Collector):
    """Counts over all runs of this process; every class and outcome starts at 0.

    The SLO file determines the class of a request, as in the sidecar, not the class name in the scenario. `experiment`
    and `configuration` are labels of every run.
    """

    _lags: list[int]
    _lag_sum: float

    def __init__(self, slos: SloFile, experiment: str = "", configuration: str = "") -> None:
        self._of_run = experiment, configuration
        self._classify = slos.classify
        self._names = slos.class_names
        self._reset()
        self._run: tuple[str, str] | None = None
        self._running = False

    def start_run(self, scenario: str, start: float) -> None:
        """`start`, in unix seconds, identifies the run: two machines may use the same output folder."""
        self._run = datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), scenario
        self._running = True

    def end_run(self) -> None:
        self._running = False

    def count_scheduled(self, request: PlannedRequest) -> None:
        self._scheduled[self._class(request)] += 1

    def count_sent(self, request: PlannedRequest, lag: float) -> None:
        """Called before connecting, so it includes requests that end as not_sent for lack of a socket."""
        self._sent[self._class(request)] += 1
        self._lags[bisect_left(signals.LOAD_SEND_LAG.bounds, lag)] += 1
        self._lag_sum += lag

    def count_ended(self, request: PlannedRequest, outcome: ClientOutcome, *, good: bool = False) -> None:
        name = self._class(request)
        self._ended[name, outcome] += 1
        self._good[name] += good

    def take(self) -> LoadCounts:
        """The counts since the last call, for the process that exposes the sums."""
        ended = [(*key, count) for key, count in self._ended.items() if count]
        taken = LoadCounts(dict(self._scheduled), dict(self._sent), ended, dict(self._good), self._lags, self._lag_sum)
        self._reset()
        return taken

    def merge(self, counts: LoadCounts) -> None:
        """Add the counts of another process."""
        self._scheduled.update(counts.scheduled)
        self._sent.update(counts.sent)
        self._ended.update({(name, outcome): count for name, outcome, count in counts.ended})
        self._good.update(counts.good)
        self._lags = [ours + theirs for ours, theirs in zip(self._lags, counts.lags, strict=True)]
        self._lag_sum += counts.lag_sum

    def _reset(self) -> None:
        self._scheduled, self._sent, self._good = (Counter(dict.fromkeys(self._names, 0)) for _ in range(3))
        self._ended = Counter(dict.fromkeys(product(self._names, ClientOutcome), 0))
        self._lags, self._lag_sum = [0] * (len(signals.LOAD_SEND_LAG.bounds) + 1), 0.0

    def collect(self) -> Iterator[Metric]:
        run = GaugeMetricFamily(signals.LOAD_RUN.name, signals.LOAD_RUN.help, labels=signals.LOAD_RUN.labels)
        if self._run is not None:  # the last run, 0 after its end
            run.add_metric((*self._run, *self._of_run), self._running)
        yield run
        yield self._counter(signals.LOAD_SCHEDULED, (((name,), count) for name, count in self._scheduled.items()))
        yield self._counter(signals.LOAD_SENT, (((name,), count) for name, count in self._sent.items()))
        yield self._counter(signals.LOAD_ENDED, self._ended.items())
        yield self._counter(signals.LOAD_GOOD, (((name,), count) for name, count in self._good.items()))
        lags = HistogramMetricFamily(signals.LOAD_SEND_LAG.name, signals.LOAD_SEND_LAG.help)
        bounds = map(floatToGoString, (*signals.LOAD_SEND_LAG.bounds, float("inf")))
        lags.add_metric((), list(zip(bounds, accumulate(self._lags), strict=True)), self._lag_sum)
        yield lags

    def _class(self, request: PlannedRequest) -> str:
        return self._classify(request.request_class, request.prompt_tokens, request.max_tokens, request.api)

    def _counter(self, signal: Signal, rows: Iterable[tuple[tuple[str, ...], int]]) -> Metric:
        family = CounterMetricFamily(signal.name, signal.help, labels=signal.labels)
        for labels, value in rows:
            family.add_metric((*labels, *self._of_run), value)
        return family
