"""*Fleet at a glance* with 64 engines, of which one is bad, in a real browser."""

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer

from compose.programs.tools import Tools
from dashboards.boards.fleet import BOARD
from dashboards.live.reader import TimeRange
from dashboards.preview.chromium import BROWSER_NAMES, Tab, browser, find_browser
from dashboards.preview.document import document
from dashboards.preview.page import PageSet
from dashboards.preview.server import PreviewServer, Selection
from dashboards.preview.view import View
from exporters.analysis.prometheus_api import Prometheus
from tests.dashboards.dashboard_files import page_of
from tests.dashboards.preview.text_faults import FAULTS
from tests.support.engine_fleet import BAD, END, SCRAPE, address, lines
from tests.support.ports import free_port
from tests.support.prometheus_blocks import prometheus_over

pytestmark = [
    pytest.mark.long,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(find_browser() is None, reason=f"no browser on PATH; looked for {', '.join(BROWSER_NAMES)}"),
]

ENGINES, SHOWN, SCREEN = range(64), 300, 900
"""The engines, the seconds shown, and the pixels of the height of a small screen."""

# The cells of the table, the lower edge of its first row, and how far its last row is from the lower edge of the table
# after it is scrolled to the end.
TABLE = """(() => {
  const titled = (each) => each.querySelector("h2")?.textContent === "Engines";
  const panel = [...document.querySelectorAll(".panel")].find(titled);
  const body = panel.querySelector(".body"), rows = [...panel.querySelectorAll("tbody tr")];
  const first = rows[0].getBoundingClientRect().bottom + scrollY;
  body.scrollTop = body.scrollHeight;
  return { rows: rows.map((row) => [...row.children].map((cell) => cell.textContent)), first,
    below: rows.at(-1).getBoundingClientRect().bottom - body.getBoundingClientRect().bottom };
})()"""


@pytest.fixture(scope="module")
def large_fleet(tools: Tools) -> Iterator[Prometheus]:
    with prometheus_over(lines(ENGINES, END - 2 * SHOWN), free_port(), tools) as url:
        yield Prometheus(url)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(large_fleet: Prometheus) -> AsyncIterator[str]:
    def draw(_: str, selection: Selection, start: str | None, end: str | None) -> Mapping[str, Any]:
        return document(page_of(BOARD), large_fleet, View(TimeRange(END - SHOWN, END, SCRAPE), selection=selection))

    async with TestServer(PreviewServer(PageSet({"slo-fleet": "Fleet"}, {}, "*"), draw, 3600).application()) as running:
        yield f"{running.make_url('')}/slo-fleet"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tab() -> AsyncIterator[Tab]:
    async with browser() as opened:
        yield opened


@pytest.mark.parametrize("width", [1440, 1280, 400])
async def test_the_worst_engine_is_on_the_first_screen_and_every_other_one_below_it(
    tab: Tab, site: str, width: int
) -> None:
    await tab.show(site, width)
    table = await tab.evaluate(TABLE)
    names = [row[0] for row in table["rows"]]
    assert sorted(names) == sorted(map(address, ENGINES))
    assert names[0] == address(BAD)
    assert table["first"] < SCREEN
    assert table["below"] <= 1


async def test_the_engines_are_sorted_by_trouble(tab: Tab, site: str) -> None:
    await tab.show(site, 1440)
    rows = (await tab.evaluate(TABLE))["rows"]
    goodput = [float(row[-1].rstrip("%")) for row in rows]
    assert [row[2] for row in rows[:2]] == ["saturated", "serving"]
    assert goodput[1:] == sorted(goodput[1:])


@pytest.mark.parametrize("width", [1440, 1280, 400])
async def test_no_text_is_clipped_or_covered(tab: Tab, site: str, width: int) -> None:
    await tab.show(site, width)
    await tab.wait_for("[...document.querySelectorAll('.panel')].every((panel) => panel.dataset.drawn)")
    assert await tab.evaluate(FAULTS) == []
