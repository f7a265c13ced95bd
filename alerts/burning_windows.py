"""Which SLOs burn in the long window of a tier: recorded with its counts, so that the tiers read few series."""

from alerts.promql_text import in_window
from alerts.rule_groups import Recording
from alerts.step_counts import windowed
from alerts.tiers import Severity, Tier, fit, tiers
from exporters.quantities import number, spell_duration
from exporters.signals import LONG_ERROR_RATIO, SLO_BAD_IN, SLO_EVENTS_IN, SLO_OBJECTIVE
from exporters.slos import Slo, SloFile


def min_events(spec: SloFile, tier: Tier) -> int:
    """The events that the long window of the tier needs."""
    return spec.alerting.min_events.page if tier.severity is Severity.PAGE else spec.alerting.min_events.ticket


def burning_windows(spec: SloFile, length: float) -> tuple[Recording, ...]:
    """The error ratios over the limits of the tiers with this long window, if it has enough events and bad events."""
    window = spell_duration(length)
    bad, events = in_window(SLO_BAD_IN, window), in_window(SLO_EVENTS_IN, window)
    return tuple(
        windowed(
            LONG_ERROR_RATIO,
            window,
            over_limit(spec, tier, f"({bad} >= {spec.alerting.min_bad}) / ({events} >= {min_events(spec, tier)})"),
        )
        for tier in tiers(spec.period)
        if round(tier.long, 3) == length
    )


def over_limit(spec: SloFile, tier: Tier, error_ratio: str) -> str:
    """The error ratios that burn faster than the tier allows; none of a class that the file no longer has."""

    def limit(slo: Slo | None = None) -> str:
        factor, of_slo = (tier.factor, "") if slo is None else (fit(tier, slo).factor, f'{{slo="{slo.name}"}}')
        return f"{number(factor)} * (1 - {SLO_OBJECTIVE.name}{of_slo})"

    is_rescaled = any(fit(tier, slo) != tier for slo in spec.slos)
    limits = " or ".join(map(limit, spec.slos)) if is_rescaled else limit()
    return f"{error_ratio} > on (class, slo) group_left () ({limits})"
