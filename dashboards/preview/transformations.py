"""Grafana's transformations of frames, those that dashboards of this kind use."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dashboards.preview.calculations import CALCS, in_order, reduce
from dashboards.preview.data_frames import Field, Frame, Kind
from dashboards.preview.field_config import pattern

Frames = list[Frame]
Options = Mapping[str, Any]


def transformed(frames: Frames, transformations: Iterable[Mapping[str, Any]]) -> Frames:
    """The frames after every transformation; one that is not known changes nothing."""
    for each in transformations:
        apply = _KNOWN.get(str(each["id"]))
        if apply and not each.get("disabled"):
            frames = apply(frames, each.get("options") or {})
    return frames


def _join(frames: Frames, options: Options) -> Frames:
    """One frame with a row for each value of a column that all have; titles that recur are numbered."""
    by = str(options.get("byField") or "Time")
    having = [(frame, key) for frame in frames if (key := frame.column(by))]
    if not having:
        return frames
    sets = [set(key.values) for _, key in having]
    kept = set.intersection(*sets) if options.get("mode") == "inner" else set.union(*sets)
    order = [value for value in dict.fromkeys(value for _, key in having for value in key.values) if value in kept]
    columns: list[Field] = []
    for frame, key in having:
        place = {value: row for row, value in reversed(list(enumerate(key.values)))}
        for column in frame.fields:
            if column is not key:
                values = [column.values[place[value]] if value in place else None for value in order]
                columns.append(replace(column, values=values))
    first = having[0][1]
    return [Frame(having[0][0].ref, (replace(first, values=order), *_numbered(columns)))]


def _numbered(columns: Sequence[Field]) -> list[Field]:
    titles = [column.title for column in columns]
    seen: dict[str, int] = {}
    found = []
    for column in columns:
        title = column.title
        if titles.count(title) > 1:
            seen[title] = seen.get(title, 0) + 1
            column = replace(column, name=f"{title} {seen[title]}", shown="")  # noqa: PLW2901
        found.append(column)
    return found


def _merge(frames: Frames, options: Options) -> Frames:
    """One frame; rows that contradict each other in no column become one."""
    del options
    if len(frames) < 2:
        return frames
    titles = list(dict.fromkeys(column.title for frame in frames for column in frame.fields))
    shared = [title for title in titles if all(frame.column(title) for frame in frames)]
    kinds = {column.title: column for frame in frames for column in frame.fields}
    rows: list[dict[str, Any]] = []
    places: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for frame in frames:
        for row in range(frame.rows):
            values = {column.title: column.values[row] for column in frame.fields}
            alike = places.setdefault(tuple(values[title] for title in shared), [])
            fitting = [each for each in alike if all(each.get(name) in (None, value) for name, value in values.items())]
            for each in fitting:
                each.update(values)
            if not fitting:
                alike.append(values)
                rows.append(values)
    return [
        Frame(
            frames[0].ref,
            tuple(replace(kinds[title], values=[row.get(title) for row in rows], labels={}) for title in titles),
        )
    ]


def _organize(frames: Frames, options: Options) -> Frames:
    """Leave out, put in order and rename columns."""
    without, order, names = (options.get(key) or {} for key in ("excludeByName", "indexByName", "renameByName"))

    def organized(frame: Frame) -> Frame:
        kept = [column for column in frame.fields if not without.get(column.title)]
        kept.sort(key=lambda column: order.get(column.title, len(order)))
        return Frame(
            frame.ref, tuple(replace(column, shown=names.get(column.title) or column.shown) for column in kept)
        )

    return [organized(frame) for frame in frames]


def _to_matrix(frames: Frames, options: Options) -> Frames:
    """A row for each value of one column, a column for each value of another, and a third one's values within."""
    across, down, inside = (
        str(options.get(key) or otherwise)
        for key, otherwise in (("columnField", "Time"), ("rowField", "Time"), ("valueField", "Value"))
    )
    for frame in frames:
        head, side, body = frame.column(across), frame.column(down), frame.column(inside)
        if head and side and body:
            places = {(a, b): c for a, b, c in zip(side.values, head.values, body.values, strict=True)}
            rows = list(dict.fromkeys(side.values))
            columns = [
                replace(body, name=str(name), shown="", values=[places.get((row, name)) for row in rows])
                for name in dict.fromkeys(head.values)
            ]
            return [Frame(frame.ref, (replace(side, name=f"{down}\\{across}", shown="", values=rows), *columns))]
    return frames


