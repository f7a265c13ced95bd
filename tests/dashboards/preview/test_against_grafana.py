"""The preview's values against the functions of Grafana 10 to 13 on the same input; `../schema` pins the packages."""

import itertools
import json
import math
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dashboards.command import GENERATED
from dashboards.grafana import style
from dashboards.live.reader import panels_of, read_dashboards
from dashboards.preview.drawing.scales import labels, padded_range
from dashboards.preview.drawing.stat_panel import stat
from dashboards.preview.frames.calculations import CALCS, reduce, sort_rows
from dashboards.preview.frames.field_config import Context, FieldConfig, field_config_source
from dashboards.preview.frames.frame import Field, Frame, Kind
from dashboards.preview.frames.transformations import transform
from dashboards.preview.frames.units import _SCALED, _TIMES
from tests.dashboards.preview.sample_dashboard import BLUE, GREEN, RED, config, fixed, thresholds

SCHEMA = Path(__file__).parents[1] / "schema"
PACKAGE = SCHEMA / "node_modules/grafana-data-13"
Run = Callable[[str, list[dict[str, Any]]], list[Any]]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("node") is None, reason="node, which runs Grafana's functions, is not installed"),
    pytest.mark.skipif(not PACKAGE.exists(), reason="Grafana's functions are not installed: make test, with npm"),
]

UNITS = sorted(
    {
        str(panel["fieldConfig"]["defaults"]["unit"])
        for page in read_dashboards(Path(GENERATED)).values()
        for panel in panels_of(page["panels"])
        if panel["type"] not in {"row", "text"}
    }
    # dates and ages are relative to a clock and a locale; a string has no number
    - {"dateTimeAsIso", "dateTimeFromNow", "string"}
    | {
        "s",
        "ms",
        "bytes",
        "suffix:/s",
        "none",
    }
    | _SCALED.keys()
    | _TIMES.keys()
)
NUMBERS = [
    0,
    1,
    -1,
    2,
    3,
    59,
    60,
    61,
    90,
    3600,
    5400,
    86400,
    90000,
    700000,
    4e7,
    1023,
    1024,
    1500,
    -2.5e6,
    123456789,
    5e12,
]
NUMBERS += [0.5, 0.25, 0.9991, 1.23456, 12.3456, 0.00123456, 3.34e-11, 2e-6, 3e-9, 99.95, 999.9, -0.5, 1e15]
"""Around the steps between units, and the value that *Loop lag* had."""
ABSENT = [None, math.nan, math.inf, -math.inf]
LISTS: list[list[float | None]] = [
    [],
    [None],
    [math.nan],
    [1.0, 3.0, 2.0],
    [None, 1.0, math.nan, 3.0],
    [3.0, math.nan],
    [-1.0, -5.0, 2.0, None],
]
COLUMNS: list[tuple[str, list[Any]]] = [
    ("number", [2.0, None, 1.0]),
    ("number", [-1.0, None, 3.0]),
    ("string", ["b", "", "a", "B"]),
]
MAPPINGS: list[list[dict[str, Any]]] = [
    [{"type": "special", "options": {"match": match, "result": {"text": "absent", "color": "text"}}}]
    for match in ("null", "nan", "null+nan", "empty")
]


def encoded(value: Any) -> Any:
    return value if not isinstance(value, float) or math.isfinite(value) else {"number": _name(value)}


def decoded(value: Any) -> Any:
    return float(value["number"]) if isinstance(value, dict) else value


