"""The load generator's own series: what the schedule called for, what was sent and how late, what became of it."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import accumulate, product

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from exporters import signals
from exporters.signals import Signal
from exporters.slos import SloFile
from loadgen.request_plan import Planned
from loadgen.request_record import Fate


class LoadSeries(Collector):
    """Counts over all runs of this process; every class and outcome is there at 0 before the first.

    A class is the one that the SLO file gives a request, as at the sidecar, and not what the scenario calls it.
    """

    def __init__(self, slos: SloFile) -> None:
        self._classify = slos.classify
        self._scheduled = dict.fromkeys(slos.class_names, 0)
        self._sent = dict.fromkeys(slos.class_names, 0)
        self._ended = dict.fromkeys(product(slos.class_names, Fate), 0)
        self._lags = [0] * (len(signals.LOAD_SEND_LAG.bounds) + 1)
        self._lag_sum = 0.0
        self._run: tuple[str, str] | None = None
        self._running = False

    def begin(self, scenario: str, start: float) -> None:
        """A run starts, at unix seconds, by which it is called: folders may have one name on many machines."""
        self._run = datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), scenario
        self._running = True

    def end(self) -> None:
        self._running = False

    def scheduled(self, planned: Planned) -> None:
        self._scheduled[self._class(planned)] += 1

    def sent(self, planned: Planned, lag: float) -> None:
        """It is on its way; where the machine then has no socket left for it, its end is not_sent all the same."""
        self._sent[self._class(planned)] += 1
        self._lags[bisect_left(signals.LOAD_SEND_LAG.bounds, lag)] += 1
        self._lag_sum += lag

    def ended(self, planned: Planned, fate: Fate) -> None:
        self._ended[self._class(planned), fate] += 1

    def collect(self) -> Iterator[Metric]:
        run = GaugeMetricFamily(signals.LOAD_RUN.name, signals.LOAD_RUN.help, labels=signals.LOAD_RUN.labels)
        if self._run is not None:  # the last run, at 0 once it has ended
            run.add_metric(self._run, self._running)
        yield run
        yield _counter(signals.LOAD_SCHEDULED, (((name,), count) for name, count in self._scheduled.items()))
        yield _counter(signals.LOAD_SENT, (((name,), count) for name, count in self._sent.items()))
        yield _counter(signals.LOAD_ENDED, self._ended.items())
        lags = HistogramMetricFamily(signals.LOAD_SEND_LAG.name, signals.LOAD_SEND_LAG.help)
        bounds = map(floatToGoString, (*signals.LOAD_SEND_LAG.bounds, float("inf")))
        lags.add_metric((), list(zip(bounds, accumulate(self._lags), strict=True)), self._lag_sum)
        yield lags

    def _class(self, planned: Planned) -> str:
        return self._classify(planned.request_class, planned.prompt_tokens, planned.max_tokens)


def _counter(signal: Signal, rows: Iterable[tuple[tuple[str, ...], int]]) -> Metric:
    family = CounterMetricFamily(signal.name, signal.help, labels=signal.labels)
    for labels, value in rows:
        family.add_metric(labels, value)
    return family
