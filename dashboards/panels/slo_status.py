"""Panels on the state of the SLOs: error budget, burn rate, alerts, goodput."""

from grafana_foundation_sdk.builders import bargauge, common, stat, timeseries
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import units

from alerts.alert_names import AlertName
from alerts.links import PanelTitle
from alerts.promql import select
from alerts.tiers import Severity, tiers
from dashboards import style
from dashboards.label_selectors import PER_CLASS, goodput_ratio, select_model_class
from dashboards.style import BAD, GOOD, MODEL_AND_CLASS, NO_TRAFFIC, WARN, describe, query
from exporters import signals
from exporters.quantities import number, spell_duration
from exporters.signals import FIRING, Label
from exporters.slos import SloFile

_PER_SLO = "{{slo}} {{class}}"


def budget_left() -> bargauge.Panel:
    text = (
        "How much of the error budget is left? 100 % is untouched, 0 % is spent, below that the SLO is missed for "
        "the period. With several models, the worst one."
    )
    budget = f"min by ({Label.SLO}, {Label.CLASS}) ({select_model_class(signals.SLO_BUDGET_LEFT)})"
    panel = style.ratio_bars_panel(PanelTitle.BUDGET_LEFT, text, 9, (0, WARN), (0.25, GOOD))
    return panel.with_target(query(budget, _PER_SLO, instant=True))


def goodput_now(spec: SloFile) -> stat.Panel:
    text = "Which share of requests is good for all its SLOs now? A class with no traffic has no share."
    return (
        style.stat_panel("Goodput now", text, units.PercentUnit, 5)
        .with_target(query(goodput_ratio(), PER_CLASS, instant=True))
        .decimals(1)
        .no_value(NO_TRAFFIC)
        .thresholds(style.thresholds(BAD, *goodput_limits(spec)))
    )


def burn_rate(spec: SloFile) -> timeseries.Panel:
    """The burn rate in all recorded windows."""
    # without the rescaling of tiers for low objectives
    factors = sorted(tier.factor for tier in tiers(spec.period) if tier.severity is Severity.PAGE)
    text = (
        "Is the error budget spent faster than it may be? At 1 (orange) the budget lasts exactly the period of "
        f"{spell_duration(spec.period)}. A page needs both windows of its tier above its factor (red: "
        f"{', '.join(map(number, factors))}). Above 1 the scale is logarithmic."
    )
    panel = (
        style.time_series_panel(PanelTitle.BURN_RATE, text, units.Short, 16, 10)
        .with_target(
            query(
                f"max by ({Label.SLO}, {Label.CLASS}, {Label.WINDOW}) "
                f"({select(signals.SLO_BURN_RATE, {**MODEL_AND_CLASS, Label.WINDOW: '$window'}, regex=True)})",
                f"{_PER_SLO} {{{{window}}}}",
            )
        )
        .scale_distribution(
            common.ScaleDistributionConfig().type(common_model.ScaleDistribution.SYMLOG).log(10).linear_threshold(1)
        )
        .legend(
            style.table_legend(common_model.LegendPlacement.RIGHT, "lastNotNull", "max")
            .sort_by("Last *")
            .sort_desc(True)
        )
        .no_value(NO_TRAFFIC)
    )
    return style.with_threshold_lines(panel, (1, WARN), *((factor, BAD) for factor in factors))


def firing_alerts() -> stat.Panel:
    text = describe("Which alerts fire now? Severity, name, SLO and class of each.", may_be_empty="nothing fires")
    # `|` also matches alerts without class or model, such as that of an engine that is down
    matchers = ",".join(f'{label}=~"{value}|"' for label, value in MODEL_AND_CLASS.items())
    by = f"alertname, {Label.SEVERITY}, {Label.SLO}, {Label.CLASS}"
    firing = f'count by ({by}) ({FIRING}{{alertstate="firing",alertname!="{AlertName.WATCHDOG}",{matchers}}})'
    return (
        style.stat_panel(PanelTitle.FIRING_ALERTS, text, units.Short, 8, 10)
        .with_target(query(firing, "{{severity}}: {{alertname}} {{slo}} {{class}}", instant=True))
        .text_mode(common_model.BigValueTextMode.NAME)
        .color_mode(common_model.BigValueColorMode.BACKGROUND)
        .orientation(common_model.VizOrientation.HORIZONTAL)
        .no_value("none")
        .thresholds(style.thresholds(GOOD, (1, BAD)))
    )


def goodput(spec: SloFile) -> timeseries.Panel:
    text = (
        "Which share of requests was good for all its SLOs? Beside it stand tokens and requests: a share that falls "
        "while those stay high is throughput without goodput. The lines are the lowest objective and twice its "
        f"budget; gaps are {NO_TRAFFIC}."
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
