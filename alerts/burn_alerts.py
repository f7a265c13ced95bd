"""Alerts on error budgets: one per SLO and tier, and a ticket where traffic is too thin for a burn rate."""

from dataclasses import replace

from alerts.alert_annotations import annotations, describe, percent
from alerts.alert_names import AlertName
from alerts.cold_start import cold_start_limit
from alerts.links import Links
from alerts.promql import select, within
from alerts.recording_windows import windows
from alerts.rule_groups import Alert
from alerts.tiers import Severity, Tier, fit, tiers
from exporters.quantities import number, spell_duration
from exporters.signals import PAGE_HELD, SLO_BAD_IN, SLO_BURN_RATE, SLO_EVENTS_IN, Label, Recorded
from exporters.slos import Slo, SloFile, Source

_AND_SAME_SLO = "and on (model, class, slo)"
_WHO = "{{ $labels.class }} requests to {{ $labels.model }}"
_TIMES = '{{ printf "%.1f" $value }}'


def burn_alerts(spec: SloFile, links: Links) -> tuple[Alert, ...]:
    """Every SLO on every tier, with a ticket for each page that is held back; then the ticket for low traffic."""
    return (
        *(alert for slo in spec.slos for tier in tiers(spec.period) for alert in _burn(spec, slo, tier, links)),
        _low_traffic(spec, links),
    )


def rescaled(spec: SloFile) -> tuple[str, ...]:
    """A sentence for each tier that had to be rescaled."""
    pairs = ((slo, tier) for slo in spec.slos for tier in tiers(spec.period))
    return tuple(
        f"slo {slo.name}, tier {tier.name}: {_reason(slo, tier)}" for slo, tier in pairs if fit(tier, slo) != tier
    )


def _reason(slo: Slo, tier: Tier) -> str:
    fitted = fit(tier, slo)
    return (
        f"a burn rate of {_short(tier.factor)} would take {percent(tier.bad_ratio(slo))} bad events, which cannot be; "
        f"rescaled to {_short(fitted.factor)}, which {percent(fitted.bad_ratio(slo))} bad events reach"
    )


def _min_events(spec: SloFile, severity: Severity) -> int:
    return spec.alerting.min_events.page if severity is Severity.PAGE else spec.alerting.min_events.ticket


def _burn(spec: SloFile, slo: Slo, published: Tier, links: Links) -> tuple[Alert, ...]:
    tier = fit(published, slo)
    long, short, period = map(spell_duration, (tier.long, tier.short, tier.period))

    events = _min_events(spec, tier.severity)
    waits = "the oldest wait" if spec.source is Source.SIDECAR else "the engine's queue"
    factor = number(tier.factor)
    alert = Alert(
        AlertName.BURN,
        f"{within(SLO_BURN_RATE, slo.name, long)} > {factor}\n"
        f"{_AND_SAME_SLO} {within(SLO_BURN_RATE, slo.name, short)} > {factor}\n"
        f"{_AND_SAME_SLO} {within(SLO_EVENTS_IN, slo.name, long)} >= {events}\n"
        f"{_AND_SAME_SLO} {within(SLO_BAD_IN, slo.name, long)} >= {spec.alerting.min_bad}",
        {Label.SEVERITY.value: tier.severity.value, Label.SLO.value: slo.name, Label.TIER.value: tier.name},
        annotations(
            AlertName.BURN,
            links,
            f"{_WHO} burn the error budget of {slo.name} {_TIMES} times too fast",
            f"The objective is {describe(slo)}. Over the last {long}, {_WHO} have missed it {_TIMES} times as often as "
            f"a budget of {period} allows, and the last {short} are no better. A {tier.severity} at "
            f"{_short(tier.factor)} times: {percent(tier.bad_ratio(slo))} bad events where "
            f"{percent(slo.budget)} are allowed, {percent(tier.share)} of the budget gone in {long}. Needs "
            f"{events} events and {spec.alerting.min_bad} bad ones in {long}."
            + (f" Note: {_reason(slo, published)}." if tier != published else "")
            + f" Look first at {waits}, and at whether a config change is drawn just before it began.",
        ),
        # Bridges one odd reading of the short window; more would keep a page open after the burn has ended.
        keep_firing_for=windows(spec).step,
    )
    if tier.severity is not Severity.PAGE:
        return (alert,)
    return replace(alert, expr=f"{alert.expr}\nunless on (model, class, slo) {PAGE_HELD.name}"), _held(
        spec, alert, links
    )


def _held(spec: SloFile, page: Alert, links: Links) -> Alert:
    away, step = spell_duration(cold_start_limit(spec)), spell_duration(windows(spec).step)
    return Alert(
        AlertName.PAGE_HELD,
        f"{page.expr}\nand on (model, class, slo) {PAGE_HELD.name}",
        {**page.labels, Label.SEVERITY.value: Severity.TICKET.value},
        annotations(
            AlertName.PAGE_HELD,
            links,
            f"no page yet, as an engine is starting: {page.annotations['summary']}",
            f"This would page, but all bad events of the last {step} were at engines that went or came back within "
            f"{away} and {step}. The page comes when that has passed, when one is elsewhere, or when an engine goes a "
            "second time. The budget is charged all the same. Look first at whether somebody has restarted the engine.",
        ),
    )


def _low_traffic(spec: SloFile, links: Links) -> Alert:
    """A ticket by the number of bad events, for classes with too few events for a tier."""
    longest = spell_duration(tiers(spec.period)[-1].long)
    few, bad = spec.alerting.min_events.ticket, spec.alerting.min_bad
    where = "the bad requests one by one, in the log" if spec.source is Source.SIDECAR else "the engine's queue"

    def all_slos(series: Recorded) -> str:
        return select(series, {Label.WINDOW: longest})

    return Alert(
        AlertName.LOW_TRAFFIC,
        f"{all_slos(SLO_BAD_IN)} >= {bad}\n"
        f"{_AND_SAME_SLO} {all_slos(SLO_EVENTS_IN)} < {few}\n"
        f"{_AND_SAME_SLO} {all_slos(SLO_BURN_RATE)} > 1",
        {Label.SEVERITY.value: Severity.TICKET.value},
        annotations(
            AlertName.LOW_TRAFFIC,
            links,
            f'{_WHO}: {{{{ printf "%.0f" $value }}}} bad events of {{{{ $labels.slo }}}} in {longest}',
            f"Over the last {longest}, {_WHO} had fewer than {few} events of {{{{ $labels.slo }}}}, too few for a burn "
            f'rate to mean much, but {{{{ printf "%.0f" $value }}}} of them were bad, which is more than the objective '
            f"allows. A ticket from {bad} bad events on. Look first at {where}.",
        ),
        keep_firing_for=windows(spec).step,
    )


def _short(value: float) -> str:
    return number(round(value, 2))
