"""Computes the detection time of each tier: the time from the first bad event until the alert fires."""

import math
from dataclasses import dataclass

from alerts.plan import Plan
from alerts.tiers import Tier
from exporters.vocabulary.slo_file import Slo


@dataclass(frozen=True, slots=True)
class Detection:
    """The detection of one tier at a steady rate of events; seconds from the first bad event, None for never."""

    tier: Tier
    rescaled: bool
    enough_events: bool
    """Whether the long window has `min_events` at this rate."""
    bad_events: int
    """The smallest number of bad events that fires the tier."""
    at_all_bad: float | None
    at_twice_budget: float | None
    delay: float
    """The delay that scrapes and rule evaluations can add to each time."""


def detections(plan: Plan, slo: Slo, rate: float) -> tuple[Detection, ...]:
    """The detection of each tier, at `rate` events a second in one class."""
    return tuple(_detection(plan, slo, tier, rate) for tier in plan.tiers_of[slo.name])


def fastest(of_tiers: tuple[Detection, ...]) -> Detection:
    """The tier that fires first in an outage."""
    return min(of_tiers, key=lambda each: math.inf if each.at_all_bad is None else each.at_all_bad)


def _detection(plan: Plan, slo: Slo, tier: Tier, rate: float) -> Detection:
    bad_ratio, min_bad = tier.bad_ratio(slo), plan.spec.alerting.min_bad
    has_enough_events = rate * tier.long >= plan.min_events(tier)

    def time_to_fire(bad_share: float) -> float | None:
        """The long window decides: the short one needs only a twelfth of its time."""
        if not has_enough_events or not bad_ratio < bad_share <= 1 or bad_share * rate * tier.long < min_bad:
            return None
        bad_events_needed = max(bad_ratio * rate * _lookback(plan, tier), min_bad)
        return round(bad_events_needed / (bad_share * rate), 3)

    return Detection(
        tier=tier,
        rescaled=tier not in plan.tiers,
        enough_events=has_enough_events,
        # Rounded first, as 0.05 x 14.4 is not exact in binary.
        bad_events=max(math.floor(round(bad_ratio * rate * tier.long, 6)) + 1, min_bad),
        at_all_bad=time_to_fire(1.0),
        at_twice_budget=time_to_fire(2 * slo.budget),
        delay=_scrape_delay(plan) + plan.direct_interval + _recording_delay(plan, tier),
    )


def _scrape_delay(plan: Plan) -> float:
    """The delay of a scrape; without a sidecar also that of recording its series under the sidecar's names."""
    return plan.spec.scrape_interval * (1 if plan.has_sidecar else 2)


def _recording_delay(plan: Plan, tier: Tier) -> float:
    """The maximum age of the counts of the long window when the alert reads them."""
    return 0.0 if round(tier.long, 3) in plan.direct else plan.step + plan.summed_interval


def _lookback(plan: Plan, tier: Tier) -> float:
    """How far the long window looks back at most, in whole steps or dozens of steps.

    One step more than fits, as Prometheus 2 includes both ends of a range.
    """
    long = round(tier.long, 3)
    return tier.long + (0.0 if long in plan.direct else plan.step if long in plan.of_steps else plan.dozen)
