"""Panels on the state of the SLOs: status, burn rate, alerts, goodput."""

import re
from collections.abc import Callable
from dataclasses import replace

from grafana_foundation_sdk.builders import stat, table, timeseries
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units

from alerts.labels import severity_value
from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql.build import (
    aggregate,
    call,
    equal,
    max_by,
    min_by,
    not_equal,
    on,
    over,
    ratio,
    regex,
    select,
    sum_by,
)
from alerts.promql.expression import Expression, Matcher
from alerts.tiers import Severity
from dashboards.grafana import style, tables
from dashboards.grafana.links import to_board, to_runbook
from dashboards.grafana.style import BAD, GOOD, GREY, LAST_MINUTE, NO_TRAFFIC, PLAIN, WARN
from dashboards.grafana.tables import LabelColumns, ValueColumn
from dashboards.panels.traffic import arrival_rate
from dashboards.queries.labels import with_label
from dashboards.queries.rates import PER_CLASS, RANGE, goodput_ratio, rate_by, ratio_by
from dashboards.windows.slo import BURN_WINDOW, in_shortest_window
from dashboards.windows.slo_state import (
    ALERT_IS_FIRING,
    PAGE_WEIGHT,
    SLO_AND_CLASS,
    VERDICT_LABELS,
    active_since,
    budget_left,
    firing_since,
    page_burn_rate,
    pairs,
    time_left,
    urgency,
)
from dashboards.windows.slo_state import verdict as slo_verdict
from exporters.text.units import number, spell_duration
from exporters.vocabulary import signals
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import ACTIVE_SINCE, FIRING, Label, Recorded
from exporters.vocabulary.slo_file import SloFile

PER_SLO = "{{class}} {{slo}}"
_MOST_LINES = 6
_OF_SLO = regex(Label.SLO, "$slo"), not_equal(Label.SLO, "")
"""Matches the alerts of the SLOs selected, of which all would match those without an SLO."""

_NO_ALERT = "-"
_DASHES: tuple[list[int], ...] = ([], [10, 6], [3, 4], [16, 4, 3, 4])
"""The line of each SLO in the order of the SLO file: whole, then dashed."""


def verdict(plan: Plan, *, of_slo: bool = False) -> stat.Panel:
    """One sentence, which wraps on a narrow screen. With `of_slo`, it counts only alerts of the SLOs selected."""
    text = (
        "The SLOs and classes whose burn rate is above 1 in the last "
        f"{spell_duration(plan.tiers[0].long)}; the one whose budget ends first at this rate, or is most overspent; "
        f"and the alerts that fire{' for them' if of_slo else ', also those without an SLO'}. Good: 0 objectives burn. "
        "From the recording rules."
    )
    alerts = (regex(Label.MODEL, "$model|"), regex(Label.CLASS, "$class|"), *(_OF_SLO if of_slo else ()))
    burning, total, worst, pages, tickets = (f"{{{{{label}}}}}" for label in VERDICT_LABELS)
    sentence = f"{burning} of {total} objectives burn{worst}; {pages}, {tickets}"
    panel = style.stat_panel(
        *("Verdict", text, units.Short, 24, 3),
        (slo_verdict(plan.spec.alerting.severities, *alerts), sentence),
        base=GOOD,
        steps=((1, WARN), (PAGE_WEIGHT, BAD)),
    )
    return style.show_names(panel).text(style.text_size(18, 18))


