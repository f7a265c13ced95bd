"""Table panels: queries joined by labels, listed labels, and pivot tables."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from math import nan
from string import ascii_uppercase
from typing import Any, TypeVar

from grafana_foundation_sdk.builders import bargauge, common, prometheus, stat, table
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from alerts.promql.build import Series, vector
from alerts.promql.expression import Expression
from dashboards.grafana import style
from dashboards.grafana.style import PLAIN, absence, query, thresholds
from exporters.vocabulary.signals import Label

_Panel = TypeVar("_Panel", stat.Panel, bargauge.Panel, table.Panel)

_WIDTHS: Mapping[str, int] = {
    Label.SEVERITY: 80,
    Label.ALERTNAME: 200,
    Label.CLASS: 70,
    Label.SLO: 100,
    Label.OUTCOME: 175,
    Label.RUN: 190,
    Label.SCENARIO: 160,
    Label.EXPERIMENT: 130,
    Label.CONFIGURATION: 130,
    Label.REVISION: 130,
    Label.SETTING: 305,
    Label.SIGNAL: 340,
    Label.ENGINE: 130,
    Label.INSTANCE: 140,
    "engines": 105,
    "figure": 130,
    Label.ENGINE_TYPE: 60,
    Label.VERSION: 155,
    "runbook": 170,
}
"""The width of a label's column in pixels, by its longest usual value."""

_LEAST_WIDTH = 130
"""Pixels of an IPv4 address and a port, of an age such as `41 minutes ago`, of a duration and of a count."""

_INFINITE = model.RangeMap(
    model.DashboardRangeMapOptions(from_val=1e300, to=None, result=model.ValueMappingResult("-", color=PLAIN, index=0))
)
"""Infinity, which no other value reaches."""

_WIDE_UNITS = frozenset({style.AGE, style.COUNT, style.MILLISECONDS, style.SECONDS, style.MINUTES, style.DAYS})


@dataclass(frozen=True, slots=True)
class ValueColumn:
    """A column of values, coloured by `base` and `steps`; `no_value` is the text of a missing value.

    Ages, durations and counts are wider than `width` if it is too narrow for them.
    """

    title: str
    expression: Expression | Series
    unit: str
    _: KW_ONLY
    no_value: str = "-"
    decimals: int | None = None
    base: str = PLAIN
    steps: tuple[tuple[float, str], ...] = ()
    mappings: Sequence[model.ValueMapping] = ()
    width: int | None = None


@dataclass(frozen=True, slots=True)
class DifferenceColumn:
    """The values of one column of a table minus those of another, which Grafana computes without a query.

    The difference is multiplied by `times`, or is relative to the values that are subtracted. A row without one of the
    values has a dash, as has a row with a relative difference to 0, which is infinite.
    """

    title: str
    of: str
    minus: str
    unit: str
    _: KW_ONLY
    times: int = 1
    is_relative: bool = False
    decimals: int | None = None


@dataclass(frozen=True, slots=True)
class LabelColumns:
    """Columns of labels, such as a version, with their titles."""

    expression: Expression | Series
    titles: Mapping[Label, str]


