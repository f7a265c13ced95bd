"""Computes how an outage shows: the peak error rate and burn rate, when its page comes and clears, the budget spent."""

from dataclasses import dataclass

from alerts.check.detection_time import detections, fastest
from alerts.plan import Plan
from alerts.tiers import Severity
from exporters.vocabulary.slo_file import Slo


@dataclass(frozen=True, slots=True)
class OutageEffect:
    """One SLO in an outage; seconds from its start, None without a page."""

    slo: Slo
    error_ratio: float
    """The highest share of bad events in the rolling window."""
    page_at: float | None
    clears_at: float | None
    budget_share: float
    delay: float
    """How far scrapes and rule evaluations can shift both times."""

    @property
    def burn_rate(self) -> float:
        return self.error_ratio / self.slo.budget


def outage_effects(plan: Plan, rate: float, outage: float, window: float) -> tuple[OutageEffect, ...]:
    """Each SLO in `outage` seconds in which all events are bad; before and after, all of `rate` a second are good."""
    return tuple(_effect(plan, slo, rate, outage, window) for slo in plan.spec.slos)


def _effect(plan: Plan, slo: Slo, rate: float, outage: float, window: float) -> OutageEffect:
    pages = [each for each in detections(plan, slo, rate) if each.tier.severity is Severity.PAGE]
    fired = {each: each.at_all_bad for each in pages if each.at_all_bad is not None and each.at_all_bad < outage}
    # The short window ends the alert; until the end of the outage, all tiers that have fired still fire.
    cleared = [outage + each.tier.short * (1 - each.tier.bad_ratio(slo)) for each in fired]
    return OutageEffect(
        slo=slo,
        error_ratio=min(1.0, outage / window),
        page_at=min(fired.values(), default=None),
        clears_at=round(max(cleared) + plan.page_bridge, 3) if cleared else None,
        budget_share=outage / (plan.spec.period * slo.budget),
        delay=fastest(tuple(pages)).delay,
    )
