"""Judges classes with too few events for a page together: one pseudo-class for each model and availability SLO.

Only availability is pooled. An outage affects all classes alike, so their sum measures it. Latencies depend on the
sizes that define a class, so their sum would measure the mix of sizes; a threshold that does not fit a class with few
events is a matter for a ticket.
"""

from alerts.burn_text import spaced
from alerts.promql_text import sum_by, within
from alerts.rule_groups import Recording
from alerts.step_counts import windowed
from alerts.tiers import Severity, Tier, fit, tiers
from exporters.quantities import number, spell_duration
from exporters.signals import (
    LOW_TRAFFIC_EVENTS_IN,
    PAGE_ERROR_RATIO,
    PAGE_HELD,
    SLO_BAD_IN,
    SLO_EVENTS_IN,
    TIER_ERROR_RATIO,
    Label,
    Recorded,
)
from exporters.slos import Measure, Slo, SloFile

POOL = "low-traffic classes"
"""The value of `class`. No class of an SLO file can have this name, as it contains a space."""

_SAME_CLASS, _SAME_SLO = "on (model, class, slo)", "on (model, slo)"


def is_pooled(slo: Slo) -> bool:
    return slo.measure is Measure.AVAILABILITY and len(slo.classes) > 1


def pool_window(spec: SloFile) -> float:
    """The longest window of a page: a class with fewer than `min_events` events in it cannot page on its own."""
    return max(tier.long for tier in tiers(spec.period) if tier.severity is Severity.PAGE)


def low_traffic(spec: SloFile, length: float) -> tuple[Recording, ...]:
    """The classes of the pools, beside the counts of their window."""
    pooled = "|".join(slo.name for slo in spec.slos if is_pooled(slo))
    if not pooled or length != round(pool_window(spec), 3):
        return ()
    window = spell_duration(length)
    events = f'{SLO_EVENTS_IN.name}{{{Label.SLO}=~"{pooled}",{Label.WINDOW}="{window}"}}'
    return (windowed(LOW_TRAFFIC_EVENTS_IN, window, f"{events} < {_least(spec)}"),)


def pool_burns(spec: SloFile) -> tuple[Recording, ...]:
    """The tiers of pages that burn for a pool."""
    pages = [tier for tier in tiers(spec.period) if tier.severity is Severity.PAGE]
    burning = [_burns(spec, slo, fit(tier, slo)) for slo in spec.slos if is_pooled(slo) for tier in pages]
    return (Recording(TIER_ERROR_RATIO, "\nor ".join(burning), {Label.CLASS: POOL}),) if burning else ()


def _burns(spec: SloFile, slo: Slo, tier: Tier) -> str:
    """The error ratio of the pool in the short window of a tier of pages, if the tier burns."""
    long, short, limit = spell_duration(tier.long), spell_duration(tier.short), number(round(tier.bad_ratio(slo), 12))

    def pooled(series: Recorded, length: str) -> str:
        # Without the classes whose page is held back: their engines are starting.
        classes = f"({LOW_TRAFFIC_EVENTS_IN.name} unless {_SAME_CLASS} {PAGE_HELD.name})"
        each = f"{within(series, slo.name, length)} and {_SAME_CLASS} {classes}"
        return sum_by(each, (Label.MODEL, Label.SLO, Label.WINDOW))

    same = "on (model, slo, window)"
    return (
        f"{pooled(SLO_BAD_IN, short)}\n"
        f"/ {same} ({pooled(SLO_EVENTS_IN, short)} > 0) > {limit}\n"
        f"and {_SAME_SLO} ({pooled(SLO_BAD_IN, long)} >= {spec.alerting.min_bad})\n"
        f"/ {same} ({pooled(SLO_EVENTS_IN, long)} >= {_least(spec)}) > {limit}"
    )


def unless_pool_paged(recent: float) -> str:
    """Excludes classes of a pool that paged within `recent` seconds."""
    return f"unless {_SAME_CLASS} ({LOW_TRAFFIC_EVENTS_IN.name} and {_SAME_SLO} {pool_paged(recent)})"


def pool_paged(recent: float) -> str:
    return f'present_over_time({PAGE_ERROR_RATIO.name}{{{Label.CLASS}="{POOL}"}}[{spell_duration(recent)}])'


def who(slo: Slo, model: str) -> str:
    """The requests of an alert, in words."""
    one_class = f"{{{{ $labels.class }}}} requests to {model}"
    if not is_pooled(slo):
        return one_class
    return f'{{{{ if eq $labels.class "{POOL}" }}}}requests of {POOL} to {model}{{{{ else }}}}{one_class}{{{{ end }}}}'


def pooled_bad_events(spec: SloFile, slo: Slo) -> str:
    """A sentence with the bad events of each class of a pool; empty for an alert on one class."""
    if not is_pooled(slo):
        return ""
    window = pool_window(spec)
    bad, events = (
        f'{series.name}{{slo="{slo.name}",window="{spell_duration(window)}",model=%q}}'
        for series in (SLO_BAD_IN, SLO_EVENTS_IN)
    )
    found = f"sort_desc({bad} > 0 and {_SAME_CLASS} {events} < {_least(spec)})"
    return (
        f'{{{{ if eq $labels.class "{POOL}" }}}}{{{{ with query (printf `{found}` $labels.model $labels.model) }}}} '
        f"Bad events in {spaced(window)}: {{{{ range $i, $each := . }}}}{{{{ if $i }}}}, {{{{ end }}}}"
        '{{ $each.Labels.class }} {{ printf "%.0f" $each.Value }}{{ end }}.{{ end }}{{ end }}'
    )


def _least(spec: SloFile) -> int:
    return spec.alerting.min_events.page
