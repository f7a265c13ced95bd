"""Defaults of panels: unit, description, data source, and colours that have one meaning on every dashboard."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from grafana_foundation_sdk.builders import bargauge, common, dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode, HeatmapColorScale

from alerts.promql.build import Series, aggregate, vector
from alerts.promql.expression import Expression
from dashboards.live.reader import MAY_BE_EMPTY
from exporters.engines.condition.rule import State
from exporters.vocabulary.signals import OTHER, Outcome
from exporters.vocabulary.slo_file import SloFile

DATASOURCE = common_model.DataSourceRef(type_val="prometheus", uid="${datasource}")
NO_TRAFFIC = "no traffic"

PER_SECOND = "suffix:/s"
"""The unit of rates of what the title names."""

COUNT = "locale"
"""The unit of counts, such as 1,541; `short` without decimals prints it as 2 K. The SDK does not list it."""

MILLISECONDS, SECONDS, MINUTES, DAYS = "suffix:ms", "suffix:s", "suffix:min", "suffix:d"
"""Units of durations: one unit in a panel. Those of Grafana change with the value, and print 100 s as 1.67 mins."""

DATE, AGE = units.DatetimeISO, units.DateTimeFromNow

CURRENCY = "currency:¤"
"""The unit of costs: the currency of the prices, which no flag names."""

LAST_MINUTE = "1 min"
"""The window of rates of `over_last_minute`, as titles and headings name it."""

# Each has a contrast of 3:1 to the panel in light and in dark mode; those of one panel are distinguishable with colour
# blindness.
GOOD, WARN, BAD, PLAIN = "#009E73", "#C48600", "#CC3D00", "text"
BLUE, SKY, PINK, VIOLET, GREY = "#2266CC", "#3399CC", "#E055B8", "#8844FF", "#929292"

# Colours from few to many requests or failures; visible in dark and light mode.
# Below an opacity of 30 % Grafana writes on a cell in the colour of the theme, above it nearly always in white.
BLUES, REDS = (tuple(f"{colour}{alpha}" for alpha in ("1C", "33", "4B", "FF")) for colour in (BLUE, BAD))

VERDICT_COLOURS = {"good": GOOD, "bad": BAD, "abandoned": GREY}
OUTCOME_COLOURS: Mapping[str, str] = {
    Outcome.OK: GOOD,
    Outcome.CLIENT_ABORT: PINK,
    Outcome.CLIENT_ERROR: GREY,
    Outcome.REJECTED: VIOLET,
    Outcome.TIMEOUT_FIRST_TOKEN: WARN,
    Outcome.TIMEOUT_IDLE: "#9944BB",
    Outcome.TIMEOUT_TOTAL: "#8A6A4F",
    Outcome.TRUNCATED: SKY,
    Outcome.UPSTREAM_ERROR: BAD,
    Outcome.UPSTREAM_UNREACHABLE: "#7788FF",
}
ENGINE_STATE_COLOURS: Mapping[str, str] = {
    State.DOWN: BAD,
    State.WEDGED: "#FF4D7F",
    State.PAUSED: VIOLET,
    State.STARTING: SKY,
    State.SATURATED: WARN,
    State.SERVING: GOOD,
}
"""Colours of engine states, the most urgent first."""
ENGINE_STATE_MAPPINGS: list[model.ValueMapping] = [
    model.ValueMap(
        {str(code): model.ValueMappingResult(state, index=code) for code, state in enumerate(ENGINE_STATE_COLOURS)}
    )
]
"""Text and colour of the number of a state in that order."""
ANNOTATION_COLOURS = {
    "Config changes": PINK,
    "Engine starts": SKY,
    "Engine states": VIOLET,
    "Pages": BAD,
    "Tickets": WARN,
    "Load tests": GREY,
}

CLASS_COLOURS = ("#2660FF", "#776633", "#B41DBF", "#9F82D9", "#A64B81", "#888844")
"""Colours of classes in the order of the SLO file, the most different first; none is red or green.

