"""Defaults of panels: each has a unit, a description, a data source, and the same colours for the same meaning."""

import re
from typing import TypeVar

from grafana_foundation_sdk.builders import bargauge, common, dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode, HeatmapColorScale

from exporters.signals import OTHER, Label, Outcome
from exporters.slos import SloFile

DATASOURCE = common_model.DataSourceRef(type_val="prometheus", uid="${datasource}")
MODEL_AND_CLASS = {Label.MODEL: "$model", Label.CLASS: "$class"}
"""The matchers of the variables `model` and `class`; their values are patterns."""

MAY_BE_EMPTY = "May be empty: "
"""Starts the sentence of a description that says when no data is no fault; `dashboards audit` reads it."""

NO_TRAFFIC = "no traffic"

# The palette of Okabe and Ito, distinguishable by the colour-blind; one meaning each, on every dashboard.
GOOD, WARN, BAD, PLAIN = "#009E73", "#E69F00", "#D55E00", "text"
BLUE, SKY, PINK, YELLOW, GREY = "#0072B2", "#56B4E9", "#CC79A7", "#F0E442", "#999999"

# From few to many requests or failures: shades that are visible on dark and light pages.
BLUES, REDS = (tuple(f"{colour}{alpha}" for alpha in ("26", "59", "99", "FF")) for colour in (BLUE, BAD))

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
UP_DOWN_MAPPINGS: list[model.ValueMapping] = [
    model.ValueMap({"0": model.ValueMappingResult("down", index=0), "1": model.ValueMappingResult("up", index=1)})
]
ANNOTATION_COLOURS = {"Config changes": PINK, "Engine starts": SKY, "Pages": BAD, "Tickets": WARN, "Load tests": GREY}

CLASS_COLOURS = ("#4477AA", "#CCBB44", "#AA3377", "#66CCEE", "#997700", "#FFAABB")
"""Of the classes of the SLO file, in their order; `other` is grey. By Paul Tol; none of them means good or bad."""


_Panel = TypeVar("_Panel", stat.Panel, bargauge.Panel, heatmap.Panel, table.Panel, timeseries.Panel)


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


def colour_mode(mode: model.FieldColorModeId) -> dashboard.FieldColor:
    return dashboard.FieldColor().mode(mode)


def describe(text: str, *, may_be_empty: str) -> str:
    """The description of a panel that may be empty, with the reason."""
    return f"{text} {MAY_BE_EMPTY}{may_be_empty}."


def _with_common_options(panel: _Panel, title: str, description: str, unit: str, width: int, height: int) -> _Panel:
    """The options that every panel has."""
    return panel.title(title).description(description).datasource(DATASOURCE).unit(unit).span(width).height(height)


def stat_panel(title: str, description: str, unit: str, width: int, height: int = 7) -> stat.Panel:
    """The last value of each series, large."""
    return (
        _with_common_options(stat.Panel(), title, description, unit, width, height)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .text_mode(common_model.BigValueTextMode.VALUE_AND_NAME)
        .graph_mode(common_model.BigValueGraphMode.NONE)
        .color_mode(common_model.BigValueColorMode.VALUE)
        .thresholds(thresholds(PLAIN))
    )


def bar_gauge_panel(title: str, description: str, unit: str, width: int, height: int = 7) -> bargauge.Panel:
    """The last value of each series as a bar."""
    return (
        _with_common_options(bargauge.Panel(), title, description, unit, width, height)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .orientation(common_model.VizOrientation.HORIZONTAL)
        .display_mode(common_model.BarGaugeDisplayMode.BASIC)
    )