def join_queries(
    panel: table.Panel,
    keys: Mapping[Label, str] | Mapping[str, str],
    columns: Sequence[ValueColumn | DifferenceColumn | LabelColumns],
    *,
    order_by: Expression | None = None,
    rows: Expression | None = None,
    widest: Collection[Label] = (),
    texts: Mapping[str, str] | None = None,
) -> table.Panel:
    """One row per set of key labels, which every query must have; `texts` are further labels, in the last columns.

    The columns of the labels `widest` share the rest of the width; with a width for every column, it is blank.
    `order_by` is a query whose values sort the rows; equal ones are sorted by the key labels. `rows` is a query with
    one series per row: with it, a column whose query returns nothing remains, with missing values.

    `merge` joins by all shared labels. `joinByField` supports only one label, and engines behind different sidecars may
    have the same address.
    """
    order, hidden = [str(key) for key in keys], ["Time"]
    _set_titles(panel, keys, widest)
    queries = sum(not isinstance(column, DifferenceColumn) for column in columns)
    values = iter(value_names(queries + (order_by is not None)))
    names: dict[str, str] = {}
    calculations: list[dict[str, Any]] = []
    for column in columns:
        if isinstance(column, DifferenceColumn):
            calculations += _difference(column, names[column.of], names[column.minus])
            panel.override_by_name(column.title, _difference_overrides(column))
            order.append(column.title)
            continue
        value = next(values)
        match column:
            case ValueColumn():
                names[column.title] = value
                expression = vector(column.expression)
                if rows is not None:
                    expression = expression.or_(nan * rows)
                panel.with_target(_table_query(expression, column.title)).override_by_name(
                    value, _value_column_overrides(column)
                )
                order.append(value)
            case LabelColumns():
                panel.with_target(_table_query(column.expression, ", ".join(column.titles.values())))
                _set_titles(panel, column.titles, widest)
                order += map(str, column.titles)
                hidden.append(value)
    transform(panel, "merge")
    for calculation in calculations:
        transform(panel, "calculateField", **calculation)
    hidden += [each["alias"] for each in calculations if each["alias"] not in order]
    if order_by is not None:
        value = next(values)
        panel.with_target(_table_query(order_by, "order of the rows"))
        for key in reversed(list(keys)):
            transform(panel, "sortBy", sort=[{"field": str(key)}])
        transform(panel, "sortBy", sort=[{"field": value}])
        hidden.append(value)
    if texts:
        _set_titles(panel, texts)
    return _organize(panel, [*order, *(texts or ())], hidden)


def value_names(queries: int) -> list[str]:
    """Grafana's names of the columns of values in the tables that the queries of a panel return."""
    return [f"Value #{ref_id}" for ref_id in ascii_uppercase[:queries]] if queries > 1 else ["Value"]


def hide_zero_rows(panel: table.Panel, columns: int) -> table.Panel:
    """Hide rows whose values in the first `columns` queries are 0 or missing."""
    return _filter_rows(panel, columns, {"id": "greater", "options": {"value": 0}})


def hide_empty_rows(panel: table.Panel, columns: int) -> table.Panel:
    """Hide rows without a value in the first `columns` queries, such as those that only the order has."""
    return _filter_rows(panel, columns, {"id": "isNotNull", "options": {}})


def _filter_rows(panel: table.Panel, columns: int, matcher: Mapping[str, Any]) -> table.Panel:
    filters = [{"fieldName": f"Value #{ref_id}", "config": matcher} for ref_id in ascii_uppercase[:columns]]
    return transform(panel, "filterByValue", filters=filters, type="include", match="any")


def sort_rows(panel: table.Panel, *titles: str) -> table.Panel:
    """Sort by the columns with these titles, the first one first; a title after `-` sorts from high to low.

    The order of an instant query is arbitrary.
    """
    return panel.sort_by(
        [
            common.TableSortByFieldState().display_name(title.removeprefix("-")).desc(title.startswith("-"))
            for title in titles
        ]
    )


def list_labels(
    panel: table.Panel, expression: Expression, titles: Mapping[Label, str], widest: Collection[Label] = ()
) -> table.Panel:
    """One row per series, with the given labels and without the value; sorted by them."""
    sort_rows(panel, *titles.values())
    _set_titles(panel, titles, widest)
    panel.with_target(_table_query(expression, ", ".join(titles.values())))
    return _organize(panel, [str(label) for label in titles], ["Time", "Value"])


def pivot(
    panel: table.Panel,
    expression: Expression,
    row: Label,
    column: Label,
    cell: Label | None = None,
    order: Sequence[str] = (),
    width: int | None = None,
    *,
    first_by: str = "",
) -> table.Panel:
    """One row per value of `row`, one column per value of `column`; the cells have the label `cell`, or the value.

    The columns in `order` come first; the others are sorted by name, as are the rows. With `first_by`, the row with the
    greatest value of this field is first. `width` is that of the names of the rows in pixels, by default that of the
    label.
    """
    corner, title = f"{row}\\{column}", row.capitalize()
    corner_settings = {"displayName": title, "custom.width": width or _WIDTHS[row]}
    if not first_by:
        sort_rows(panel, title)
    settings = [model.DynamicConfigValue(name, value) for name, value in corner_settings.items()]
    panel.override_by_name(corner, [*settings, *style.TEXT])
    panel.with_target(_table_query(expression, f"{{{{{cell or row}}}}}"))
    # rows and columns have the order in which their names first appear; sorting is stable
    transform(panel, "sortBy", sort=[{"field": str(column)}])
    if first_by:
        transform(panel, "sortBy", sort=[{"field": first_by, "desc": True}])
    to_matrix(panel, row, column, str(cell or "Value"))
    return _organize(panel, [corner, *order]) if order else panel