With a contrast of 3:1 in both themes, no more colours differ with colour blindness: further classes repeat them in
thicker lines, because dashes are the SLOs of a class.
"""

_UNBOUNDED = re.compile(r"\{\{(engine|instance|upstream|Hostname)\}\}")
"""A label in a legend that has as many values as the fleet has processes."""

_SMALL_RATES = frozenset({PER_SECOND, *(f"{counted}/s" for counted in ("errors", "failures", "messages", "spans"))})
"""Units of rates that are usually 0."""


Query: TypeAlias = tuple[Expression | Series, str]
"""An expression and the legend of its series."""

ColouredQuery: TypeAlias = tuple[Expression | Series, str, str]
"""A query of one series, and the colour of it."""

_Panel = TypeVar("_Panel", stat.Panel, bargauge.Panel, heatmap.Panel, table.Panel, timeseries.Panel)
_GraphPanel = TypeVar("_GraphPanel", heatmap.Panel, timeseries.Panel)
_PointPanel = TypeVar("_PointPanel", stat.Panel, table.Panel)


DOTTED = [
    model.DynamicConfigValue("custom.lineStyle", {"fill": "dot", "dash": [0, 6]}),
    # dots of one pixel are invisible
    model.DynamicConfigValue("custom.lineWidth", 2),
]
"""The settings of a dotted line."""

TEXT = [
    model.DynamicConfigValue("unit", units.String),
    model.DynamicConfigValue("mappings", []),
    model.DynamicConfigValue("noValue", "-"),
]
"""The settings of a column of text: with the unit of a date, Grafana reads a text as NaN, which a mapping replaces."""


def query(expression: Expression | Series, legend: str, *, instant: bool = False) -> prometheus.Dataquery:
    """`dashboards.grafana.layout` prints the expression, which follows the variables of the dashboard."""
    target = prometheus.Dataquery().legend_format(legend).datasource(DATASOURCE)
    target.expr(vector(expression))  # type: ignore[arg-type] # printed with the dashboard
    return target.instant() if instant else target.range()


def _add_queries(panel: _Panel, queries: Iterable[Query | ColouredQuery], *, instant: bool) -> None:
    for expression, legend, *colours in queries:
        panel.with_target(query(expression, legend, instant=instant))
        for colour in colours:
            panel.override_by_name(legend, [fixed_colour(colour)])


def thresholds(base: str, *steps: tuple[float, str]) -> dashboard.ThresholdsConfig:
    """`base` below the first step, then the colour of each step."""
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


def absence(text: str, colour: str = PLAIN) -> model.SpecialValueMap:
    """Shows missing values as `text` in a neutral colour; a `noValue` alone has the colour of the lowest threshold."""
    result = model.ValueMappingResult(text, color=colour, index=0)
    missing = model.SpecialValueMatch.NULL_AND_NAN
    return model.SpecialValueMap(model.DashboardSpecialValueMapOptions(missing, result))


def _with_common_options(
    panel: _Panel, title: str, description: str, unit: str, width: int, height: int, may_be_empty: str = ""
) -> _Panel:
    """`may_be_empty` is the reason why the panel may be empty."""
    text = describe(description, may_be_empty=may_be_empty) if may_be_empty else description
    return panel.title(title).description(text).datasource(DATASOURCE).unit(unit).span(width).height(height)


def stat_panel(
    title: str,
    description: str,
    unit: str,
    width: int,
    height: int = 7,
    *queries: Query | ColouredQuery,
    may_be_empty: str = "",
    decimals: int | None = None,
    base: str = PLAIN,
    steps: tuple[tuple[float, str], ...] = (),
) -> stat.Panel:
    """The last value of each series as text of one size, so that several series remain readable."""
    panel = (
        _with_common_options(stat.Panel(), title, description, unit, width, height, may_be_empty)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .text_mode(common_model.BigValueTextMode.VALUE_AND_NAME)
        .graph_mode(common_model.BigValueGraphMode.NONE)
        .text(text_size(24))
        .color_mode(common_model.BigValueColorMode.VALUE)
        .thresholds(thresholds(base, *steps))
    )
    _add_queries(panel, queries, instant=True)
    if decimals is not None:
        panel.decimals(decimals)
    return panel


def below_each_other(panel: stat.Panel) -> stat.Panel:
    """One value below the other, where values side by side do not fit or have different sizes."""
    return panel.orientation(common_model.VizOrientation.HORIZONTAL)


def yes_and_no(
    title: str, description: str, series: Expression, names: tuple[str, str], width: int, height: int
) -> stat.Panel:
    """The number of series that are 1, and of those that are 0: the names of a fleet would not fit."""
    yes, no = aggregate("sum", series), aggregate("count", series) - aggregate("sum", series)
    values = zip((yes, no), names, strict=True)
    panel = below_each_other(stat_panel(title, description, COUNT, width, height, *values, decimals=0))
    for name, base, step in zip(names, (BAD, PLAIN), (GOOD, BAD), strict=True):
        panel.override_by_name(name, [model.DynamicConfigValue("thresholds", thresholds(base, (1, step)).build())])
    return panel


def bar_gauge_panel(title: str, description: str, unit: str, width: int, height: int = 7) -> bargauge.Panel:
    """Horizontal bars from 0; `dashboards.grafana.ranking` adds them."""
    return (
        _with_common_options(bargauge.Panel(), title, description, unit, width, height)
        .orientation(common_model.VizOrientation.HORIZONTAL)
        .name_placement(common_model.BarGaugeNamePlacement.LEFT)
        .display_mode(common_model.BarGaugeDisplayMode.BASIC)
        .min(0)
    )


def ratio_bars_panel(
    title: str, description: str, width: int, *steps: tuple[float, str], height: int = 7
) -> bargauge.Panel:
    """Bars from 0 to 100 %, coloured by `steps`."""
    panel = bar_gauge_panel(title, description, units.PercentUnit, width, height)
    return panel.max(1).decimals(1).thresholds(thresholds(BAD, *steps))


def time_series_panel(
    title: str,
    description: str,
    unit: str,
    width: int,
    *lines: Query | ColouredQuery,
    height: int = 9,
    signed: bool = False,
    may_be_empty: str = "",
) -> timeseries.Panel:
    """Lines over time, starting at 0 unless `signed`; the legend of a wide panel has the greatest value of each.

    A line without a fixed colour is between blue and purple, the higher its maximum in the panel the more purple: right
    for any number of names, and neither red nor green. A legend of engines or sidecars would cover the graph, so the
    tooltip has their names; `ranked_legend` lists them beside a wide graph.
    """
    panel = _with_common_options(timeseries.Panel(), title, description, unit, width, height, may_be_empty)
    _add_queries(panel, lines, instant=False)
    if not signed:
        # an axis of zeros would end at 100
        panel.min(0).axis_soft_max(0.1 if unit in _SMALL_RATES else 1)
    return (
        panel.line_width(1)
        .fill_opacity(0)
        .show_points(common_model.VisibilityMode.NEVER)
        .color_scheme(colour_mode(model.FieldColorModeId.CONTINUOUS_BL_PU).series_by(model.FieldColorSeriesByMode.MAX))
        .legend(
            common.VizLegendOptions().show_legend(False)
            if any(_UNBOUNDED.search(name) for _, name, *_ in lines)
            else legend(*(("max",) if width >= 12 else ()))
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_model.TooltipDisplayMode.MULTI)
            .sort(common_model.SortOrder.DESCENDING)
        )
    )


def ratio_panel(
    title: str, description: str, width: int, *lines: Query, height: int = 9, may_be_empty: str = ""
) -> timeseries.Panel:
    """Lines over time from 0 to 100 %."""
    return time_series_panel(
        title, description, units.PercentUnit, width, *lines, height=height, may_be_empty=may_be_empty
    ).max(1)


def logarithmic(panel: timeseries.Panel) -> timeseries.Panel:
    return panel.scale_distribution(common.ScaleDistributionConfig().type(common_model.ScaleDistribution.LOG).log(10))


def show_names(panel: stat.Panel) -> stat.Panel:
    """Show the names of the series instead of their values; a name is longer than a number."""
    return panel.text_mode(common_model.BigValueTextMode.NAME).text(text_size(14))


def text_size(of_values: int, of_titles: int = 14) -> common.VizTextDisplayOptions:
    return common.VizTextDisplayOptions().title_size(of_titles).value_size(of_values)


def legend(*calcs: str) -> common.VizLegendOptions:
    """Names beside each other, with the given calculations: a table would have a row for each."""
    names = common.VizLegendOptions().show_legend(True).display_mode(common_model.LegendDisplayMode.LIST)
    return names.placement(common_model.LegendPlacement.BOTTOM).calcs(list(calcs))


def ranked_legend(calc: str, heading: str, *, descending: bool = True) -> common.VizLegendOptions:
    """A row for each of many series beside the graph, the one with the most trouble first."""
    rows = common.VizLegendOptions().show_legend(True).display_mode(common_model.LegendDisplayMode.TABLE)
    return rows.placement(common_model.LegendPlacement.RIGHT).calcs([calc]).sort_by(heading).sort_desc(descending)


def heatmap_panel(
    title: str, description: str, unit: str, per_cell: str, width: int, height: int = 9, *, may_be_empty: str = ""
) -> heatmap.Panel:
    """A histogram over time; `unit` is that of the buckets, `per_cell` that of their values. Shares are from 0 to 1."""
    # Cividis is safe for colour blindness; the square root keeps a few slow requests visible next to many fast ones
    colours = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Cividis").steps(64)
    if per_cell == units.PercentUnit:
        colours.min(0).max(1)
    return (
        limit_points(_with_common_options(heatmap.Panel(), title, description, unit, width, height, may_be_empty))
        .calculate(False)
        .color(colours.scale(HeatmapColorScale.EXPONENTIAL).exponent(0.5))
        .show_value(common_model.VisibilityMode.NEVER)
        .y_axis(heatmap.YAxisConfig().unit(unit).axis_placement(common_model.AxisPlacement.LEFT))
        .cell_values(heatmap.CellValues().unit(per_cell))
        .exemplars_color(PINK)
        .show_legend()
    )


def table_panel(
    title: str, description: str, unit: str, width: int, height: int = 9, *, may_be_empty: str = ""
) -> table.Panel:
    """A table without columns; `dashboards.grafana.tables` adds them. A missing value in a row is a dash."""
    panel = _with_common_options(table.Panel(), title, description, unit, width, height, may_be_empty)
    return panel.min_width(60).mappings([absence("-")])


def with_threshold_lines(panel: timeseries.Panel, *lines: tuple[float, str]) -> timeseries.Panel:
    """Draw each value as a dashed line across the panel."""
    dashed = common.GraphThresholdsStyleConfig().mode(common_model.GraphThresholdsStyleMode.DASHED)
    return panel.thresholds(thresholds("transparent", *lines)).thresholds_style(dashed)


def limit_points(panel: _GraphPanel, points: int = 120) -> _GraphPanel:
    """Limits a graph to one point each 30 s in an hour; a rate covers more than a step, so no event is lost."""
    return panel.max_data_points(points)


def over_last_minute(panel: _PointPanel) -> _PointPanel:
    """Rates over a minute in a time range of up to a week: a step would be longer with fewer points."""
    return panel.interval("1m").max_data_points(11_000)


def stack(panel: timeseries.Panel) -> timeseries.Panel:
    stack = common.StackingConfig().mode(common_model.StackingMode.NORMAL).group("A")
    # the edge has the contrast that the area does not have
    return panel.stacking(stack).fill_opacity(40).line_width(1)


def hide_zero_series(panel: timeseries.Panel) -> timeseries.Panel:
    """Hide a class, an outcome or a reason that is 0 over the whole time range."""
    all_zero = model.MatcherConfig("byValue", {"reducer": "allIsZero", "op": "gte", "value": 0})
    hidden = {"legend": True, "tooltip": True, "viz": True}
    return panel.with_override(all_zero, [model.DynamicConfigValue("custom.hideFrom", hidden)])


def colour_by_class(panel: _Panel, spec: SloFile) -> _Panel:
    """Give each class its own colour, or a thicker line of it; the legend is the class, or starts with it."""
    for name, (colour, width) in class_lines(spec.class_names).items():
        properties = [fixed_colour(colour)]
        if width > 1:
            properties.append(model.DynamicConfigValue("custom.lineWidth", width))
        panel.override_by_regexp(f"/^{re.escape(name)}( |$)/", properties)
    return panel


def class_lines(names: Sequence[str]) -> dict[str, tuple[str, int]]:
    """The colour and the width in pixels of the line of each class."""
    lines = {
        name: (CLASS_COLOURS[index % len(CLASS_COLOURS)], 1 + 2 * (index // len(CLASS_COLOURS)))
        for index, name in enumerate(names)
    }
    return {**lines, OTHER: (GREY, 1)} if OTHER in lines else lines


def colour_by_name(panel: _Panel, colours: Mapping[str, str]) -> _Panel:
    """Give each name its own colour; the legend is the name, such as an outcome."""
    for name, colour in colours.items():
        panel.override_by_name(name, [fixed_colour(colour)])
    return panel


def fixed_colour(colour: str) -> model.DynamicConfigValue:
    return model.DynamicConfigValue("color", {"fixedColor": colour, "mode": "fixed"})
