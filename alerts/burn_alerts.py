"""Alerts on error budgets: a page and a ticket per SLO, and a ticket for classes with too few events."""

from alerts import burn_text
from alerts.alert_annotations import annotated_alert, percent
from alerts.alert_names import AlertName
from alerts.burning_windows import over_limit
from alerts.cold_start import held_page, page_bridge, page_held
from alerts.links import Links
from alerts.pooled_classes import is_pooled, pool_burns, pooled_bad_events, unless_pool_paged, who
from alerts.promql_text import in_window, select
from alerts.recording_windows import windows
from alerts.rule_groups import Alert, Recording
from alerts.tiers import Severity, Tier, fit, tiers
from exporters.quantities import number, spell_duration
from exporters.signals import (
    LONG_ERROR_RATIO,
    PAGE_ERROR_RATIO,
    PAGE_HELD,
    SLO_BAD_IN,
    SLO_BURN_RATE,
    SLO_ERROR_RATIO,
    SLO_EVENTS_IN,
    TIER_ERROR_RATIO,
    Label,
)
from exporters.slos import Slo, SloFile, Source

_WHO = f"{{{{ $labels.class }}}} requests to {burn_text.MODEL}"
_SAME, _UNLESS_SAME = "and on (model, class, slo)", "unless on (model, class, slo)"


def burn_rules(spec: SloFile, links: Links) -> tuple[Recording | Alert, ...]:
    """The pages that are held back, the tiers that burn; then a page and a ticket per SLO."""
    pages, _ = _by_severity(spec)
    return (
        page_held(spec),
        _error_ratio(spec),
        *pool_burns(spec),
        held_page(_of_tiers(pages)),
        _page_error_ratio(spec),
        *(rule for slo in spec.slos for rule in (_page(spec, slo, links), _ticket(spec, slo, links))),
    )


def rescaled(spec: SloFile) -> tuple[str, ...]:
    """A sentence for each rescaled tier."""
    pairs = ((slo, tier) for slo in spec.slos for tier in tiers(spec.period))
    return tuple(
        f"slo {slo.name}, tier {tier.name}: {_reason(slo, tier)}" for slo, tier in pairs if fit(tier, slo) != tier
    )


def _reason(slo: Slo, tier: Tier) -> str:
    fitted = fit(tier, slo)
    return (
        f"a burn rate of {_short(tier.factor)} would need {percent(tier.bad_ratio(slo))} bad events, which is "
        f"impossible; rescaled to {_short(fitted.factor)}, which needs {percent(fitted.bad_ratio(slo))}"
    )


def _error_ratio(spec: SloFile) -> Recording:
    """The tiers that burn, by their short windows."""
    return Recording(TIER_ERROR_RATIO, "\nor ".join(_burning(spec, tier) for tier in tiers(spec.period)))


def _burning(spec: SloFile, tier: Tier) -> str:
    """Both windows are over the limit. The long one comes first: it usually leaves no series to compare."""
    long, short = (spell_duration(each) for each in (tier.long, tier.short))
    error_ratio = f"({in_window(SLO_ERROR_RATIO, short)} {_SAME} {in_window(LONG_ERROR_RATIO, long)})"
    return over_limit(spec, tier, error_ratio)


def _page_error_ratio(spec: SloFile) -> Recording:
    """Recorded so that tickets know which SLOs page, and for how long."""
    pages, _ = _by_severity(spec)
    return Recording(PAGE_ERROR_RATIO, f"max without (window) ({_of_tiers(pages)})\n{_UNLESS_SAME} {PAGE_HELD.name}")


def _page(spec: SloFile, slo: Slo, links: Links) -> Alert:
    pages, _ = _by_severity(spec)
    return annotated_alert(
        AlertName.BURN,
        Severity.PAGE,
        f"100 * {select(PAGE_ERROR_RATIO, {Label.SLO: slo.name})}",
        links,
        _summary(spec, slo),
        _description(spec, slo, pages),
        labels={Label.SLO: slo.name},
        keep_firing_for=page_bridge(spec),
        more=links.bad_traces(),
    )


def _ticket(spec: SloFile, slo: Slo, links: Links) -> Alert:
    """The tiers of tickets, and pages that are held back. Not while the SLO pages, nor shortly after."""
    pages, tickets = _by_severity(spec)
    alternatives = (
        *(f"{_of_tiers((tier,), slo)}\n{not_paged(spec, tier.short, (slo,))}" for tier in tickets),
        f"{_of_tiers(pages, slo)}\n{_SAME} {PAGE_HELD.name}",
    )
    any_tier = "\n  or ".join(alternatives).replace("\n", "\n  ").replace("\n    or", "\n  or")
    return annotated_alert(
        AlertName.BURN,
        Severity.TICKET,
        f"100 * max without (window) (\n  {any_tier}\n)",
        links,
        _summary(spec, slo),
        _description(spec, slo, tickets) + _held_note(spec, slo),
        labels={Label.SLO: slo.name},
        keep_firing_for=windows(spec).step,
        more=links.bad_traces(),
    )


