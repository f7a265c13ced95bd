"""Data links of table cells; a link to a dashboard carries the time range and the variables of the page."""

from collections.abc import Iterable, Mapping
from typing import Any

from alerts.links import DashboardUid
from exporters.signals import Label

_HIDDEN = 2
"""Grafana's number of a variable without a selector, whose value follows from other variables."""


def to_board(uid: DashboardUid, *row_labels: Label) -> str:
    """A dashboard on which the variables of `row_labels` have the values of the row."""
    return (
        f"/d/{uid}?${{__url_time_range}}{''.join(f'&var-{label}=${{__data.fields.{label}}}' for label in row_labels)}"
    )


def complete_links(page: Mapping[str, Any]) -> None:
    """Add the selected values of all variables to each link to a dashboard; it ignores those that it does not have."""
    variables = [str(each["name"]) for each in page["templating"]["list"] if each.get("hide") != _HIDDEN]
    for override in _overrides(page["panels"]):
        for link in (link for each in override["properties"] if each["id"] == "links" for link in each["value"]):
            if link["url"].startswith("/d/"):
                for name in variables:
                    selected = f"&${{{name}:queryparam}}"
                    # a second run changes nothing
                    if f"&var-{name}=" not in link["url"] and selected not in link["url"]:
                        link["url"] += selected


def _overrides(panels: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    for panel in panels:
        yield from panel.get("fieldConfig", {}).get("overrides", [])
        # a collapsed row contains its panels
        yield from _overrides(panel.get("panels") or [])
