import math
from dataclasses import replace
from typing import Any

import pytest

from dashboards.preview.frames import colours
from dashboards.preview.frames.field_config import Context, FieldConfig, field_config_source
from dashboards.preview.frames.frame import Field, Kind
from tests.dashboards.preview.sample_dashboard import BLUE, GREEN, RED, config, fixed, override, thresholds

SISO = Field("Value", Kind.NUMBER, [1.0], {"class": "siso"}, "siso p95")


def config_of(fields: dict[str, Any], column: Field = SISO, ref: str = "A") -> FieldConfig:
    return field_config_source({"fieldConfig": fields}, Context(now=1000)).of(column, ref)


@pytest.mark.parametrize(
    "values, is_hidden",
    [
        pytest.param([0.0, None, 0.0], True, id="zeros and a gap"),
        pytest.param([0.0, 1.0], False, id="not always zero"),
        pytest.param([None, None], False, id="no value"),
    ],
)
def test_an_override_by_value_matches_a_series_of_zeros(values: list[float | None], is_hidden: bool) -> None:
    matcher = {"reducer": "allIsZero", "op": "gte", "value": 0}
    field_config = config_of(config(override("byValue", matcher, unit="s"), unit="short"), replace(SISO, values=values))
    assert field_config.settings["unit"] == ("s" if is_hidden else "short")


@pytest.mark.parametrize(
    "matcher, options, matches",
    [
        pytest.param("byName", "siso p95", True, id="the name by the legend"),
        pytest.param("byName", "Value", True, id="the name of the column"),
        pytest.param("byName", "siso", False, id="another name"),
        pytest.param("byNames", {"mode": "include", "names": ["siso p95"]}, True, id="one of some names"),
        pytest.param("byNames", {"mode": "exclude", "names": ["siso p95"]}, False, id="none of some names"),
        pytest.param("byRegexp", "/^siso\\b/", True, id="a pattern"),
        pytest.param("byRegexp", "/^SISO/i", True, id="a pattern that ignores case"),
        pytest.param("byRegexp", "p95", True, id="a bare pattern"),
        pytest.param("byRegexp", "/^p95/", False, id="a pattern that fails"),
        pytest.param("byType", "number", True, id="the type"),
        pytest.param("byFrameRefID", "A", True, id="the query"),
        pytest.param("byFrameRefID", "B", False, id="another query"),
        pytest.param("byFuture", "x", False, id="a matcher of tomorrow"),
    ],
)
def test_an_override_applies_to_the_columns_that_it_matches(matcher: str, options: Any, matches: bool) -> None:
    field_config = config_of(config(override(matcher, options, unit="s"), unit="short"))
    assert field_config.settings["unit"] == ("s" if matches else "short")


def test_the_last_override_wins_and_the_defaults_are_not_changed() -> None:
    fields = config(
        override("byName", "siso p95", custom__lineWidth=2, unit="s"),
        override("byRegexp", "/siso/", unit="ms"),
        custom={"lineWidth": 1, "fillOpacity": 40},
    )
    field_config = config_of(fields)
    assert (field_config.settings["unit"], field_config.custom("lineWidth"), field_config.custom("fillOpacity")) == (
        "ms",
        2,
        40,
    )
    assert fields["defaults"]["custom"]["lineWidth"] == 1


def of_value(**results: Any) -> dict[str, Any]:
    return {"type": "value", "options": {name.removeprefix("_"): result for name, result in results.items()}}


def of(kind: str, result: Any, **options: Any) -> dict[str, Any]:
    return {"type": kind, "options": {**options, "result": result}}


