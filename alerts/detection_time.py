"""How soon a tier answers to a burn: what its rule says, solved for time."""

import math
from dataclasses import dataclass

from alerts.alert_names import AlertName
from alerts.burn_alerts import burn_alerts
from alerts.links import Links
from alerts.recording_windows import direct_interval, summed_interval, windows
from alerts.tiers import Severity, Tier, fit, tiers
from exporters.signals import Label
from exporters.slos import Slo, SloFile, Source


@dataclass(frozen=True, slots=True)
class Reaction:
    """What one tier of one SLO does at a steady rate of events; seconds from the first bad one, None for never."""

    tier: Tier
    rescaled: bool
    enough_events: bool
    """Whether its long window holds `min_events`."""
    bad_events: int
    """The fewest that can fire it."""
    at_all_bad: float | None
    at_twice_budget: float | None
    delay: float
    """What a scrape and the rules can add to each time."""


def reactions(spec: SloFile, slo: Slo, rate: float) -> tuple[Reaction, ...]:
    """Each tier, at `rate` events a second in one class."""
    return tuple(_reaction(spec, slo, tier, rate) for tier in tiers(spec.period))


def first(found: tuple[Reaction, ...]) -> Reaction:
    """The tier that fires first in an outage, and so in the shortest."""
    return min(found, key=lambda each: math.inf if each.at_all_bad is None else each.at_all_bad)


def _reaction(spec: SloFile, slo: Slo, published: Tier, rate: float) -> Reaction:
    tier = fit(published, slo)
    alerting = spec.alerting
    min_events = alerting.min_events.page if tier.severity is Severity.PAGE else alerting.min_events.ticket
    bad_ratio = tier.bad_ratio(slo)
    enough = rate * tier.long >= min_events
    wait = _wait(spec, slo, tier)

    def fires(burning: float) -> float | None:
        """The short window needs a twelfth of the time of the long one, so the long one has the last word."""
        if not enough or not bad_ratio < burning <= 1 or burning * rate * tier.long < alerting.min_bad:
            return None
        needed = max(bad_ratio * rate * _reach(spec, tier), alerting.min_bad)
        return round(needed / (burning * rate) + wait, 3)

    return Reaction(
        tier=tier,
        rescaled=tier != published,
        enough_events=enough,
        # Rounded first, as 0.05 x 14.4 is no exact number.
        bad_events=max(math.floor(round(bad_ratio * rate * tier.long, 6)) + 1, alerting.min_bad),
        at_all_bad=fires(1.0),
        at_twice_budget=fires(2 * slo.budget),
        delay=_scraped_in(spec) + direct_interval(spec) + _made_in(spec, tier),
    )


def _scraped_in(spec: SloFile) -> float:
    """Without a sidecar, what was scraped is recorded under our names at the same pace."""
    return spec.scrape_interval * (1 if spec.source is Source.SIDECAR else 2)


def _made_in(spec: SloFile, tier: Tier) -> float:
    """How old the counts of the long window can be when the alert reads them."""
    found = windows(spec)
    return 0.0 if round(tier.long, 3) in found.direct else found.step + summed_interval(spec)


def _reach(spec: SloFile, tier: Tier) -> float:
    """How far the long window looks back at the most, in whole steps or dozens of them.

    One more than fit where Prometheus counts both ends of a range, as 2.x does.
    """
    found, long = windows(spec), round(tier.long, 3)
    return tier.long + (0.0 if long in found.direct else found.step if long in found.of_steps else found.dozen)


def _wait(spec: SloFile, slo: Slo, tier: Tier) -> float:
    """The rule's own `for`."""
    return next(
        alert.wait
        for alert in burn_alerts(spec, Links())
        if alert.name == AlertName.BURN
        and (alert.labels[Label.SLO.value], alert.labels[Label.TIER.value]) == (slo.name, tier.name)
    )
