"""Grafana's transformations of data frames, those of the shipped dashboards."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import add, mul, sub
from typing import Any

from dashboards.preview.frames.calculations import is_absent, sort_rows
from dashboards.preview.frames.field_config import compile_pattern, expand_groups
from dashboards.preview.frames.frame import Field, Frame, Kind

Frames = list[Frame]
Options = Mapping[str, Any]


def transform(frames: Frames, transformations: Iterable[Mapping[str, Any]]) -> Frames:
    """The frames after all transformations; unknown transformations are skipped."""
    for each in transformations:
        apply = _TRANSFORMATIONS.get(str(each["id"]))
        if apply and not each.get("disabled"):
            frames = apply(frames, each.get("options") or {})
    return frames


def _merge(frames: Frames, options: Options) -> Frames:
    """One frame; rows without different values in any column are merged."""
    del options
    if len(frames) < 2:
        return frames
    titles = list(dict.fromkeys(column.title for frame in frames for column in frame.fields))
    shared = [title for title in titles if all(frame.column(title) for frame in frames)]
    kinds = {column.title: column for frame in frames for column in frame.fields}
    rows: list[dict[str, Any]] = []
    rows_by_key: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for frame in frames:
        for row in range(frame.rows):
            values = {column.title: column.values[row] for column in frame.fields}
            same_key = rows_by_key.setdefault(tuple(values[title] for title in shared), [])
            compatible = [
                each for each in same_key if all(each.get(name) in (None, value) for name, value in values.items())
            ]
            for each in compatible:
                each.update(values)
            if not compatible:
                same_key.append(values)
                rows.append(values)
    columns = (replace(kinds[title], values=[row.get(title) for row in rows], labels={}) for title in titles)
    return [Frame(frames[0].ref, tuple(columns))]


def _organize(frames: Frames, options: Options) -> Frames:
    """Hide, order and rename columns."""
    without, order, names = (options.get(key) or {} for key in ("excludeByName", "indexByName", "renameByName"))

    def organized(frame: Frame) -> Frame:
        columns = [column for column in frame.fields if not without.get(column.title)]
        columns.sort(key=lambda column: order.get(column.title, len(order)))
        renamed = (replace(each, display_name=names.get(each.title) or each.display_name) for each in columns)
        return Frame(frame.ref, tuple(renamed))

    return [organized(frame) for frame in frames]


def _to_matrix(frames: Frames, options: Options) -> Frames:
    """A row per value of one column, a column per value of another; the cells are the values of a third."""
    column_field, row_field, value_field = (
        str(options.get(key) or otherwise)
        for key, otherwise in (("columnField", "Time"), ("rowField", "Time"), ("valueField", "Value"))
    )
    for frame in frames:
        head, side, body = frame.column(column_field), frame.column(row_field), frame.column(value_field)
        if head and side and body:
            cells = {(a, b): c for a, b, c in zip(side.values, head.values, body.values, strict=True)}
            rows = list(dict.fromkeys(side.values))
            columns = [
                replace(body, name=str(name), display_name="", values=[cells.get((row, name)) for row in rows])
                for name in dict.fromkeys(head.values)
            ]
            row_titles = replace(side, name=f"{row_field}\\{column_field}", display_name="", values=rows)
            return [Frame(frame.ref, (row_titles, *columns))]
    return frames


def _calculate_field(frames: Frames, options: Options) -> Frames:
    """A column of an operation of two columns, or of a column and a number; of Grafana's modes, only `binary`."""
    binary = options.get("binary") or {}
    operation = _OPERATIONS.get(str(binary.get("operator") or "+"))
    name = str(options.get("alias") or "")
    result = []
    for frame in frames:
        left, right = (_operand(frame, str(binary.get(side))) for side in ("left", "right"))
        if operation is None or left is None or right is None:
            result.append(frame)
            continue
        # a missing value is undefined after `merge`
        pairs = zip(left, right, strict=True)
        values = [math.nan if one is None or other is None else operation(one, other) for one, other in pairs]
        result.append(Frame(frame.ref, (*frame.fields, Field(name, Kind.NUMBER, values))))
    return result


def _operand(frame: Frame, name: str) -> list[Any] | None:
    if column := frame.column(name):
        return column.values
    try:
        return [float(name)] * frame.rows
    except ValueError:
        return None


def _divide(one: float, other: float) -> float:
    """The quotient as JavaScript computes it: division by zero is infinite or NaN."""
    if other or math.isnan(one):
        return one / other
    return math.copysign(math.inf, one) * math.copysign(1, other) if one else math.nan


_OPERATIONS: dict[str, Callable[[float, float], float]] = {"+": add, "-": sub, "*": mul, "/": _divide}


def _filter_by_value(frames: Frames, options: Options) -> Frames:
    """The rows that match one filter, or all filters; of Grafana's matchers, `greater` and `isNotNull`."""
    decide = all if options.get("match") == "all" else any
    filters = [(str(each["fieldName"]), each["config"]) for each in options.get("filters") or []]

    def kept(frame: Frame) -> list[int]:
        columns = [(frame.column(name), matcher) for name, matcher in filters]
        return [
            row
            for row in range(frame.rows)
            if decide(column is not None and _is_match(column.values[row], matcher) for column, matcher in columns)
        ]

    return [frame.take(kept(frame)) for frame in frames]


def _is_match(value: Any, matcher: Mapping[str, Any]) -> bool:
    if matcher["id"] == "isNotNull":
        return value is not None
    return not is_absent(value) and bool(value > matcher["options"]["value"])


def _rename(frames: Frames, options: Options) -> Frames:
    regex = compile_pattern(str(options.get("regex", "")))
    replacement = str(options.get("renamePattern", ""))
    return [
        Frame(
            frame.ref,
            tuple(replace(each, display_name=expand_groups(regex, replacement, each.title)) for each in frame.fields),
        )
        for frame in frames
    ]


def _sort(frames: Frames, options: Options) -> Frames:
    for key in options.get("sort") or []:
        frames = [_sorted(frame, key) for frame in frames]
    return frames


def _sorted(frame: Frame, key: Options) -> Frame:
    if (column := frame.column(str(key.get("field")))) is None:
        return frame
    return frame.take(sort_rows(range(frame.rows), column.values.__getitem__, descending=bool(key.get("desc"))))


_TRANSFORMATIONS: dict[str, Callable[[Frames, Options], Frames]] = {
    "merge": _merge,
    "organize": _organize,
    "groupingToMatrix": _to_matrix,
    "calculateField": _calculate_field,
    "filterByValue": _filter_by_value,
    "renameByRegex": _rename,
    "sortBy": _sort,
}