def slo_status(plan: Plan) -> table.Panel:
    """One row per SLO and class, the most urgent first; the board of one SLO has what is not here."""
    page = plan.tiers[0]
    links = "; its link opens Fleet, with all if none has bad events, and that of the SLO One SLO"
    links = links if plan.has_sidecar else ""
    text = (
        "A row per SLO and class, the most urgent first: pages, tickets, overspent budgets, then by the time left. "
        f"Gone is when the budget is spent at the burn rate of the last {spell_duration(page.long)}. Attainment is the "
        f"share of good events in the last {spell_duration(page.short)}. The worst replica has the largest share of "
        f"bad events{links}. Good: no alert, and a budget that lasts. From the recording rules."
    )
    reason = f"no budget burns, or there is {NO_TRAFFIC}"
    panel = style.table_panel(PanelTitle.SLO_STATUS, text, units.Short, 24, 6, may_be_empty=reason)
    titles = {Label.SLO: "SLO", Label.CLASS: "Class"}
    tables.join_queries(
        *(panel, titles, _status_columns(plan)),
        order_by=urgency(plan.spec.alerting.severities),
        rows=pairs(),
        widest=(Label.INSTANCE,),
    )
    # the width of its heading
    panel.override_by_name(Label.INSTANCE, [model.DynamicConfigValue("custom.minWidth", 150)])
    _colour_severities(style.over_last_minute(panel), plan)
    if not plan.has_sidecar:
        return panel
    of_slo, of_replica = (Label.SLO, Label.CLASS), (Label.CLASS, Label.INSTANCE)
    tables.link_cells(panel, Label.SLO, "Open the SLO", to_board(DashboardUid.OBJECTIVE, *of_slo))
    return tables.link_cells(panel, Label.INSTANCE, "Open the fleet", to_board(DashboardUid.FLEET, *of_replica))


def _status_columns(plan: Plan) -> tuple[ValueColumn | LabelColumns, ...]:
    page, burn_rate = plan.tiers[0], page_burn_rate()
    return (
        LabelColumns(_alert_of_slo(plan), {Label.SEVERITY: "Alert"}),
        budget_column(),
        gone_column(),
        ValueColumn(
            f"Burn {spell_duration(page.long)}", burn_rate, "suffix:x", decimals=1, steps=((1, WARN),), width=70
        ),
        attainment_column(f"Attainment {spell_duration(page.short)}", in_shortest_window, 120),
        LabelColumns(_worst_replica(plan), {Label.INSTANCE: f"Worst replica {LAST_MINUTE}"}),
    )


def budget_column() -> ValueColumn:
    steps = ((1e-9, WARN), (0.25, GOOD))
    return ValueColumn("Budget left", budget_left(), units.PercentUnit, decimals=0, base=BAD, steps=steps, width=95)


def gone_column() -> ValueColumn:
    """The time at which the budget is spent; 0 if it is."""
    spent = model.ValueMap({"0": model.ValueMappingResult("spent", color=BAD, index=0)})
    gone = projected_exhaustion().or_(0 * (budget_left() <= 0))
    return ValueColumn("Gone", gone, style.AGE, mappings=[spent], steps=((1, PLAIN),), width=130)


def attainment_column(title: str, in_window: Callable[[Recorded], Expression], width: int = 130) -> ValueColumn:
    bad, events = (sum_by(in_window(series), SLO_AND_CLASS) for series in (signals.SLO_BAD_IN, signals.SLO_EVENTS_IN))
    return ValueColumn(title, 1 - ratio(bad, events), units.PercentUnit, decimals=2, width=width)


def projected_exhaustion() -> Expression:
    """Unix milliseconds."""
    return 1000 * (call("time") + time_left())


def _alert_of_slo(plan: Plan) -> Expression:
    """The severity of the alert that fires for each SLO and class, a page before a ticket."""
    page, ticket = (
        aggregate(
            "group",
            firing_since(severity_value(plan.spec.alerting.severities, severity), regex(Label.SLO, ".+")),
            by=(*SLO_AND_CLASS, Label.SEVERITY),
        )
        for severity in (Severity.PAGE, Severity.TICKET)
    )
    # without it, Grafana omits the column if no alert fires
    none = with_label(0 * pairs(), Label.SEVERITY, _NO_ALERT)
    return page.or_(ticket, on(*SLO_AND_CLASS)).or_(none, on(*SLO_AND_CLASS))


def _worst_replica(plan: Plan) -> Expression:
    bad = ratio_by(signals.SLO_BAD, signals.SLO_EVENTS, *SLO_AND_CLASS, Label.INSTANCE)
    worst = aggregate("topk", bad > 0, by=SLO_AND_CLASS, parameter=1)
    # without it, Grafana omits the column if no replica has bad events; the link selects all replicas
    none = "All" if plan.has_sidecar else "none"
    return worst.or_(with_label(0 * pairs(), Label.INSTANCE, none), on(*SLO_AND_CLASS))


