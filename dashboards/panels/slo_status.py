"""Panels on the state of the SLOs: status, burn rate, alerts, goodput."""

from collections.abc import Callable

from grafana_foundation_sdk.builders import common, stat, table, timeseries
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units

from alerts.alert_names import AlertName
from alerts.links import DashboardUid, PanelTitle
from alerts.promql_text import rate, ratio, select, sum_by
from alerts.tiers import Severity, Tier, tiers
from dashboards import style, tables
from dashboards.data_links import to_board, to_runbook
from dashboards.label_selectors import PER_CLASS, RATE, goodput_ratio, select_model_class
from dashboards.panels.traffic import arrival_rate
from dashboards.slo_windows import BURN_WINDOW, PERIOD, in_page_window, in_period, in_shortest_window
from dashboards.style import BAD, GOOD, GREY, MODEL_AND_CLASS, NO_TRAFFIC, WARN, describe, query
from dashboards.tables import LabelColumns, ValueColumn
from exporters import signals
from exporters.quantities import number, spell_duration
from exporters.signals import ACTIVE_SINCE, FIRING, Label, Recorded
from exporters.slos import SloFile

_SLO_AND_CLASS = (Label.SLO, Label.CLASS)
_BY = ", ".join(_SLO_AND_CLASS)


def slo_status(spec: SloFile) -> table.Panel:
    """One row per SLO and class, the largest overspent budget first."""
    page, period = _fast_page(spec), spell_duration(spec.period)
    text = describe(
        "A row per SLO and class: attainment, error budget and alerts. The SLO with the least budget is first. "
        f"Attainment is the share of good events in the last {spell_duration(page.short)}, in period that of "
        f"{period}. Budget spent is a multiple of the error budget; over 1 x it is overspent. Exhausted in is by the "
        "burn rate of "
        f"{spell_duration(page.long)}. Offered are requests that arrive, judged are SLO events. Data is the share of "
        "the period that was measured. The worst replica has the largest share of bad events; its "
        "link opens Fleet, with all if none has bad events. "
        "Good: attainment at or above the objective, and no page or ticket. From the recording rules.",
        may_be_empty=f"no alert fires, or there is {NO_TRAFFIC}",
    )
    panel = style.table_panel(PanelTitle.SLO_STATUS, text, units.Short, 24, 10)
    tables.if_empty(panel, "no SLO is recorded").interval("1m").sort_by(
        [
            common.TableSortByFieldState().display_name("Budget spent").desc(True),
            common.TableSortByFieldState().display_name("SLO").desc(False),
            common.TableSortByFieldState().display_name("Class").desc(False),
        ]
    )
    titles = {Label.SLO: "SLO", Label.CLASS: "Class"}
    tables.join_queries(panel, titles, _status_columns(), rows=_pairs(), widest=(Label.INSTANCE,))
    url = to_board(DashboardUid.FLEET, Label.CLASS, Label.INSTANCE)
    return tables.link_cells(panel, Label.INSTANCE, "Open the fleet", url)


def _status_columns() -> tuple[ValueColumn | LabelColumns, ...]:
    budget = f"min by ({_BY}) ({select_model_class(signals.SLO_BUDGET_LEFT)})"
    spent = model.ValueMap({"0": model.ValueMappingResult("spent", color=BAD, index=0)})
    left = f"{budget} * {PERIOD} / (max by ({_BY}) ({in_page_window(signals.SLO_BURN_RATE)}) > 0)"
    objective = select(signals.SLO_OBJECTIVE, {Label.CLASS: MODEL_AND_CLASS[Label.CLASS]}, regex=True)
    return (
        ValueColumn("Objective", f"max by ({_BY}) ({objective})", units.PercentUnit, decimals=1, width=85),
        _attainment("Attainment", in_shortest_window, 100),
        _attainment("In period", in_period, 85),
        ValueColumn(
            "Budget left",
            f"clamp_min({budget}, 0)",
            units.PercentUnit,
            no_value=NO_TRAFFIC,
            decimals=0,
            base=BAD,
            steps=((1e-9, WARN), (0.25, GOOD)),
            width=95,
        ),
        ValueColumn("Budget spent", f"1 - {budget}", "suffix:x", decimals=1, width=115),
        ValueColumn(
            "Exhausted in",
            f"clamp_min({left}, 0) or 0 * ({budget} <= 0)",
            units.Seconds,
            mappings=[spent],
            decimals=1,
            width=110,
        ),
        ValueColumn(
            "Offered",
            f"({arrival_rate()}) * on ({Label.CLASS}) group_right () {_pairs()}",
            units.RequestsPerSecond,
            decimals=2,
            width=95,
        ),
        ValueColumn("Judged", _judged(), units.RequestsPerSecond, decimals=2, width=95),
        ValueColumn(
            "Data",
            f"max by ({_BY}) ({select_model_class(signals.SLO_MEASURED)})",
            units.PercentUnit,
            decimals=1,
            width=60,
        ),
        _since(Severity.PAGE, BAD),
        _since(Severity.TICKET, WARN),
        LabelColumns(_worst_replica(), {Label.INSTANCE: "Worst replica"}),
    )


