"""The document of a dashboard: variables, rows, repetitions, annotations, tables and errors."""

import json
import math
from collections.abc import Mapping
from datetime import timedelta, timezone
from typing import Any

import pytest

from dashboards.live.reader import TimeRange
from dashboards.preview import queries
from dashboards.preview.document import document
from dashboards.preview.page import PageSet, to_json
from dashboards.preview.variables import pattern_of
from dashboards.preview.view import View
from exporters.analysis.prometheus_api import Prometheus
from tests.dashboards.preview.sample_dashboard import (
    END,
    GREEN,
    LEGEND,
    PANELS,
    RED,
    START,
    answer,
    config,
    dashboard,
    override,
    panel,
    result_of,
    thresholds,
)
from tests.support.fake_prometheus import FakePrometheus

SPAN = TimeRange(START, END, 1)


def draw(fake: FakePrometheus, tree: Mapping[str, Any], **choices: tuple[str, ...]) -> dict[str, Any]:
    return document(tree, Prometheus(fake.url), View(SPAN, selection=choices))


def panels(result: Mapping[str, Any]) -> list[Any]:
    return [each for section in result["sections"] for each in section["panels"]]


def queries_sent(prometheus: FakePrometheus) -> set[str]:
    return {parameters["query"] for _, parameters in prometheus.requests if "query" in parameters}


def repeated(**more: Any) -> dict[str, Any]:
    return {**PANELS[-1], **more}


@pytest.mark.parametrize(
    "variable, values, pattern",
    [
        pytest.param({"multi": True}, ["siso"], "siso", id="one of several"),
        pytest.param({"multi": True}, ["siso", "lilo"], "(siso|lilo)", id="some of several"),
        pytest.param({"includeAll": True}, ["Qwen/Qwen2.5"], "Qwen/Qwen2\\\\.5", id="a dot is a dot"),
        pytest.param({}, ["a.b"], "a.b", id="a single value is not escaped"),
    ],
)
def test_a_selection_is_expanded_in_a_query_as_in_grafana(
    variable: dict[str, Any], values: list[str], pattern: str
) -> None:
    assert pattern_of(variable, values) == pattern


def test_a_selection_is_in_queries_titles_and_the_bar(prometheus: FakePrometheus) -> None:
    result = draw(prometheus, dashboard({**PANELS[-1], "repeat": None}), **{"class": ("siso",)})
    assert result["variables"] == [
        {
            "name": "class",
            "label": "Class",
            "text": "siso",
            "values": ["siso"],
            "options": [("All", "$__all"), ("lilo", "lilo"), ("siso", "siso")],
        }
    ]
    assert result["sections"][0]["title"] == "Is siso well?"
    assert [each["title"] for each in panels(result)] == ["Of siso"]
    assert 'requests{class=~"siso"}' in queries_sent(prometheus)


def test_a_panel_is_repeated_for_every_value_and_the_panels_below_move_down(prometheus: FakePrometheus) -> None:
    result = draw(prometheus, dashboard(repeated(maxPerRow=1), {**PANELS[2], "title": "Below"}))
    assert [(each["title"], tuple(each["position"])) for each in panels(result)] == [
        ("Of lilo", (0, 1, 24, 8)),
        ("Of siso", (0, 9, 24, 8)),
        ("Below", (12, 9, 12, 8)),
    ]
    beside = draw(prometheus, dashboard(repeated(maxPerRow=4)))
    assert [tuple(each["position"]) for each in panels(beside)] == [(0, 1, 12, 8), (12, 1, 12, 8)]
    upright = draw(prometheus, dashboard(repeated(repeatDirection="v")))
    assert [tuple(each["position"]) for each in panels(upright)] == [(0, 1, 12, 8), (0, 9, 12, 8)]


def test_a_repeated_row_has_its_value_in_title_and_queries(prometheus: FakePrometheus) -> None:
    tree = dashboard({**PANELS[-1], "repeat": None})
    tree["panels"][0]["repeat"] = "class"
    result = draw(prometheus, tree)
    assert [section["title"] for section in result["sections"]] == ["Is lilo well?", "Is siso well?"]
    assert {'requests{class=~"lilo"}', 'requests{class=~"siso"}'} <= queries_sent(prometheus)


