"""Recording rules and pages per tenant, only in short windows, as tenants multiply series."""

from alerts import burn_text
from alerts.alert_annotations import annotated_alert, percent
from alerts.alert_names import AlertName
from alerts.burning_windows import min_events
from alerts.cold_start import page_bridge
from alerts.links import Links
from alerts.promql_text import in_window, ratio, sum_by, within
from alerts.recording_rules import direct_count
from alerts.recording_windows import direct_interval
from alerts.rule_groups import Alert, Recording, RuleGroup
from alerts.step_counts import windowed
from alerts.tiers import Severity, Tier, fit, tiers
from exporters import signals
from exporters.quantities import number, spell_duration
from exporters.signals import Label
from exporters.slos import Slo, SloFile


def tenant_groups(spec: SloFile, links: Links) -> tuple[RuleGroup, ...]:
    """Counts, burn rates and pages of each tenant, with `per_tenant`."""
    if not spec.alerting.per_tenant:
        return ()
    pages = [tier for tier in tiers(spec.period) if tier.severity is Severity.PAGE]
    lengths = sorted({length for tier in pages for length in (tier.long, tier.short)})
    alerts = (_burn(spec, slo, pages, links) for slo in spec.slos)
    return (
        RuleGroup(
            "vllm-slo-tenants",
            direct_interval(spec),
            (*(rule for length in lengths for rule in _window(length)), *alerts),
        ),
    )


def _window(length: float) -> tuple[Recording, ...]:
    window = spell_duration(length)
    events, bad = (in_window(series, window) for series in (signals.TENANT_EVENTS_IN, signals.TENANT_BAD_IN))
    budget = f"on (class, slo) group_left () (1 - {signals.SLO_OBJECTIVE.name})"
    return (
        direct_count(signals.SLO_EVENTS, signals.TENANT_EVENTS_IN, length),
        direct_count(signals.SLO_BAD, signals.TENANT_BAD_IN, length),
        windowed(signals.TENANT_BURN_RATE, window, f"{ratio(bad, events)} / {budget}"),
    )


def _burn(spec: SloFile, slo: Slo, pages: list[Tier], links: Links) -> Alert:
    """Does not fire while all tenants together burn as fast, which has its own page."""
    limits = ", ".join(
        f"{tier.name} over {percent(fit(tier, slo).bad_ratio(slo))} in {burn_text.spaced(tier.long)}" for tier in pages
    )
    burning = "\n  or ".join(_burning(spec, slo, fit(tier, slo)) for tier in pages)
    return annotated_alert(
        AlertName.TENANT_BURN,
        Severity.PAGE,
        f"{number(100 * slo.budget)} * max without (window) (\n  {burning}\n)",
        links,
        burn_text.summary(slo, "{{ $labels.class }} of {{ $labels.tenant }}"),
        f"{burn_text.SHARE} of {{{{ $labels.class }}}} requests of {{{{ $labels.tenant }}}} to {{{{ $labels.model }}}} "
        f"{burn_text.miss(slo)} (objective {percent(slo.objective)}). All tenants together burn slower. "
        f"Tiers: {limits}. Look first at what this tenant sends that others do not.",
        labels={Label.SLO: slo.name},
        keep_firing_for=page_bridge(spec),
        more=links.bad_traces(),
    )


def _burning(spec: SloFile, slo: Slo, tier: Tier) -> str:
    """The burn rate of the short window, if the tier burns for the tenant and not for all.

    All are summed here, as the counts of all tenants are recorded up to two steps later.
    """
    long, short = spell_duration(tier.long), spell_duration(tier.short)
    of_all = (Label.MODEL, Label.CLASS, Label.SLO)
    bad, events = (
        sum_by(within(each, slo.name, long), of_all) for each in (signals.TENANT_BAD_IN, signals.TENANT_EVENTS_IN)
    )
    same = "on (model, class, slo, tenant)"
    burn_rate, factor = signals.TENANT_BURN_RATE, number(tier.factor)
    condition = (
        f"{within(burn_rate, slo.name, long)} > {factor}\n"
        f"and {same} {within(burn_rate, slo.name, short)} > {factor}\n"
        f"and {same} {within(signals.TENANT_EVENTS_IN, slo.name, long)} >= {min_events(spec, tier)}\n"
        f"and {same} {within(signals.TENANT_BAD_IN, slo.name, long)} >= {spec.alerting.min_bad}"
    )
    return (
        f"{within(burn_rate, slo.name, short)}\n  and {same} ({condition})\n"
        f"  unless on (model, class, slo) {bad} / {events} > {number(tier.bad_ratio(slo))}"
    )
