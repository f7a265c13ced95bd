"""Panels on the state of the SLOs: status, burn rate, alerts, goodput."""

from collections.abc import Callable

from grafana_foundation_sdk.builders import common, stat, table, timeseries
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units

from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql.build import (
    aggregate,
    call,
    equal,
    ignoring,
    max_by,
    min_by,
    not_equal,
    on,
    ratio,
    regex,
    select,
    sum_by,
)
from alerts.promql.expression import Expression, Matcher, Selector
from alerts.tiers import Severity
from dashboards.grafana import style, tables
from dashboards.grafana.links import to_board, to_runbook
from dashboards.grafana.style import BAD, GOOD, GREY, NO_TRAFFIC, WARN
from dashboards.grafana.tables import LabelColumns, ValueColumn
from dashboards.panels.traffic import arrival_rate
from dashboards.queries.labels import with_label
from dashboards.queries.rates import PER_CLASS, goodput_ratio, rate_by, ratio_by
from dashboards.windows.slo import BURN_WINDOW, PERIOD, in_page_window, in_period, in_shortest_window
from exporters.text.units import number, spell_duration
from exporters.vocabulary import signals
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import ACTIVE_SINCE, FIRING, Label, Recorded
from exporters.vocabulary.slo_file import SloFile

_SLO_AND_CLASS = (Label.SLO, Label.CLASS)
_FIRING = Matcher("alertstate", "=", "firing")


def slo_status(plan: Plan) -> table.Panel:
    """One row per SLO and class, the largest overspent budget first."""
    page, period = plan.tiers[0], spell_duration(plan.spec.period)
    text = (
        "A row per SLO and class: attainment, error budget and alerts. The SLO with the least budget is first. "
        f"Attainment is the share of good events in the last {spell_duration(page.short)}, in period that of "
        f"{period}. Budget spent is a multiple of the error budget; over 1 x it is overspent. Exhausted in is by the "
        "burn rate of "
        f"{spell_duration(page.long)}. {'Offered are requests that arrive, judged' if plan.has_sidecar else 'Judged'} "
        "are SLO events. Data is the share of the period that was measured. The worst replica has the largest share of "
        f"bad events{'; its link opens Fleet, with all if none has bad events' if plan.has_sidecar else ''}. "
        "Good: attainment at or above the objective, and no page or ticket. From the recording rules."
    )
    reason = f"no alert fires, or there is {NO_TRAFFIC}"
    panel = style.table_panel(PanelTitle.SLO_STATUS, text, units.Short, 24, 10, may_be_empty=reason)
    tables.sort_rows(panel.interval("1m"), "-Budget spent", "SLO", "Class")
    titles = {Label.SLO: "SLO", Label.CLASS: "Class"}
    tables.join_queries(panel, titles, _status_columns(plan), rows=_pairs(), widest=(Label.INSTANCE,))
    if not plan.has_sidecar:
        return panel
    url = to_board(DashboardUid.FLEET, Label.CLASS, Label.INSTANCE)
    return tables.link_cells(panel, Label.INSTANCE, "Open the fleet", url)


def _status_columns(plan: Plan) -> tuple[ValueColumn | LabelColumns, ...]:
    budget = min_by(signals.SLO_BUDGET_LEFT, _SLO_AND_CLASS)
    spent = model.ValueMap({"0": model.ValueMappingResult("spent", color=BAD, index=0)})
    left = budget * PERIOD / (max_by(in_page_window(signals.SLO_BURN_RATE), _SLO_AND_CLASS) > 0)
    objective = max_by(signals.SLO_OBJECTIVE, _SLO_AND_CLASS)
    offered = ValueColumn(
        "Offered",
        arrival_rate().binary("*", _pairs(), on(Label.CLASS, right=())),
        units.RequestsPerSecond,
        decimals=2,
        width=95,
    )
    return (
        ValueColumn("Objective", objective, units.PercentUnit, decimals=1, width=85),
        _attainment("Attainment", in_shortest_window, 100),
        _attainment("In period", in_period, 85),
        ValueColumn(
            "Budget left",
            call("clamp_min", budget, 0),
            units.PercentUnit,
            decimals=0,
            base=BAD,
            steps=((1e-9, WARN), (0.25, GOOD)),
            width=95,
        ),
        ValueColumn("Budget spent", 1 - budget, "suffix:x", decimals=1, width=115),
        ValueColumn(
            "Exhausted in",
            call("clamp_min", left, 0).or_(0 * (budget <= 0)),
            units.Seconds,
            mappings=[spent],
            decimals=1,
            width=110,
        ),
        *([offered] if plan.has_sidecar else []),
        ValueColumn(
            "Judged", rate_by(signals.SLO_EVENTS, *_SLO_AND_CLASS), units.RequestsPerSecond, decimals=2, width=95
        ),
        ValueColumn("Data", max_by(signals.SLO_MEASURED, _SLO_AND_CLASS), units.PercentUnit, decimals=1, width=60),
        _since(Severity.PAGE, BAD),
        _since(Severity.TICKET, WARN),
        LabelColumns(_worst_replica(plan), {Label.INSTANCE: "Worst replica"}),
    )


def _pairs() -> Expression:
    """1 for each SLO and class of the SLO file."""
    return aggregate("group", signals.SLO_OBJECTIVE, by=_SLO_AND_CLASS)