def _name(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


@pytest.fixture(params=[*(pytest.param(each, marks=pytest.mark.long) for each in (10, 11, 13)), 12])
def release(request: pytest.FixtureRequest) -> int:
    """A major version of Grafana."""
    return int(request.param)


@pytest.fixture
def run_in_grafana(release: int) -> Run:
    return partial(_run, f"grafana-data-{release}")


def _run(package: str, name: str, cases: list[dict[str, Any]]) -> list[Any]:
    """The results of one function for every case, from a single run of node."""
    text = json.dumps([[name, case] for case in cases])
    command = ["node", str(SCHEMA / "grafana_data.cjs"), package]
    finished = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    # a dependency prints a banner before
    return list(json.loads(finished.stdout.splitlines()[-1]))


def test_a_value_has_the_text_of_grafana_in_every_unit(run_in_grafana: Run, release: int) -> None:
    inputs = list(itertools.product(UNITS, NUMBERS + ABSENT, (None, 0, 1, 3)))
    cases = [
        {"type": "number", "value": encoded(value), "config": {"unit": unit, "decimals": decimals, "noValue": "none"}}
        for unit, value, decimals in inputs
    ]
    texts = [each["text"] for each in run_in_grafana("display", cases)]
    different = {}
    for (unit, value, decimals), text in zip(inputs, texts, strict=True):
        ours = FieldConfig({"unit": unit, "decimals": decimals, "noValue": "none"}, Context(0)).display(value).text
        if ours != text:
            different[unit, value, decimals] = (ours, text)
    assert len(different) == 0, dict(list(different.items())[:300])


def test_a_tick_has_the_text_of_grafana_in_every_unit(run_in_grafana: Run, release: int) -> None:
    inputs = list(itertools.product(UNITS, (0.0005, 0.01, 0.2, 0.25, 1.0, 2.5, 50.0, 2000.0), (None, 0, 1)))
    settings = [{"unit": unit, "decimals": decimals} for unit, _, decimals in inputs]
    values = [[increment * number for number in range(5)] for _, increment, _ in inputs]
    cases = [
        {"config": look, "values": ticks, "increment": increment}
        for look, ticks, (_, increment, _) in zip(settings, values, inputs, strict=True)
    ]
    for (_, increment, _), look, ticks, texts in zip(
        inputs, settings, values, run_in_grafana("ticks", cases), strict=True
    ):
        assert labels(ticks, FieldConfig(look, Context(0)), increment) == texts, (look, increment)


def test_an_absent_value_has_the_text_and_colour_of_grafana(run_in_grafana: Run) -> None:
    configs = [
        {"noValue": no_value, "color": colour, "thresholds": thresholds(RED, (0.5, GREEN)), "mappings": mappings}
        for no_value in ("", "no traffic")
        for colour in ({"mode": "thresholds"}, fixed(BLUE))
        for mappings in [[], *MAPPINGS]
    ]
    inputs = list(itertools.product(configs, [0.75, 0.25, *ABSENT[:2]]))
    cases = [{"type": "number", "value": encoded(value), "config": settings} for settings, value in inputs]
    for (settings, value), expected in zip(inputs, run_in_grafana("display", cases), strict=True):
        field_config = FieldConfig(settings, Context(0))
        display = field_config.display(value)
        colour = (display.colour or field_config.colour_of(value)).split()[0]
        # the page resolves the name of the text colour by its theme
        named = {"text": "rgb(204, 204, 220)"}
        assert (display.text, named.get(colour, colour)) == (expected["text"], expected["colour"]), (settings, value)


def test_a_text_keeps_its_text_only_with_the_settings_of_text_columns(run_in_grafana: Run) -> None:
    """With the unit of a date, Grafana reads a text as NaN, and replaces it by the text of the mapping."""
    absence = {"unit": "dateTimeAsIso", "mappings": MAPPINGS[2]}
    of_text = {each.id_val: each.value for each in style.TEXT}
    cases = [{"type": "string", "value": "max_num_seqs", "config": each} for each in (absence, absence | of_text)]
    assert [each["text"] for each in run_in_grafana("display", cases)] == ["absent", "max_num_seqs"]


def test_a_calculation_has_the_result_of_grafana(run_in_grafana: Run, release: int) -> None:
    # 10 and 11 add the value after a reset to `delta`
    inputs = list(itertools.product([each for each in CALCS if release > 11 or each != "delta"], LISTS))
    cases = [{"name": name, "values": list(map(encoded, values))} for name, values in inputs]
    for (name, values), expected in zip(inputs, map(decoded, run_in_grafana("calculate", cases)), strict=True):
        assert reduce(name, values) == pytest.approx(expected, nan_ok=True), (name, values)


def test_the_sort_transformation_orders_rows_as_grafana_does(run_in_grafana: Run, release: int) -> None:
    # 10 sorts texts by character
    columns = [each for each in COLUMNS if release > 10 or each[0] == "number"]
    inputs = [(kind, values, descending) for kind, values in columns for descending in (False, True)]
    cases = [{"type": kind, "values": values, "descending": descending} for kind, values, descending in inputs]
    for (_, values, descending), order in zip(inputs, run_in_grafana("sort", cases), strict=True):
        assert sort_rows(range(len(values)), values.__getitem__, descending=descending) == order, values


def test_an_operation_of_two_columns_has_the_result_of_grafana(run_in_grafana: Run) -> None:
    """Covers rows that both tables have, rows that only one has, and a column that is absent."""
    left, right = [1.5, 0.0, -2.0, math.nan, 0.0, math.inf, 7.0], [0.5, 0.0, 0.0, 1.0, 3.0, math.inf]
    rows = {"A": [("ab"[place % 2] * (place + 1), value) for place, value in enumerate(left)]}
    rows["B"] = [*((name, value) for (name, _), value in zip(rows["A"], right, strict=False)), ("only b", 4.0)]
    tables = [
        {"title": title, "rows": [[name, encoded(value)] for name, value in each]} for title, each in rows.items()
    ]
    pairs = [("A", "B"), ("B", "A"), ("A", "2"), ("1", "B"), ("A", "C")]
    inputs = [
        [{"mode": "binary", "alias": "x", "binary": {"left": left, "operator": operator, "right": right}}]
        for operator in "+-*/"
        for left, right in pairs
    ]
    # as the tables of the dashboards have them
    inputs += [
        [*first, {"mode": "binary", "alias": "y", "binary": {"left": "x", "operator": operator, "right": "100"}}]
        for operator in "-*"
        for first in inputs[: 4 * len(pairs)]
    ]
    cases = [{"tables": tables, "operations": operations} for operations in inputs]
    frames = [
        Frame(title, (Field("name", Kind.STRING, [*names]), Field(title, Kind.NUMBER, [*values])))
        for title, each in rows.items()
        for names, values in [zip(*each, strict=True)]
    ]
    for operations, expected in zip(inputs, run_in_grafana("operations", cases), strict=True):
        steps = [{"id": "calculateField", "options": each} for each in operations]
        (table,) = transform(frames, [{"id": "merge"}, *steps])
        assert [[each.title, list(map(encoded, each.values))] for each in table.fields] == expected, operations


def test_infinity_has_the_text_of_a_mapped_range_as_in_grafana(run_in_grafana: Run, release: int) -> None:
    """Grafana 10 and 11 show the infinity that a mapping has a text for."""
    mapping = {"type": "range", "options": {"from": 1e300, "to": None, "result": {"text": "-", "color": "text"}}}
    values = [0.5, 1e9, math.inf, -math.inf]
    settings = {"unit": "percentunit", "decimals": 1, "mappings": [mapping, *MAPPINGS[2]]}
    cases = [{"type": "number", "value": encoded(value), "config": settings} for value in values]
    texts = [each["text"] for each in run_in_grafana("display", cases)]
    assert texts[2] == ("-" if release > 11 else "∞%")
    texts[2] = "-"
    assert [FieldConfig(settings, Context(0)).display(value).text for value in values] == texts


def test_a_stat_panel_shows_the_values_and_colours_of_grafana(run_in_grafana: Run) -> None:
    settings = [
        {"unit": "percentunit", "decimals": 1, "thresholds": thresholds(RED, (0.9, GREEN)), **more}
        for more in ({}, {"noValue": "no traffic"})
    ]
    series: list[list[list[float | None]]] = [[], [[0.95, math.nan]], [[None]], [[math.nan]], [[0.5], [1.0]]]
    inputs = list(itertools.product(settings, series))
    cases = [{"config": each, "series": [list(map(encoded, values)) for values in data]} for each, data in inputs]
    for (defaults, data), expected in zip(inputs, run_in_grafana("figures", cases), strict=True):
        frames = [Frame("A", (Field("Value", Kind.NUMBER, list(values)),)) for values in data]
        source = field_config_source({"fieldConfig": config(**defaults)}, Context(0))
        items = stat({"options": {"reduceOptions": {"calcs": ["lastNotNull"]}}}, frames, source)["items"]
        assert [{"text": item["text"], "colour": item["colour"]} for item in items] == expected, (defaults, data)


def test_ranked_values_are_named_and_ordered_as_in_grafana(run_in_grafana: Run, release: int) -> None:
    # 10 sorts texts by character
    texts = {"engine": ["b", "a", "c", "B" if release > 10 else "d", "a"], "state": ["", "awake", "asleep", "x", "10"]}
    values = [1, 1, 0, 1, 0.5]
    columns = [Field(title, Kind.STRING, list(cells)) for title, cells in texts.items()]
    inputs = list(itertools.product((False, True), (None, "${__cell_1} of ${__cell_0}"), (None, 3)))
    cases: list[dict[str, Any]] = [
        {
            "texts": texts,
            "values": values,
            "sorts": [{"field": "state"}, {"field": "engine"}, {"field": "Value", "desc": descending}],
            "displayName": name,
            "limit": limit,
        }
        for descending, name, limit in inputs
    ]
    for (_, name, limit), case, expected in zip(inputs, cases, run_in_grafana("ranking", cases), strict=True):
        frames = [Frame("A", (*columns, Field("Value", Kind.NUMBER, list(values))))]
        frames = transform(frames, [{"id": "sortBy", "options": {"sort": [each]}} for each in case["sorts"]])
        source = field_config_source({"fieldConfig": config(**({"displayName": name} if name else {}))}, Context(0))
        options = {"reduceOptions": {"values": True, "limit": limit}, "textMode": "value_and_name"}
        items = stat({"options": options}, frames, source)["items"]
        assert [[item["name"], item["text"]] for item in items] == expected, case


def test_a_mapping_has_the_text_and_colour_of_grafana(run_in_grafana: Run) -> None:
    mappings: list[dict[str, Any]] = [
        {"type": "value", "options": {"1": {"text": "up", "color": "green"}, "0": {"text": "down"}}},
        {"type": "value", "options": {"2": {"color": "semi-dark-red"}}},
        {"type": "range", "options": {"from": 1, "to": 3, "result": {"text": "few", "color": "orange"}}},
        {"type": "regex", "options": {"pattern": "/^v0\\.(.*)/", "result": {"text": "old $1", "color": "#123456"}}},
    ]
    inputs = list(itertools.product(mappings, [-1.0, 0.0, 1.0, 1.5, 2.0, 3.0, 4.0, "1", "2", "v0.9", "v1", "x"]))
    cases = [
        {"type": "string" if isinstance(value, str) else "number", "value": value, "config": {"mappings": [mapping]}}
        for mapping, value in inputs
    ]
    for (mapping, value), expected in zip(inputs, run_in_grafana("display", cases), strict=True):
        shown = FieldConfig({"mappings": [mapping]}, Context(0)).display(value)
        assert shown.text == expected["text"], (mapping, value)
        if shown.colour:
            assert shown.colour.split()[0] == expected["colour"], (mapping, value)


def test_a_series_has_the_colour_of_grafana_in_both_themes(run_in_grafana: Run) -> None:
    modes: list[dict[str, Any]] = [
        {"mode": "continuous-BlPu", "seriesBy": "max"},
        *map(fixed, ("green", "dark-red", BLUE)),
    ]
    lines = [[0.0, 1.0], [3.0, 7.0, 2.0], [12.0], [0.0]]
    settings: list[dict[str, Any]] = [{}, {"min": 0, "max": 20}, {"min": -4}]
    inputs = list(itertools.product(modes, lines, settings))
    cases = [{"config": {"color": mode, **ends}, "values": values} for mode, values, ends in inputs]
    for (mode, values, ends), expected in zip(inputs, run_in_grafana("colours", cases), strict=True):
        ours = FieldConfig({"color": mode, **ends}, Context(0)).colour_of_series(values, min(values), max(values))
        shown = [ours.split()[0].upper(), ours.split()[-1].upper()]
        assert shown == [each.upper() for each in expected], (mode, values, ends)


def test_overrides_match_the_columns_that_they_match_in_grafana(run_in_grafana: Run) -> None:
    columns = [
        Field("engine", Kind.STRING, ["a", "b"]),
        Field("Value #A", Kind.NUMBER, [0.0, 0.0]),
        Field("Value #B", Kind.NUMBER, [0.0, 2.0]),
        Field("Time", Kind.TIME, [1e12, 2e12]),
    ]
    matchers: list[tuple[str, Any]] = [
        ("byName", "Value #B"),
        ("byNames", {"mode": "exclude", "names": ["engine"]}),
        ("byNames", {"mode": "include", "names": ["engine", "Time"]}),
        ("byRegexp", "/^value/i"),
        ("byRegexp", "^Value.*A$"),
        ("byType", "number"),
        ("byType", "time"),
        ("numeric", None),
        ("byFrameRefID", "A"),
        ("byFrameRefID", "B"),
        ("byValue", {"reducer": "allIsZero", "op": "gte", "value": 1}),
    ]
    override = [
        {"matcher": {"id": id_, "options": options}, "properties": [{"id": "unit", "value": "s"}]}
        for id_, options in matchers
    ]
    last = {"matcher": {"id": "byName", "options": "Value #A"}, "properties": [{"id": "unit", "value": "ms"}]}
    inputs: list[list[dict[str, Any]]] = [[each] for each in override] + [[each, last] for each in override]
    table = [{"name": each.name, "type": str(each.kind), "values": each.values, "labels": {}} for each in columns]
    defaults = {"unit": "none", "decimals": 1}
    cases = [{"columns": table, "defaults": defaults, "overrides": each} for each in inputs]
    for overrides, expected in zip(inputs, run_in_grafana("overrides", cases), strict=True):
        source = field_config_source({"fieldConfig": {"defaults": defaults, "overrides": overrides}}, Context(0))
        settings = [source.of(column, "A").settings for column in columns]
        assert [[each["unit"], each["decimals"]] for each in settings] == expected, overrides


def test_an_axis_ends_where_that_of_grafana_ends(run_in_grafana: Run) -> None:
    values = [-2500, -5, -1, -0.3, 0, 1e-7, 0.004, 0.05, 0.3, 0.97, 1, 4, 14.4, 99, 100, 1234.5, 5e9]
    pairs = [(low, high) for low, high in itertools.product(values, values) if low <= high]
    inputs = list(itertools.product(pairs, (None, 0, -2), (None, 0, 1, 20)))
    cases = [{"low": low, "high": high, "soft": soft} for (low, high), *soft in inputs]
    for ((low, high), *soft), expected in zip(inputs, run_in_grafana("axis", cases), strict=True):
        assert padded_range(low, high, *soft) == pytest.approx(expected), (low, high, soft)
