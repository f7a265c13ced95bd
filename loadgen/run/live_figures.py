"""The figures of a run while it lasts, by class: counts and distributions, updated by each request.

No request is kept: the cost of reading them depends on the classes, not on the number of requests.
"""

import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from loadgen.results.record import ClientOutcome, Record

WINDOW = 10
"""Seconds of the recent figures."""
_PRECISION = 0.002
"""Relative width of the steps to which a distribution rounds times."""


class Distribution:
    """Counts times in logarithmic steps of 0.2 %; a request without a time ranks after all others."""

    def __init__(self) -> None:
        self._steps = Counter[float]()
        self._count = 0

    def add(self, seconds: float | None) -> None:
        step = math.inf if seconds is None else round(math.log(max(seconds, 1e-6)) / _PRECISION)
        self._steps[step] += 1
        self._count += 1

    def merge(self, others: Iterable["Distribution"]) -> "Distribution":
        """The distribution of all of them."""
        merged = Distribution()
        for each in (self, *others):
            merged._steps.update(each._steps)  # noqa: SLF001 - of the same class
            merged._count += each._count  # noqa: SLF001
        return merged

    def percentile(self, percent: float) -> float | None:
        """The percentile by nearest rank; None without a value, infinite if it falls on a request without a time."""
        rank = math.ceil(self._count * percent / 100)
        for step in sorted(self._steps):
            rank -= self._steps[step]
            if rank <= 0:
                return step if step == math.inf else math.exp(step * _PRECISION)
        return None


@dataclass(slots=True)
class _Second:
    """What happened in one second of the run."""

    number: int
    good: int = 0
    judged: int = 0
    tokens: int = 0
    worst_lag: float | None = None
    ttft: Distribution = field(default_factory=Distribution)


@dataclass(frozen=True, slots=True)
class Recent:
    """The figures of the last `WINDOW` seconds; times in seconds."""

    goodput: float | None
    ttft_p50: float | None
    ttft_p95: float | None
    tokens_per_second: float
    worst_lag: float | None


class ClassFigures:
    """The figures of one class, or of all."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offered = self.ended = self.ok = self.not_sent = 0
        self.good = self.judged = self.tokens = 0
        self.ttft = Distribution()
        self.e2e = Distribution()
        self.lag = Distribution()
        self.worst_lag = 0.0
        self._seconds = deque[_Second]()

    @property
    def open(self) -> int:
        return self.offered - self.ended

    @property
    def goodput(self) -> float | None:
        return self.good / self.judged if self.judged else None

    def dispatch(self, lag: float, at: float) -> None:
        self.lag.add(lag)
        self.worst_lag = max(self.worst_lag, lag)
        second = self._second(at)
        second.worst_lag = max(second.worst_lag or 0.0, lag)

    def end(self, record: Record) -> None:
        second = self._second(record.closed)
        self.ended += 1
        self.ok += record.outcome is ClientOutcome.OK
        self.not_sent += record.outcome is ClientOutcome.NOT_SENT
        if record.good is not None:
            self.good += record.good
            self.judged += 1
            second.good += record.good
            second.judged += 1
        self.tokens += record.completion_tokens or 0
        second.tokens += record.completion_tokens or 0
        if record.stream:
            self.ttft.add(record.ttft)
            second.ttft.add(record.ttft)
        self.e2e.add(record.e2e if record.outcome is ClientOutcome.OK else None)

    def recent(self, now: float) -> Recent:
        seconds = [second for second in self._seconds if second.number > now - WINDOW]
        judged = sum(second.judged for second in seconds)
        lags = [second.worst_lag for second in seconds if second.worst_lag is not None]
        ttft = Distribution().merge(second.ttft for second in seconds)
        return Recent(
            goodput=sum(second.good for second in seconds) / judged if judged else None,
            ttft_p50=ttft.percentile(50),
            ttft_p95=ttft.percentile(95),
            tokens_per_second=sum(second.tokens for second in seconds) / max(1.0, min(now, WINDOW)),
            worst_lag=max(lags, default=None),
        )

    def _second(self, at: float) -> _Second:
        number = int(at)
        if not self._seconds or self._seconds[-1].number < number:
            self._seconds.append(_Second(number))
            while self._seconds[0].number <= number - WINDOW:
                self._seconds.popleft()
        return self._seconds[-1]


class LiveFigures:
    """The figures of one run; all times in seconds since its start."""

    def __init__(self, classes: Iterable[str] = ()) -> None:
        """Show `classes` first, in this order, also without a request."""
        self.total = ClassFigures("all")
        self._classes = {name: ClassFigures(name) for name in classes}

    @property
    def rows(self) -> list[ClassFigures]:
        """Each class, then all of them unless there is only one."""
        return [*self._classes.values(), *([self.total] if len(self._classes) > 1 else [])]

    def offer(self, request_class: str, count: int = 1) -> None:
        self.total.offered += count
        self._class(request_class).offered += count

    def dispatch(self, request_class: str, lag: float, at: float) -> None:
        self.total.dispatch(lag, at)
        self._class(request_class).dispatch(lag, at)

    def end(self, record: Record) -> None:
        self.total.end(record)
        self._class(record.request_class).end(record)

    def _class(self, name: str) -> ClassFigures:
        if name not in self._classes:
            self._classes[name] = ClassFigures(name)
        return self._classes[name]
