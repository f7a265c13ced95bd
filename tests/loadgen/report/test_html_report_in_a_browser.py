"""The HTML report in a real browser: it fits phones and screens, and no text of a plot is cut or covers another."""

import re
from itertools import product
from pathlib import Path

import pytest
from msgspec import structs

from dashboards.preview.chromium import browser, find_browser
from loadgen.report.page import render_page
from loadgen.results.record import Record, Run
from loadgen.results.summary import summarise
from loadgen.schedule.phases import Steady
from tests.loadgen.html_document import CUT
from tests.loadgen.load_records import run
from tests.loadgen.report.sample_records import sample
from tests.support.browser_tab import resize, show

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_browser() is None, reason="no Chromium on PATH")]

NAMES = ["siso", "a-class-with-a-rather-long-name", "x" * 80]
RUN = run(
    classes=NAMES,
    shares=dict.fromkeys(NAMES, 1 / 3),
    phases=[
        Steady("warm-up-with-a-long-name", 1, 4),
        Steady("steady", 20, 4),
        Steady("ramp", 1, 4),
        Steady("end", 8, 4),
    ],
    scenario="x" * 200,
    seconds=30.0,
    stalled=1.0,
)


RECORDS = sample(300, NAMES, error="y" * 400)


def _write(page: Path, run: Run, records: list[Record]) -> Path:
    page.write_text(render_page(run, summarise(run, records), records))
    return page


async def test_it_fits_in_both_colour_schemes_and_requests_nothing(tmp_path: Path) -> None:
    cases = {"many": RECORDS, "one": RECORDS[:1], "none": []}
    pages = [_write(tmp_path / f"{name}.html", RUN, records) for name, records in cases.items()]
    async with browser() as tab:
        for page in pages:
            backgrounds = set()
            for width, scheme in product((390, 1440), ("light", "dark")):
                await resize(tab, width)
                scheme_feature = {"name": "prefers-color-scheme", "value": scheme}
                await tab.send("Emulation.setEmulatedMedia", features=[scheme_feature])
                await show(tab, page)
                assert await tab.evaluate("document.documentElement.scrollWidth") <= width
                assert await tab.evaluate(CUT) == []
                backgrounds.add(await tab.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert len(backgrounds) == 2
        requested = {event["request"]["url"] for name, event in tab.events if name == "Network.requestWillBeSent"}
    assert requested == {page.as_uri() for page in pages}


async def test_nothing_is_cut_on_paper(tmp_path: Path) -> None:
    plain = structs.replace(RUN, classes=["siso"], shares={"siso": 1.0}, scenario="example")
    records = [structs.replace(each, request_class="siso") for each in RECORDS]
    async with browser() as tab:
        await resize(tab, 720)
        await tab.send("Emulation.setEmulatedMedia", media="print")
        await show(tab, _write(tmp_path / "page.html", plain, records))
        assert await tab.evaluate("document.documentElement.scrollWidth") <= 720
        wide = "[...document.querySelectorAll('figure')].filter(each => each.scrollWidth > each.clientWidth).length"
        assert await tab.evaluate(wide) == 0


async def test_a_click_on_a_class_shows_its_curves(tmp_path: Path) -> None:
    shown = (
        "[...document.querySelectorAll('.choice figure')].filter(each => each.clientWidth).map(each => each.innerText)"
    )
    async with browser() as tab:
        await show(tab, _write(tmp_path / "page.html", RUN, RECORDS))
        for name, title in (("all", "TTFT of all"), ("siso", "TTFT of siso")):
            await tab.evaluate(
                f"[...document.querySelectorAll('.choice label')].find(each => each.innerText === {name!r}).click()"
            )
            (text,) = await tab.evaluate(shown)
            assert re.match(title, text)