def test_panels_of_a_collapsed_row_are_within_it(prometheus: FakePrometheus) -> None:
    tree = dashboard()
    tree["panels"][0] |= {"collapsed": True, "panels": [PANELS[2]]}
    (section,) = draw(prometheus, tree)["sections"]
    assert (section["closed"], [each["title"] for each in section["panels"]]) == (True, ["Engines"])


def test_the_values_of_a_custom_variable_have_names(prometheus: FakePrometheus) -> None:
    tree = dashboard(panel("stat", "Of $span"))
    values = r"5m\, short : 300,10m : 600"
    tree["templating"]["list"].append({"type": "custom", "name": "span", "query": values, "current": {}})
    result = draw(prometheus, tree)
    assert result["variables"][1]["options"] == [("5m, short", "300"), ("10m", "600")]
    assert panels(result)[0]["title"] == "Of 5m, short"


def test_annotations_have_the_times_of_points_and_regions(prometheus: FakePrometheus) -> None:
    change, alert = draw(prometheus, dashboard())["annotations"]
    assert (change["title"], change["at"], change["until"]) == ("seed → 2", (END - 100) * 1000, None)
    assert (alert["title"], alert["at"], alert["until"]) == ("Burn", (END - 200) * 1000, (END - 150) * 1000)


def test_a_table_is_joined_sorted_and_linked(prometheus: FakePrometheus) -> None:
    (result,) = panels(draw(prometheus, dashboard(PANELS[4])))
    assert [column["title"] for column in result["columns"]] == ["engine", "Wait", "Value #A"]
    assert [[cell["text"] for cell in row] for row in result["rows"]] == [["b", "∞ years", "0"], ["a", "250 ms", "1"]]
    assert result["rows"][0][0]["link"] == "/d/other?var-engine=b"


@pytest.mark.parametrize(
    "selected, parameters",
    [
        pytest.param((), "var-class=All", id="all"),
        pytest.param(("All",), "var-class=All", id="all by a link"),
        pytest.param(("siso",), "var-class=siso", id="one"),
        pytest.param(("siso", "a&b"), "var-class=siso&var-class=a%26b", id="several"),
    ],
)
def test_a_link_passes_the_selection_of_a_variable_on(
    prometheus: FakePrometheus, selected: tuple[str, ...], parameters: str
) -> None:
    links = [{"url": "/d/x?${__url_time_range}&${class:queryparam}&${datasource:queryparam}"}]
    table_panel = panel("table", "T", "up", fieldConfig=config(override("byName", "engine", links=links)))
    (result,) = panels(draw(prometheus, dashboard(table_panel), **{"class": selected}))
    # the page adds the time range; the preview has one data source
    assert [cell["link"] for cell in result["rows"][0] if "link" in cell] == [f"/d/x?&{parameters}&"]


def test_a_link_of_a_repeated_panel_passes_its_value_on(prometheus: FakePrometheus) -> None:
    links = override("byName", "class", links=[{"url": "/d/x?${class:queryparam}"}])
    table_panel = panel("table", "T", "requests", repeat="class", fieldConfig=config(links))
    drawn = panels(draw(prometheus, dashboard(table_panel)))
    assert [cell["link"] for each in drawn for cell in each["rows"][0] if "link" in cell] == [
        "/d/x?var-class=lilo",
        "/d/x?var-class=siso",
    ]


def test_a_link_names_variables_and_columns_and_every_value_is_quoted(prometheus: FakePrometheus) -> None:
    url = '/d/x?a=${class}&b=${__data.fields["engine"]}&c=${__data.fields.nope}&${__url_time_range}'
    table_panel = panel("table", "T", "up", fieldConfig=config(override("byName", "engine", links=[{"url": url}])))
    (result,) = panels(draw(prometheus, dashboard(table_panel), **{"class": ("a b",)}))
    assert result["rows"][0][1]["link"] == "/d/x?a=a%20b&b=a&c=&"


def test_a_failed_query_is_an_error_in_its_panel_and_the_others_are_drawn(prometheus: FakePrometheus) -> None:
    tree = dashboard(panel("stat", "Half", "up", "sum("), panel("stat", "None", "x[$nope]"))
    half, unknown = panels(draw(prometheus, tree))
    assert half["errors"] == ["B: unknown function sum("]
    assert len(half["items"]) == 2
    assert unknown["errors"][0].startswith("A: the variable $nope has no value; known: ")


