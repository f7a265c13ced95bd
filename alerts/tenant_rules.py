"""Recording rules and pages per tenant, only in short windows, as tenants multiply series."""

from alerts.alert_annotations import annotations, describe, percent
from alerts.alert_names import AlertName
from alerts.links import Links
from alerts.promql import ratio, select, within
from alerts.recording_rules import direct_count
from alerts.recording_windows import direct_interval
from alerts.rule_groups import Alert, Recording, RuleGroup
from alerts.tiers import Severity, Tier, fit, tiers
from exporters.quantities import number, spell_duration
from exporters.signals import (
    SLO_BAD,
    SLO_BURN_RATE,
    SLO_EVENTS,
    SLO_OBJECTIVE,
    TENANT_BAD_IN,
    TENANT_BURN_RATE,
    TENANT_EVENTS_IN,
    Label,
)
from exporters.slos import Slo, SloFile


def _page_tiers(spec: SloFile) -> tuple[Tier, ...]:
    return tuple(tier for tier in tiers(spec.period) if tier.severity is Severity.PAGE)


def tenant_groups(spec: SloFile, links: Links) -> tuple[RuleGroup, ...]:
    """Counts, burn rates and pages of each tenant, if the file asks for them."""
    if not spec.alerting.per_tenant:
        return ()
    lengths = sorted({length for tier in _page_tiers(spec) for length in (tier.long, tier.short)})
    alerts = (_burn(spec, slo, fit(tier, slo), links) for slo in spec.slos for tier in _page_tiers(spec))
    return (
        RuleGroup(
            "vllm-slo-tenants",
            direct_interval(spec),
            (*(rule for length in lengths for rule in _window(length)), *alerts),
        ),
    )


def _window(length: float) -> tuple[Recording, ...]:
    window = {Label.WINDOW: spell_duration(length)}
    events, bad = (select(series, window) for series in (TENANT_EVENTS_IN, TENANT_BAD_IN))
    budget = f"on (class, slo) group_left () (1 - {SLO_OBJECTIVE.name})"
    return (
        direct_count(SLO_EVENTS, TENANT_EVENTS_IN, length),
        direct_count(SLO_BAD, TENANT_BAD_IN, length),
        Recording(TENANT_BURN_RATE, f"{ratio(bad, events)} / {budget}", {Label.WINDOW.value: spell_duration(length)}),
    )


def _burn(spec: SloFile, slo: Slo, tier: Tier, links: Links) -> Alert:
    """Does not fire while the total burns as fast, which has its own page."""
    long, short, factor = spell_duration(tier.long), spell_duration(tier.short), number(tier.factor)
    events, bad = spec.alerting.min_events.page, spec.alerting.min_bad

    and_same_slo = "and on (model, class, slo, tenant)"
    requests = "{{ $labels.class }} requests of {{ $labels.tenant }} to {{ $labels.model }}"
    times = '{{ printf "%.1f" $value }}'
    return Alert(
        AlertName.TENANT_BURN,
        f"{within(TENANT_BURN_RATE, slo.name, long)} > {factor}\n"
        f"{and_same_slo} {within(TENANT_BURN_RATE, slo.name, short)} > {factor}\n"
        f"{and_same_slo} {within(TENANT_EVENTS_IN, slo.name, long)} >= {events}\n"
        f"{and_same_slo} {within(TENANT_BAD_IN, slo.name, long)} >= {bad}\n"
        f"unless on (model, class, slo) {within(SLO_BURN_RATE, slo.name, long)} > {factor}",
        {Label.SEVERITY.value: tier.severity.value, Label.SLO.value: slo.name, Label.TIER.value: tier.name},
        annotations(
            AlertName.TENANT_BURN,
            links,
            f"{requests} burn the error budget of {slo.name} {times} times too fast, others do not",
            f"The objective is {describe(slo)}. Over the last {long}, {requests} have missed it {times} times as often "
            f"as a budget of {spell_duration(tier.period)} allows, the last {short} are no better, and all tenants "
            f"together burn slower. A {tier.severity} at {number(round(tier.factor, 2))} times: "
            f"{percent(tier.bad_ratio(slo))} bad events where {percent(slo.budget)} are allowed. Needs {events} events "
            f"and {bad} bad ones in {long}. "
            "Look first at what this tenant sends that others do not.",
        ),
    )