def _labels_to_fields(frames: Frames, options: Options) -> Frames:
    """A column for each label; the value is named after the label `valueLabel`, if that is given."""
    keep, named = options.get("keepLabels"), str(options.get("valueLabel") or "")
    found = []
    for frame in frames:
        values = [column for column in frame.fields if column.kind is not Kind.TIME]
        labels = {name: text for column in values for name, text in column.labels.items() if not keep or name in keep}
        title = labels.pop(named, "")
        found.append(
            Frame(
                frame.ref,
                (
                    *(column for column in frame.fields if column.kind is Kind.TIME),
                    *(Field(name, Kind.STRING, [text] * frame.rows) for name, text in sorted(labels.items())),
                    *(replace(column, name=title or column.name, shown="", labels={}) for column in values),
                ),
            )
        )
    return _merge(found, {})


def _filter_by_name(frames: Frames, options: Options) -> Frames:
    """Only the columns that are named, or match."""

    def wanted(title: str) -> bool:
        without, only = options.get("exclude") or {}, options.get("include") or {}
        if title in without.get("names", ()) or (without.get("pattern") and pattern(without["pattern"]).search(title)):
            return False
        if not only.get("names") and not only.get("pattern"):
            return True
        return title in only.get("names", ()) or bool(only.get("pattern") and pattern(only["pattern"]).search(title))

    return [Frame(frame.ref, tuple(each for each in frame.fields if wanted(each.title))) for frame in frames]


def _rename(frames: Frames, options: Options) -> Frames:
    regex, text = pattern(str(options.get("regex", ""))), str(options.get("renamePattern", "")).replace("$", "\\")
    return [
        Frame(frame.ref, tuple(replace(each, shown=regex.sub(text, each.title)) for each in frame.fields))
        for frame in frames
    ]


def _sort(frames: Frames, options: Options) -> Frames:
    for key in options.get("sort") or []:
        frames = [_sorted(frame, str(key.get("field")), descending=bool(key.get("desc"))) for frame in frames]
    return frames


def _sorted(frame: Frame, title: str, *, descending: bool) -> Frame:
    column = frame.column(title)
    if column is None:
        return frame
    return frame.take(in_order(range(frame.rows), column.values.__getitem__, descending=descending))


def _limit(frames: Frames, options: Options) -> Frames:
    return [frame.take(range(min(frame.rows, int(options.get("limitField", 10))))) for frame in frames]


def _reduce(frames: Frames, options: Options) -> Frames:
    """A row for each series and a column for each calculation."""
    calcs = [name for name in options.get("reducers") or ["max"] if name in CALCS]
    columns = [(frame, each) for frame in frames for each in frame.fields if each.kind is Kind.NUMBER]
    if options.get("mode") == "reduceFields" or not columns:
        return [
            Frame(frame.ref, tuple(replace(each, values=[reduce(calcs[0], each.values)]) for each in frame.fields))
            for frame in frames
        ]
    names = sorted({name for _, each in columns for name in each.labels}) if options.get("labelsToFields") else []
    return [
        Frame(
            frames[0].ref,
            (
                Field("Field", Kind.STRING, [each.title for _, each in columns]),
                *(Field(name, Kind.STRING, [each.labels.get(name, "") for _, each in columns]) for name in names),
                *(
                    Field(CALCS[calc][0], Kind.NUMBER, [reduce(calc, each.values) for _, each in columns])
                    for calc in calcs
                ),
            ),
        )
    ]


_KNOWN: dict[str, Callable[[Frames, Options], Frames]] = {
    "joinByField": _join,
    "seriesToColumns": _join,
    "merge": _merge,
    "organize": _organize,
    "groupingToMatrix": _to_matrix,
    "labelsToFields": _labels_to_fields,
    "filterFieldsByName": _filter_by_name,
    "renameByRegex": _rename,
    "sortBy": _sort,
    "limit": _limit,
    "reduce": _reduce,
}
