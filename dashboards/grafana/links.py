"""Data links of table cells; a link to a dashboard carries the time range and the variables of the page."""

from collections.abc import Iterable, Mapping
from typing import Any

from alerts.links import DashboardUid, Links
from dashboards.live.reader import panels_of
from exporters.vocabulary.signals import Label

_RUNBOOKS, _TRACES = "{runbooks}", "{traces}"
"""Replaced by addresses when a dashboard is rendered."""

NO_LINKS = Links()
"""No links to runbooks and traces."""

_HIDDEN = 2
"""Grafana's number of a variable without a selector, whose value follows from other variables."""


def to_board(uid: DashboardUid, *row_labels: Label) -> str:
    """A dashboard on which the variables of `row_labels` have the values of the row."""
    return (
        f"/d/{uid}?${{__url_time_range}}{''.join(f'&var-{label}=${{__data.fields.{label}}}' for label in row_labels)}"
    )


def to_runbook(alert: str) -> str:
    """The runbook of the alert that the column `alert` names."""
    return f"{_RUNBOOKS}/${{__data.fields.{alert}}}.md"


def to_traces(*row_labels: Label) -> str:
    """The traces of the ten slowest bad requests with the labels of the row."""
    parameters = (f"{label}=${{__data.fields.{label}}}&" for label in row_labels)
    return (
        f"{_TRACES}/?{''.join(parameters)}verdict=bad&sort=slowest&limit=10"
        "&since=${__from:date:seconds}&until=${__to:date:seconds}"
    )


def complete_links(page: Mapping[str, Any], links: Links) -> None:
    """Add addresses, and to a link to a dashboard the values of all variables; it ignores those that it does not have.

    A link to runbooks or traces is removed if there is no address for them.
    """
    variables = [str(each["name"]) for each in page["templating"]["list"] if each.get("hide") != _HIDDEN]
    for panel in panels_of(page["panels"]):
        overrides = panel.get("fieldConfig", {}).get("overrides", [])
        for setting in (each for override in overrides for each in override["properties"] if each["id"] == "links"):
            urls = (_completed(link["url"], variables, links) for link in setting["value"])
            setting["value"] = [{**link, "url": url} for link, url in zip(setting["value"], urls, strict=True) if url]
        overrides[:] = [each for each in overrides if [one.get("value") for one in each["properties"]] != [[]]]


def _completed(url: str, variables: Iterable[str], links: Links) -> str:
    """The URL, or an empty text; a completed URL does not change."""
    if url.startswith(_TRACES):
        return url.replace(_TRACES, links.traces.rstrip("/")) if links.traces else ""
    if url.startswith(_RUNBOOKS):
        return url.replace(_RUNBOOKS, links.runbook_base()) if links.runbooks else ""
    if url.startswith("/d/"):
        selected = (f"&${{{name}:queryparam}}" for name in variables if f"&var-{name}=" not in url)
        return url + "".join(each for each in selected if each not in url)
    return url