def time_series_panel(
    title: str, description: str, unit: str, width: int, height: int = 9, *, signed: bool = False
) -> timeseries.Panel:
    """Lines over time, from zero up unless `signed`; the legend lists the last and the greatest value."""
    panel = _with_common_options(timeseries.Panel(), title, description, unit, width, height)
    return (
        (panel if signed else panel.min(0))
        .line_width(1)
        .fill_opacity(0)
        .show_points(common_model.VisibilityMode.NEVER)
        # by name: a class keeps its colour from panel to panel
        .color_scheme(colour_mode(model.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
        .legend(table_legend(common_model.LegendPlacement.BOTTOM, "lastNotNull", "max"))
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_model.TooltipDisplayMode.MULTI)
            .sort(common_model.SortOrder.DESCENDING)
        )
    )


def ratio_panel(title: str, description: str, width: int, height: int = 9) -> timeseries.Panel:
    """Lines over time from 0 to 100 %."""
    return time_series_panel(title, description, units.PercentUnit, width, height).max(1)


def table_legend(placement: common_model.LegendPlacement, *calcs: str) -> common.VizLegendOptions:
    """A row a series, with these calculations of its values."""
    table = common.VizLegendOptions().show_legend(True).display_mode(common_model.LegendDisplayMode.TABLE)
    return table.placement(placement).calcs(list(calcs))


def heatmap_panel(title: str, description: str, unit: str, per_cell: str, width: int, height: int = 9) -> heatmap.Panel:
    """A histogram over time: a cell is a bucket (of `unit`) at a time, the brighter the more (`per_cell`) is in it."""
    # Cividis looks the same to the colour-blind; the root keeps a few slow requests visible beside many fast ones
    colours = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Cividis").steps(64)
    return (
        _with_common_options(heatmap.Panel(), title, description, unit, width, height)
        .calculate(False)
        .color(colours.scale(HeatmapColorScale.EXPONENTIAL).exponent(0.5))
        .show_value(common_model.VisibilityMode.NEVER)
        .y_axis(heatmap.YAxisConfig().unit(unit).axis_placement(common_model.AxisPlacement.LEFT))
        .cell_values(heatmap.CellValues().unit(per_cell))
        .exemplars_color(PINK)
        .show_legend()
    )


def table_panel(title: str, description: str, unit: str, width: int, height: int = 9) -> table.Panel:
    """A table without columns; `dashboards.tables` adds them."""
    return _with_common_options(table.Panel(), title, description, unit, width, height).min_width(60).filterable(True)


def with_threshold_lines(panel: timeseries.Panel, *lines: tuple[float, str]) -> timeseries.Panel:
    """Draw each value as a dashed line across the panel."""
    dashed = common.GraphThresholdsStyleConfig().mode(common_model.GraphThresholdsStyleMode.DASHED)
    return panel.thresholds(thresholds("transparent", *lines)).thresholds_style(dashed)


def stack(panel: timeseries.Panel) -> timeseries.Panel:
    stack = common.StackingConfig().mode(common_model.StackingMode.NORMAL).group("A")
    return panel.stacking(stack).fill_opacity(40).line_width(0)


def colour_by_class(panel: _Panel, spec: SloFile) -> _Panel:
    """Each class in its own colour, on every dashboard the same; the legend is the class, or starts with it."""
    for name, colour in zip(spec.class_names, _class_colours(spec), strict=True):
        panel.override_by_regexp(f"/^{re.escape(name)}( |$)/", [fixed_colour(colour)])
    return panel


def colour_by_outcome(panel: _Panel) -> _Panel:
    """Each outcome in its own colour; the legend is the outcome."""
    for outcome, colour in OUTCOME_COLOURS.items():
        panel.override_by_name(outcome, [fixed_colour(colour)])
    return panel


def fixed_colour(colour: str) -> model.DynamicConfigValue:
    return model.DynamicConfigValue("color", {"fixedColor": colour, "mode": "fixed"})


def _class_colours(spec: SloFile) -> list[str]:
    colours = [CLASS_COLOURS[index % len(CLASS_COLOURS)] for index in range(len(spec.class_names) - 1)]
    return [*colours, GREY] if spec.class_names[-1] == OTHER else colours
