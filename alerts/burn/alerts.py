"""Alerts on error budgets: a page and a ticket per SLO, and a ticket for classes with too few events."""

from alerts.burn.cold_start import held_page, held_window, page_held
from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql.build import either, equal, in_window, on, over, regex, select
from alerts.promql.expression import Expression, Selector
from alerts.recording.limits import over_limit
from alerts.recording.pools import is_pooled, pool_burns, pooled_bad_events, unless_pool_paged, who
from alerts.recording.windows import largest_window
from alerts.rules import wording
from alerts.rules.annotations import alert
from alerts.rules.groups import Alert, Recording
from alerts.rules.target_labels import if_found
from alerts.rules.wording import percent
from alerts.tiers import Severity, Tier
from exporters.text.units import spell_duration
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import (
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
from exporters.vocabulary.slo_file import Slo

_SAME = on(Label.MODEL, Label.CLASS, Label.SLO)


def burn_rules(plan: Plan) -> tuple[Recording | Alert, ...]:
    """The pages that are held back, the tiers that burn; then a page and a ticket per SLO."""
    pages = _of_tiers(plan.published(Severity.PAGE))
    return (
        page_held(plan),
        # The tiers that burn, by their short windows.
        Recording(TIER_ERROR_RATIO, either(_burning(plan, number) for number in range(len(plan.tiers)))),
        *pool_burns(plan),
        held_page(pages),
        # Recorded so that tickets know which SLOs page, and for how long.
        Recording(PAGE_ERROR_RATIO, _paging(pages)),
        *(rule for slo in plan.spec.slos for rule in (_page(plan, slo), _ticket(plan, slo))),
    )


def _burning(plan: Plan, number: int) -> Expression:
    """Both windows are over the limit. The long one comes first: it usually leaves no series to compare."""
    tier = plan.tiers[number]
    short, long = in_window(SLO_ERROR_RATIO, tier.short), in_window(LONG_ERROR_RATIO, tier.long)
    return over_limit(plan, number, short.and_(long, _SAME))


def _paging(tiers_of_pages: Expression) -> Expression:
    return largest_window(tiers_of_pages).unless(select(PAGE_HELD), _SAME)


def _page(plan: Plan, slo: Slo) -> Alert:
    return alert(
        plan,
        AlertName.BURN,
        (DashboardUid.OBJECTIVE, PanelTitle.BURN_RATE),
        # Not the recorded ratio, which VictoriaMetrics shows one evaluation later.
        100 * _paging(_of_tiers(plan.published(Severity.PAGE), slo)),
        _summary(plan, slo),
        _description(plan, slo, Severity.PAGE),
        severity=Severity.PAGE,
        slo=slo,
        keep_firing_for=plan.page_bridge,
        more=plan.links.bad_traces(),
    )


def _ticket(plan: Plan, slo: Slo) -> Alert:
    """The tiers of tickets, and pages that are held back. Not while the SLO pages, nor shortly after."""
    pages = _of_tiers(plan.published(Severity.PAGE), slo)
    burning = (
        *(
            unless_paged(plan, _of_tiers((tier,), slo).unless(pages, _SAME), tier.short, (slo,))
            for tier in plan.published(Severity.TICKET)
        ),
        pages.and_(select(PAGE_HELD), _SAME),
    )
    return alert(
        plan,
        AlertName.BURN,
        (DashboardUid.OBJECTIVE, PanelTitle.BURN_RATE),
        100 * largest_window(either(burning)),
        _summary(plan, slo),
        _description(plan, slo, Severity.TICKET) + _held_note(plan, slo),
        slo=slo,
        keep_firing_for=plan.step,
        more=plan.links.bad_traces(),
    )


def unless_paged(plan: Plan, expression: Expression, short: float, slos: tuple[Slo, ...]) -> Expression:
    """Excludes an SLO that pages, or whose page ended less than the short window ago: its events are still in there."""
    recent = short + plan.page_bridge
    unpaged = expression.unless(over("present_over_time", PAGE_ERROR_RATIO, recent), _SAME)
    return unless_pool_paged(unpaged, recent) if any(map(is_pooled, slos)) else unpaged


def _of_tiers(some: tuple[Tier, ...], slo: Slo | None = None) -> Selector:
    """The recorded error ratios of these tiers."""
    short = [spell_duration(tier.short) for tier in some]
    window = equal(Label.WINDOW, *short) if len(short) == 1 else regex(Label.WINDOW, "|".join(short))
    return select(TIER_ERROR_RATIO, *([equal(Label.SLO, slo.name)] if slo else []), window)


def _summary(plan: Plan, slo: Slo) -> str:
    gone = wording.exhaustion(plan, slo, ", budget gone in ", ", budget spent")
    return wording.summary(slo, "{{ $labels.class }}") + gone


def _description(plan: Plan, slo: Slo, severity: Severity) -> str:
    """Facts in order of use: how bad, until when, where, since which change, by which tier."""
    recent = min(plan.published(severity)[0].short, plan.half_hour)
    waits = "the oldest wait" if plan.has_sidecar else "the engine's queue"
    return (
        f"{wording.SHARE} of {who(plan, slo, wording.MODEL)} {wording.miss(slo)} (objective {percent(slo.objective)})."
        f"{pooled_bad_events(plan, slo)}{wording.budget_left(plan, slo)}"
        f"{wording.worst_replicas(plan, slo, recent)}{wording.last_config_change(plan)}"
        f"{''.join(_tier_note(plan, slo, tier) for tier in plan.fitted(slo, severity))} Look first at {waits}."
    )


def _tier_note(plan: Plan, slo: Slo, tier: Tier) -> str:
    """The limit of a tier, if it burns."""
    limit = f"over {percent(tier.bad_ratio(slo))} in {wording.spaced(tier.long)}"
    rescaled_note = ", rescaled" if tier not in plan.tiers else ""
    burning = wording.of_alert(TIER_ERROR_RATIO, slo, equal(Label.WINDOW, spell_duration(tier.short)))
    return if_found(burning, plan.spec.group_by, f" Tier {tier.name}: {limit}{rescaled_note}.")


def _held_note(plan: Plan, slo: Slo) -> str:
    last = wording.spaced(held_window(plan))
    text = f" A page is held back: all bad events of the last {last} are from engines that are starting."
    return if_found(wording.of_alert(PAGE_HELD, slo), plan.spec.group_by, text)


def low_traffic_alert(plan: Plan) -> Alert:
    """A ticket by the number of bad events, for classes with too few events for a tier.

    Evaluated as often as the counts of its window change.
    """
    longest, few, least = plan.tiers[-1], plan.spec.alerting.min_events.ticket, plan.spec.alerting.min_bad
    where = "the bad requests one by one, in the log" if plan.has_sidecar else "the engine's queue"
    bad, events, burn_rate = (in_window(series, longest.long) for series in (SLO_BAD_IN, SLO_EVENTS_IN, SLO_BURN_RATE))
    who = f"{wording.class_of(plan.spec.slos, plan.spec.class_titles)} requests to {wording.MODEL}"
    missed = (bad >= least).and_(events < few, _SAME).and_(burn_rate > 1, _SAME)
    return alert(
        plan,
        AlertName.LOW_TRAFFIC,
        (DashboardUid.OVERVIEW, PanelTitle.SLO_STATUS),
        unless_paged(plan, missed, longest.short, plan.spec.slos),
        f'{{{{ $labels.class }}}} on {wording.MODEL}: {{{{ printf "%.0f" $value }}}} bad events of '
        f"{{{{ $labels.slo }}}} in {wording.spaced(longest.long)}",
        f"In the last {wording.spaced(longest.long)}, {who} had fewer than {few} events of {{{{ $labels.slo }}}}, "
        f'too few for a burn rate. {{{{ printf "%.0f" $value }}}} of them were bad, which is more than the objective '
        f"allows. The ticket needs {least} bad events. Look first at {where}.",
        keep_firing_for=plan.step,
    )