def error_budget(plan: Plan) -> timeseries.Panel:
    """The budget of each SLO and class, and when it is spent at the burn rate of each moment."""
    text = (
        f"Share of the error budget of {spell_duration(plan.spec.period)} that is left, a line per SLO and class, of "
        "the worst model; below 0 it is overspent, and below -100 % not drawn. In the legend and the tooltip, gone is "
        "the time at which the budget is spent at the burn rate of the last "
        f"{spell_duration(plan.tiers[0].long)}. Marks are config changes and pages. Good: flat lines. From the "
        "recording rules."
    )
    lines = (budget_left(), PER_SLO), (projected_exhaustion(), f"{PER_SLO} gone")
    reason = "no event was judged; gone is absent while no budget burns or none is left"
    panel = style.time_series_panel(
        *("Error budget", text, units.PercentUnit, 24), *lines, height=6, signed=True, may_be_empty=reason
    ).decimals(0)
    panel = style_by_slo(style.colour_by_class(panel, plan.spec), plan.spec)
    # a scale of its own
    invisible = {"unit": style.DATE, "min": None, "max": None, "custom.lineWidth": 0, "custom.axisPlacement": "hidden"}
    panel.override_by_regexp("/ gone$/", [model.DynamicConfigValue(*each) for each in invisible.items()])
    panel.legend(style.ranked_legend("lastNotNull", "Last *", descending=False))
    return style.with_threshold_lines(panel, (0, BAD)).min(-1).max(1)


def burn_rate(plan: Plan) -> timeseries.Panel:
    """One line per SLO and class, in the selected window."""
    # without the rescaling of tiers for low objectives
    factors = sorted(tier.factor for tier in plan.published(Severity.PAGE))
    text = (
        "Rate at which the error budget is spent. At 1 (orange) it lasts exactly the period of "
        f"{spell_duration(plan.spec.period)}. Good: below 1. The red lines are the limits of the page "
        f"({', '.join(map(number, factors))}); a page needs both windows of its tier above its limit. One line per "
        f"SLO and class, the worst model, in the window of the variable Window: the {_MOST_LINES} with the highest "
        "burn rate in the time range. A line ends where nothing is spent. The scale is logarithmic. From the recording "
        "rules."
    )
    burning = select(signals.SLO_BURN_RATE, regex(Label.WINDOW, BURN_WINDOW))
    # at the end of the range, so that the lines do not change within it
    highest = over("max_over_time", replace(burning, at="end()"), RANGE)
    worst = aggregate("topk", max_by(highest, SLO_AND_CLASS), parameter=_MOST_LINES)
    lines = (max_by(burning, SLO_AND_CLASS) > 0).and_(worst, on(*SLO_AND_CLASS))
    reason = "no budget burns in the time range"
    panel = style.time_series_panel(
        *(PanelTitle.BURN_RATE, text, "suffix:x", 10), (lines, PER_SLO), height=10, signed=True, may_be_empty=reason
    )
    panel = style.logarithmic(style_by_slo(style.colour_by_class(panel, plan.spec), plan.spec)).min(0.1)
    return style.with_threshold_lines(panel, (1, WARN), *((factor, BAD) for factor in factors))


def style_by_slo(panel: timeseries.Panel, spec: SloFile) -> timeseries.Panel:
    """Dashes distinguish the SLOs of a class, which have its colour; the legend is the class and the SLO."""
    for index, slo in enumerate(spec.slos):
        if dashes := _DASHES[index % len(_DASHES)]:
            dashed = model.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": dashes})
            panel.override_by_regexp(f"/ {re.escape(slo.name)}$/", [dashed])
    return panel


def firing_alerts(plan: Plan, *, of_slo: bool = False) -> table.Panel:
    """Never empty while Prometheus answers: a row states that nothing fires, or that the rules are not evaluated."""
    text = (
        f"Alerts {'of the SLOs selected ' if of_slo else ''}that fire, and since when; pages first. `vllm-slo alerts "
        "runbook ALERT` prints the runbook; a click on "
        "an alert opens it, if the dashboards were rendered with --runbooks. Good: one row, none. "
        "The row no data means that Prometheus does not evaluate the rules, so their silence says nothing; an empty "
        "table means that Prometheus does not respond. From the alerting rules."
    )
    titles = {Label.SEVERITY: "Severity", Label.ALERTNAME: "Alert", Label.SLO: "SLO", Label.CLASS: "Class"}
    never = model.ValueMap({"0": model.ValueMappingResult("-", color=style.PLAIN, index=0)})
    matchers = _OF_SLO if of_slo else ()
    since = ValueColumn("Since", _firing_alerts([*titles], *matchers), style.AGE, mappings=[never], width=130)
    panel = style.table_panel(PanelTitle.FIRING_ALERTS, text, units.Short, 14, 10)
    tables.sort_rows(panel, "Severity", "Since", "Alert")
    tables.join_queries(panel, titles, [since], widest=(Label.ALERTNAME,))
    tables.link_cells(panel, Label.ALERTNAME, "Runbook", to_runbook(Label.ALERTNAME))
    return _colour_severities(panel, plan)


