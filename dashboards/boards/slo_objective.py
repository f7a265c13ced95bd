"""The dashboard "One SLO": its budget, burn rates, events, alerts with their limits, worst requests, config changes."""

from collections.abc import Iterator

from grafana_foundation_sdk.builders import table, text, timeseries
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.text import TextMode

from alerts.links import DashboardUid
from alerts.plan import Plan
from alerts.promql.build import call, increase, max_by, ranged, rate, sum_by
from alerts.promql.expression import Expression
from alerts.rules import wording
from alerts.tiers import Severity, Tier
from dashboards.boards.annotations import config_change_query
from dashboards.boards.board import Board
from dashboards.grafana import style, tables
from dashboards.grafana.layout import Row, label_variable
from dashboards.grafana.links import to_board, to_runbook, to_traces
from dashboards.grafana.style import BAD, PLAIN, WARN
from dashboards.grafana.tables import ValueColumn
from dashboards.panels import slo_status
from dashboards.queries.labels import join_labels, with_label
from dashboards.queries.rates import RANGE, RATE
from dashboards.windows.slo import burn_window_variable, in_period
from dashboards.windows.slo_state import SLO_AND_CLASS, budget_left, pairs
from exporters.text.units import number, spell_duration
from exporters.vocabulary import signals
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import Label
from exporters.vocabulary.slo_file import Slo

_KEYS = {Label.SLO: "SLO", Label.CLASS: "Class"}
_CHANGE = {
    Label.SETTING: "Setting",
    Label.OLD: "Old",
    Label.NEW: "New",
    Label.ENGINE: "Engine",
    Label.INSTANCE: "Sidecar",
}


def rows(plan: Plan) -> tuple[Row, ...]:
    return (
        Row(
            "Budget", (slo_status.verdict(plan, of_slo=True), objective(plan), slo_status.error_budget(plan).height(8))
        ),
        Row("Burn", (slo_status.burn_rate(plan).span(24).height(8), burn_by_window(plan))),
        Row("Events", (events_over_time(), events_in_range())),
        Row("Alerts", (alert_limits(plan), slo_status.firing_alerts(plan, of_slo=True))),
        Row("Bad requests", (worst_requests(plan),)),
        Row("Config changes", (config_changes(),)),
    )


def objective(plan: Plan) -> table.Panel:
    page, period = plan.tiers[0], spell_duration(plan.spec.period)
    description = (
        f"A row per SLO and class. Attainment is the share of good events in {period}. Budget spent is a multiple of "
        f"the error budget; over 1 x it is overspent. Gone is when it is spent at the burn rate of the last "
        f"{spell_duration(page.long)}. Data is the share of {period} in which events were counted. Good: attainment at "
        "or above the objective. From the recording rules."
    )
    reason = "no budget burns"
    panel = style.table_panel("Objective", description, units.Short, 24, 6, may_be_empty=reason)
    tables.sort_rows(panel, "-Budget spent", "SLO", "Class")
    columns = (
        _ratio("Objective", max_by(signals.SLO_OBJECTIVE, SLO_AND_CLASS), 2, 95),
        ValueColumn("Threshold", max_by(signals.SLO_THRESHOLD, SLO_AND_CLASS), style.SECONDS, decimals=2, width=130),
        slo_status.attainment_column(f"Attainment {period}", in_period),
        slo_status.budget_column(),
        ValueColumn("Budget spent", 1 - budget_left(), "suffix:x", decimals=1, width=115),
        slo_status.gone_column(),
        _ratio(f"Data {period}", max_by(signals.SLO_MEASURED, SLO_AND_CLASS), 1, None),
    )
    return tables.join_queries(panel, _KEYS, columns, rows=pairs())


def _ratio(title: str, value: Expression, decimals: int, width: int | None) -> ValueColumn:
    return ValueColumn(title, value, units.PercentUnit, decimals=decimals, width=width)