def not_paged(spec: SloFile, short: float, slos: tuple[Slo, ...]) -> str:
    """Excludes an SLO that pages, or whose page ended less than the short window ago: its events are still in there."""
    recent = short + page_bridge(spec)
    pooled = f"\n{unless_pool_paged(recent)}" if any(map(is_pooled, slos)) else ""
    return f"{_UNLESS_SAME} present_over_time({PAGE_ERROR_RATIO.name}[{spell_duration(recent)}]){pooled}"


def _by_severity(spec: SloFile) -> tuple[tuple[Tier, ...], tuple[Tier, ...]]:
    every = tiers(spec.period)
    pages = tuple(tier for tier in every if tier.severity is Severity.PAGE)
    return pages, tuple(tier for tier in every if tier not in pages)


def _of_tiers(some: tuple[Tier, ...], slo: Slo | None = None) -> str:
    """The recorded error ratios of these tiers."""
    short = "|".join(spell_duration(tier.short) for tier in some)
    matchers = [*([f'slo="{slo.name}"'] if slo else []), f'window{"=~" if len(some) > 1 else "="}"{short}"']
    return f"{TIER_ERROR_RATIO.name}{{{','.join(matchers)}}}"


def _summary(spec: SloFile, slo: Slo) -> str:
    gone = burn_text.exhaustion(spec, slo, ", budget gone in ", ", budget spent")
    return burn_text.summary(slo, "{{ $labels.class }}") + gone


def _description(spec: SloFile, slo: Slo, some: tuple[Tier, ...]) -> str:
    """Facts in order of use: how bad, until when, where, since which change, by which tier."""
    recent = min(some[0].short, tiers(spec.period)[1].short)
    waits = "the oldest wait" if spec.source is Source.SIDECAR else "the engine's queue"
    return (
        f"{burn_text.SHARE} of {who(slo, burn_text.MODEL)} {burn_text.miss(slo)} (objective {percent(slo.objective)})."
        f"{pooled_bad_events(spec, slo)}{burn_text.budget_left(spec, slo)}{burn_text.worst_replicas(slo, recent)}"
        f"{burn_text.last_config_change()}{''.join(_tier_note(slo, tier) for tier in some)} Look first at {waits}."
    )


def _tier_note(slo: Slo, published: Tier) -> str:
    """The limit of a tier, if it burns."""
    tier = fit(published, slo)
    limit = f"over {percent(tier.bad_ratio(slo))} in {burn_text.spaced(tier.long)}"
    rescaled_note = ", rescaled" if tier != published else ""
    burns = burn_text.query(TIER_ERROR_RATIO, slo, f',window="{spell_duration(tier.short)}"')
    return f"{{{{ with {burns} }}}} Tier {tier.name}: {limit}{rescaled_note}.{{{{ end }}}}"


def _held_note(spec: SloFile, slo: Slo) -> str:
    step = burn_text.spaced(windows(spec).step)
    return (
        f"{{{{ with {burn_text.query(PAGE_HELD, slo)} }}}} A page is held back: all bad events of the last {step} are "
        "from engines that are starting.{{ end }}"
    )


def low_traffic_alert(spec: SloFile, links: Links) -> Alert:
    """A ticket by the number of bad events, for classes with too few events for a tier.

    Evaluated as often as the counts of its window change.
    """
    longest = tiers(spec.period)[-1]
    window = spell_duration(longest.long)
    few, least = spec.alerting.min_events.ticket, spec.alerting.min_bad
    where = "the bad requests one by one, in the log" if spec.source is Source.SIDECAR else "the engine's queue"
    bad, events, burn_rate = (in_window(series, window) for series in (SLO_BAD_IN, SLO_EVENTS_IN, SLO_BURN_RATE))
    return annotated_alert(
        AlertName.LOW_TRAFFIC,
        Severity.TICKET,
        f"{bad} >= {least}\n{_SAME} {events} < {few}\n{_SAME} {burn_rate} > 1\n"
        f"{not_paged(spec, longest.short, spec.slos)}",
        links,
        f'{{{{ $labels.class }}}} on {burn_text.MODEL}: {{{{ printf "%.0f" $value }}}} bad events of '
        f"{{{{ $labels.slo }}}} in {burn_text.spaced(longest.long)}",
        f"In the last {burn_text.spaced(longest.long)}, {_WHO} had fewer than {few} events of {{{{ $labels.slo }}}}, "
        f'too few for a burn rate. {{{{ printf "%.0f" $value }}}} of them were bad, which is more than the objective '
        f"allows. The ticket needs {least} bad events. Look first at {where}.",
        keep_firing_for=windows(spec).step,
    )


def _short(value: float) -> str:
    return number(round(value, 2))