def _colour_severities(panel: table.Panel, plan: Plan) -> table.Panel:
    page, ticket = (severity_value(plan.spec.alerting.severities, each) for each in (Severity.PAGE, Severity.TICKET))
    colours = {page: BAD, ticket: WARN, Severity.NONE: GOOD, "no data": GREY, _NO_ALERT: "transparent"}
    severities = model.ValueMap(
        {
            name: model.ValueMappingResult(name, color=colour, index=index)
            for index, (name, colour) in enumerate(colours.items())
        }
    )
    return panel.override_by_name(
        Label.SEVERITY,
        [
            model.DynamicConfigValue("mappings", [severities]),
            model.DynamicConfigValue("custom.cellOptions", {"type": "color-background", "mode": "basic"}),
        ],
    )


def _firing_alerts(by: list[Label], *matchers: Matcher) -> Expression:
    # `|` also matches alerts without class or model, such as that of an engine that is down
    shown = (regex(Label.MODEL, "$model|"), regex(Label.CLASS, "$class|"), *matchers)
    active = select(ACTIVE_SINCE, not_equal(Label.ALERTNAME, AlertName.WATCHDOG), *shown)
    firing = min_by(active_since(active), by)
    watchdog = select(FIRING, equal(Label.ALERTNAME, AlertName.WATCHDOG), ALERT_IS_FIRING)
    none = with_label((0 * aggregate("group", watchdog)).unless(firing, on()), Label.SEVERITY, "none")
    no_data = with_label(0 * call("absent", watchdog), Label.SEVERITY, "no data")
    return firing.or_(none).or_(min_by(no_data, by))


def goodput_now(spec: SloFile) -> stat.Panel:
    text = (
        "Share of the offered requests that was good for all its SLOs. Requests that hang, were lost or are not judged "
        "count as not good, so an engine that hangs shows 0 %. All selected classes, about the last minute. "
        "Good: at or above the lowest objective. From the sidecars' counters."
    )
    share = call("clamp_max", ratio(rate_by(signals.GOODPUT_REQUESTS), aggregate("sum", arrival_rate())), 1)
    panel = style.stat_panel(
        *(f"Goodput of offered {LAST_MINUTE}", text, units.PercentUnit, 6, 5, (share, "good of offered")),
        decimals=1,
        base=BAD,
        steps=goodput_limits(spec),
    )
    return style.over_last_minute(panel).text_mode(common_model.BigValueTextMode.VALUE)


def goodput(spec: SloFile) -> timeseries.Panel:
    text = (
        "Share of the judged requests that was good for all its SLOs. Requests without a verdict are excluded. If the "
        "share falls while tokens and requests stay high, the engine has throughput without goodput. The lines are the "
        f"lowest objective and twice its budget. Good: above the upper line. Gaps are {NO_TRAFFIC}. From the sidecars' "
        "counters."
    )
    panel = style.ratio_panel("Goodput over time", text, 8, (goodput_ratio(Label.CLASS), PER_CLASS))
    return style.with_threshold_lines(style.colour_by_class(panel, spec), *goodput_lines(spec))


def goodput_limits(spec: SloFile) -> tuple[tuple[float, str], ...]:
    """Good at or above the lowest objective; bad below twice its budget."""
    lowest = min(slo.objective for slo in spec.slos)
    return (max(0.0, round(2 * lowest - 1, 12)), WARN), (lowest, GOOD)


def goodput_lines(spec: SloFile) -> tuple[tuple[float, str], ...]:
    """The same limits as lines, each in the colour of the range below it."""
    return tuple((value, BAD if colour == WARN else WARN) for value, colour in goodput_limits(spec))