def _judged() -> str:
    return sum_by(rate(select_model_class(signals.SLO_EVENTS), RATE), _SLO_AND_CLASS)


def _pairs() -> str:
    """1 for each SLO and class of the SLO file."""
    return (
        f"group by ({_BY}) ({select(signals.SLO_OBJECTIVE, {Label.CLASS: MODEL_AND_CLASS[Label.CLASS]}, regex=True)})"
    )


def _attainment(title: str, in_window: Callable[[Recorded], str], width: int) -> ValueColumn:
    bad, events = (sum_by(in_window(series), _SLO_AND_CLASS) for series in (signals.SLO_BAD_IN, signals.SLO_EVENTS_IN))
    return ValueColumn(
        title, f"1 - {ratio(bad, events)}", units.PercentUnit, no_value=NO_TRAFFIC, decimals=2, width=width
    )


def _since(severity: Severity, colour: str) -> ValueColumn:
    """The time at which the alert of the SLO and class became active."""
    matchers = {**MODEL_AND_CLASS, Label.SEVERITY: severity, Label.SLO: ".+"}
    since = f"min by ({_BY}) ({_active_since(select(ACTIVE_SINCE, matchers, regex=True))})"
    return ValueColumn(f"{severity.capitalize()} since", since, "dateTimeFromNow", steps=((1, colour),), width=105)


def _active_since(selector: str) -> str:
    """In unix milliseconds, of firing alerts only."""
    return f'1000 * {selector} and ignoring (alertstate) {FIRING}{{alertstate="firing"}}'


def _worst_replica() -> str:
    by = f"{_BY}, {Label.INSTANCE}"
    bad, events = (
        f"sum by ({by}) (rate({select_model_class(counter)}[{RATE}]))"
        for counter in (signals.SLO_BAD, signals.SLO_EVENTS)
    )
    worst = f"topk by ({_BY}) (1, {ratio(bad, events)} > 0)"
    # without it, Grafana omits the column if no replica has bad events; the link selects all replicas
    return f'{worst} or on ({_BY}) label_replace(0 * {_pairs()}, "{Label.INSTANCE}", "All", "", "")'


def _fast_page(spec: SloFile) -> Tier:
    return min((tier for tier in tiers(spec.period) if tier.severity is Severity.PAGE), key=lambda tier: tier.long)


def goodput_now(spec: SloFile) -> stat.Panel:
    text = (
        "Share of the offered requests that was good for all its SLOs. Requests that hang, were lost or are not judged "
        "count as not good, so an engine that hangs shows 0 %. All selected classes, about the last minute. "
        "Good: at or above the lowest objective. From the sidecars' counters."
    )
    good = f"sum ({rate(select_model_class(signals.GOODPUT_REQUESTS), RATE)})"
    panel = style.stat_panel("Goodput of offered", text, units.PercentUnit, 6, 5)
    return (
        style.if_absent(panel, NO_TRAFFIC)
        .with_target(query(f"clamp_max({ratio(good, f'sum ({arrival_rate()})')}, 1)", "good of offered", instant=True))
        .text_mode(common_model.BigValueTextMode.VALUE)
        .interval("1m")
        .decimals(1)
        .thresholds(style.thresholds(BAD, *goodput_limits(spec)))
    )


def burn_rate(spec: SloFile) -> timeseries.Panel:
    """One line per SLO and class, in the selected window."""
    # without the rescaling of tiers for low objectives
    factors = sorted(tier.factor for tier in tiers(spec.period) if tier.severity is Severity.PAGE)
    text = (
        "Rate at which the error budget is spent. At 1 (orange) it lasts exactly the period of "
        f"{spell_duration(spec.period)}. Good: below 1. The red lines are the factors of the page tiers "
        f"({', '.join(map(number, factors))}); a page needs both windows of its tier above its factor. One line per "
        "SLO and class, the worst model, in the window of the variable Window. Above 1 the scale is logarithmic. From "
        "the recording rules."
    )
    burning = select(signals.SLO_BURN_RATE, {**MODEL_AND_CLASS, Label.WINDOW: BURN_WINDOW}, regex=True)
    panel = (
        style.time_series_panel(PanelTitle.BURN_RATE, text, units.Short, 14, 10)
        .with_target(query(f"max by ({_BY}) ({burning})", "{{class}} {{slo}}"))
        .scale_distribution(
            common.ScaleDistributionConfig().type(common_model.ScaleDistribution.SYMLOG).log(10).linear_threshold(1)
        )
    )
    panel = style.hide_zero_series(style.colour_by_class(panel, spec))
    return style.with_threshold_lines(panel, (1, WARN), *((factor, BAD) for factor in factors))