def test_series_above_the_limit_are_cut_with_a_note(
    prometheus: FakePrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MAX_SERIES", 1)
    (result,) = panels(draw(prometheus, dashboard(panel("stat", "P", "up"))))
    assert (len(result["items"]), result["errors"]) == (1, ["A: only 1 of 2 series are drawn"])


def test_the_supported_parts_of_an_older_foreign_dashboard_are_drawn(prometheus: FakePrometheus) -> None:
    tree = {
        "title": "Old",
        "templating": {
            "list": [
                {"type": "query", "name": "job", "query": "label_values(up, job)", "regex": "/(?<=x)(?<!yy*)./"},
                {"type": "adhoc", "name": "Filters"},
                {"type": "interval", "name": "every", "query": "1m,5m", "current": {"value": "5m"}},
            ]
        },
        "annotations": {"list": [{"builtIn": 1, "name": "Annotations & Alerts", "datasource": "-- Grafana --"}]},
        "panels": [
            {"type": "graph", "title": "Costs $5", "datasource": "Prometheus", "targets": [{"expr": "up"}]},
            {"libraryPanel": {"uid": "x"}},
            {"type": "stat", "targets": [{"expr": "up", "instant": True}, {"expr": "up", "hide": True}]},
            {"type": "timeseries", "datasource": {"type": "loki"}, "targets": [{"expr": "{job=1}", "refId": "A"}]},
            {
                "type": "timeseries",
                "targets": [{"expr": "up"}],
                "fieldConfig": {"overrides": [{"matcher": {"id": "byRegexp", "options": "/(?<=x)y+(?<z>.)/"}}]},
            },
        ],
    }
    result = draw(prometheus, tree)
    assert [variable["text"] for variable in result["variables"]] == ["", "", "5m"]
    assert [each["kind"] for each in panels(result)] == ["unknown", "unknown", "stat", "graph", "graph"]
    assert panels(result)[0]["title"] == "Costs $5"
    assert [item["name"] for item in panels(result)[2]["items"]] == ['{engine="a"}', '{engine="b"}']


def test_a_long_range_has_as_many_points_as_a_panel_is_wide(prometheus: FakePrometheus) -> None:
    month = TimeRange(END - 30 * 86400, END, 15)
    result = document(dashboard(PANELS[0]), Prometheus(prometheus.url), View(month))
    (graph,) = panels(result)
    assert len(graph["series"][0]["y"]) <= 501
    assert {parameters["step"] for path, parameters in prometheus.requests if "query_range" in path} == {"5184"}


def test_points_are_at_multiples_of_the_step(prometheus: FakePrometheus) -> None:
    result = document(dashboard(), Prometheus(prometheus.url), View(TimeRange(START + 0.4, END + 7.9, 5)))
    assert (result["from"], result["to"]) == (START * 1000, (END + 5) * 1000)


def test_times_are_in_the_zone_of_the_view(prometheus: FakePrometheus) -> None:
    zone = timezone(timedelta(hours=-5), "EST")
    result = document(dashboard(), Prometheus(prometheus.url), View(SPAN, zone))
    assert (result["zone"], result["shift"]) == ("EST", -5 * 3600 * 1000)


def test_progress_counts_every_query_of_panels_and_annotations(prometheus: FakePrometheus) -> None:
    progress: list[tuple[int, int]] = []
    tree = dashboard(PANELS[0], PANELS[4])
    document(tree, Prometheus(prometheus.url), View(SPAN), lambda done, total: progress.append((done, total)))
    assert sorted(progress) == [(number, 5) for number in range(1, 6)]


def test_a_document_is_json_even_with_infinity_in_it(prometheus: FakePrometheus) -> None:
    result = draw(prometheus, dashboard(*PANELS, panel("stat", "Wait", "wait", options={"graphMode": "area"})))
    assert json.loads(to_json(result))["title"] == "Made"


def test_text_of_a_dashboard_cannot_close_the_script_element() -> None:
    pages = PageSet({"x": "</title><script>alert(1)</script>"}, {}, "*.html")
    text = pages.standalone_page("x", {"title": "</script><script>alert(1)</script>"})
    assert "<script>alert" not in text
    assert "connect-src 'self'" in text


ABSENT = [("a", math.nan), ("b", 0.5), ("c", 0.9)]


def only_panel(result: Mapping[str, Any]) -> Any:
    (each,) = panels(result)
    return each


def drawn(kind: str, series: list[tuple[str, float]], **more: Any) -> Any:
    """The document of a panel over the given values by engine."""

    def respond(path: str, parameters: dict[str, str]) -> tuple[int, Any]:
        if path.startswith("/api/v1/label/"):
            return answer(path, parameters)
        return result_of(path, parameters, [({"engine": name}, value) for name, value in series])

    with FakePrometheus(respond) as fake:
        return only_panel(draw(fake, dashboard(panel(kind, "P", "x", legend="{{engine}}", **more))))


def test_absence_in_a_table_is_nan_or_the_text_and_has_the_colour_of_the_lowest_threshold() -> None:
    coloured = override(
        "byName", "Value", thresholds=thresholds(RED, (0.8, GREEN)), custom__cellOptions={"type": "color-text"}
    )
    result = drawn("table", ABSENT, fieldConfig=config(coloured, noValue="no traffic"))
    assert [(row[2]["text"], row[2]["colour"], row[2]["key"]) for row in result["rows"]] == [
        ("NaN", RED, None),
        ("0.500", RED, 0.5),
        ("0.900", GREEN, 0.9),
    ]


@pytest.mark.parametrize("descending, order", [(False, "abc"), (True, "cba")])
def test_a_sorted_table_has_rows_without_a_value_below_all_others(descending: bool, order: str) -> None:
    result = drawn("table", ABSENT, options={"sortBy": [{"displayName": "Value", "desc": descending}]})
    assert "".join(row[1]["text"] for row in result["rows"]) == order


@pytest.mark.parametrize("order", ["bac", "cab"])
def test_rows_values_and_lines_are_in_the_order_of_the_response(order: str) -> None:
    values = [(name, 0.5) for name in order]
    assert "".join(row[1]["text"] for row in drawn("table", values)["rows"]) == order
    assert "".join(item["name"] for item in drawn("stat", values)["items"]) == order
    graph = drawn("timeseries", values, options={"legend": LEGEND})
    assert "".join(line["name"] for line in graph["series"]) == order
    assert [row["series"] for row in graph["legend"]["rows"]] == [0, 1, 2]


@pytest.mark.parametrize("kind", ["stat", "bargauge"])
@pytest.mark.parametrize("no_value, text", [({}, "No data"), ({"noValue": "no traffic"}, "no traffic")])
def test_a_stat_or_bar_gauge_without_data_is_a_value_in_the_colour_of_the_lowest_threshold(
    kind: str, no_value: dict[str, str], text: str
) -> None:
    result = drawn(kind, [], fieldConfig=config(thresholds=thresholds(RED, (0.9, GREEN)), **no_value))
    assert [(item["text"], item["colour"]) for item in result["items"]] == [(text, RED)]
    assert result["empty"] == ""


def test_a_bar_gauge_without_a_minimum_draws_the_smallest_bar_empty() -> None:
    values = [("a", 2.0), ("b", 3.0), ("c", 4.0)]
    assert [item["share"] for item in drawn("bargauge", values)["items"]] == [0, 0.5, 1]
    assert [item["share"] for item in drawn("bargauge", values, fieldConfig=config(min=0))["items"]] == [0.5, 0.75, 1]


def test_a_bar_gauge_hides_the_name_of_a_single_series_without_a_display_name() -> None:
    assert [item["name"] for item in drawn("bargauge", [("a", 2.0)])["items"]] == [""]
    named = config(displayName="${__field.labels.engine}")
    assert [item["name"] for item in drawn("bargauge", [("a", 2.0)], fieldConfig=named)["items"]] == ["a"]


def test_a_column_has_its_width_or_the_lowest_width_of_grafana() -> None:
    widths = config(override("byName", "engine", custom__width=90), override("byName", "Value", custom__minWidth=60))
    columns = drawn("table", ABSENT, fieldConfig=widths)["columns"]
    assert [(column["title"], column["width"], column["minWidth"]) for column in columns] == [
        ("Time", 0, 150),
        ("engine", 90, 150),
        ("Value", 0, 60),
    ]
