"""Rendered dashboards: panels by title, and their queries with variables expanded."""

import json
from functools import cache
from typing import Any

from dashboards.boards.board import Board
from dashboards.live.interpolation import expand, intervals
from dashboards.live.reader import checks_of, panels_of
from exporters.vocabulary.slo_file import SHIPPED, SloFile, load

Page = dict[str, Any]

STRICT_SLOS = """
version: 1
period: 30d
first_token_timeout: 20s
classes: [{name: chat}]
slos:
  - {name: fast, classes: [chat], signal: ttft, threshold: 300ms, objective: 99%}
  - {name: slow, classes: [other], signal: ttft, threshold: 2s, objective: 80%}
  - {name: answered, classes: [chat], signal: ttft_answer, threshold: 4s, objective: 99%}
  - {name: pace, classes: [chat], signal: tpot, threshold: 50ms, objective: 99%}
  - {name: flow, classes: [chat], signal: itl_p95, threshold: 250ms, objective: 99%}
  - {name: admitted, classes: [chat], signal: queue, threshold: 1s, objective: 99%}
  - {name: read, classes: [chat], signal: prefill, threshold: 3s, objective: 99%}
  - {name: written, classes: [chat], signal: decode, threshold: 9s, objective: 99%}
  - {name: complete, classes: [chat], signal: e2e, threshold: 40s, objective: 99%}
"""
"""An SLO file with other thresholds and objectives than the shipped one."""


SHIPPED_SLOS = load(SHIPPED)


def page_of(board: Board, spec: SloFile = SHIPPED_SLOS) -> Page:
    """The content of a dashboard, which the caller may change: only its text is rendered once for all tests."""
    return dict(json.loads(_rendered(board, spec)))


@cache
def _rendered(board: Board, spec: SloFile) -> str:
    return board.render(spec)


def panel(page: Page, title: str) -> dict[str, Any]:
    (match,) = [each for each in panels_of(page["panels"]) if each["title"] == title]
    return dict(match)


def expanded_queries(page: Page, title: str) -> dict[str, str]:
    """The queries of a panel by legend, with all values selected, for an hour of scrapes every 15 s."""
    legends = {target["refId"]: target["legendFormat"] for target in panel(page, title)["targets"]}
    return {
        legends[check.ref]: expand(check.expression, {**check.values, **intervals(3600, 15)})
        for check in checks_of(page)
        if check.panel == title
    }
