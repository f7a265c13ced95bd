"""Which SLOs burn in the long window of a tier: recorded with its counts, so that the tiers read few series."""

from alerts.plan import Plan
from alerts.promql.build import either, equal, in_window, on, select
from alerts.promql.expression import Expression
from alerts.rules.groups import Recording, windowed
from exporters.vocabulary.signals import LONG_ERROR_RATIO, SLO_BAD_IN, SLO_EVENTS_IN, SLO_OBJECTIVE, Label


def burning_windows(plan: Plan, length: float) -> tuple[Recording, ...]:
    """The error ratios over the limits of the tiers with this long window, if it has enough events and bad events."""
    bad, events = in_window(SLO_BAD_IN, length), in_window(SLO_EVENTS_IN, length)
    enough_bad = bad >= plan.spec.alerting.min_bad
    return tuple(
        windowed(LONG_ERROR_RATIO, length, over_limit(plan, number, enough_bad / (events >= plan.min_events(tier))))
        for number, tier in enumerate(plan.tiers)
        if round(tier.long, 3) == length
    )


def over_limit(plan: Plan, number: int, error_ratio: Expression) -> Expression:
    """The error ratios that burn faster than the tier of this number allows; none of a class that the file lost."""
    published = plan.tiers[number]
    fitted = {name: of_slo[number] for name, of_slo in plan.tiers_of.items()}
    if all(tier == published for tier in fitted.values()):
        limits: Expression = published.factor * (1 - select(SLO_OBJECTIVE))
    else:
        limits = either(
            [tier.factor * (1 - select(SLO_OBJECTIVE, equal(Label.SLO, name))) for name, tier in fitted.items()]
        )
    return error_ratio.binary(">", limits, on(Label.CLASS, Label.SLO, left=()))
