"""Alerts on error budgets: one per SLO and tier, and a ticket for classes with too little traffic for a burn rate."""

from dataclasses import replace

from alerts.alert_annotations import annotated_alert, describe, percent
from alerts.alert_names import AlertName
from alerts.cold_start import cold_start_limit
from alerts.links import Links
from alerts.promql import in_window, within
from alerts.recording_windows import windows
from alerts.rule_groups import Alert
from alerts.tiers import Severity, Tier, fit, tiers
from exporters.quantities import number, spell_duration
from exporters.signals import PAGE_HELD, SLO_BAD_IN, SLO_BURN_RATE, SLO_EVENTS_IN, Label, Recorded
from exporters.slos import Slo, SloFile, Source

_WHO = "{{ $labels.class }} requests to {{ $labels.model }}"
_TIMES = '{{ printf "%.1f" $value }}'


def burn_alerts(spec: SloFile, links: Links) -> tuple[Alert, ...]:
    """Every SLO on every tier, with a ticket for each page that is held back; then the ticket for low traffic."""
    return (
        *(alert for slo in spec.slos for tier in tiers(spec.period) for alert in _burn(spec, slo, tier, links)),
        _low_traffic(spec, links),
    )


def rescaled(spec: SloFile) -> tuple[str, ...]:
    """A sentence for each rescaled tier."""
    pairs = ((slo, tier) for slo in spec.slos for tier in tiers(spec.period))
    return tuple(
        f"slo {slo.name}, tier {tier.name}: {_reason(slo, tier)}" for slo, tier in pairs if fit(tier, slo) != tier
    )


def min_events(spec: SloFile, tier: Tier) -> int:
    """The events that the long window of the tier needs."""
    return spec.alerting.min_events.page if tier.severity is Severity.PAGE else spec.alerting.min_events.ticket


def tier_condition(
    spec: SloFile, slo: Slo, tier: Tier, burn_rate: Recorded, events: Recorded, bad_events: Recorded
) -> str:
    """Both windows burn faster than the tier's factor, and the long one has enough events and bad events."""
    long, short, factor = spell_duration(tier.long), spell_duration(tier.short), number(tier.factor)
    and_same_slo = f"and on ({', '.join(label for label in burn_rate.labels if label != Label.WINDOW)})"
    return (
        f"{within(burn_rate, slo.name, long)} > {factor}\n"
        f"{and_same_slo} {within(burn_rate, slo.name, short)} > {factor}\n"
        f"{and_same_slo} {within(events, slo.name, long)} >= {min_events(spec, tier)}\n"
        f"{and_same_slo} {within(bad_events, slo.name, long)} >= {spec.alerting.min_bad}"
    )


def _reason(slo: Slo, tier: Tier) -> str:
    fitted = fit(tier, slo)
    return (
        f"a burn rate of {_short(tier.factor)} would need {percent(tier.bad_ratio(slo))} bad events, which is "
        f"impossible; rescaled to {_short(fitted.factor)}, which needs {percent(fitted.bad_ratio(slo))}"
    )


def _burn(spec: SloFile, slo: Slo, published: Tier, links: Links) -> tuple[Alert, ...]:
    tier = fit(published, slo)
    long, short, period = map(spell_duration, (tier.long, tier.short, tier.period))
    waits = "the oldest wait" if spec.source is Source.SIDECAR else "the engine's queue"
    alert = annotated_alert(
        AlertName.BURN,
        tier.severity,
        tier_condition(spec, slo, tier, SLO_BURN_RATE, SLO_EVENTS_IN, SLO_BAD_IN),
        links,
        f"{_WHO} burn the error budget of {slo.name} {_TIMES} times too fast",
        f"The objective is {describe(slo)}. Over the last {long}, {_WHO} have missed it {_TIMES} times as often as "
        f"a budget of {period} allows, and the last {short} are no better. A {tier.severity} at "
        f"{_short(tier.factor)} times: {percent(tier.bad_ratio(slo))} bad events where "
        f"{percent(slo.budget)} are allowed, {percent(tier.share)} of the budget gone in {long}. Needs "
        f"{min_events(spec, tier)} events and {spec.alerting.min_bad} bad ones in {long}."
        + (f" Note: {_reason(slo, published)}." if tier != published else "")
        + f" Look first at {waits}, and at whether a config change is drawn just before it began.",
        labels={Label.SLO: slo.name, Label.TIER: tier.name},
        # Bridges one outlier of the short window; more would keep a page open after the burn has ended.
        keep_firing_for=windows(spec).step,
    )
    if tier.severity is not Severity.PAGE:
        return (alert,)
    return replace(alert, expr=f"{alert.expr}\nunless on (model, class, slo) {PAGE_HELD.name}"), _held(
        spec, alert, links
    )


def _held(spec: SloFile, page: Alert, links: Links) -> Alert:
    away, step = spell_duration(cold_start_limit(spec)), spell_duration(windows(spec).step)
    return annotated_alert(
        AlertName.PAGE_HELD,
        Severity.TICKET,
        f"{page.expr}\nand on (model, class, slo) {PAGE_HELD.name}",
        links,
        f"no page yet, as an engine is starting: {page.annotations['summary']}",
        f"This would page, but all bad events of the last {step} were at engines that went or came back within "
        f"{away} and {step}. The page comes when that has passed, when one is elsewhere, or when an engine goes a "
        "second time. The budget is charged all the same. Look first at whether somebody has restarted the engine.",
        labels={label: page.labels[label] for label in (Label.SLO, Label.TIER)},
    )


def _low_traffic(spec: SloFile, links: Links) -> Alert:
    """A ticket by the number of bad events, for classes with too few events for a tier."""
    longest = spell_duration(tiers(spec.period)[-1].long)
    few, least = spec.alerting.min_events.ticket, spec.alerting.min_bad
    where = "the bad requests one by one, in the log" if spec.source is Source.SIDECAR else "the engine's queue"
    bad, events, burn_rate = (in_window(series, longest) for series in (SLO_BAD_IN, SLO_EVENTS_IN, SLO_BURN_RATE))
    return annotated_alert(
        AlertName.LOW_TRAFFIC,
        Severity.TICKET,
        f"{bad} >= {least}\nand on (model, class, slo) {events} < {few}\nand on (model, class, slo) {burn_rate} > 1",
        links,
        f'{_WHO}: {{{{ printf "%.0f" $value }}}} bad events of {{{{ $labels.slo }}}} in {longest}',
        f"Over the last {longest}, {_WHO} had fewer than {few} events of {{{{ $labels.slo }}}}, too few for a burn "
        f'rate to mean much, but {{{{ printf "%.0f" $value }}}} of them were bad, which is more than the objective '
        f"allows. A ticket from {least} bad events on. Look first at {where}.",
        keep_firing_for=windows(spec).step,
    )


def _short(value: float) -> str:
    return number(round(value, 2))
