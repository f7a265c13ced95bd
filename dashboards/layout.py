"""Places rows and panels on a dashboard, builds its variables, and adds what the SDK leaves out."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TypeAlias

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model

from alerts.links import panel_id
from alerts.promql import select
from dashboards.style import DATASOURCE
from exporters.signals import Label, Recorded, Signal

Panel: TypeAlias = Builder[model.Panel]
Variable: TypeAlias = Builder[model.VariableModel]


@dataclass(frozen=True, slots=True)
class Row:
    """A row and its panels from left to right; a line of panels is 24 columns wide."""

    title: str
    panels: tuple[Panel, ...]


def datasource_variable() -> dashboard.DatasourceVariable:
    return dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")


def label_variable(label: Label, series: Signal | Recorded, *narrowed_by: Label) -> dashboard.QueryVariable:
    """A variable named as the label, over its values in `series`; all of them at first.

    `narrowed_by` are variables before it that narrow its values.
    """
    selector = select(series, {before: f"${before}" for before in narrowed_by}, regex=True)
    # 5 is a classic query, as text
    values: dict[str, object] = {
        "qryType": 5,
        "query": f"label_values({selector}, {label})",
        "refId": f"Variable-{label}",
    }
    return (
        dashboard.QueryVariable(str(label))
        .label(label.capitalize())
        .datasource(DATASOURCE)
        .query(values)
        .definition(str(values["query"]))
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(model.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def arrange(builder: dashboard.Dashboard, rows: Sequence[Row]) -> model.Dashboard:
    """Place the rows from top to bottom and add what the SDK leaves out: refIds, and ids independent of the order."""
    for row in rows:
        builder.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            builder.with_panel(panel)
    result = builder.build()
    for element in result.panels or []:
        element.id_val = panel_id(element.title or "")
        if isinstance(element, model.Panel):
            for letter, target in zip(ascii_uppercase, element.targets or [], strict=False):
                target.ref_id = letter  # type: ignore[attr-defined] # the SDK's base class of queries declares no field
    return result


def to_json(dashboard_model: model.Dashboard) -> str:
    """The dashboard as a file: the same dashboard gives the same bytes."""
    tree = json.loads(json.dumps(dashboard_model, cls=JSONEncoder))
    # The SDK always writes `placement`, which hides the switch of an annotation or a link in a menu.
    for item in [*tree.get("annotations", {}).get("list", []), *tree.get("links", [])]:
        item.pop("placement", None)
    # It also gives tables a footer, off, where Grafana has none since 12.2.
    for panel in tree.get("panels", []):
        panel.get("options", {}).pop("footer", None)
    return json.dumps(tree, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
