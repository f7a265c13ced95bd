"""No text of a shipped dashboard is clipped or covers another, and no legend has three rows, by the boxes of a page."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from compose.programs.tools import Tools
from dashboards.command import GENERATED
from dashboards.live.reader import TimeRange, read_dashboards
from dashboards.preview.chromium import Tab
from dashboards.preview.document import document
from dashboards.preview.server import Selection
from dashboards.preview.view import View
from exporters.analysis.prometheus_api import Prometheus
from tests.dashboards.preview.sample_dashboard import END, START, config, dashboard, override, panel, result_of
from tests.dashboards.preview.served_pages import IN_BROWSER, server
from tests.support import engine_fleet
from tests.support.fake_prometheus import FakePrometheus
from tests.support.ports import free_port
from tests.support.prometheus_blocks import prometheus_over

pytestmark = [pytest.mark.long, *IN_BROWSER]

SHIPPED = read_dashboards(GENERATED)
HOUR = TimeRange(engine_fleet.START, engine_fleet.END, engine_fleet.SCRAPE)
MINUTES = TimeRange(engine_fleet.END - 300, engine_fleet.END, engine_fleet.SCRAPE)
MANY, SCREEN = range(64), 900
"""Engines of a large fleet, and the pixels of the height of a small screen."""
widths = pytest.mark.parametrize("width", [1440, 1280, 400])

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

# A text is clipped if its box leaves the box of an element around it that hides what leaves it; an ellipsis begins at
# the padding. What can be scrolled to is not clipped, but a column of a table that is only found by scrolling sideways
# counts on a wide screen.
FAULTS = """(() => {
  const faults = [];
  for (const list of innerWidth >= 1440 ? document.querySelectorAll(".legend .list") : []) {
    const rows = new Set([...list.children].map((entry) => Math.round(entry.getBoundingClientRect().top))).size;
    const title = list.closest(".panel").querySelector("h2").textContent;
    if (rows > 2) faults.push([`legend of ${rows} rows`, title, list.innerText]);
  }
  for (const panel of document.querySelectorAll(".panel")) {
    const title = panel.querySelector("h2")?.textContent ?? "";
    const shown = [];
    const walker = document.createTreeWalker(panel, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode, text = node.textContent.trim();
      if (!text || !node.parentElement.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const { left, top, right, bottom } of range.getClientRects()) {
        const box = { node, text, left, top, right, bottom };
        for (let area = node.parentElement; area !== panel.parentElement; area = area.parentElement) {
          const style = getComputedStyle(area), clip = area.getBoundingClientRect();
          if (style.overflowX === "visible" || style.display === "inline") continue;
          const [before, after] = ["paddingLeft", "paddingRight"].map((side) =>
            style.textOverflow === "ellipsis" ? parseFloat(style[side]) : 0);
          const sideways = box.right > clip.right - after + 1 || box.left < clip.left + before - 1;
          const downwards = Math.max(box.bottom - clip.bottom, clip.top - box.top) > (bottom - top) / 4;
          const scrolls = ["auto", "scroll"].includes(style.overflowX);
          if (scrolls ? sideways && innerWidth > 768 : sideways || downwards) faults.push(["clipped", title, text]);
          box.left = Math.max(box.left, clip.left);
          box.right = Math.min(box.right, clip.right);
          box.top = Math.max(box.top, clip.top);
          box.bottom = Math.min(box.bottom, clip.bottom);
        }
        if (box.right > box.left && box.bottom > box.top) shown.push(box);
      }
    }
    shown.forEach((one, at) => shown.slice(at + 1).filter(({ node }) => node !== one.node).forEach((other) => {
      const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (wide > 1 && high > 3) faults.push(["overlap", title, `${one.text} | ${other.text}`]);
    }));
  }
  return faults;
})()"""


@asynccontextmanager
async def shown(
    tab: Tab, tree: Mapping[str, Any], prometheus: Prometheus, times: TimeRange, width: int
) -> AsyncIterator[None]:
    """The page of a dashboard, with all rows open and links to the others."""

    def draw(_: str, selection: Selection, start: str | None, end: str | None) -> Mapping[str, Any]:
        return document(tree, prometheus, View(times, selection=selection))

    async with server(SHIPPED, draw) as running:
        await tab.show(f"{running.make_url('')}/{next(iter(SHIPPED))}", width)
        await tab.evaluate("document.querySelectorAll('.section.closed > button').forEach((each) => each.click())")
        await tab.wait_for("[...document.querySelectorAll('.panel')].every((panel) => panel.dataset.drawn)")
        yield


@widths
@pytest.mark.parametrize("name", SHIPPED)
async def test_no_text_of_a_dashboard_is_clipped_or_covered(tab: Tab, fleet: Prometheus, name: str, width: int) -> None:
    async with shown(tab, SHIPPED[name], fleet, HOUR, width):
        found = await tab.evaluate(FAULTS)
    assert found == [], "\n".join(map(json.dumps, found))


async def test_a_clipped_text_is_found(tab: Tab) -> None:
    narrow = dashboard(panel("table", "Rows", "x", fieldConfig=config(override("byName", "engine", custom__width=90))))
    name = "engine-01.example.org:8000"
    with FakePrometheus(lambda path, parameters: result_of(path, parameters, [({"engine": name}, 1.0)])) as fake:
        async with shown(tab, narrow, Prometheus(fake.url), TimeRange(START, END, 1), 1440):
            assert ["clipped", "Rows", name] in await tab.evaluate(FAULTS)


@pytest.fixture(scope="module")
def large_fleet(tools: Tools) -> Iterator[Prometheus]:
    lines = engine_fleet.lines(MANY, engine_fleet.END - 600)
    with prometheus_over(lines, free_port(), tools) as url:
        yield Prometheus(url)


@widths
async def test_the_worst_of_64_engines_is_on_the_first_screen_and_the_others_are_below_it_sorted_by_trouble(
    tab: Tab, large_fleet: Prometheus, width: int
) -> None:
    async with shown(tab, SHIPPED["slo-fleet"], large_fleet, MINUTES, width):
        found = await tab.evaluate(FAULTS)
        table = await tab.evaluate(TABLE)
    names = [row[0] for row in table["rows"]]
    assert sorted(names) == sorted(map(engine_fleet.address, MANY))
    assert names[0] == engine_fleet.address(engine_fleet.BAD)
    assert table["first"] < SCREEN
    assert table["below"] <= 1
    goodput = [float(row[-1].rstrip("%")) for row in table["rows"]]
    assert [row[2] for row in table["rows"][:2]] == ["saturated", "serving"]
    assert goodput[1:] == sorted(goodput[1:])
    assert found == []
