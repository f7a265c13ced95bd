import itertools
import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dashboards.preview.drawing.graph import graph
from dashboards.preview.drawing.heatmap import heatmap
from dashboards.preview.drawing.scales import Scale, axis_of, labels, tick_increment
from dashboards.preview.frames.field_config import Context, FieldConfig, field_config_source
from dashboards.preview.frames.frame import Frame, TimeGrid, matrix_frames
from tests.dashboards.preview.sample_dashboard import GREEN, LEGEND, RED, config, override, panel, thresholds

GRID = TimeGrid(0, 15, 3)


def frames(legend: str = "{{class}}", **values: list[float | None]) -> list[Frame]:
    matrix = [
        {"metric": {"class": name}, "values": [[15 * at, str(v)] for at, v in enumerate(each) if v is not None]}
        for name, each in values.items()
    ]
    return matrix_frames("A", matrix, GRID, legend)


def graph_document(
    series_frames: list[Frame], *overrides: dict[str, Any], options: Any = None, **defaults: Any
) -> dict[str, Any]:
    panel_json = panel("timeseries", "P", options=options or {}, fieldConfig=config(*overrides, **defaults))
    return graph(panel_json, series_frames, field_config_source(panel_json, Context(0)), GRID)


def test_a_missing_sample_is_a_gap() -> None:
    (line,) = graph_document(frames(siso=[1, None, 3]))["series"]
    assert (line["y"], line["text"]) == ([1, None, 3], ["1", None, "3"])


def test_a_stack_reaches_as_high_as_its_sum() -> None:
    series = frames(siso=[1, 2, 3], lilo=[10, 10, 10])
    beside, upon = (graph_document(series, custom={"stacking": {"mode": mode}}) for mode in ("none", "normal"))
    assert 10 <= beside["axes"][0]["range"][1] < 13 <= upon["axes"][0]["range"][1]


def test_a_line_over_a_stack_is_not_stacked() -> None:
    apart = override("byName", "good", custom__stacking={"mode": "none"})
    document = graph_document(frames(siso=[1, 1, 1], good=[9, 9, 9]), apart, custom={"stacking": {"mode": "normal"}})
    assert [line["stack"] for line in document["series"]] == ["A", ""]
    assert document["axes"][0]["range"][1] < 10


def test_another_unit_has_an_axis_on_the_right() -> None:
    series = frames(rate=[1, 2, 3], share=[0.1, 0.2, 0.3])
    document = graph_document(series, override("byName", "share", unit="percentunit"), unit="reqps")
    assert [axis["side"] for axis in document["axes"]] == ["left", "right"]
    assert [line["axis"] for line in document["series"]] == [0, 1]
    assert document["axes"][1]["text"][-1].endswith("%")


def test_only_thresholds_with_a_colour_within_the_axis_are_drawn() -> None:
    document = graph_document(
        frames(siso=[1, 2, 3]),
        min=0,
        custom={"thresholdsStyle": {"mode": "dashed"}},
        thresholds=thresholds("transparent", (2, RED), (900, GREEN)),
    )
    assert [(limit["y"], limit["colour"]) for limit in document["limits"]] == [(2, RED)]


def test_thresholds_are_drawn_only_if_the_panel_enables_them() -> None:
    assert graph_document(frames(siso=[1, 2, 3]), thresholds=thresholds(RED, (2, GREEN)))["limits"] == []


def test_the_legend_is_sorted_by_a_calculation_with_empty_series_last() -> None:
    series = frames(siso=[1, 5, 2], lilo=[9, 9, 9], other=[None, None, None])
    options = {"legend": {**LEGEND, "sortBy": "Last *", "sortDesc": True}}
    legend = graph_document(series, options=options, noValue="no traffic")["legend"]
    assert legend["heads"] == ["Last *", "Max"]
    assert [(row["series"], *row["cells"]) for row in legend["rows"]] == [
        (1, "9", "9"),
        (0, "2", "5"),
        (2, "no traffic", "no traffic"),
    ]


