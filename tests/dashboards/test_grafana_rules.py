"""Each rule against a panel that breaks it and one that does not, and against the committed dashboards."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from dashboards.command import GENERATED
from dashboards.live.reader import read_dashboards
from tests.dashboards import grafana_rules as rules
from tests.dashboards.grafana_rules import RULES, Rule
from tests.dashboards.preview.sample_dashboard import BLUE, GREEN, RED, config, fixed, override, panel, thresholds

SHIPPED = read_dashboards(GENERATED)


def page(*panels: Mapping[str, Any], annotations: Iterable[Mapping[str, Any]] = (), uid: str = "made") -> rules.Page:
    return {"uid": uid, "panels": panels, "annotations": {"list": [*annotations]}}


def on(kind: str, *queries: str, legend: str = "", **fields: Any) -> Any:
    """A page with one panel; the keyword arguments are the defaults of its fields."""
    return page(panel(kind, "P", *queries or ("x",), legend=legend, fieldConfig=config(**fields)))


def table(*overrides: dict[str, Any], sort_by: str = "", **fields: Any) -> Any:
    options = {"sortBy": [{"displayName": sort_by}]} if sort_by else {}
    return page(panel("table", "P", "x", options=options, fieldConfig=config(*overrides, **fields)))


def table_of(query: str, **settings: Any) -> Any:
    """A table with one column, and other settings for it than for the panel."""
    return page(panel("table", "P", query, fieldConfig=config(override("byName", "Value", **settings), unit="s")))


def graph(*queries: str, sort_by: str | None = None, mode: str = "table", legend: str = "") -> Any:
    options = {"legend": {"displayMode": mode, "calcs": ["max"], "sortBy": sort_by}}
    return page(panel("timeseries", "P", *queries or ("x",), legend=legend, options=options))


def ranked(*fields: str, legend: str = "{{engine}}", by_row: bool = True, form: str = "table") -> Any:
    """A stat panel whose rows are sorted by these fields, one after the other."""
    made = panel("stat", "P", "x", legend=legend, options={"reduceOptions": {"values": by_row}})
    made["targets"][0]["format"] = form
    return page(
        {**made, "transformations": [{"id": "sortBy", "options": {"sort": [{"field": each}]}} for each in fields]}
    )


def legend(*names: str, wide: int = 8, placement: str = "bottom", **fields: Any) -> Any:
    """A graph with a legend of two values; the names are those of its queries."""
    options = {"legend": {"displayMode": "table", "placement": placement, "calcs": ["lastNotNull", "max"]}}
    made = panel("timeseries", "P", *names, options=options, fieldConfig=config(**fields))
    for target, name in zip(made["targets"], names, strict=True):
        target["legendFormat"] = name
    return page({**made, "gridPos": {"w": wide}})


def columns(*widths: int | None, wide: int = 24, transformation: str = "organize") -> Any:
    """A table with columns of these widths, named by letters; None is a column without one."""
    overrides = [
        override("byName", name, displayName=name, **({"custom__width": width} if width else {}))
        for name, width in zip("abc", widths, strict=False)
    ]
    organize = {"id": transformation, "options": {"indexByName": {name: at for at, name in enumerate("abc")}}}
    table = panel("table", "P", "x", fieldConfig=config(*overrides), transformations=[organize])
    return page({**table, "gridPos": {"w": wide}})


def absent(match: str = "null+nan", **result: str) -> list[dict[str, Any]]:
    return [{"type": "special", "options": {"match": match, "result": {"text": "no traffic", **result}}}]


def with_text_column(**settings: Any) -> Any:
    """A stat panel of dates whose rows are named by an engine."""
    organize = {"id": "organize", "options": {"indexByName": {"engine": 0, "Value": 1}, "excludeByName": {}}}
    fields = config(override("byName", "engine", **settings), unit="dateTimeAsIso", mappings=absent())
    return page(panel("stat", "P", "x", fieldConfig=fields, transformations=[organize]))


def heatmap_of_shares(**colour: int) -> Any:
    return page(panel("heatmap", "P", "x", options={"cellValues": {"unit": "percentunit"}, "color": colour}))


def selectors(*names: str, **hide: int) -> Any:
    """A dashboard with these variables."""
    variables = [{"name": name, "label": name.capitalize(), "hide": hide.get(name, 0)} for name in names]
    return {**page(), "templating": {"list": variables}}


def annotation(name: str = "Pages", **more: Any) -> dict[str, Any]:
    return {"name": name, "expr": "x", **more}


VERDICTS = thresholds(RED, (0.9, GREEN))
NEUTRAL = thresholds("text", (0, RED), (0.9, GREEN))

BROKEN: dict[Rule, dict[str, Any]] = {
    rules.texts_have_no_text_for_absence: {
        "the unit of the panel": with_text_column(mappings=[]),
        "the mappings of the panel": with_text_column(unit="string"),
    },
    rules.ages_durations_and_counts_are_wide: {
        "an age": table(override("byName", "Value", unit="dateTimeFromNow", custom__width=105)),
        "a count without a width": table(override("byName", "Value", unit="locale")),
    },
    rules.durations_have_one_unit: {
        "the panel": on("timeseries", unit="s"),
        "a column": table(override("byName", "Value", unit="ms")),
        "an axis": page(panel("heatmap", "P", "x", options={"yAxis": {"unit": "s"}})),
    },
    rules.axes_of_zeros_are_short: {
        "no soft maximum": on("timeseries", min=0),
        "a soft maximum of 100": on("timeseries", min=0, custom={"axisSoftMax": 100}),
    },
    rules.shares_have_the_whole_scale: {
        "by the data": heatmap_of_shares(),
        "up to 5 %": heatmap_of_shares(min=0, max=5),
    },
    rules.legends_are_low: {"a table": legend("{{class}}")},
    rules.windows_are_named: {
        "a rate": on("stat", "rate(x[$__rate_interval])"),
        "a total": on("stat", "increase(x[$__range])", legend="1 min"),
        "a total of rates": on("stat", "sum_over_time(rate(x[$__rate_interval])[$__range:])", legend="1 min"),
    },
    rules.absence_claims_no_cause: {
        "a cause": on("stat", noValue="no traffic"),
        "no text": on("timeseries"),
    },
    rules.variables_fit_one_line: {"twelve": selectors(*(f"variable-{number}" for number in range(12)))},
    rules.counts_keep_their_digits: {
        "a stat": on("stat", unit="short", decimals=0),
        "a column": table(override("byName", "Value", unit="short", decimals=0)),
    },
    rules.values_fit_a_phone: {
        "a column of seconds": table(override("byName", "Value", unit="suffix:s"), custom={"minWidth": 60}),
        "a column with a width": table(override("byName", "Value", unit="tokens/s", custom__width=80)),
        "the names of alerts": table(override("byName", "alertname", custom__minWidth=130)),
    },
    rules.columns_fit_a_small_screen: {
        "columns of 450 px in a panel of 245": columns(150, 150, 150, wide=6),
        "columns whose least widths are 450 px": columns(None, None, None, wide=6),
        "a column narrower than its heading": columns(18, None, None),
    },
    rules.columns_fill_a_large_screen: {"a width for every column": columns(150, 150, 150)},
    rules.headings_are_capitalised: {"a lower-case letter": table(override("byName", "Value", displayName="before"))},
    rules.legends_fit_a_small_screen: {
        "engine and sidecar in a fourth of the width": legend("{{engine}} at {{instance}}", wide=6),
        "values with a long unit": legend("{{engine}} at {{instance}}", unit="tokens/s"),
        "one of two names": legend("up", "waiting: {{engine}} rank {{rank}} at {{instance}}"),
    },
    rules.titles_fit_a_small_screen: {
        "19 letters in three units": page({**panel("stat", "Sidecars by version"), "gridPos": {"w": 3}}),
        "a repeated panel": page(
            {
                **panel("stat", "Front end, queue, prefill: $class"),
                "repeat": "class",
                "gridPos": {"w": 24},
                "maxPerRow": 6,
            }
        ),
    },
    rules.absence_has_no_verdict: {
        "a stat in the colour of bad": on("stat", thresholds=VERDICTS),
        "a bar gauge in the colour of bad": on("bargauge", noValue="no traffic", thresholds=VERDICTS),
        "no thresholds, which is green": on("stat"),
        "a text with a verdict": on("stat", thresholds=VERDICTS, mappings=absent(color=GREEN)),
        "a fixed verdict": on("stat", color=fixed(GREEN)),
    },
    rules.absence_in_a_table_has_no_verdict: {
        "a column in the colour of bad": table(override("byName", "Value", thresholds=VERDICTS)),
    },
    rules.nan_in_a_table_has_a_text: {
        "only a text for null": table(noValue="no traffic"),
        "a mapping of null": table(mappings=absent("null")),
        "a column without the mapping": table(override("byName", "Value #A", mappings=[]), mappings=absent()),
    },
    rules.tables_are_sorted: {"no order": table()},
    rules.several_values_are_sorted: {
        "a bar per label": on("bargauge", "sum by (class) (x)", legend="{{class}}"),
        "equal values in any order": on("stat", "sort(x)", legend="{{engine}}"),
        "only by value": ranked("Value"),
        "only by label": ranked("engine"),
        "by label after the value": ranked("Value", "engine"),
        "by one of two labels": ranked("engine", "Value", legend="{{engine}} at {{instance}}"),
        "a calculation over all rows": ranked("engine", "Value", by_row=False),
        "series, which have no rows": ranked("engine", "Value", form="time_series"),
    },
    rules.long_legends_are_sorted: {
        "a series per label": graph(legend="{{class}}"),
        "four queries": graph("a", "b", "c", "d"),
        "by a calculation that is not shown": graph(legend="{{class}}", sort_by="Mean"),
    },
    rules.bar_gauges_start_at_zero: {"no minimum": on("bargauge"), "another minimum": on("bargauge", min=1)},
    rules.bar_gauges_name_a_single_bar: {"no display name": on("bargauge", legend="{{tenant}}")},
    rules.numbers_are_not_filterable: {
        "all columns": table(custom={"filterable": True}),
        "a column with a unit": table(override("byName", "Value", unit="s", custom__filterable=True)),
    },
    rules.long_columns_have_a_width: {
        "an engine": table(override("byName", "engine", displayName="Engine")),
        "the corner of a pivot": table(override("byName", "engine\\setting", displayName="Engine")),
    },
    rules.units_are_readable: {"c/s": on("timeseries", unit="cps")},
    rules.counts_have_no_decimals: {
        "an extrapolated count": on("stat", "sum(increase(x[5m]))", unit="short"),
        "with one decimal": on("stat", "increase(x[5m])", unit="none", decimals=1),
        "a column": table_of("increase(x[5m])", unit="short"),
    },
    rules.titles_are_short_nouns: {
        "a question": page(panel("stat", "Is it up?")),
        "a question without a mark": page(panel("row", "What the engine does")),
        "seven words": page(panel("stat", "Time to the first token of requests")),
    },
    rules.several_values_have_a_text_size: {
        "a value per label": on("stat", legend="{{class}}"),
        "two values": on("stat", "a", "b"),
    },
    rules.load_tests_are_on_their_own_board: {"elsewhere": page(annotations=[annotation("Load tests")])},
    rules.annotations_are_marks: {
        "a region": page(annotations=[annotation()]),
        "a mark that a longer step loses": page(annotations=[{**annotation(), "expr": "x unless x offset 15s"}]),
    },
    rules.logarithmic_axes_have_no_text_for_null: {
        "a text": on("timeseries", noValue="no traffic", custom={"scaleDistribution": {"type": "symlog"}}),
    },
    rules.dotted_lines_are_visible: {
        "one pixel": page(
            panel("timeseries", "P", fieldConfig=config(override("byRegexp", "x", custom__lineStyle={"fill": "dot"})))
        ),
    },
}

SOUND: dict[Rule, dict[str, Any]] = {
    rules.texts_have_no_text_for_absence: {"its own unit": with_text_column(unit="string", mappings=[])},
    rules.ages_durations_and_counts_are_wide: {
        "an age": table(override("byName", "Value", unit="dateTimeFromNow", custom__width=130)),
        "a count in the rest of the width": table(override("byName", "Value", unit="locale", custom__minWidth=130)),
        "a share": table(override("byName", "Value", unit="percentunit", custom__width=85)),
    },
    rules.durations_have_one_unit: {
        "seconds": on("timeseries", unit="suffix:s"),
        "a date": on("stat", unit="dateTimeAsIso"),
    },
    rules.axes_of_zeros_are_short: {
        "a soft maximum": on("timeseries", min=0, custom={"axisSoftMax": 1}),
        "shares": on("timeseries", min=0, max=1),
        "a logarithmic axis": on("timeseries"),
    },
    rules.shares_have_the_whole_scale: {"0 to 1": heatmap_of_shares(min=0, max=1)},
    rules.legends_are_low: {
        "a list": graph(mode="list"),
        "beside the graph": legend("{{class}}", placement="right"),
    },
    rules.windows_are_named: {
        "a rate": on("stat", "rate(x[$__rate_interval])", legend="good 1 min"),
        "a total": on("stat", "increase(x[$__range])", legend="in range"),
        "the value of a gauge": on("stat", "x"),
    },
    rules.absence_claims_no_cause: {
        "the series": on("timeseries", noValue="no series llm_slo:objective:ratio for this selection"),
        "a stat": page(panel("stat", "P", "x", description="What. Series: x.", fieldConfig=config(noValue="no value"))),
        "a logarithmic axis": page(panel("timeseries", "P", "x", description="W. Series: x. May be empty: never.")),
    },
    rules.variables_fit_one_line: {
        "five": selectors(*(f"variable-{number}" for number in range(5))),
        "hidden": selectors(*"abcdefghijklmn", **dict.fromkeys("abcdefghijklmn", 2)),
    },
    rules.counts_keep_their_digits: {
        "separators": on("stat", unit="locale", decimals=0),
        "three digits": on("stat", unit="short"),
    },
    rules.values_fit_a_phone: {
        "seconds of three digits and a unit": table(
            override("byName", "Value", unit="suffix:s"), custom={"minWidth": 80}
        ),
        "shares": table(override("byName", "Value", unit="percentunit"), custom={"minWidth": 60}),
    },
    rules.columns_fit_a_small_screen: {
        "columns of 240 px in a panel of 245": columns(80, 80, 80, wide=6),
        "columns that depend on the data": columns(150, 150, 150, wide=6, transformation="groupingToMatrix"),
    },
    rules.columns_fill_a_large_screen: {"a column with the rest of the width": columns(150, None, 150)},
    rules.headings_are_capitalised: {"a capital": table(override("byName", "Value", displayName="TTFT p50"))},
    rules.legends_fit_a_small_screen: {
        "engine and sidecar in half of the width": legend("{{engine}} at {{instance}}", wide=12),
        "classes in a third of the width": legend("{{class}}", unit="tokens/s"),
        "beside the graph": legend("{{engine}} at {{instance}}", wide=6, placement="right"),
    },
    rules.titles_fit_a_small_screen: {
        "8 letters in three units": page({**panel("stat", "Versions"), "gridPos": {"w": 3}}),
    },
    rules.absence_has_no_verdict: {
        "a neutral base": on("stat", thresholds=NEUTRAL),
        "a neutral text": on("bargauge", thresholds=VERDICTS, mappings=absent(color="text")),
        "a fixed colour": on("stat", color=fixed("text")),
        "a colour by name": on("stat", color={"mode": "continuous-BlPu"}),
    },
    rules.absence_in_a_table_has_no_verdict: {
        "a neutral base": table(override("byName", "Value", thresholds=NEUTRAL)),
        "a neutral text": table(override("byName", "Value", thresholds=VERDICTS), mappings=absent()),
    },
    rules.nan_in_a_table_has_a_text: {
        "a mapping": table(mappings=absent()),
        "a mapping of a column": table(override("byName", "Value", mappings=absent("nan"))),
        "texts": table(unit="string"),
    },
    rules.several_values_are_sorted: {
        "by value, then by label": ranked("engine", "Value"),
        "by two labels": ranked("instance", "engine", "Value", legend="{{engine}} at {{instance}}"),
        "several queries": ranked("engine", "Value #A", "Value #B"),
        "a query for each": on("stat", "a", "b", legend="waiting"),
    },
    rules.tables_are_sorted: {
        "by a column": table(sort_by="Goodput"),
        "by a transformation": page(panel("table", "P", "x", transformations=[{"id": "sortBy"}])),
    },
    rules.long_legends_are_sorted: {
        "sorted by the greatest value": graph(legend="{{class}}", sort_by="Max"),
        "sorted by name": graph(legend="{{class}}", sort_by="Name"),
        "limited": graph("topk(3, x)", legend="{{class}}"),
        "a list": graph(legend="{{class}}", mode="list"),
        "three queries": graph("a", "b", "c"),
    },
    rules.bar_gauges_start_at_zero: {"from zero": on("bargauge", min=0)},
    rules.bar_gauges_name_a_single_bar: {
        "a display name": on("bargauge", legend="{{tenant}}", displayName="${__field.labels.tenant}"),
        "one value": on("bargauge", legend="all"),
    },
    rules.numbers_are_not_filterable: {
        "a column of texts": table(override("byName", "engine", custom__filterable=True)),
        "texts": table(unit="string", custom={"filterable": True}),
    },
    rules.long_columns_have_a_width: {
        "a width": table(override("byName", "engine", displayName="Engine", custom__width=220)),
        "a short label": table(override("byName", "class", displayName="Class")),
    },
    rules.units_are_readable: {"requests": on("timeseries", unit="reqps")},
    rules.counts_have_no_decimals: {
        "no decimals": on("stat", "sum(increase(x[5m]))", unit="short", decimals=0),
        "rounded": on("stat", "round(sum(increase(x[5m])))", unit="short"),
        "a gauge": on("stat", "x", unit="short"),
        "a ratio": on("stat", "increase(x[5m]) / increase(y[5m])", unit="short"),
        "a column without decimals": table_of("increase(x[5m])", unit="locale", decimals=0),
    },
    rules.titles_are_short_nouns: {"a noun": page(panel("row", "SLO status"), panel("stat", "TTFT p95 of $class"))},
    rules.several_values_have_a_text_size: {
        "sizes": page(
            panel("stat", "P", "x", legend="{{class}}", options={"text": {"titleSize": 14, "valueSize": 24}})
        ),
        "one value": on("stat", "x", legend="all"),
    },
    rules.load_tests_are_on_their_own_board: {
        "its own": page(annotations=[annotation("Load tests")], uid="vllm-slo-load"),
        "disabled": page(annotations=[annotation("Load tests", enable=False)]),
    },
    rules.annotations_are_marks: {
        "a time as value": page(annotations=[annotation(useValueForTime=True)]),
        "the first sample": page(annotations=[{**annotation(), "expr": "x unless x offset $__interval"}]),
        "disabled": page(annotations=[annotation(enable=False)]),
    },
    rules.logarithmic_axes_have_no_text_for_null: {
        "a linear axis": on("timeseries", noValue="no traffic"),
        "no text": on("timeseries", custom={"scaleDistribution": {"type": "log"}}),
    },
    rules.dotted_lines_are_visible: {
        "two pixels": page(
            panel(
                "timeseries",
                "P",
                fieldConfig=config(
                    override("byRegexp", "x", custom__lineStyle={"fill": "dot"}, custom__lineWidth=2), color=fixed(BLUE)
                ),
            )
        ),
    },
}


def cases(pages: Mapping[Rule, Mapping[str, Any]]) -> list[Any]:
    return [
        pytest.param(rule, each, id=f"{rule.__name__}: {name}") for rule in RULES for name, each in pages[rule].items()
    ]


@pytest.mark.parametrize("rule, broken", cases(BROKEN))
def test_a_rule_reports_each_fault(rule: Rule, broken: rules.Page) -> None:
    assert len(rule(broken)) == 1


@pytest.mark.parametrize("rule, sound", cases(SOUND))
def test_a_rule_accepts_what_is_readable(rule: Rule, sound: rules.Page) -> None:
    assert rule(sound) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_committed_dashboard_breaks_a_rule(rule: Rule) -> None:
    assert {name: faults for name, dashboard in SHIPPED.items() if (faults := rule(dashboard))} == {}