@pytest.mark.parametrize(
    "mapping, value, text, colour",
    [
        pytest.param(of_value(_1={"text": "up", "color": "green"}), 1.0, "up", "#73BF69 #56A64B", id="a value"),
        pytest.param(of_value(_1={"text": "up"}), 2.0, "2", "", id="another value"),
        pytest.param(of_value(_1={"color": RED}), 1, "1", RED, id="only a colour"),
        pytest.param(of_value(_00128={"text": "to 128"}), "00128", "to 128", "", id="a string"),
        pytest.param(of("range", {"text": "much"}, **{"from": 1, "to": None}), 7, "much", "", id="a range"),
        pytest.param(of("range", {"text": "few"}, **{"from": 1, "to": 2}), 3, "3", "", id="outside of a range"),
        pytest.param(of("regex", {"text": "old"}, pattern="/^v0/"), "v0.1", "old.1", "", id="a pattern"),
        pytest.param(of("special", {"text": "gone"}, match="null"), None, "gone", "", id="nothing"),
        pytest.param(of("special", {"text": "gone"}, match="null"), 0, "0", "", id="zero is not nothing"),
    ],
)
def test_a_mapping_gives_text_and_colour(mapping: Any, value: Any, text: str, colour: str) -> None:
    displayed = config_of(config(mappings=[mapping])).display(value)
    assert (displayed.text, displayed.colour) == (text, colour)


def test_a_missing_value_is_shown_as_the_no_value_text() -> None:
    field_config = config_of(config(noValue="no traffic", unit="s"))
    assert [field_config.display(value).text for value in (None, "", 0)] == ["no traffic", "no traffic", "0 s"]


def test_a_display_name_may_name_the_labels() -> None:
    field_config = config_of(config(override("byName", "siso p95", displayName="class ${__field.labels.class}")))
    assert field_config.title(SISO) == "class siso"


@pytest.mark.parametrize(
    "value, colour",
    [
        pytest.param(-1.0, RED, id="below the first step"),
        pytest.param(0.25, GREEN, id="on a step"),
        pytest.param(9.0, GREEN, id="above the last"),
        pytest.param(math.inf, GREEN, id="infinite"),
        pytest.param(None, RED, id="no value"),
    ],
)
def test_thresholds_colour_a_value_from_their_step_on(value: float | None, colour: str) -> None:
    assert config_of(config(thresholds=thresholds(RED, (0.25, GREEN)))).colour_of(value) == colour


def test_thresholds_may_be_shares_of_the_panels_range() -> None:
    field_config = config_of(config(min=0, max=10, thresholds={**thresholds(RED, (50, GREEN)), "mode": "percentage"}))
    assert [field_config.colour_of(value) for value in (4.9, 5.0)] == [RED, GREEN]


def test_a_fixed_colour_does_not_depend_on_the_value() -> None:
    assert config_of(config(color=fixed(BLUE), thresholds=thresholds(RED))).colour_of(0) == BLUE


def test_the_colour_of_a_line_is_between_blue_and_purple_by_its_maximum() -> None:
    field_config = config_of(config(color={"mode": "continuous-BlPu", "seriesBy": "max"}))
    lines = [field_config.colour_of_series(values, 0, 8) for values in ([0, 0], [4, 1], [None, 8])]
    assert lines == ["#5794F2 #3274D9", "#8886E6 #6B63D3", "#B877D9 #A352CC"]


@pytest.mark.parametrize(
    "background, text_colour",
    [
        pytest.param("#DEEBF7", "#202226", id="black on light blue"),
        pytest.param("#08519C", "#F7F8FA", id="white on dark blue"),
        pytest.param("#DEEBF74B", "", id="default on a faint blue"),
        pytest.param("#08519C59", "#F7F8FA", id="white from an opacity of 30 %"),
        pytest.param("transparent", "", id="default on a transparent background"),
    ],
)
def test_text_on_a_coloured_background_has_the_colour_of_grafana(background: str, text_colour: str) -> None:
    assert colours.text_colour(background) == text_colour


def test_minus_zero_has_the_text_of_zero() -> None:
    """A product of 0 and a negative number in PromQL is -0, whose text in JavaScript is 0."""
    spent = [{"type": "value", "options": {"0": {"text": "spent"}}}]
    assert config_of(config(mappings=spent)).display(-0.0).text == "spent"
