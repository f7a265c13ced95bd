"""House defaults: every panel has a unit, a description, a datasource, and looks and reads like its neighbours."""

import re
from typing import TypeVar

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as model

from exporters.signals import OTHER, Label, Outcome
from exporters.slos import SloFile

DATASOURCE = looks.DataSourceRef(type_val="prometheus", uid="${datasource}")
SELECTED = {Label.MODEL: "$model", Label.CLASS: "$class"}
"""What the variables at the top have chosen; the values are patterns."""

MAY_BE_EMPTY = "May be empty: "
"""Opens the sentence of a description that says when no data is no fault; `dashboards audit` reads it."""

NO_TRAFFIC = "no traffic"

# The palette of Okabe and Ito, told apart by the colour-blind; one meaning each, on every dashboard.
GOOD, WARN, BAD, PLAIN = "#009E73", "#E69F00", "#D55E00", "text"
BLUE, SKY, PINK, YELLOW, GREY = "#0072B2", "#56B4E9", "#CC79A7", "#F0E442", "#999999"

OUTCOME_COLOURS = {
    Outcome.OK: GOOD,
    Outcome.CLIENT_ABORT: PINK,
    Outcome.CLIENT_ERROR: GREY,
    Outcome.REJECTED: YELLOW,
    Outcome.TIMEOUT_FIRST_TOKEN: WARN,
    Outcome.TIMEOUT_IDLE: "#B8860B",
    Outcome.TRUNCATED: SKY,
    Outcome.UPSTREAM_ERROR: BAD,
    Outcome.UPSTREAM_UNREACHABLE: "#8B2500",
}
EVENT_COLOURS = {"Config flips": PINK, "Engine starts": SKY, "Alerts firing": BAD, "Load tests": GREY}

_CLASS_COLOURS = (BLUE, WARN, GOOD, PINK, SKY, BAD, YELLOW)
"""Of the classes of the SLO file, in their order; `other` is grey."""


_Panel = TypeVar("_Panel", stat.Panel, bargauge.Panel, timeseries.Panel)


def query(expression: str, legend: str, *, instant: bool = False) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(expression).legend_format(legend).datasource(DATASOURCE)
    return target.instant() if instant else target.range()


def thresholds(base: str, *steps: tuple[float, str]) -> dashboard.ThresholdsConfig:
    """`base` below the first step, then each colour from its value on."""
    return (
        dashboard.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps([model.Threshold(None, base), *(model.Threshold(value, colour) for value, colour in sorted(steps))])
    )


def colour_by(mode: model.FieldColorModeId) -> dashboard.FieldColor:
    return dashboard.FieldColor().mode(mode)


def describe(question: str, reading: str, *, may_be_empty: str | None = None) -> str:
    return f"{question} {reading}" + (f" {MAY_BE_EMPTY}{may_be_empty}." if may_be_empty else "")


def _framed(panel: _Panel, title: str, description: str, unit: str, width: int, height: int) -> _Panel:
    """What every panel has, whatever it draws."""
    return panel.title(title).description(description).datasource(DATASOURCE).unit(unit).span(width).height(height)


def figure(title: str, description: str, unit: str, width: int, height: int = 7) -> stat.Panel:
    """The last value of each series, large."""
    return (
        _framed(stat.Panel(), title, description, unit, width, height)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .text_mode(looks.BigValueTextMode.VALUE_AND_NAME)
        .graph_mode(looks.BigValueGraphMode.NONE)
        .color_mode(looks.BigValueColorMode.VALUE)
        .thresholds(thresholds(PLAIN))
    )


def bars(title: str, description: str, unit: str, width: int, height: int = 7) -> bargauge.Panel:
    """The last value of each series as a bar."""
    return (
        _framed(bargauge.Panel(), title, description, unit, width, height)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .orientation(looks.VizOrientation.HORIZONTAL)
        .display_mode(looks.BarGaugeDisplayMode.BASIC)
    )


def graph(title: str, description: str, unit: str, width: int, height: int = 9) -> timeseries.Panel:
    """Lines over time from zero up; the legend lists the last and the greatest value."""
    return (
        _framed(timeseries.Panel(), title, description, unit, width, height)
        .min(0)
        .line_width(1)
        .fill_opacity(0)
        .show_points(looks.VisibilityMode.NEVER)
        # by name: a class keeps its colour from panel to panel
        .color_scheme(colour_by(model.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(looks.LegendDisplayMode.TABLE)
            .placement(looks.LegendPlacement.BOTTOM)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.DESCENDING))
    )


def with_lines(panel: timeseries.Panel, *lines: tuple[float, str]) -> timeseries.Panel:
    """Draw each value as a dashed line across the panel."""
    dashed = common.GraphThresholdsStyleConfig().mode(looks.GraphThresholdsStyleMode.DASHED)
    return panel.thresholds(thresholds("transparent", *lines)).thresholds_style(dashed)


def stacked(panel: timeseries.Panel) -> timeseries.Panel:
    stack = common.StackingConfig().mode(looks.StackingMode.NORMAL).group("A")
    return panel.stacking(stack).fill_opacity(40).line_width(0)


def by_class(panel: _Panel, spec: SloFile) -> _Panel:
    """Each class in its own colour, on every dashboard the same; the legend starts with the class."""
    for name, colour in zip(spec.class_names, _class_colours(spec), strict=True):
        panel.override_by_regexp(f"/^{re.escape(name)}\\b/", [fixed(colour)])
    return panel


def by_outcome(panel: _Panel) -> _Panel:
    """Each outcome in its own colour; the legend is the outcome."""
    for outcome, colour in OUTCOME_COLOURS.items():
        panel.override_by_name(outcome, [fixed(colour)])
    return panel


def fixed(colour: str) -> model.DynamicConfigValue:
    return model.DynamicConfigValue("color", {"fixedColor": colour, "mode": "fixed"})


def _class_colours(spec: SloFile) -> list[str]:
    named = [_CLASS_COLOURS[index % len(_CLASS_COLOURS)] for index in range(len(spec.class_names) - 1)]
    return [*named, GREY] if spec.class_names[-1] == OTHER else named
