"""Compares two runs: request by request if both had the same schedule, otherwise as independent samples."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from exporters.analysis.estimates.estimates import BLOCKS
from exporters.analysis.estimates.event_estimates import quantiles, share
from exporters.analysis.estimates.figures import E2E, GOODPUT, TPOT, TTFT, Figure, Measurement, Measurements
from exporters.analysis.estimates.paired_difference import (
    PairedDifference,
    drawn_quantiles,
    drawn_shares,
    draws,
    paired_difference,
)
from exporters.analysis.estimates.significance import Row, compare
from exporters.analysis.estimates.windows import Window
from loadgen.results.record import ClientOutcome, Record, Run, read_records, read_run
from loadgen.results.summary import health_of

_TIMES = (TTFT, E2E, TPOT)

Key = tuple[str, str, int, int]
"""Phase, class, number and turn of a request."""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run and its requests; `faults` make it invalid."""

    name: str
    run: Run
    records: Sequence[Record]
    faults: tuple[str, ...]

    @property
    def by_key(self) -> dict[Key, Record]:
        ordered = sorted(self.records, key=lambda record: (record.due, record.number))
        return {(each.phase, each.request_class, each.number, each.turn): each for each in ordered}


@dataclass(frozen=True, slots=True)
class Pairing:
    """The requests that both runs recorded; those of one run only are not compared."""

    requests: int
    only_before: int
    only_after: int
    lost: int
    """Requests that ended ok before, but not after."""
    gained: int


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The content of a report; `pairing` is None for runs of different schedules."""

    before: FinishedRun
    after: FinishedRun
    pairing: Pairing | None
    rows: tuple[Row, ...]
    min_events: int


def read(folder: Path) -> FinishedRun:
    """Read the output of a run.

    Raises:
        UsageError: it cannot be read.
    """
    run, records = read_run(folder), read_records(folder)
    return FinishedRun(str(folder), run, records, health_of(run, records).faults)


def compare_runs(before: FinishedRun, after: FinishedRun, min_events: int) -> RunComparison:
    """The figures of each class, after against before."""
    early, late = before.by_key, after.by_key
    pairs = [(early[key], late[key]) for key in early if key in late]
    if not _same_requests(before.run, after.run, pairs):
        rows = compare(
            _measure(before.run, before.run.classes, before.records),
            _measure(after.run, after.run.classes, after.records),
            min_events,
        )
        return RunComparison(before, after, None, rows, min_events)
    pairing = Pairing(
        len(pairs),
        len(early) - len(pairs),
        len(late) - len(pairs),
        lost=sum(_ok(old) and not _ok(new) for old, new in pairs),
        gained=sum(_ok(new) and not _ok(old) for old, new in pairs),
    )
    first = _measure(before.run, before.run.classes, (old for old, _ in pairs))
    second = _measure(after.run, before.run.classes, (new for _, new in pairs))
    paired = {
        (name, figure): difference
        for name in before.run.classes
        for figure, difference in _paired(
            before.run, name, [pair for pair in pairs if pair[0].request_class == name], first[name], second[name]
        )
    }
    return RunComparison(before, after, pairing, compare(first, second, min_events, paired), min_events)


def _ok(record: Record) -> bool:
    return record.outcome is ClientOutcome.OK


def _same_requests(before: Run, after: Run, pairs: Iterable[tuple[Record, Record]]) -> bool:
    """The hash covers open-loop requests only, so those of users are compared by their sizes."""
    return before.schedule == after.schedule and all(
        (old.endpoint, old.stream, old.max_tokens) == (new.endpoint, new.stream, new.max_tokens)
        and (old.turn > 0 or old.asked_prompt_tokens == new.asked_prompt_tokens)
        for old, new in pairs
    )


def _goodput(records: Iterable[Record]) -> list[tuple[Record, float]]:
    return [(record, float(record.good)) for record in records if record.good is not None]


def _times(records: Iterable[Record]) -> dict[tuple[Figure, ...], list[tuple[Record, float]]]:
    """The times of requests; infinite for those that did not get so far, as in the summary."""
    times: dict[tuple[Figure, ...], list[tuple[Record, float]]] = {figures: [] for figures in _TIMES}
    for record in records:
        if record.stream:
            times[TTFT].append((record, math.inf if record.ttft is None else record.ttft))
        times[E2E].append((record, record.e2e if _ok(record) and record.e2e is not None else math.inf))
        if record.stream and not _ok(record):
            times[TPOT].append((record, math.inf))
        elif record.tpot is not None:
            times[TPOT].append((record, record.tpot))
    return times


def _measure(run: Run, classes: Iterable[str], records: Iterable[Record]) -> Measurements:
    """Both runs' figures have intervals that account for the correlation of neighbouring requests."""
    by_class: dict[str, list[Record]] = {name: [] for name in classes}
    for record in records:
        by_class.setdefault(record.request_class, []).append(record)
    window = Window(0.0, max(run.seconds, *(record.due for of_class in by_class.values() for record in of_class), 1e-6))
    return {name: _measure_class(window, of_class) for name, of_class in by_class.items()}


def _measure_class(window: Window, records: Sequence[Record]) -> Mapping[Figure, Measurement]:
    measured = {GOODPUT: share(window, [(record.due, good, 1.0) for record, good in _goodput(records)])}
    for figures, times in _times(records).items():
        measured |= quantiles(window, figures, [(record.due, seconds) for record, seconds in times])
    return measured


def _paired(
    run: Run,
    name: str,
    pairs: Sequence[tuple[Record, Record]],
    before: Mapping[Figure, Measurement],
    after: Mapping[Figure, Measurement],
) -> Iterable[tuple[Figure, PairedDifference]]:
    """Both runs are drawn by the same blocks of consecutive requests; the turns of a conversation are in one block."""
    order = {phase.name: index for index, phase in enumerate(run.phases)}
    starts = sorted({(order[old.phase], old.number) for old, _ in pairs})
    if not starts:
        return
    count = min(BLOCKS, len(starts))
    block_of = {start: index * count // len(starts) for index, start in enumerate(starts)}
    drawn = draws(count, Random(f"{run.schedule}/{name}"))  # noqa: S311 - repeatable, not secret

    def events(values: Iterable[tuple[Record, float]]) -> list[tuple[int, float]]:
        return [(block_of[order[record.phase], record.number], value) for record, value in values]

    sides = [old for old, _ in pairs], [new for _, new in pairs]
    shares = [[*drawn_shares(events(_goodput(side)), drawn)] for side in sides]
    # If no draw differs, as when all requests are good, Newcombe's interval still has a width.
    values = {GOODPUT: shares} if shares[0] != shares[1] else {}
    for figures, *times in zip(_TIMES, *(_times(side).values() for side in sides), strict=True):
        percents = [figure.percent or 0 for figure in figures]
        old, new = (zip(*drawn_quantiles(events(each), percents, drawn), strict=True) for each in times)
        values |= {figure: [early, late] for figure, early, late in zip(figures, old, new, strict=True)}
    for figure, (early, late) in values.items():
        first, second = before[figure].estimate, after[figure].estimate
        if first is not None and second is not None:
            yield figure, paired_difference(first, second, early, late, count)


def outcomes(finished: FinishedRun) -> str:
    """The outcomes of all requests, with their numbers."""
    counts = Counter(record.outcome.value for record in finished.records)
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "no request"
