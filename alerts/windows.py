"""Which windows are recorded, how each is computed, and how often: all follows from the period and the scrapes."""

from dataclasses import dataclass

from alerts.tiers import tiers
from exporters.slos import SloFile

STEP = "step"
"""The value of the label `window` on the counts of one step, of which the long windows are sums."""

# Prometheus forgets a sample after 5 minutes, so whatever is read by name is recorded well within that time.
_EVERY_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows in seconds, ascending: read from the raw counters, or summed over the counts of steps."""

    direct: tuple[float, ...]
    summed: tuple[float, ...]
    step: float


def windows(spec: SloFile) -> Windows:
    """Every window of every tier, and the period.

    A range over raw counters costs each scrape of each series in it: three days of 15 s scrapes take minutes. Up to
    period / 120 (6 h of 30 d) that is fine; longer windows add up counts that were recorded once a step.
    """
    wanted = {round(w, 3) for tier in tiers(spec.period) for w in (tier.long, tier.short)}
    longest_direct = round(spec.period / 120, 3)
    return Windows(
        direct=tuple(sorted(w for w in wanted if w <= longest_direct)),
        summed=(*sorted(w for w in wanted if w > longest_direct), spec.period),
        step=round(spec.period / 8640, 3),  # the shortest window: 5 m of 30 d
    )


def direct_interval(spec: SloFile) -> float:
    """Five looks at the shortest window, but none without a new scrape."""
    return min(_EVERY_MINUTE, max(spec.scrape_interval, windows(spec).step / 5))


def summed_interval(spec: SloFile) -> float:
    """The sums change once a step; more often only where a step is so long that they would be forgotten."""
    return min(_EVERY_MINUTE, windows(spec).step)


def alert_interval(spec: SloFile) -> float:
    """Alerts read few recorded series, so they are asked at each scrape and do not wait for the next count."""
    return min(_EVERY_MINUTE, spec.scrape_interval)


def patience(spec: SloFile) -> float:
    """How long a thing may be away before it counts as down.

    Four scrapes, as one may be lost; 10 s, as a supervisor brings a process back within a few.
    """
    return max(4 * spec.scrape_interval, 10.0)
