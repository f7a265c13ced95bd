from typing import Any

import pytest

from dashboards.live.interpolation import UnknownVariableError, expand, intervals, options_from, step_of
from dashboards.live.reader import read_dashboards
from tests.support.promtool import ROOT


@pytest.mark.parametrize(
    "written",
    [
        pytest.param("x[$w]", id="bare"),
        pytest.param("x[${w}]", id="in braces"),
        pytest.param("x[${w:raw}]", id="with a format"),
        pytest.param("x[[[w]]]", id="in brackets"),
    ],
)
def test_every_notation_of_a_variable_is_expanded(written: str) -> None:
    assert expand(written, {"w": "5m"}) == "x[5m]"


def test_a_longer_name_is_not_confused_with_a_shorter_one() -> None:
    assert expand("$__range_s $__range", {"__range": "60000ms", "__range_s": "60"}) == "60 60000ms"


def test_a_group_of_a_regular_expression_is_no_variable() -> None:
    assert expand('label_replace(x, "to", "a $1", "$from", "(.*)")', {"from": "y"}) == (
        'label_replace(x, "to", "a $1", "y", "(.*)")'
    )


def test_the_ends_of_the_time_range_are_milliseconds_or_seconds() -> None:
    values = intervals(900, 15, end=1769860800.5)
    assert expand("$__from ${__to}", values) == "1769859900500 1769860800500"
    assert expand("${__from:date:seconds} ${__to:date:seconds}", values) == "1769859900 1769860800"


def test_an_unknown_variable_is_an_error() -> None:
    with pytest.raises(UnknownVariableError) as refused:
        expand("x[$nope]", {"model": ".*", "class": ".*"})
    assert str(refused.value) == "the variable $nope has no value; known: class, model"


@pytest.mark.parametrize(
    "seconds, scrape, step",
    [
        pytest.param(900, 15, 15, id="a point a scrape"),
        pytest.param(900, 1, 2, id="a point a pixel"),
        pytest.param(30 * 86400, 15, 5184, id="a month stays under the limit of points"),
    ],
)
def test_the_step_is_at_least_a_scrape_and_a_pixel(seconds: float, scrape: float, step: float) -> None:
    assert step_of(seconds, scrape) == step


@pytest.mark.parametrize(
    "seconds, scrape, window",
    [
        pytest.param(900, 15, "60000ms", id="four scrapes at least"),
        pytest.param(86400, 15, "188000ms", id="a step and a scrape, so that neighbours meet"),
    ],
)
def test_the_rate_interval_is_computed_as_in_grafana(seconds: float, scrape: float, window: str) -> None:
    assert intervals(seconds, scrape)["__rate_interval"] == window


FLIPS = read_dashboards(ROOT / "dashboards/generated")["slo-flips"]
VECTOR = {
    "resultType": "vector",
    "result": [
        {"metric": {"__name__": "change", "setting": "x: 1 → 2"}, "value": [1000.5, "900"]},
        {"metric": {"__name__": "change", "setting": "y: 1 → 2"}, "value": [1000.5, "800"]},
    ],
}


@pytest.mark.parametrize(
    "data, pattern, values",
    [
        pytest.param(VECTOR, "/.*x.*/", ['change{setting="x: 1 → 2"} 900 1000500'], id="Grafana's text of a series"),
        pytest.param(VECTOR, r'/setting="(?<text>.*)"\} (?<value>\S+)/', ["900", "800"], id="a group for the value"),
        pytest.param(VECTOR, r'/setting="(.*?):/', ["x", "y"], id="a group without a name"),
        pytest.param(VECTOR, "/nothing like it/", [], id="a pattern without a match"),
        pytest.param({"resultType": "scalar", "result": [1000, "7"]}, "", ["7"], id="a number"),
        pytest.param(
            {"resultType": "vector", "result": [{"metric": {}, "value": [1000, "7.5"]}]},
            next(each["regex"] for each in FLIPS["templating"]["list"] if each["name"] == "first"),
            ["7.5"],
            id="a number of VictoriaMetrics",
        ),
        pytest.param({"resultType": "vector", "result": []}, "", [], id="no series"),
    ],
)
def test_the_pattern_extracts_the_options_of_a_query_result_variable(
    data: Any, pattern: str, values: list[str]
) -> None:
    assert [value for _, value in options_from(data, pattern)] == values
