"""Judges classes with too few events for a page together: one pseudo-class for each model and availability SLO.

Only availability is pooled. An outage affects all classes alike, so their sum measures it. Latencies depend on the
sizes that define a class, so their sum would measure the mix of sizes; a threshold that does not fit a class with few
events is a matter for a ticket.
"""

from alerts.labels import POOL
from alerts.plan import Plan
from alerts.promql.build import call, either, equal, in_window, on, over, regex, select, sum_by, within
from alerts.promql.expression import AlertLabel, Expression
from alerts.rules.groups import Recording, windowed
from alerts.rules.target_labels import if_found, listed
from alerts.rules.wording import class_of, spaced
from alerts.tiers import Severity, Tier
from exporters.vocabulary.signals import (
    LOW_TRAFFIC_EVENTS_IN,
    PAGE_ERROR_RATIO,
    PAGE_HELD,
    SLO_BAD_IN,
    SLO_EVENTS_IN,
    TIER_ERROR_RATIO,
    Label,
    Recorded,
)
from exporters.vocabulary.slo_file import Measure, Slo

_SAME_CLASS, _SAME_SLO = on(Label.MODEL, Label.CLASS, Label.SLO), on(Label.MODEL, Label.SLO)


def is_pooled(slo: Slo) -> bool:
    return slo.measure is Measure.AVAILABILITY and len(slo.classes) > 1


def low_traffic(plan: Plan, length: float) -> tuple[Recording, ...]:
    """The classes of the pools, beside the counts of the longest window of a page."""
    pooled = "|".join(slo.name for slo in plan.spec.slos if is_pooled(slo))
    if not pooled or length != round(plan.quarter_day, 3):
        return ()
    events = in_window(SLO_EVENTS_IN, length, regex(Label.SLO, pooled))
    return (windowed(LOW_TRAFFIC_EVENTS_IN, length, events < _least(plan)),)


def pool_burns(plan: Plan) -> tuple[Recording, ...]:
    """The tiers of pages that burn for a pool."""
    burning = [
        _burns(plan, slo, tier) for slo in plan.spec.slos if is_pooled(slo) for tier in plan.fitted(slo, Severity.PAGE)
    ]
    return (Recording(TIER_ERROR_RATIO, either(burning), {Label.CLASS: POOL}),) if burning else ()


def _burns(plan: Plan, slo: Slo, tier: Tier) -> Expression:
    """The error ratio of the pool in the short window of a tier of pages, if the tier burns."""
    limit, same = round(tier.bad_ratio(slo), 12), on(Label.MODEL, Label.SLO, Label.WINDOW)
    # Classes whose page is held back are left out: their engines are starting.
    classes = select(LOW_TRAFFIC_EVENTS_IN).unless(select(PAGE_HELD), _SAME_CLASS)

    def pooled(series: Recorded, length: float) -> Expression:
        each = within(series, slo.name, length).and_(classes, _SAME_CLASS)
        return sum_by(each, (Label.MODEL, Label.SLO, Label.WINDOW))

    short = pooled(SLO_BAD_IN, tier.short).binary("/", pooled(SLO_EVENTS_IN, tier.short) > 0, same)
    enough_bad = pooled(SLO_BAD_IN, tier.long) >= plan.spec.alerting.min_bad
    long = enough_bad.binary("/", pooled(SLO_EVENTS_IN, tier.long) >= _least(plan), same)
    return (short > limit).and_(long > limit, _SAME_SLO)


def unless_pool_paged(expression: Expression, recent: float) -> Expression:
    """Excludes classes of a pool that paged within `recent` seconds."""
    in_pool = select(LOW_TRAFFIC_EVENTS_IN).and_(pool_paged("present_over_time", recent), _SAME_SLO)
    return expression.unless(in_pool, _SAME_CLASS)


def pool_paged(function: str, recent: float) -> Expression:
    """A function of the pages of pools in the last seconds; they have no class of their own."""
    return over(function, select(PAGE_ERROR_RATIO, equal(Label.CLASS, POOL)), recent)


def who(plan: Plan, slo: Slo, model: str) -> str:
    """The requests of an alert, in words."""
    one_class = f"{class_of([slo], plan.spec.class_titles)} requests to {model}"
    if not is_pooled(slo):
        return one_class
    return f'{{{{ if eq $labels.class "{POOL}" }}}}requests of {POOL} to {model}{{{{ else }}}}{one_class}{{{{ end }}}}'


def pooled_bad_events(plan: Plan, slo: Slo) -> str:
    """A sentence with the bad events of each class of a pool; empty for an alert on one class."""
    if not is_pooled(slo):
        return ""
    one_model = equal(Label.MODEL, AlertLabel(Label.MODEL))
    bad, events = (
        in_window(series, plan.quarter_day, equal(Label.SLO, slo.name), one_model)
        for series in (SLO_BAD_IN, SLO_EVENTS_IN)
    )
    found = call("sort_desc", (bad > 0).and_(events < _least(plan), _SAME_CLASS))
    each = listed('{{ $each.Labels.class }} {{ printf "%.0f" $each.Value }}')
    text = if_found(found, plan.spec.group_by, f" Bad events in {spaced(plan.quarter_day)}: {each}.")
    return f'{{{{ if eq $labels.class "{POOL}" }}}}{text}{{{{ end }}}}'


def _least(plan: Plan) -> int:
    return plan.spec.alerting.min_events.page
