"""Replays records into the exporter's own series, and returns what a Prometheus would have scraped at each step."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from exporters.exposition.accumulators import Accumulator
from exporters.records.messages import Finished
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.vocabulary import signals

LONGEST_PAUSE = 3_600_000
"""Milliseconds without a request; after a longer time it is unknown whether a sidecar was running."""

_UNKNOWN = {
    signal.name.removesuffix("_total")
    for signal in (
        signals.INTER_CHUNK,
        signals.SIDECAR_REFUSED,
        signals.SIDECAR_UNMETERED,
        signals.SIDECAR_UNPARSED,
        signals.SIDECAR_DROPPED_VALUES,
    )
}
"""Families of `RequestMetrics` that do not follow from the request log."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """The OpenMetrics lines of one time (milliseconds); a line at 0 for each new series may be one step earlier."""

    at: int
    lines: list[str]


@dataclass(frozen=True, slots=True)
class Schedule:
    """When samples are written, in milliseconds."""

    step: int
    margin: int
    """The time for which series exist before the first and after the last request; a multiple of `step`."""

    def due(self, ended: float) -> int:
        """The first step at or after a time in unix seconds."""
        return -(-round(ended * 1000) // self.step) * self.step


def timestamp(milliseconds: int) -> str:
    """Seconds, as OpenMetrics has them."""
    return f"{milliseconds // 1000}.{milliseconds % 1000:03}"


def scrapes(
    metrics: RequestMetrics, records: Iterable[tuple[int, Finished]], schedule: Schedule, target: str
) -> Iterator[Scrape]:
    """The samples of each step, with the labels of `target`, such as `job="j",instance="i"`.

    All series start at 0 before the first request, as `increase` ignores the first value of a series. They continue
    through pauses, as those of a running sidecar do, except for pauses of more than `LONGEST_PAUSE`.
    """
    exposed = _Exposed(metrics, schedule.step, target)
    at = last = 0
    for due, record in records:
        if due - last > LONGEST_PAUSE:
            if last:
                yield from exposed.scrapes(at, last + schedule.margin)
            at = max(due - schedule.margin, last + schedule.margin + schedule.step)
        yield from exposed.scrapes(at, due - schedule.step)
        at = max(at, due)
        metrics.record(record)
        last = due
    if last:
        yield from exposed.scrapes(at, last + schedule.margin)


class _Exposed:
    def __init__(self, metrics: RequestMetrics, step: int, target: str) -> None:
        self._metrics = metrics
        self._step = step
        self._target = target
        self._begun = False
        self._starts: dict[str, list[str]] = {}

    def scrapes(self, first: int, last: int) -> Iterator[Scrape]:
        """The samples of all steps from `first` to `last`, which are equal."""
        if first > last:
            return
        values = [*self._values()]
        new = [start for start, _, is_new in values if is_new] if self._begun else []
        self._begun = True
        before = timestamp(first - self._step)
        zeros = [f"{start}0 {before}\n" for start in new]
        for at in range(first, last + 1, self._step):
            now = timestamp(at)
            lines = [f"{start}{value} {now}\n" for start, value, _ in values]
            yield Scrape(at, [*zeros, f"{signals.UP}{{{self._target}}} 1 {now}\n", *lines])
            zeros = []

    def _values(self) -> Iterator[tuple[str, float, bool]]:
        """The begin of each line, its value, and whether it is new."""
        for family in self._metrics.collect(0.0):
            if not isinstance(family, Accumulator) or (name := family.head().name) in _UNKNOWN:
                continue
            starts = self._starts.setdefault(name, [])
            known = len(starts)
            for number, (start, value) in enumerate(family.samples()):
                if number >= known:
                    starts.append(self._with_target(start))
                yield starts[number], value, number >= known

    def _with_target(self, start: str) -> str:
        name = start.removesuffix(" ")
        return f"{name[:-1]},{self._target}}} " if name.endswith("}") else f"{name}{{{self._target}}} "