def firing_alerts() -> table.Panel:
    """Never empty while Prometheus answers: a row states that nothing fires, or that the rules are not evaluated."""
    text = (
        "Alerts that fire, and since when; pages first. A click on an alert opens its runbook. Good: one row, none. "
        "The row no data means that Prometheus does not evaluate the rules, so their silence says nothing; an empty "
        "table means that Prometheus does not respond. From the alerting rules."
    )
    # `|` also matches alerts without class or model, such as that of an engine that is down
    matchers = ",".join(f'{label}=~"{value}|"' for label, value in MODEL_AND_CLASS.items())
    by = f"{Label.SEVERITY}, {Label.ALERTNAME}, {Label.SLO}, {Label.CLASS}"
    not_watchdog = f'{{{Label.ALERTNAME}!="{AlertName.WATCHDOG}",{matchers}}}'
    firing = f"min by ({by}) ({_active_since(f'{ACTIVE_SINCE}{not_watchdog}')})"
    watchdog = f'{FIRING}{{{Label.ALERTNAME}="{AlertName.WATCHDOG}",alertstate="firing"}}'
    none = f'label_replace(0 * group ({watchdog}) unless on () {firing}, "{Label.SEVERITY}", "none", "", "")'
    no_data = f'label_replace(0 * absent({watchdog}), "{Label.SEVERITY}", "no data", "", "")'
    rows = f"{firing} or {none} or min by ({by}) ({no_data})"
    titles = {Label.SEVERITY: "Severity", Label.ALERTNAME: "Alert", Label.SLO: "SLO", Label.CLASS: "Class"}
    never = model.ValueMap({"0": model.ValueMappingResult("-", color=style.PLAIN, index=0)})
    since = ValueColumn("Since", rows, "dateTimeFromNow", mappings=[never], width=100)
    panel = tables.if_empty(style.table_panel(PanelTitle.FIRING_ALERTS, text, units.Short, 10, 10), "no data")
    tables.sort_rows(panel, "Severity", "Since", "Alert")
    colours = {Severity.PAGE: BAD, Severity.TICKET: WARN, Severity.NONE: GOOD, "no data": GREY}
    severities = model.ValueMap(
        {
            name: model.ValueMappingResult(name, color=colour, index=index)
            for index, (name, colour) in enumerate(colours.items())
        }
    )
    tables.link_cells(panel, Label.ALERTNAME, "Runbook", to_runbook(Label.ALERTNAME))
    return tables.join_queries(panel, titles, [since], widest=(Label.ALERTNAME,)).override_by_name(
        Label.SEVERITY,
        [
            model.DynamicConfigValue("mappings", [severities]),
            model.DynamicConfigValue("custom.cellOptions", {"type": "color-background", "mode": "basic"}),
        ],
    )


def goodput(spec: SloFile) -> timeseries.Panel:
    text = (
        "Share of the judged requests that was good for all its SLOs. Requests without a verdict are excluded. If the "
        "share falls while tokens and requests stay high, the engine has throughput without goodput. The lines are the "
        f"lowest objective and twice its budget. Good: above the upper line. Gaps are {NO_TRAFFIC}. From the sidecars' "
        "counters."
    )
    panel = (
        style.ratio_panel("Goodput over time", text, 8)
        .with_target(query(goodput_ratio(), PER_CLASS))
        .no_value(NO_TRAFFIC)
    )
    return style.with_threshold_lines(style.colour_by_class(panel, spec), *goodput_lines(spec))


def goodput_limits(spec: SloFile) -> tuple[tuple[float, str], ...]:
    """Good at or above the lowest objective; bad below twice its budget."""
    lowest = min(slo.objective for slo in spec.slos)
    return (max(0.0, round(2 * lowest - 1, 12)), WARN), (lowest, GOOD)


def goodput_lines(spec: SloFile) -> tuple[tuple[float, str], ...]:
    """The same limits as lines, each in the colour of the range below it."""
    return tuple((value, BAD if colour == WARN else WARN) for value, colour in goodput_limits(spec))
