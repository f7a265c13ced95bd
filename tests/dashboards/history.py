"""Queries of panels, asked of a history that is known."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compose.prometheus_tools import find_tools
from dashboards.board import Board
from dashboards.variables import expand
from exporters.slos import SHIPPED, SloFile, load
from tests.rules.promtool import Case, Promtool


def panel(board: Board, title: str, spec: SloFile | None = None) -> dict[str, Any]:
    """A panel of the dashboard, for the SLO file that is shipped or another one."""
    page = json.loads(board.render(spec or load(SHIPPED)))
    (found,) = [one for one in page["panels"] if one["title"] == title]
    return dict(found)


def limits(panel: Mapping[str, Any]) -> list[float]:
    """The thresholds that it draws or colours by."""
    return [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"][1:]]


def answers(
    folder: Path,
    panel: Mapping[str, Any],
    growth: Mapping[str, float],
    *samples: Mapping[str, float],
) -> None:
    """Each query of the panel gives exactly these samples once counters have grown so at each scrape of ten minutes."""
    values = {"model": ".*", "class": ".*", "__rate_interval": "1m", "__range": "5m"}
    case = Case(load(SHIPPED), {name: f"0+{step:g}x40" for name, step in growth.items()}, every=15)
    for target, wanted in zip(panel["targets"], samples, strict=True):
        # releases of Prometheus differ in the last digit
        exact = {row: round(value, 9) for row, value in wanted.items()}
        case.gives(600, f"round(1e9 * ({expand(target['expr'], values)})) / 1e9", exact)
    Promtool((find_tools().promtool,), folder).test([case])