def to_matrix(panel: table.Panel, row: Label, column: Label, value: str) -> table.Panel:
    """A missing cell is null, which has the text of a missing value; by default it is an empty text."""
    fields = {"rowField": str(row), "columnField": str(column), "valueField": value}
    return transform(panel, "groupingToMatrix", **fields, emptyValue="null")


def transform(panel: _Panel, name: str, **options: Any) -> _Panel:
    return panel.with_transformation(model.DataTransformerConfig(name, options=options))


def link_cells(panel: table.Panel, label: str, title: str, url: str) -> table.Panel:
    """Link each cell of the label's column to `url`."""
    return panel.override_by_name(str(label), [model.DynamicConfigValue("links", [{"title": title, "url": url}])])


def _table_query(expression: Expression | Series, legend: str) -> prometheus.Dataquery:
    return query(expression, legend, instant=True).format(PromQueryFormat.TABLE)


def _set_titles(
    panel: table.Panel, titles: Mapping[Label, str] | Mapping[str, str], widest: Collection[Label] = ()
) -> None:
    """Set display names and widths; links refer to the field by the name of its label."""
    for label, title in titles.items():
        width = [model.DynamicConfigValue("custom.width", _WIDTHS[label])] if label in _WIDTHS else []
        if label in widest:
            width = [model.DynamicConfigValue("custom.minWidth", max(_LEAST_WIDTH, _WIDTHS.get(label, 0)))]
        panel.override_by_name(str(label), [model.DynamicConfigValue("displayName", title), *width, *style.TEXT])


def threshold_colours(base: str, *steps: tuple[float, str]) -> list[model.DynamicConfigValue]:
    """The overrides that colour the text of a column by `base` and `steps`."""
    return [
        model.DynamicConfigValue("thresholds", thresholds(base, *steps).build()),
        model.DynamicConfigValue("color", {"mode": model.FieldColorModeId.THRESHOLDS}),
        model.DynamicConfigValue("custom.cellOptions", {"type": "color-text"}),
    ]


def _value_column_overrides(column: ValueColumn) -> list[model.DynamicConfigValue]:
    width, least = column.width, _LEAST_WIDTH if column.unit in _WIDE_UNITS else None
    settings = {
        "displayName": column.title,
        "unit": column.unit,
        "decimals": column.decimals,
        "mappings": [*column.mappings, absence(column.no_value)],
        "custom.width": width and max(width, least or 0),
        "custom.minWidth": None if width else least,
    }
    properties = [model.DynamicConfigValue(name, value) for name, value in settings.items() if value is not None]
    return [*properties, *(threshold_colours(column.base, *column.steps) if column.steps else ())]


def _difference(column: DifferenceColumn, of: str, minus: str) -> list[dict[str, Any]]:
    """The options of the transformations: each is one operation of two fields, or of a field and a number."""
    if column.is_relative:
        return [_operation("ratio", of, "/", minus), _operation(column.title, "ratio", "-", "1")]
    if column.times == 1:
        return [_operation(column.title, of, "-", minus)]
    return [_operation("difference", of, "-", minus), _operation(column.title, "difference", "*", f"{column.times}")]


def _operation(name: str, left: str, operator: str, right: str) -> dict[str, Any]:
    return {"mode": "binary", "alias": name, "binary": {"left": left, "operator": operator, "right": right}}


def _difference_overrides(column: DifferenceColumn) -> list[model.DynamicConfigValue]:
    settings = {
        "unit": column.unit,
        "decimals": column.decimals,
        "custom.minWidth": _LEAST_WIDTH if column.unit in _WIDE_UNITS else None,
        "mappings": [*([_INFINITE] if column.is_relative else ()), absence("-")],
    }
    return [model.DynamicConfigValue(name, value) for name, value in settings.items() if value is not None]


def _organize(panel: table.Panel, order: Sequence[str], hidden: Sequence[str] = ()) -> table.Panel:
    positions = {name: position for position, name in enumerate(order)}
    return transform(panel, "organize", indexByName=positions, excludeByName=dict.fromkeys(hidden, True))
