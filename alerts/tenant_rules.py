"""Recording rules and pages per tenant, only in short windows, as tenants multiply series."""

from alerts.alert_annotations import annotated_alert, describe, percent
from alerts.alert_names import AlertName
from alerts.burn_alerts import min_events, tier_condition
from alerts.links import Links
from alerts.promql import in_window, ratio, within
from alerts.recording_rules import direct_count, windowed
from alerts.recording_windows import direct_interval
from alerts.rule_groups import Alert, Recording, RuleGroup
from alerts.tiers import Severity, Tier, fit, tiers
from exporters import signals
from exporters.quantities import number, spell_duration
from exporters.signals import Label
from exporters.slos import Slo, SloFile

_SERIES = (signals.TENANT_BURN_RATE, signals.TENANT_EVENTS_IN, signals.TENANT_BAD_IN)


def tenant_groups(spec: SloFile, links: Links) -> tuple[RuleGroup, ...]:
    """Counts, burn rates and pages of each tenant, with `per_tenant`."""
    if not spec.alerting.per_tenant:
        return ()
    pages = [tier for tier in tiers(spec.period) if tier.severity is Severity.PAGE]
    lengths = sorted({length for tier in pages for length in (tier.long, tier.short)})
    alerts = (_burn(spec, slo, fit(tier, slo), links) for slo in spec.slos for tier in pages)
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


def _burn(spec: SloFile, slo: Slo, tier: Tier, links: Links) -> Alert:
    """Does not fire while all tenants together burn as fast, which has its own page."""
    long, short, factor = spell_duration(tier.long), spell_duration(tier.short), number(tier.factor)
    requests = "{{ $labels.class }} requests of {{ $labels.tenant }} to {{ $labels.model }}"
    times = '{{ printf "%.1f" $value }}'
    return annotated_alert(
        AlertName.TENANT_BURN,
        tier.severity,
        f"{tier_condition(spec, slo, tier, *_SERIES)}\n"
        f"unless on (model, class, slo) {within(signals.SLO_BURN_RATE, slo.name, long)} > {factor}",
        links,
        f"{requests} burn the error budget of {slo.name} {times} times too fast, others do not",
        f"The objective is {describe(slo)}. Over the last {long}, {requests} have missed it {times} times as often "
        f"as a budget of {spell_duration(tier.period)} allows, the last {short} are no better, and all tenants "
        f"together burn slower. A {tier.severity} at {number(round(tier.factor, 2))} times: "
        f"{percent(tier.bad_ratio(slo))} bad events where {percent(slo.budget)} are allowed. Needs "
        f"{min_events(spec, tier)} events and {spec.alerting.min_bad} bad ones in {long}. "
        "Look first at what this tenant sends that others do not.",
        labels={Label.SLO: slo.name, Label.TIER: tier.name},
    )
