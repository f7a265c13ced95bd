"""Each rule against a panel that breaks it, and against the committed dashboards."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from dashboards.command import GENERATED
from dashboards.live.reader import read_dashboards
from tests.dashboards import grafana_rules as rules
from tests.dashboards.grafana_rules import Rule
from tests.dashboards.preview.sample_dashboard import GREEN, RED, config, fixed, override, panel, thresholds

SHIPPED = read_dashboards(GENERATED)


def page(*panels: Mapping[str, Any], annotations: Iterable[Mapping[str, Any]] = ()) -> rules.Page:
    return {"uid": "made", "panels": panels, "annotations": {"list": [*annotations]}}


def on(kind: str, *queries: str, legend: str = "", **fields: Any) -> Any:
    """A page with one panel; the keyword arguments are the defaults of its fields."""
    return page(panel(kind, "P", *queries or ("x",), legend=legend, fieldConfig=config(**fields)))


def table(*overrides: dict[str, Any], query: str = "x", **fields: Any) -> Any:
    return page(panel("table", "P", query, fieldConfig=config(*overrides, **fields)))


def graph(sort_by: str | None = None) -> Any:
    """A graph with a series for each class."""
    options = {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["max"], "sortBy": sort_by}}
    return page(panel("timeseries", "P", "x", legend="{{class}}", options=options))


def ranked(*fields: str, form: str = "table") -> Any:
    """A stat panel whose rows are sorted by these fields, one after the other."""
    made = panel("stat", "P", "x", legend="{{engine}}", options={"reduceOptions": {"values": True}})
    made["targets"][0]["format"] = form
    return page(
        {**made, "transformations": [{"id": "sortBy", "options": {"sort": [{"field": each}]}} for each in fields]}
    )


def columns(*widths: int | None, wide: int = 24) -> Any:
    """A table with columns of these widths, named by letters; None is a column without one."""
    overrides = [
        override("byName", name, displayName=name, **({"custom__width": width} if width else {}))
        for name, width in zip("abc", widths, strict=False)
    ]
    organize = {"id": "organize", "options": {"indexByName": {name: at for at, name in enumerate("abc")}}}
    table = panel("table", "P", "x", fieldConfig=config(*overrides), transformations=[organize])
    return page({**table, "gridPos": {"w": wide}})


def absent(match: str = "null+nan") -> list[dict[str, Any]]:
    return [{"type": "special", "options": {"match": match, "result": {"text": "no traffic"}}}]


def with_text_column(**settings: Any) -> Any:
    """A stat panel of dates whose rows are named by an engine."""
    organize = {"id": "organize", "options": {"indexByName": {"engine": 0, "Value": 1}, "excludeByName": {}}}
    fields = config(override("byName", "engine", **settings), unit="dateTimeAsIso", mappings=absent())
    return page(panel("stat", "P", "x", fieldConfig=fields, transformations=[organize]))


VERDICTS = thresholds(RED, (0.9, GREEN))

BROKEN: list[tuple[Rule, Any]] = [
    (rules.texts_have_no_text_for_absence, with_text_column(mappings=[])),
    (
        rules.ages_durations_and_counts_are_wide,
        table(override("byName", "Value", unit="dateTimeFromNow", custom__width=105)),
    ),
    (rules.durations_have_one_unit, table(override("byName", "Value", unit="ms"))),
    (rules.durations_have_one_unit, page(panel("heatmap", "P", "x", options={"yAxis": {"unit": "s"}}))),
    (rules.axes_of_zeros_are_short, on("timeseries", min=0)),
    (
        rules.shares_have_the_whole_scale,
        page(panel("heatmap", "P", "x", options={"cellValues": {"unit": "percentunit"}})),
    ),
    (rules.legends_are_low, graph()),
    (rules.windows_are_named, on("stat", "rate(x[$__rate_interval])")),
    (rules.windows_are_named, on("stat", "sum_over_time(rate(x[$__rate_interval])[$__range:])", legend="1 min")),
    (rules.absence_claims_no_cause, on("stat", noValue="no traffic")),
    (rules.variables_fit_one_line, {**page(), "templating": {"list": 12 * [{"name": "variable-1"}]}}),
    (rules.counts_keep_their_digits, on("stat", unit="short", decimals=0)),
    (rules.counts_keep_their_digits, table(override("byName", "Value", unit="short", decimals=0))),
    (rules.columns_fit_a_small_screen, columns(150, 150, 150, wide=6)),
    (rules.columns_fit_a_small_screen, columns(18, None, None)),
    (rules.columns_fill_a_large_screen, columns(150, 150, 150)),
    (rules.headings_are_capitalised, table(override("byName", "Value", displayName="before"))),
    (rules.absence_has_no_verdict, on("stat", thresholds=VERDICTS)),
    (rules.absence_has_no_verdict, on("stat", color=fixed(GREEN))),
    (rules.absence_in_a_table_has_no_verdict, table(override("byName", "Value", thresholds=VERDICTS))),
    (rules.nan_in_a_table_has_a_text, table(noValue="no traffic")),
    (rules.nan_in_a_table_has_a_text, table(override("byName", "Value #A", mappings=[]), mappings=absent())),
    (rules.tables_are_sorted, table()),
    (
        rules.missing_cells_of_a_matrix_are_null,
        page(panel("table", "P", transformations=[{"id": "groupingToMatrix", "options": {}}])),
    ),
    (rules.several_values_are_sorted, on("bargauge", "sum by (class) (x)", legend="{{class}}")),
    (rules.several_values_are_sorted, ranked("Value", "engine")),
    (rules.several_values_are_sorted, ranked("engine", "Value", form="time_series")),
    (rules.long_legends_are_sorted, graph()),
    (rules.long_legends_are_sorted, graph(sort_by="Mean")),
    (rules.bar_gauges_start_at_zero, on("bargauge")),
    (rules.bar_gauges_name_a_single_bar, on("bargauge", legend="{{tenant}}")),
    (rules.numbers_are_not_filterable, table(custom={"filterable": True})),
    (rules.numbers_are_not_filterable, table(override("byName", "Value", unit="s", custom__filterable=True))),
    (rules.units_are_readable, on("timeseries", unit="cps")),
    (rules.counts_have_no_decimals, on("stat", "sum(increase(x[5m]))", unit="short")),
    (
        rules.counts_have_no_decimals,
        table(override("byName", "Value", unit="short"), query="increase(x[5m])", unit="s"),
    ),
    (rules.titles_are_short_nouns, page(panel("row", "What the engine does"))),
    (rules.titles_are_short_nouns, page(panel("stat", "Time to the first token of requests"))),
    (rules.several_values_have_a_text_size, on("stat", legend="{{class}}")),
    (rules.load_tests_are_on_their_own_board, page(annotations=[{"name": "Load tests"}])),
    (rules.annotations_are_marks, page(annotations=[{"name": "Pages", "expr": "x"}])),
    (rules.annotations_are_marks, page(annotations=[{"name": "Pages", "expr": "x unless x offset 15s"}])),
    (
        rules.logarithmic_axes_have_no_text_for_null,
        on("timeseries", noValue="no traffic", custom={"scaleDistribution": {"type": "symlog"}}),
    ),
    (
        rules.dotted_lines_are_visible,
        page(
            panel("timeseries", "P", fieldConfig=config(override("byRegexp", "x", custom__lineStyle={"fill": "dot"})))
        ),
    ),
]


@pytest.mark.parametrize("rule, broken", BROKEN)
def test_a_rule_reports_each_fault(rule: Rule, broken: rules.Page) -> None:
    assert len(rule(broken)) == 1


@pytest.mark.parametrize("rule", dict(BROKEN), ids=lambda rule: rule.__name__)
def test_no_committed_dashboard_breaks_a_rule(rule: Rule) -> None:
    assert {name: faults for name, dashboard in SHIPPED.items() if (faults := rule(dashboard))} == {}
