"""Places rows and panels on a dashboard, builds its variables, and completes the output of the SDK."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, TypeAlias, TypeVar, cast

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import timeseries
from grafana_foundation_sdk.models.common import LegendDisplayMode
from grafana_foundation_sdk.models.prometheus import Dataquery

from alerts.links import Links, panel_id
from alerts.promql.build import regex, select
from alerts.promql.expression import Expression
from dashboards.grafana.empty_state import state_empty
from dashboards.grafana.links import NO_LINKS, complete_links
from dashboards.grafana.log_lines import add_log_lines
from dashboards.grafana.style import DATASOURCE
from dashboards.queries.labels import join_labels
from dashboards.queries.rates import PER_CLASS
from dashboards.queries.variables import VARIABLES, LabelValues, QueryResult, printed
from exporters.vocabulary.signals import Label, Recorded, Signal

_CLASS_NAME = "class_name"
"""A hidden column with the names of classes."""

_COLUMNS = 24

_FEW_NAMES = re.compile(rf"\{{\{{(?!{Label.OUTCOME})\w+\}}\}}|[^{{]*")
"""Legends of one label that has few values, or of one name."""

_LETTER, _PADDING, _LONGEST = 6.8, 14, 26
"""Pixels of a letter and of the padding of a cell, and the letters of the longest text that is not truncated."""

_WIDTHS, _WITHOUT_WIDTH = frozenset({"custom.width", "custom.minWidth"}), 100
"""The settings of a column's width, and the pixels of one without them."""

_NARROWEST = 930
"""Pixels of a table of the whole width beside the docked menu on a screen of 1280 pixels."""

Panel: TypeAlias = Builder[model.Panel]
Variable: TypeAlias = Builder[model.VariableModel]

_Several = TypeVar("_Several", dashboard.QueryVariable, dashboard.CustomVariable)


@dataclass(frozen=True, slots=True)
class Row:
    """A row and its panels from left to right; a line of panels is 24 columns wide."""

    title: str
    panels: tuple[Panel, ...]
    is_collapsed: bool = False
    """Grafana runs the queries of its panels only after a click: for features that few installations use."""


def result_variable(name: str, expression: Expression) -> dashboard.QueryVariable:
    """A variable whose options are the result of a query; Grafana updates it with the time range."""
    return _query_variable(name, QueryResult(expression))


def hidden_variable(name: str, expression: Expression, label: Label) -> dashboard.QueryVariable:
    """A variable over the values of a label in the result of a query: all, as it cannot be seen."""
    variable = result_variable(name, expression).regex(rf'/{label}="(?<value>[^"]*)"/')
    return _initially_all(variable.sort(model.VariableSort.NATURAL_ASC).hide(model.VariableHide.HIDE_VARIABLE))


def _initially_all(variable: _Several) -> _Several:
    everything = model.VariableOption(selected=True, text=["All"], value=["$__all"])
    return variable.multi(True).include_all(True).current(everything)


def _query_variable(name: str, query: QueryResult | LabelValues) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .datasource(DATASOURCE)
        # 5 is a classic query, as text
        .query({"qryType": 5, "query": query, "refId": f"Variable-{name}"})
        .definition(query)  # type: ignore[arg-type] # printed with the dashboard
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
    )


def label_variable(label: Label | str, series: Signal | Recorded, *narrowed_by: Label) -> dashboard.QueryVariable:
    """A variable over the values of a label in `series`, initially all; `narrowed_by` are earlier variables."""
    selector = select(series, *(regex(before, f"${before}") for before in narrowed_by))
    variable = _query_variable(str(label), LabelValues(selector, label)).label(label.capitalize())
    return _initially_all(variable.sort(model.VariableSort.NATURAL_ASC)).all_value(".*")


def list_variable(label: Label, texts: Mapping[str, str]) -> dashboard.CustomVariable:
    """A variable over known values, with a text for each, initially all."""
    options = (f"{text.replace(',', chr(92) + ',')} : {value}" for value, text in texts.items())
    variable = dashboard.CustomVariable(str(label)).label(label.capitalize()).values(",".join(options))
    return _initially_all(variable).all_value(".*")


def arrange(
    builder: dashboard.Dashboard, rows: Sequence[Row], interval: str, class_titles: Mapping[str, str]
) -> model.Dashboard:
    """Place the rows from top to bottom; set refIds, and ids that do not depend on the order of the panels.

    `interval` is the shortest step of panels that have none: rates cover four of them.
    """
    for row in rows:
        builder.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            builder.with_panel(panel)
    result = builder.build()
    for element in result.panels or []:
        element.id_val = panel_id(element.title or "")
        if isinstance(element, model.Panel):
            for letter, target in zip(ascii_uppercase, element.targets or [], strict=False):
                # the SDK's base class of queries declares no field
                target.ref_id = letter  # type: ignore[attr-defined]
            element.interval = element.interval or interval
            _title_classes(element, class_titles)
            _shorten_legend(element)
            state_empty(element)
    _collapse(result, {row.title for row in rows if row.is_collapsed})
    return result