def burn_by_window(plan: Plan) -> table.Panel:
    fastest = plan.tiers[0]
    description = (
        "Burn rate in every window of the rules, of the worst model. Short windows show whether it still burns, long "
        f"ones how much it has cost. Orange above 1, red above {number(fastest.factor)}, the limit of the fastest "
        "page. Good: below 1. From the recording rules."
    )
    panel = style.table_panel("Burn rate by window", description, "suffix:x", 24, 10, may_be_empty="no event occurred")
    panel.min_width(80).decimals(1).thresholds(style.thresholds(PLAIN, (1, WARN), (fastest.factor, BAD)))
    panel.override_by_regexp("/^[0-9]/", [model.DynamicConfigValue("custom.cellOptions", {"type": "color-text"})])
    named = join_labels(signals.SLO_BURN_RATE, Label.CLASS, " ", Label.CLASS, Label.SLO)
    order = tuple(spell_duration(length) for length in sorted(plan.windows))
    values = max_by(named, (Label.CLASS, Label.WINDOW))
    return tables.pivot(panel, values, Label.CLASS, Label.WINDOW, order=order, width=150)


def events_over_time() -> timeseries.Panel:
    description = (
        "SLO events per second, stacked: good and bad ones, and requests that were abandoned before their verdict, "
        "which are not SLO events. Good: nearly all good. From the sidecars' counters."
    )
    good, bad, abandoned = style.VERDICT_COLOURS.items()
    lines = zip(_events(), (good, bad, abandoned), strict=True)
    panel = style.time_series_panel(
        *("Events by verdict", description, units.RequestsPerSecond, 9),
        *((aggregated, name, colour) for aggregated, (name, colour) in lines),
    )
    return style.stack(style.limit_points(panel))


def _events() -> tuple[Expression, Expression, Expression]:
    events, bad, abandoned = (
        sum_by(rate(each, RATE), ()) for each in (signals.SLO_EVENTS, signals.SLO_BAD, signals.SLO_ABANDONED)
    )
    return events - bad, bad, abandoned


def events_in_range() -> table.Panel:
    description = (
        "SLO events in the time range: good and bad ones, and requests that were abandoned before their verdict. "
        "Good: few are bad. From the sidecars' counters."
    )
    events, bad, abandoned = (
        sum_by(increase(each, RANGE), SLO_AND_CLASS)
        for each in (signals.SLO_EVENTS, signals.SLO_BAD, signals.SLO_ABANDONED)
    )
    panel = style.table_panel("Events in range", description, style.COUNT, 15, 9)
    tables.sort_rows(panel, "-Bad", "SLO", "Class")
    columns = (
        ValueColumn("Good", events - bad, style.COUNT, decimals=0),
        ValueColumn("Bad", bad, style.COUNT, decimals=0, steps=((0.5, BAD),)),
        ValueColumn("Abandoned", abandoned, style.COUNT, decimals=0),
    )
    return tables.join_queries(panel, _KEYS, columns)


def alert_limits(plan: Plan) -> text.Panel:
    """The alerts of every SLO of the file, which the variables do not change."""
    heading = "| SLO | Alert | Bad events above | Burn above | In both | Events at least |\n|---|---|---|---|---|---|\n"
    tiers = "".join(_tier_row(plan, slo, tier) for slo in plan.spec.slos for tier in plan.tiers_of[slo.name])
    panel = text.Panel().title("Alerts and their limits").mode(TextMode.MARKDOWN)
    return panel.content(f"{heading}{tiers}\n{''.join(_notes(plan))}").span(10).height(10)


def _tier_row(plan: Plan, slo: Slo, tier: Tier) -> str:
    windows = f"{spell_duration(tier.long)}, {spell_duration(tier.short)}"
    limit, factor = wording.percent(tier.bad_ratio(slo)), number(round(tier.factor, 2))
    return f"| {slo.name} | {tier.severity} | {limit} | {factor} x | {windows} | {plan.min_events(tier)} |\n"


