"""Recording rules and pages per tenant, only in short windows, as tenants multiply series."""

from collections.abc import Iterator

from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql.build import either, in_window, on, ratio, sum_by, within
from alerts.promql.expression import Expression
from alerts.recording.windows import BUDGET, PER_BUDGET, direct_count, largest_window
from alerts.rules import wording
from alerts.rules.annotations import alert
from alerts.rules.groups import Alert, Recording, RuleGroup, windowed
from alerts.rules.wording import percent
from alerts.tiers import Severity, Tier
from exporters.vocabulary import signals
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import Label
from exporters.vocabulary.slo_file import Slo


def tenant_groups(plan: Plan) -> tuple[RuleGroup, ...]:
    """Counts, burn rates and pages of each tenant, with `per_tenant`."""
    if not plan.spec.alerting.per_tenant:
        return ()
    lengths = sorted({length for tier in plan.published(Severity.PAGE) for length in (tier.long, tier.short)})
    return (
        RuleGroup(
            "vllm-slo-tenants",
            plan.direct_interval,
            (
                *(rule for length in lengths for rule in _window(length)),
                *(_burn(plan, slo) for slo in plan.spec.slos),
            ),
        ),
    )


def _window(length: float) -> Iterator[Recording]:
    yield direct_count(signals.SLO_EVENTS, signals.TENANT_EVENTS_IN, length)
    yield direct_count(signals.SLO_BAD, signals.TENANT_BAD_IN, length)
    error_ratio = ratio(in_window(signals.TENANT_BAD_IN, length), in_window(signals.TENANT_EVENTS_IN, length))
    yield windowed(signals.TENANT_BURN_RATE, length, error_ratio.binary("/", BUDGET, PER_BUDGET))


def _burn(plan: Plan, slo: Slo) -> Alert:
    """Does not fire while all tenants together burn as fast, which has its own page."""
    pages = plan.fitted(slo, Severity.PAGE)
    limits = ", ".join(
        f"{tier.name} over {percent(tier.bad_ratio(slo))} in {wording.spaced(tier.long)}" for tier in pages
    )
    burning = either(_burning(plan, slo, tier) for tier in pages)
    return alert(
        plan,
        AlertName.TENANT_BURN,
        (DashboardUid.WORKLOAD, PanelTitle.GOODPUT_BY_TENANT),
        100 * largest_window(burning),
        wording.summary(slo, "{{ $labels.class }} of {{ $labels.tenant }}"),
        f"{wording.SHARE} of {wording.class_of([slo], plan.spec.class_titles)} requests of "
        "{{ $labels.tenant }} to {{ $labels.model }} "
        f"{wording.miss(slo)} (objective {percent(slo.objective)}). All tenants together burn slower. "
        f"Tiers: {limits}. Look first at what this tenant sends that others do not.",
        severity=Severity.PAGE,
        slo=slo,
        keep_firing_for=plan.page_bridge,
        more=plan.links.bad_traces(),
    )


def _burning(plan: Plan, slo: Slo, tier: Tier) -> Expression:
    """The error ratio of the short window, if the tier burns for the tenant and not for all.

    All ratios are of the same counts: those of all tenants are recorded up to two steps later, and in VictoriaMetrics
    the burn rate of the tenant one evaluation later.
    """
    of_all, same = (Label.MODEL, Label.CLASS, Label.SLO), on(Label.MODEL, Label.CLASS, Label.SLO, Label.TENANT)
    limit = round(tier.bad_ratio(slo), 12)

    def counts(window: float) -> tuple[Expression, Expression]:
        return within(signals.TENANT_EVENTS_IN, slo.name, window), within(signals.TENANT_BAD_IN, slo.name, window)

    (events, bad), (short_events, short_bad) = counts(tier.long), counts(tier.short)
    long = (bad >= plan.spec.alerting.min_bad) / (events >= plan.min_events(tier)) > limit
    all_burn = sum_by(bad, of_all) / sum_by(events, of_all) > limit
    return (short_bad.and_(long, same) / short_events > limit).unless(all_burn, on(*of_all))
