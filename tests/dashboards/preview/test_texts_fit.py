"""No text of a shipped dashboard is clipped or covers another, and no legend has three rows, by the boxes of a page."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer

from dashboards.command import GENERATED
from dashboards.live.reader import TimeRange, read_dashboards
from dashboards.preview.chromium import BROWSER_NAMES, Tab, browser, find_browser
from dashboards.preview.document import document
from dashboards.preview.page import PageSet
from dashboards.preview.server import PreviewServer, Selection
from dashboards.preview.view import View
from exporters.analysis.prometheus_api import Prometheus
from tests.dashboards.preview.sample_dashboard import END, START, config, dashboard, override, panel, result_of
from tests.dashboards.preview.text_faults import FAULTS
from tests.support import engine_fleet
from tests.support.fake_prometheus import FakePrometheus

pytestmark = [
    pytest.mark.long,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(find_browser() is None, reason=f"no browser on PATH; looked for {', '.join(BROWSER_NAMES)}"),
]

SHIPPED = read_dashboards(GENERATED)
HOUR = TimeRange(engine_fleet.START, engine_fleet.END, engine_fleet.SCRAPE)


def narrow_table(path: str, parameters: dict[str, str]) -> tuple[int, Any]:
    return result_of(path, parameters, [({"engine": "engine-01.example.org:8000"}, 1.0)])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tab() -> AsyncIterator[Tab]:
    async with browser() as opened:
        yield opened


async def faults(tab: Tab, tree: Mapping[str, Any], prometheus: Prometheus, times: TimeRange, width: int) -> list[Any]:
    """The faults on the page of a dashboard, with all rows open."""
    pages = PageSet({each: str(SHIPPED[each]["title"]) for each in SHIPPED}, {}, "*")

    def draw(_: str, selection: Selection, start: str | None, end: str | None) -> Mapping[str, Any]:
        return document(tree, prometheus, View(times, selection=selection))

    async with TestServer(PreviewServer(pages, draw, 3600).application()) as running:
        await tab.show(f"{running.make_url('')}/{next(iter(SHIPPED))}", width)
        await tab.evaluate("document.querySelectorAll('.section.closed > button').forEach((each) => each.click())")
        await tab.wait_for("[...document.querySelectorAll('.panel')].every((panel) => panel.dataset.drawn)")
        return list(await tab.evaluate(FAULTS))


@pytest.mark.parametrize("width", [1440, 1280, 400])
@pytest.mark.parametrize("name", SHIPPED)
async def test_no_text_of_a_dashboard_is_clipped_or_covered(tab: Tab, fleet: Prometheus, name: str, width: int) -> None:
    found = await faults(tab, SHIPPED[name], fleet, HOUR, width)
    assert found == [], "\n".join(map(json.dumps, found))


async def test_a_clipped_text_is_found(tab: Tab) -> None:
    narrow = dashboard(panel("table", "Rows", "x", fieldConfig=config(override("byName", "engine", custom__width=90))))
    with FakePrometheus(narrow_table) as fake:
        found = await faults(tab, narrow, Prometheus(fake.url), TimeRange(START, END, 1), 1440)
    assert ["clipped", "Rows", "engine-01.example.org:8000"] in found
