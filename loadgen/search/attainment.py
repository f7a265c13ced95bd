"""Decides from counts of good and bad requests whether a class meets an SLO, by Wilson's interval of the good share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

from exporters.analysis.estimates.estimates import Share
from loadgen.results.saturation import Saturation


class Attainment(StrEnum):
    """Whether an objective is met, as far as the requests of a probe can decide it."""

    MET = "met"
    MISSED = "missed"
    UNDECIDED = "undecided"


def z_of(error: float) -> float:
    """The number of standard deviations that a normal variable exceeds with the probability `error`."""
    return NormalDist().inv_cdf(1 - error)


def wilson(good: int, events: int, z: float) -> tuple[float, float]:
    """Wilson's interval of the share of good events; from 0 to 1 without events."""
    return Share(good / events, events).interval(z) if events else (0.0, 1.0)


def chance_of_bad(bad: int, events: int, share: float) -> float:
    """The probability of at least so many bad events if each is bad with probability `share`: the binomial tail.

    Wilson's interval is too short at this end: few bad events are more likely to be many than a normal variable is.
    """
    if bad <= 0:
        return 1.0
    log_share, log_rest = math.log(share), math.log1p(-share)
    ways = math.lgamma(events + 1)
    total = 0.0
    for count in range(bad, events + 1):
        term = math.exp(
            ways
            - math.lgamma(count + 1)
            - math.lgamma(events - count + 1)
            + count * log_share
            + (events - count) * log_rest
        )
        total += term
        if count > share * events and term < total * 1e-9:
            break
    return min(1.0, total)


def events_needed(objective: float, confidence: float) -> int:
    """The least number of events that, without a bad one, puts Wilson's interval above the objective.

    The lower end for n good events of n is n / (n + z^2).
    """
    return math.floor(z_of((1 - confidence) / 2) ** 2 * objective / (1 - objective)) + 1


@dataclass(frozen=True, slots=True)
class Tally:
    """The events of one class and SLO in a probe; `low` and `high` are the ends of Wilson's interval."""

    request_class: str
    slo: str
    objective: float
    events: int
    bad: int
    low: float
    high: float
    attainment: Attainment

    @property
    def good(self) -> float | None:
        """The share of good events; None without events."""
        return 1 - self.bad / self.events if self.events else None

    @property
    def burn(self) -> float:
        """The share of bad events as a multiple of the error budget."""
        return self.bad / self.events / (1 - self.objective) if self.events else 0.0


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The result of a probe: a tally for each class and SLO; `saturated` if that ended the probe."""

    tallies: Sequence[Tally]
    saturated: Saturation | None = None

    @property
    def attainment(self) -> Attainment:
        """Missed if one SLO is missed or the server is saturated, met if all are met."""
        found = {tally.attainment for tally in self.tallies}
        if self.saturated is not None or Attainment.MISSED in found:
            return Attainment.MISSED
        return Attainment.UNDECIDED if Attainment.UNDECIDED in found else Attainment.MET

    def deciding(self) -> list[Tally]:
        """The tallies that keep the probe from being met, the worst first."""
        worst = self.attainment
        found = [] if worst is Attainment.MET else [tally for tally in self.tallies if tally.attainment is worst]
        return sorted(found, key=lambda tally: -tally.burn)

    @property
    def nearest(self) -> Tally | None:
        """The tally nearest to a miss, or farthest beyond it; None without tallies."""
        return next(iter(self.deciding()), None) or max(self.tallies, key=lambda tally: tally.burn, default=None)
