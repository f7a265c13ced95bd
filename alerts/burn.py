"""Alerts on error budgets: one per SLO and tier, and a ticket where traffic is too thin for a burn rate."""

from alerts.promql import select
from alerts.rule import Alert
from alerts.tiers import Severity, Tier, fit, tiers
from alerts.windows import windows
from alerts.wording import AlertName, Links, annotations
from exporters.signals import SLO_BAD_IN, SLO_BURN_RATE, SLO_EVENTS_IN, Label, Recorded
from exporters.slos import Slo, SloFile
from exporters.yamlfile import number, spell_duration

_SAME = "and on (model, class, slo)"
_WHO = "{{ $labels.class }} requests to {{ $labels.model }}"
_TIMES = '{{ printf "%.1f" $value }}'


def burn_alerts(spec: SloFile, links: Links) -> tuple[Alert, ...]:
    """Every SLO on every tier, then the ticket for low traffic."""
    return (
        *(_burn(spec, slo, tier, links) for slo in spec.slos for tier in tiers(spec.period)),
        _low_traffic(spec, links),
    )


def rescaled(spec: SloFile) -> tuple[str, ...]:
    """A sentence for each tier that had to be rescaled."""
    pairs = ((slo, tier) for slo in spec.slos for tier in tiers(spec.period))
    return tuple(
        f"slo {slo.name}, tier {tier.name}: {_why(slo, tier)}" for slo, tier in pairs if fit(tier, slo) != tier
    )


def _why(slo: Slo, tier: Tier) -> str:
    fitted = fit(tier, slo)
    return (
        f"a burn rate of {_short(tier.factor)} would take {_percent(tier.bad_ratio(slo))} bad events, which cannot be; "
        f"rescaled to {_short(fitted.factor)}, which {_percent(fitted.bad_ratio(slo))} bad events reach"
    )


def promise(slo: Slo) -> str:
    """The SLO in words: `ttft within 5s for 95 %`."""
    limit = "" if slo.threshold is None else f" within {spell_duration(slo.threshold)}"
    return f"{slo.measure}{limit} for {_percent(slo.objective)}"


def _min_events(spec: SloFile, severity: Severity) -> int:
    return spec.alerting.min_events_page if severity is Severity.PAGE else spec.alerting.min_events_ticket


def _burn(spec: SloFile, slo: Slo, published: Tier, links: Links) -> Alert:
    tier = fit(published, slo)
    long, short, period = map(spell_duration, (tier.long, tier.short, tier.period))

    def one(series: Recorded, window: str) -> str:
        return select(series, {Label.SLO: slo.name, Label.WINDOW: window})

    events = _min_events(spec, tier.severity)
    factor = number(tier.factor)
    return Alert(
        AlertName.BURN,
        f"{one(SLO_BURN_RATE, long)} > {factor}\n"
        f"{_SAME} {one(SLO_BURN_RATE, short)} > {factor}\n"
        f"{_SAME} {one(SLO_EVENTS_IN, long)} >= {events}\n"
        f"{_SAME} {one(SLO_BAD_IN, long)} >= {spec.alerting.min_bad}",
        {Label.SEVERITY.value: tier.severity.value, Label.SLO.value: slo.name, Label.TIER.value: tier.name},
        annotations(
            AlertName.BURN,
            links,
            f"{_WHO} burn the error budget of {slo.name} {_TIMES} times too fast",
            f"The objective is {promise(slo)}. Over the last {long}, {_WHO} have missed it {_TIMES} times as often as "
            f"a budget of {period} allows, and the last {short} are no better. A {tier.severity} at "
            f"{_short(tier.factor)} times: {_percent(tier.bad_ratio(slo))} bad events where "
            f"{_percent(slo.budget)} are allowed, {_percent(tier.share)} of the budget gone in {long}. Needs "
            f"{events} events and {spec.alerting.min_bad} bad ones in {long}."
            + (f" Note: {_why(slo, published)}." if tier != published else ""),
            one_class=True,
        ),
        # Bridges one odd reading of the short window; more would keep a page open after the burn has ended.
        hold=windows(spec).step,
    )


def _low_traffic(spec: SloFile, links: Links) -> Alert:
    """Bad events in plain numbers, for classes that never gather enough events for a tier."""
    longest = spell_duration(tiers(spec.period)[-1].long)
    few, bad = spec.alerting.min_events_ticket, spec.alerting.min_bad

    def all_slos(series: Recorded) -> str:
        return select(series, {Label.WINDOW: longest})

    return Alert(
        AlertName.LOW_TRAFFIC,
        f"{all_slos(SLO_BAD_IN)} >= {bad}\n"
        f"{_SAME} {all_slos(SLO_EVENTS_IN)} < {few}\n"
        f"{_SAME} {all_slos(SLO_BURN_RATE)} > 1",
        {Label.SEVERITY.value: Severity.TICKET.value},
        annotations(
            AlertName.LOW_TRAFFIC,
            links,
            f'{_WHO}: {{{{ printf "%.0f" $value }}}} bad events of {{{{ $labels.slo }}}} in {longest}',
            f"Over the last {longest}, {_WHO} had fewer than {few} events of {{{{ $labels.slo }}}}, too few for a burn "
            f'rate to mean much, but {{{{ printf "%.0f" $value }}}} of them were bad, which is more than the objective '
            f"allows. A ticket from {bad} bad events on.",
            one_class=True,
        ),
        hold=windows(spec).step,
    )


def _short(value: float) -> str:
    return number(round(value, 2))


def _percent(share: float) -> str:
    return f"{number(round(100 * share, 2))} %"
