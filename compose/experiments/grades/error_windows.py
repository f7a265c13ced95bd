"""The error rate of one rolling window beside the burn rates by which pages decide, over the time of a run."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from alerts.tiers import Severity, Tier, fit, tiers
from compose.experiments.report.tables import Grid
from exporters.text.errors import UsageError
from exporters.text.units import spell_duration
from exporters.text.yaml_reader import nearest
from exporters.vocabulary.signals import Verdict
from exporters.vocabulary.slo_file import Measure, Slo, SloFile
from loadgen.results.record import ClientOutcome, Record

ROLLING = 900.0
"""The rolling window in seconds, as of the dashboard in seed 001."""
EVERY = 300.0


@dataclass(frozen=True, slots=True)
class Burn:
    """The burn rates in both windows of a tier: the share of bad events over the error budget, None without events."""

    tier: Tier
    long: float | None
    short: float | None

    @property
    def fires(self) -> bool:
        """Whether both are at the factor of the tier or above."""
        return all(burn is not None and burn >= self.tier.factor for burn in (self.long, self.short))


@dataclass(frozen=True, slots=True)
class Moment:
    """What the windows that end at `at` seconds show; `errors` is a share from 0 to 1, None without a request."""

    at: float
    errors: float | None
    burns: tuple[Burn, ...]

    @property
    def pages(self) -> str:
        """The windows of the tiers that fire."""
        return ", ".join(f"{_windows(each.tier)[0]} / {_windows(each.tier)[1]}" for each in self.burns if each.fires)


class _Events:
    """Times and failures, for the share of failures in a window."""

    def __init__(self, events: Iterable[tuple[float, bool]]) -> None:
        ordered = sorted(events)
        self._times = [at for at, _ in ordered]
        self._failed = [0, *accumulate(failed for _, failed in ordered)]

    def share(self, end: float, seconds: float) -> float | None:
        """Share of bad events after `end - seconds` and up to `end`."""
        first, last = (bisect_right(self._times, at) for at in (end - seconds, end))
        return (self._failed[last] - self._failed[first]) / (last - first) if last > first else None


def moments(
    records: Sequence[Record], slo: Slo, pages: Sequence[Tier], *, rolling: float, times: Iterable[float]
) -> Iterator[Moment]:
    """The windows that end at these times; a request counts when it ends.

    The rule of an alert also needs a minimum of events, which this leaves out.
    """
    outcomes = _Events((record.closed, record.outcome is not ClientOutcome.OK) for record in records)
    verdicts = _Events(
        (record.closed, verdict is Verdict.BAD)
        for record in records
        if (verdict := record.slo.get(slo.name)) in (Verdict.GOOD, Verdict.BAD)
    )

    def burn(at: float, window: float) -> float | None:
        share = verdicts.share(at, window)
        return None if share is None else share / slo.budget

    for at in times:
        burns = tuple(Burn(tier, burn(at, tier.long), burn(at, tier.short)) for tier in pages)
        yield Moment(at, outcomes.share(at, rolling), burns)


def times(since: float, every: float, until: float) -> list[float]:
    """The multiples of `every` from `since` to `until`, without 0; in seconds."""
    return [number * every for number in range(max(1, math.ceil(since / every)), int(until / every) + 1)]


def chosen(file: SloFile, name: str | None) -> Slo:
    """The SLO of this name, or the first on availability.

    Raises:
        UsageError: there is none.
    """
    known = [slo.name for slo in file.slos]
    for slo in file.slos:
        if slo.name == name or (name is None and slo.measure is Measure.AVAILABILITY):
            return slo
    if name is None:
        raise UsageError(f"--slo: no SLO of the experiment is on availability; name one of {', '.join(known)}")
    raise UsageError(f"--slo: {name!r} is not an SLO of the experiment; {nearest(name, known)}")


def page_tiers(file: SloFile, slo: Slo) -> list[Tier]:
    """The tiers that page, the fastest first."""
    return [fit(tier, slo) for tier in tiers(file.period) if tier.severity is Severity.PAGE]


def table(title: str, found: Iterable[Moment], pages: Sequence[Tier], rolling: float) -> Grid:
    """The moments, one a row."""
    burned = [f"burn, {window}" for tier in pages for window in _windows(tier)]
    headings = ("time", f"errors, {spell_duration(rolling)}", *burned, "page")
    rows = []
    for each in found:
        burns = [value for burn in each.burns for value in (burn.long, burn.short)]
        errors = "-" if each.errors is None else f"{each.errors:.0%}"
        texts = ("-" if value is None else f"{value:.1f}" for value in burns)
        rows.append([spell_duration(each.at), errors, *texts, each.pages])
    return Grid(title, headings, rows, left=(len(headings) - 1,))


def _windows(tier: Tier) -> tuple[str, str]:
    return spell_duration(tier.long), spell_duration(tier.short)
