"""Derives the recorded windows, their computation and their intervals from the period and the scrape interval."""

from dataclasses import dataclass

from alerts.tiers import tiers
from exporters.slos import SloFile

STEP = "step"
"""The value of the label `window` on the counts of one step; longer windows are sums of steps."""

DOZEN = "12steps"
"""The value of `window` on the counts of twelve steps; the longest windows are sums of dozens."""

OPEN = "open"
"""The value of `window` on the counts since the last `DOZEN`."""

LONGEST_GAP = 72
"""Steps for which the counts since the last `DOZEN` are kept without an evaluation."""

# An instant selector looks back 5 minutes, so each series that it reads is recorded more often than that.
_READ_BY_NAME = 240.0
_EVERY_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows in seconds, ascending: read from the raw counters, summed over steps, summed over dozens of steps."""

    direct: tuple[float, ...]
    of_steps: tuple[float, ...]
    of_dozens: tuple[float, ...]
    step: float
    day: float
    week: float

    @property
    def dozen(self) -> float:
        return round(12 * self.step, 3)


def windows(spec: SloFile) -> Windows:
    """Every window of every tier, and the period.

    Each evaluation reads every sample of a window: 240 for an hour of 15 s scrapes, 288 for a day of steps, but 24 for
    a day of dozens. So each window uses the coarsest counts that are precise enough for its tier.
    """
    lengths = {round(w, 3) for tier in tiers(spec.period) for w in (tier.long, tier.short)}
    hour, quarter_day = round(spec.period / 720, 3), round(spec.period / 120, 3)
    return Windows(
        direct=tuple(sorted(w for w in lengths if w <= hour)),
        of_steps=tuple(sorted(w for w in lengths if hour < w <= quarter_day)),
        of_dozens=(*sorted(w for w in lengths if w > quarter_day), spec.period),
        # The shortest window: 5 m of 30 d.
        step=round(spec.period / 8640, 3),
        day=round(spec.period / 30, 3),
        week=round(spec.period * 7 / 30, 3),
    )


def direct_interval(spec: SloFile) -> float:
    """Five evaluations in the shortest window, but at most one per scrape."""
    return min(_EVERY_MINUTE, max(spec.scrape_interval, windows(spec).step / 5))


def summed_interval(spec: SloFile) -> float:
    """Once a step, as the sums change; more often only if a step is longer than the lookback of Prometheus."""
    return min(_READ_BY_NAME, windows(spec).step)


def alert_interval(spec: SloFile) -> float:
    """For the liveness alerts: they read few series, so they are evaluated at each scrape."""
    return min(_EVERY_MINUTE, spec.scrape_interval)


def down_after(spec: SloFile) -> float:
    """Seconds without a successful scrape after which a target counts as down.

    Four scrapes, as one may be lost; at least 10 s, as a supervisor restarts a process within a few seconds.
    """
    return max(4 * spec.scrape_interval, 10.0)
