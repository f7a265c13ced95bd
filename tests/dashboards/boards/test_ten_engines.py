"""The dashboard "Fleet" as it is drawn over ten engines of which one is bad."""

from collections.abc import Mapping
from datetime import UTC
from typing import Any

import pytest

from dashboards.boards.fleet import BOARD
from dashboards.live.reader import TimeRange
from dashboards.preview.document import document
from dashboards.preview.view import View
from exporters.analysis.prometheus_api import Prometheus
from tests.dashboards.dashboard_files import page_of
from tests.support import engine_fleet


@pytest.fixture(scope="module")
def panels(fleet: Prometheus) -> Mapping[str, Mapping[str, Any]]:
    """The drawn panels by title."""
    shown = TimeRange(engine_fleet.END - 2700, engine_fleet.END, engine_fleet.SCRAPE)
    drawn = document(page_of(BOARD), fleet, View(shown, UTC, {}))
    return {panel["title"]: panel for section in drawn["sections"] for panel in section["panels"]}


def first_cells(panel: Mapping[str, Any]) -> list[str]:
    """The first column of a table."""
    return [row[0]["text"] for row in panel["rows"]]


@pytest.mark.parametrize("title", ["Engines", "Settings that differ"])
def test_the_bad_engine_is_the_first_row_of_every_table(panels: Mapping[str, Any], title: str) -> None:
    cells = first_cells(panels[title])
    assert len(cells) == len(engine_fleet.ENGINES)
    assert cells[0].startswith(engine_fleet.address(engine_fleet.BAD))


@pytest.mark.parametrize("title", ["Goodput by sidecar", "Waiting by engine", "KV cache by engine"])
def test_the_bad_engine_is_the_first_row_of_a_legend(panels: Mapping[str, Any], title: str) -> None:
    first = panels[title]["legend"]["rows"][0]["series"]
    assert engine_fleet.address(engine_fleet.BAD).partition(":")[0] in panels[title]["series"][first]["name"]