def test_a_hidden_legend_and_a_hidden_series_are_not_drawn() -> None:
    series = frames(siso=[1, 1, 1], lilo=[2, 2, 2])
    document = graph_document(
        series, override("byName", "lilo", custom__hideFrom={"viz": True}), options={"legend": {"showLegend": False}}
    )
    assert (document["legend"], [line["name"] for line in document["series"]]) == (None, ["siso"])


def test_a_panel_whose_lines_are_all_hidden_has_axes() -> None:
    hidden = override("byName", "siso", custom__hideFrom={"viz": True})
    document = graph_document(frames(siso=[0, 0, 0]), hidden)
    assert (document["series"], len(document["axes"])) == ([], 1)


@pytest.mark.parametrize("value", [math.inf, math.nan, None])
@pytest.mark.parametrize("no_value, text", [("", None), ("no traffic", "no traffic")])
def test_a_value_that_is_not_finite_is_missing_from_line_tooltip_and_legend(
    value: float | None, no_value: str, text: str | None
) -> None:
    document = graph_document(frames(siso=[1, 2, value]), options={"legend": LEGEND}, noValue=no_value)
    (line,) = document["series"]
    assert (line["y"], line["text"]) == ([1, 2, None], ["1", "2", text])
    assert document["legend"]["rows"] == [{"series": 0, "cells": ["2", "2"]}]


@pytest.mark.parametrize(
    "legend, title",
    [
        pytest.param("{{class}} p95", "siso p95", id="of labels"),
        pytest.param("{{ nope }}x", "x", id="of a label that is not there"),
        pytest.param("__auto", "siso", id="Grafana's own"),
        pytest.param("", '{class="siso"}', id="none"),
    ],
)
def test_a_series_is_named_by_the_legend_of_its_query(legend: str, title: str) -> None:
    assert graph_document(frames(legend, siso=[1, 1, 1]))["series"][0]["name"] == title


def look(**settings: Any) -> FieldConfig:
    return FieldConfig(settings, Context(0))


@given(
    st.lists(st.floats(-1e9, 1e9, allow_subnormal=False), min_size=1),
    st.sampled_from([None, {"type": "log", "log": 10}, {"type": "symlog", "log": 10, "linearThreshold": 1}]),
    st.integers(2, 12),
)
def test_an_axis_shows_every_value_and_has_a_few_ascending_ticks(
    values: list[float], distribution: Any, most: int
) -> None:
    assume(max(values) - min(values) > 1e-6 * max(map(abs, values)) or len(set(values)) == 1)
    axis = axis_of(look(custom={"scaleDistribution": distribution}), values)
    placed_values = [value for value in values if axis.scale.place(value) is not None]
    ticks = axis.scale.ticks(axis.low, axis.high, most, "")
    for value in (*placed_values, *ticks):
        assert axis.low <= value <= axis.high or value in (pytest.approx(axis.low), pytest.approx(axis.high))
    assert all(a < b for a, b in itertools.pairwise(ticks))
    assert len(ticks) <= 2 * most + 3


@pytest.mark.parametrize(
    "low, high, unit, texts",
    [
        pytest.param(0, 1, "percentunit", ["0%", "20%", "40%", "60%", "80%", "100%"], id="shares"),
        pytest.param(0, 0.5, "s", ["0 s", "100 ms", "200 ms", "300 ms", "400 ms", "500 ms"], id="less than a second"),
        pytest.param(0, 0.01, "percentunit", ["0%", "0.2%", "0.4%", "0.6%", "0.8%", "1%"], id="small shares"),
        pytest.param(0, 130, "s", ["0 s", "50 s", "1.67 mins"], id="minutes, whose steps are those of a number"),
        pytest.param(0, 200 * 2**20, "bytes", ["0 B", "64 MiB", "128 MiB", "192 MiB"], id="binary bytes"),
        pytest.param(0, 5000, "short", ["0", "1 K", "2 K", "3 K", "4 K", "5 K"], id="thousands"),
    ],
)
def test_ticks_are_labelled_without_trailing_zeros(low: float, high: float, unit: str, texts: list[str]) -> None:
    assert axis_texts(low, high, unit=unit) == texts


