"""Evaluates queries of panels with promtool over given samples."""

from collections.abc import Mapping
from typing import Any

from dashboards.boards.board import Board
from dashboards.live.interpolation import expand
from dashboards.queries.variables import VARIABLES
from exporters.vocabulary.slo_file import SHIPPED, SloFile, load
from tests.dashboards import dashboard_files
from tests.support.promtool import Case, Promtool


def panel(board: Board, title: str, spec: SloFile = dashboard_files.SHIPPED_SLOS) -> dict[str, Any]:
    """A panel of the dashboard, for the shipped or another SLO file."""
    return dashboard_files.panel(dashboard_files.page_of(board, spec), title)


def limits(panel: Mapping[str, Any]) -> list[float]:
    """The thresholds of a panel."""
    return [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"][1:]]


def assert_results(
    promtool: Promtool,
    panel: Mapping[str, Any],
    growth: Mapping[str, float],
    *samples: Mapping[str, float],
) -> None:
    """Assert the result of each query of the panel; `growth` is the change of each series per scrape."""
    values = {
        **dict.fromkeys((*VARIABLES, "active_class"), ".*"),
        "__rate_interval": "1m",
        "__rate_interval_ms": "60000",
        "__range": "5m",
    }
    case = Case(load(SHIPPED), {name: f"0{step:+g}x40" for name, step in growth.items()}, interval=15)
    for target, expected in zip(panel["targets"], samples, strict=True):
        # releases of Prometheus differ in the last digit
        exact = {row: round(value, 9) for row, value in expected.items()}
        case.expect(600, f"round(1e9 * ({expand(target['expr'], values)})) / 1e9", exact)
    promtool.test([case])