def _notes(plan: Plan) -> Iterator[str]:
    yield f"- `{AlertName.BURN}` also needs {plan.spec.alerting.min_bad} bad events in the long window.\n"
    yield (
        f"- `{AlertName.LOW_TRAFFIC}` is the {Severity.TICKET} for a class with fewer than "
        f"{plan.spec.alerting.min_events.ticket} events in {spell_duration(plan.tiers[-1].long)}.\n"
    )


def config_changes() -> table.Panel:
    description = (
        "Config changes that the sidecars have seen, the latest first. A click on the setting opens Config change. "
        "Good: none shortly before the budget began to burn. From the sidecars' metrics."
    )
    reason = "no engine has changed"
    panel = style.table_panel("Latest config changes", description, style.DATE, 24, 6, may_be_empty=reason)
    tables.sort_rows(panel, "-Time of change", "Setting", "Engine")
    changed = ValueColumn("Time of change", max_by(config_change_query(), [*_CHANGE]), style.DATE, width=165)
    tables.join_queries(panel, _CHANGE, [changed])
    return tables.link_cells(
        panel, Label.SETTING, "Open the config change", to_board(DashboardUid.CONFIG_CHANGE, Label.INSTANCE)
    )


_COMMAND, _RUNBOOK = "command", "runbook"
_LIST = (
    "vllm-slo requests --request-log requests.jsonl --class $1=bad --sort e2e_ms --limit 10 "
    "--since ${__from:date:seconds} --until ${__to:date:seconds}"
)
"""`$1` is the class, the flag of the SLO, and the SLO."""


def worst_requests(plan: Plan) -> table.Panel:
    text = (
        "A row per SLO and class with bad events at the sidecars shown, the worst first: the largest share of bad "
        f"events in {spell_duration(plan.outlier_window)} of the time range. Command lists the ten slowest of these "
        "requests; run it on the request log of that sidecar. A click on the class opens their traces, if the "
        "dashboards were rendered with --traces-url. Good: no row. From the recording rules."
    )
    panel = style.table_panel(
        "Worst requests", text, units.Short, 24, 6, may_be_empty="there is no bad event in the time range"
    )
    tables.sort_rows(panel, "-Bad in range", "SLO", "Class")
    tables.join_queries(
        panel,
        {Label.SLO: "SLO", Label.CLASS: "Class", Label.INSTANCE: "Sidecar"},
        [ValueColumn("Bad in range", _shares(), units.PercentUnit, decimals=0, width=105)],
        texts={_RUNBOOK: "Runbook", _COMMAND: "Command"},
    )
    tables.link_cells(panel, Label.CLASS, "Ten slowest requests", to_traces(Label.CLASS, Label.SLO))
    tables.link_cells(panel, _RUNBOOK, "Runbook", to_runbook(_RUNBOOK))
    # Grafana adds a symbol that shows the whole text, and copies it
    return panel.override_by_name(_COMMAND, [model.DynamicConfigValue("custom.inspect", True)])


def _shares() -> Expression:
    """The largest share of bad events of each SLO and class, with the texts of a row as labels."""
    share = call("max_over_time", ranged(signals.INSTANCE_ERROR_RATIO, RANGE, RATE))
    rows = max_by(share, (Label.SLO, Label.CLASS, Label.INSTANCE)) > 0
    flags = join_labels(rows, _COMMAND, " --slo ", Label.CLASS, Label.SLO)
    return with_label(call("label_replace", flags, _COMMAND, _LIST, _COMMAND, "(.*)"), _RUNBOOK, AlertName.BURN)


BOARD = Board(
    uid=DashboardUid.OBJECTIVE,
    title="One SLO",
    description="Budget, burn rates, events, alerts, worst requests and config changes of the SLO and class selected.",
    own_variables=lambda _: (label_variable(Label.SLO, signals.SLO_OBJECTIVE).label("SLO"), burn_window_variable()),
    labels=(Label.SLO,),
    shows_request_log=True,
    rows=rows,
)
