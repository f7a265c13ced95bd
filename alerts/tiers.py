"""Multi-window multi-burn-rate tiers: each is a share of the error budget, spent within a long window."""

from dataclasses import dataclass, replace
from enum import StrEnum

from exporters.vocabulary.slo_file import Slo


class Severity(StrEnum):
    """The urgency of an alert: a page now, a ticket in working hours, or none (only a dead man's switch)."""

    PAGE = "page"
    TICKET = "ticket"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Tier:
    """Fires if `share` of the budget of `period` is spent within `long`, and `short` burns as fast; in seconds."""

    name: str
    severity: Severity
    share: float
    long: float
    period: float

    @property
    def short(self) -> float:
        """The short window ends the alert soon after the burn; a twelfth is the published proportion."""
        return self.long / 12

    @property
    def factor(self) -> float:
        """The burn rate that spends `share` within `long`; 1 spends exactly the budget in the period."""
        return round(self.share * self.period / self.long, 9)

    def bad_ratio(self, slo: Slo) -> float:
        """The share of bad events above which `slo` burns faster than this tier allows."""
        return self.factor * slo.budget


def tiers(period: float) -> tuple[Tier, ...]:
    """The tiers of a period; 30 days give the published 14.4, 6, 3 and 1."""
    return (
        Tier("fast-page", Severity.PAGE, 0.02, period / 720, period),
        Tier("slow-page", Severity.PAGE, 0.05, period / 120, period),
        Tier("fast-ticket", Severity.TICKET, 0.10, period / 30, period),
        Tier("slow-ticket", Severity.TICKET, 0.10, period / 10, period),
    )


def fit(tier: Tier, slo: Slo) -> Tier:
    """`tier`, or a tier with a smaller share if even an outage could not reach the factor.

    For example, an objective of 93 % has a budget of 7 %, so an outage has a burn rate of 14.3 and never reaches 14.4.
    """
    if tier.bad_ratio(slo) < 1:
        return tier
    # 0.9: an outage in which one request in ten succeeds still fires the tier
    return replace(tier, share=0.9 / slo.budget * tier.long / tier.period)