def axis_texts(low: float, high: float, **settings: Any) -> list[str]:
    unit = settings["unit"]
    increment = tick_increment(low, high, 5, unit)
    return labels(Scale().ticks(low, high, 5, unit), look(**settings), increment)


def test_the_decimals_of_a_panel_are_those_of_its_ticks() -> None:
    assert axis_texts(0, 1, unit="percentunit", decimals=1) == ["0.0%", "20.0%", "40.0%", "60.0%", "80.0%", "100.0%"]


def test_a_tick_of_100_s_on_a_logarithmic_axis_has_three_digits() -> None:
    custom = {"scaleDistribution": {"type": "log", "log": 10}}
    (axis,) = graph_document(frames(siso=[0.1, 20, 90]), unit="s", custom=custom)["axes"]
    assert axis["text"] == ["100 ms", "1 s", "10 s", "1.67 mins"]


@pytest.mark.parametrize("kind", ["log", "symlog"])
def test_the_hidden_ticks_of_a_logarithmic_axis_have_the_text_of_a_missing_value(kind: str) -> None:
    custom = {"scaleDistribution": {"type": kind, "log": 10, "linearThreshold": 1}}
    (with_text,) = graph_document(frames(siso=[1, 20, 90]), min=1, max=100, noValue="none", custom=custom)["axes"]
    (without,) = graph_document(frames(siso=[1, 20, 90]), min=1, max=100, custom=custom)["axes"]
    assert with_text["text"] == [*without["text"], *["none"] * 16]
    assert len(with_text["at"]) == len(with_text["text"])
    assert "none" not in graph_document(frames(siso=[1, 20, 90]), noValue="none")["axes"][0]["text"]


def test_a_symlog_axis_is_linear_about_zero_and_marks_powers_above() -> None:
    assert Scale("symlog", 10, 1).ticks(0, 2000, 6, "") == [0, 1, 10, 100, 1000]


def test_the_limits_of_a_panel_do_not_depend_on_the_values() -> None:
    axis = axis_of(look(min=0, max=1), [5.0])
    assert (axis.low, axis.high) == (0, 1)


def test_a_heatmap_shows_buckets_that_are_not_cumulative() -> None:
    matrix = [
        {"metric": {"le": le}, "values": [[15 * at, str(value)] for at in range(3)]}
        for le, value in (("+Inf", 10), ("0.1", 1), ("0.5", 9))
    ]
    options = {"yAxis": {"unit": "s"}, "cellValues": {"unit": "reqps"}, "filterValues": {"le": 1e-9}}
    panel_json = panel("heatmap", "H", options=options)
    document = heatmap(
        panel_json, matrix_frames("A", matrix, GRID, ""), field_config_source(panel_json, Context(0)), GRID
    )
    assert document["names"] == ["0 to 100 ms", "100 ms to 500 ms", "500 ms to ∞"]
    assert [row[0] for row in document["rows"]] == [0.125, 1, 0.125]
    assert [row[0] for row in document["text"]] == ["1 req/s", "8 req/s", "1 req/s"]


def test_a_heatmap_of_series_without_buckets_has_a_row_for_each() -> None:
    """Grafana hides cells of 0, and shows a missing value as no cell."""
    options = {"cellValues": {"unit": "percentunit"}, "filterValues": {"le": 1e-9}}
    panel_json = panel("heatmap", "H", options=options)
    series = frames(short=[0, 0, None], long=[0.25, 1, None])
    document = heatmap(panel_json, series, field_config_source(panel_json, Context(0)), GRID)
    assert document["names"] == document["axes"][0]["text"] == ["short", "long"]
    assert document["rows"] == [[None, None, None], [0.25, 1.0, None]]
    assert document["text"] == [["0%", "0%", None], ["25%", "100%", None]]


def test_the_colours_of_a_heatmap_end_at_the_maximum_of_its_scale() -> None:
    panel_json = panel("heatmap", "H", options={"cellValues": {"unit": "percentunit"}, "color": {"max": 1}})
    source = field_config_source(panel_json, Context(0))
    document = heatmap(panel_json, frames(short=[0.25, 0.5, 1.5]), source, GRID)
    assert (document["rows"], document["greatest"]) == ([[0.25, 0.5, 1.0]], "100%")
