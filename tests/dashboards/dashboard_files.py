"""Rendered dashboards: panels by title, and their queries with variables expanded."""

import json
from typing import Any

from dashboards.board import Board
from dashboards.dashboard_reader import checks_of
from dashboards.interpolation import expand, intervals
from exporters.slos import SHIPPED, SloFile, load

Page = dict[str, Any]


def page_of(board: Board, spec: SloFile | None = None) -> Page:
    return dict(json.loads(board.render(spec or load(SHIPPED))))


def panel(page: Page, title: str) -> dict[str, Any]:
    (match,) = [each for each in page["panels"] if each["title"] == title]
    return dict(match)


def expanded_queries(page: Page, title: str) -> dict[str, str]:
    """The queries of a panel by legend, with all values selected, for an hour of scrapes every 15 s."""
    legends = {target["refId"]: target["legendFormat"] for target in panel(page, title)["targets"]}
    return {
        legends[check.ref]: expand(check.expression, {**check.values, **intervals(3600, 15)})
        for check in checks_of(page)
        if check.panel == title
    }