def _attainment(title: str, in_window: Callable[[Recorded], Expression], width: int) -> ValueColumn:
    bad, events = (sum_by(in_window(series), _SLO_AND_CLASS) for series in (signals.SLO_BAD_IN, signals.SLO_EVENTS_IN))
    return ValueColumn(title, 1 - ratio(bad, events), units.PercentUnit, decimals=2, width=width)


def _since(severity: Severity, colour: str) -> ValueColumn:
    """The time at which the alert of the SLO and class became active."""
    of_slo = (regex(Label.SEVERITY, severity), regex(Label.SLO, ".+"))
    active = select(ACTIVE_SINCE, regex(Label.MODEL, "$model"), regex(Label.CLASS, "$class"), *of_slo)
    since = min_by(_active_since(active), _SLO_AND_CLASS)
    return ValueColumn(f"{severity.capitalize()} since", since, "dateTimeFromNow", steps=((1, colour),), width=105)


def _active_since(selector: Selector) -> Expression:
    """Unix milliseconds, of firing alerts only."""
    return (1000 * selector).and_(select(FIRING, _FIRING), ignoring("alertstate"))


def _worst_replica(plan: Plan) -> Expression:
    bad = ratio_by(signals.SLO_BAD, signals.SLO_EVENTS, *_SLO_AND_CLASS, Label.INSTANCE)
    worst = aggregate("topk", bad > 0, by=_SLO_AND_CLASS, parameter=1)
    # without it, Grafana omits the column if no replica has bad events; the link selects all replicas
    none = "All" if plan.has_sidecar else "none"
    return worst.or_(with_label(0 * _pairs(), Label.INSTANCE, none), on(*_SLO_AND_CLASS))


def goodput_now(spec: SloFile) -> stat.Panel:
    text = (
        "Share of the offered requests that was good for all its SLOs. Requests that hang, were lost or are not judged "
        "count as not good, so an engine that hangs shows 0 %. All selected classes, about the last minute. "
        "Good: at or above the lowest objective. From the sidecars' counters."
    )
    share = call("clamp_max", ratio(rate_by(signals.GOODPUT_REQUESTS), aggregate("sum", arrival_rate())), 1)
    panel = style.stat_panel(
        *("Goodput of offered", text, units.PercentUnit, 6, 5, (share, "good of offered")),
        decimals=1,
        base=BAD,
        steps=goodput_limits(spec),
    )
    return panel.text_mode(common_model.BigValueTextMode.VALUE).interval("1m")


def burn_rate(plan: Plan) -> timeseries.Panel:
    """One line per SLO and class, in the selected window."""
    # without the rescaling of tiers for low objectives
    factors = sorted(tier.factor for tier in plan.published(Severity.PAGE))
    text = (
        "Rate at which the error budget is spent. At 1 (orange) it lasts exactly the period of "
        f"{spell_duration(plan.spec.period)}. Good: below 1. The red lines are the factors of the page tiers "
        f"({', '.join(map(number, factors))}); a page needs both windows of its tier above its factor. One line per "
        "SLO and class, the worst model, in the window of the variable Window. Above 1 the scale is logarithmic. From "
        "the recording rules."
    )
    burning = max_by(select(signals.SLO_BURN_RATE, regex(Label.WINDOW, BURN_WINDOW)), _SLO_AND_CLASS)
    panel = style.time_series_panel(
        *(PanelTitle.BURN_RATE, text, units.Short, 14), (burning, "{{class}} {{slo}}"), height=10
    ).scale_distribution(
        common.ScaleDistributionConfig().type(common_model.ScaleDistribution.SYMLOG).log(10).linear_threshold(1)
    )
    panel = style.hide_zero_series(style.colour_by_class(panel, plan.spec))
    return style.with_threshold_lines(panel, (1, WARN), *((factor, BAD) for factor in factors))


def firing_alerts() -> table.Panel:
    """Never empty while Prometheus answers: a row states that nothing fires, or that the rules are not evaluated."""
    text = (
        "Alerts that fire, and since when; pages first. `vllm-slo alerts runbook ALERT` prints the runbook; a click on "
        "an alert opens it, if the dashboards were rendered with --runbooks. Good: one row, none. "
        "The row no data means that Prometheus does not evaluate the rules, so their silence says nothing; an empty "
        "table means that Prometheus does not respond. From the alerting rules."
    )
    titles = {Label.SEVERITY: "Severity", Label.ALERTNAME: "Alert", Label.SLO: "SLO", Label.CLASS: "Class"}
    never = model.ValueMap({"0": model.ValueMappingResult("-", color=style.PLAIN, index=0)})
    since = ValueColumn("Since", _firing_alerts([*titles]), "dateTimeFromNow", mappings=[never], width=100)
    panel = style.table_panel(PanelTitle.FIRING_ALERTS, text, units.Short, 10, 10)
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


def _firing_alerts(by: list[Label]) -> Expression:
    # `|` also matches alerts without class or model, such as that of an engine that is down
    shown = (regex(Label.MODEL, "$model|"), regex(Label.CLASS, "$class|"))
    active = select(ACTIVE_SINCE, not_equal(Label.ALERTNAME, AlertName.WATCHDOG), *shown)
    firing = min_by(_active_since(active), by)
    watchdog = select(FIRING, equal(Label.ALERTNAME, AlertName.WATCHDOG), _FIRING)
    none = with_label((0 * aggregate("group", watchdog)).unless(firing, on()), Label.SEVERITY, "none")
    no_data = with_label(0 * call("absent", watchdog), Label.SEVERITY, "no data")
    return firing.or_(none).or_(min_by(no_data, by))


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
