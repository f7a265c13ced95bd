"""Transformations, as tables: a header and its rows."""

import math
from typing import Any

import pytest

from dashboards.preview.frames.frame import Field, Frame, Kind
from dashboards.preview.frames.transformations import transform

Table = list[tuple[Any, ...]]


def frame(header: tuple[str, ...], *rows: tuple[Any, ...], ref: str = "A") -> Frame:
    kinds = {"Time": Kind.TIME, "Value": Kind.NUMBER}
    columns = zip(*rows, strict=True) if rows else [()] * len(header)
    return Frame(
        ref,
        tuple(
            Field(name, kinds.get(name.split(" ")[0], Kind.STRING), list(values))
            for name, values in zip(header, columns, strict=True)
        ),
    )


def table(frame: Frame) -> Table:
    titles = tuple(column.title for column in frame.fields)
    return [titles, *zip(*(column.values for column in frame.fields), strict=True)]


def series(value: float, **labels: str) -> Frame:
    return Frame("A", (Field("Time", Kind.TIME, [0]), Field("Value", Kind.NUMBER, [value], labels, f"s{value:g}")))


def apply(frames: list[Frame], name: str, **options: Any) -> list[Table]:
    return [table(each) for each in transform(frames, [{"id": name, "options": options}])]


UP = frame(("Time", "engine", "Value #A"), (0, "a", 1), (0, "b", 0))
WAIT = frame(("Time", "engine", "Value #B"), (0, "b", 7), (0, "c", 9), ref="B")


def numbers_of(frame: Frame) -> list[str]:
    return [column.title for column in frame.fields if column.kind is Kind.NUMBER]


def test_merge_joins_rows_without_different_values() -> None:
    assert apply([UP, WAIT], "merge") == [
        [("Time", "engine", "Value #A", "Value #B"), (0, "a", 1, None), (0, "b", 0, 7), (0, "c", None, 9)]
    ]


def test_a_difference_is_relative_or_multiplied_and_absent_without_both_values() -> None:
    before = frame(("class", "Value #A"), ("a", 4.0), ("b", 0.0), ("c", 0.0), ("d", 1.0))
    after = frame(("class", "Value #B"), ("a", 5.0), ("b", 5.0), ("c", 0.0), ref="B")

    def calculated(*operations: tuple[str, str, str]) -> list[Any]:
        steps = [
            {"id": "calculateField", "options": {"mode": "binary", "alias": alias, "binary": binary}}
            for alias, (left, operator, right) in zip(("step", "change"), operations, strict=True)
            for binary in [{"left": left, "operator": operator, "right": right}]
        ]
        (result,) = transform([before, after], [{"id": "merge"}, *steps])
        return result.fields[-1].values

    relative = calculated(("Value #B", "/", "Value #A"), ("step", "-", "1"))
    assert relative == pytest.approx([0.25, math.inf, math.nan, math.nan], nan_ok=True)
    points = calculated(("Value #B", "-", "Value #A"), ("step", "*", "100"))
    assert points == pytest.approx([100, 500, 0, math.nan], nan_ok=True)


def test_a_calculation_with_a_column_that_no_query_returned_adds_no_column() -> None:
    binary = {"left": "Value #A", "operator": "-", "right": "Value #B"}
    assert apply([UP], "calculateField", mode="binary", alias="change", binary=binary) == [table(UP)]


def test_merge_keeps_rows_together_when_one_query_is_empty() -> None:
    nothing = frame(("Time", "Value #C"), ref="C")
    assert apply([nothing, UP, WAIT], "merge") == [
        [
            ("Time", "Value #C", "engine", "Value #A", "Value #B"),
            (0, None, "a", 1, None),
            (0, None, "b", 0, 7),
            (0, None, "c", None, 9),
        ]
    ]


def test_merge_keeps_a_single_frame() -> None:
    assert apply([UP], "merge") == [table(UP)]


def test_organize_leaves_out_orders_and_renames() -> None:
    assert apply(
        [UP],
        "organize",
        excludeByName={"Time": True},
        indexByName={"Value #A": 0, "engine": 1},
        renameByName={"Value #A": "State"},
    ) == [[("State", "engine"), (1, "a"), (0, "b")]]


def test_grouping_to_a_matrix_turns_one_column_into_the_header() -> None:
    settings = frame(
        ("Time", "engine", "setting", "Value"), (0, "a", "seed", 1), (0, "b", "seed", 2), (0, "b", "dtype", 3)
    )
    assert apply([settings], "groupingToMatrix", rowField="engine", columnField="setting", valueField="Value") == [
        [("engine\\setting", "seed", "dtype"), ("a", 1, None), ("b", 2, 3)]
    ]


def test_columns_are_renamed_by_a_pattern() -> None:
    assert apply([UP], "renameByRegex", regex="Value #(.)", renamePattern="of $1")[0][0] == ("Time", "engine", "of A")


@pytest.mark.parametrize("descending, order", [(False, "cab"), (True, "bac")])
def test_rows_are_sorted_and_a_missing_number_is_zero(descending: bool, order: str) -> None:
    unsorted = frame(("Value", "engine"), (None, "c"), (1, "a"), (2, "b"))
    (rows,) = apply([unsorted], "sortBy", sort=[{"field": "Value", "desc": descending}])
    assert "".join(row[1] for row in rows[1:]) == order


@pytest.mark.parametrize(
    "match, kept",
    [
        pytest.param("any", [("b", 2, 0), ("c", 0, 1), ("d", 3, 4)], id="one is enough"),
        pytest.param("all", [("d", 3, 4)], id="all are needed"),
    ],
)
def test_rows_are_kept_by_their_values(match: str, kept: Table) -> None:
    rows = frame(
        ("class", "Value #A", "Value #B"), ("a", 0, None), ("b", 2, 0), ("c", 0, 1), ("d", 3, 4), ("e", math.nan, 0)
    )
    filters = [{"fieldName": name, "config": {"id": "greater", "options": {"value": 0}}} for name in numbers_of(rows)]
    result = apply([rows], "filterByValue", filters=filters, type="include", match=match)
    assert result == [[("class", "Value #A", "Value #B"), *kept]]


def test_rows_are_kept_if_they_have_a_value() -> None:
    rows = frame(("class", "Value #A", "Value #B"), ("a", 0, None), ("b", None, None), ("c", None, math.nan))
    filters = [{"fieldName": name, "config": {"id": "isNotNull", "options": {}}} for name in numbers_of(rows)]
    (result,) = transform([rows], [{"id": "filterByValue", "options": {"filters": filters, "match": "any"}}])
    assert result.fields[0].values == ["a", "c"]


def test_an_unknown_or_disabled_transformation_changes_nothing() -> None:
    assert apply([UP], "transformOfTomorrow") == [table(UP)]
    assert transform([UP, WAIT], [{"id": "merge", "disabled": True}]) == [UP, WAIT]