def _title_classes(panel: model.Panel, titles: Mapping[str, str]) -> None:
    """Add the titles of classes to legends of the whole width, and to tables in which they fit.

    The description of another table has them.
    """
    if panel.field_config is None or not titles:
        return
    queries = [target for target in panel.targets or [] if isinstance(target, Dataquery)]
    texts = {name: f"{name}: {title}" for name, title in titles.items()}
    overrides, is_wide = panel.field_config.overrides, _place(panel).w == _COLUMNS
    if panel.type_val == "timeseries" and is_wide and PER_CLASS in {each.legend_format for each in queries}:
        overrides += [_override(name, {"displayName": text}) for name, text in texts.items()]
    columns = [each for each in overrides if each.matcher.options == Label.CLASS]
    if panel.type_val != "table" or not columns:
        return
    width = round(_LETTER * min(_LONGEST, max(map(len, texts.values())))) + _PADDING
    widths: dict[object, list[int]] = {}
    for each in overrides:
        of_column = (cast("int", one.value) for one in each.properties if one.id_val in _WIDTHS)
        widths.setdefault(each.matcher.options, []).extend(of_column)
    widths[Label.CLASS] = [width]
    if not is_wide or sum(max(each, default=_WITHOUT_WIDTH) for each in widths.values()) > _NARROWEST:
        panel.description = f"Classes: {'; '.join(texts.values())}. {panel.description}"
        return
    mapping = model.ValueMap({name: model.ValueMappingResult(text) for name, text in texts.items()})
    settings = _override(Label.CLASS, {"mappings": [mapping], "custom.width": width}).properties
    kept = [each for each in columns[0].properties if each.id_val not in {one.id_val for one in settings}]
    columns[0].properties = [*kept, *settings]
    _link_by_name(panel, queries[0])


def _shorten_legend(panel: model.Panel) -> None:
    """Names without values where a legend would have more than two rows: the tooltip has the values."""
    legends = [str(each.legend_format) for each in panel.targets or [] if isinstance(each, Dataquery)]
    is_long = panel.repeat or _place(panel).w < 12 or not all(map(_FEW_NAMES.fullmatch, legends))
    if panel.type_val == "timeseries" and is_long and isinstance(panel.options, timeseries.Options):
        shown = panel.options.legend
        shown.calcs = [] if shown.display_mode == LegendDisplayMode.LIST else shown.calcs


def _link_by_name(panel: model.Panel, query: Dataquery) -> None:
    """Take the class of a link from a hidden column: in Grafana, `__data.fields` is the mapped text of a cell."""
    overrides = panel.field_config.overrides if panel.field_config else []
    settings = (one for each in overrides for one in each.properties if one.id_val == "links")
    links: list[dict[str, str]] = [link for each in settings for link in cast("list[dict[str, str]]", each.value)]
    of_class = f"${{__data.fields.{Label.CLASS}}}"
    linked = [each for each in links if of_class in each["url"]]
    for each in linked:
        each["url"] = each["url"].replace(of_class, f"${{__data.fields.{_CLASS_NAME}}}")
    if linked:
        query.expr = join_labels(query.expr, _CLASS_NAME, "", Label.CLASS)  # type: ignore[arg-type, assignment] # printed later
        # Grafana 12.2 has the second setting instead of the first
        overrides.append(_override(_CLASS_NAME, {"custom.hidden": True, "custom.hideFrom": {"viz": True}}))


def _override(name: str, settings: Mapping[str, Any]) -> model.DashboardFieldConfigSourceOverrides:
    properties = [model.DynamicConfigValue(*each) for each in settings.items()]
    matcher = model.MatcherConfig("byName", str(name))
    return model.DashboardFieldConfigSourceOverrides(matcher=matcher, properties=properties)


def _collapse(result: model.Dashboard, titles: set[str]) -> None:
    """Move the panels of these rows into them, and everything below up by their height."""
    shown: list[model.Panel | model.RowPanel] = []
    row, hidden = model.RowPanel(), 0
    for element in result.panels or []:
        place, above = _place(element), _place(row)
        if isinstance(element, model.RowPanel):
            if row.collapsed:
                # the row above has moved up already
                hidden = place.y - above.y - above.h
            row, element.collapsed = element, element.title in titles
        place.y -= hidden
        if isinstance(element, model.Panel) and row.collapsed:
            row.panels.append(element)
        else:
            shown.append(element)
    result.panels = shown


def _place(element: model.Panel | model.RowPanel) -> model.GridPos:
    return element.grid_pos or model.GridPos()


def to_json(
    dashboard_model: model.Dashboard,
    target_labels: Sequence[str] = (),
    links: Links = NO_LINKS,
    log_selector: str = "",
    labels: Sequence[Label] = VARIABLES,
) -> str:
    """The dashboard as JSON; deterministic. Its queries follow the variables of `labels` and of `target_labels`."""
    tree = json.loads(
        json.dumps(dashboard_model, default=lambda node: printed(node, target_labels, labels) or node.to_json())
    )
    # The SDK always sets `placement`, which moves a link into a menu; switches of annotations need more than a line.
    for item in tree.get("links", []):
        item.pop("placement", None)
    # It also adds a disabled footer to tables; Grafana removed that option in 12.2.
    for element in tree.get("panels", []):
        for panel in (element, *element.get("panels", [])):
            panel.get("options", {}).pop("footer", None)
    complete_links(tree, links)
    if log_selector:
        add_log_lines(tree, log_selector)
    return json.dumps(tree, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
