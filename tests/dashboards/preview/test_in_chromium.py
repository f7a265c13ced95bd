"""The preview's pages in a real headless browser."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from compose.cli import main
from dashboards.command import GENERATED
from dashboards.live.reader import TimeRange, read_dashboards
from dashboards.preview.chromium import Tab
from dashboards.preview.document import document
from dashboards.preview.server import Selection
from dashboards.preview.view import View
from exporters.analysis.prometheus_api import Prometheus
from exporters.text.errors import UsageError
from tests.dashboards.preview.sample_dashboard import (
    BLUE,
    END,
    PANELS,
    START,
    WHEN,
    answer,
    anything,
    config,
    dashboard,
    override,
    panel,
    result_of,
)
from tests.dashboards.preview.served_pages import IN_BROWSER, server
from tests.support.fake_prometheus import FakePrometheus

SHIPPED = read_dashboards(GENERATED)

pytestmark = [pytest.mark.slow, *IN_BROWSER]

# The state of each panel on the page.
PANEL_FACTS = """[...document.querySelectorAll(".panel")].map((panel) => ({
  title: panel.querySelector("h2")?.textContent,
  drawn: panel.dataset.drawn,
  text: panel.querySelector(".body").innerText,
  lines: panel.querySelectorAll(".scatterlayer .trace path[d]").length,
  cells: panel.querySelectorAll(".heatmaplayer image").length,
  size: panel.getBoundingClientRect().width * panel.getBoundingClientRect().height}))"""


@pytest.fixture(scope="module")
def prometheus() -> Iterator[FakePrometheus]:
    with FakePrometheus(answer) as fake:
        yield fake


@pytest.fixture(scope="module")
def file(prometheus: FakePrometheus, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a written page with every kind of panel."""
    folder = tmp_path_factory.mktemp("preview")
    (folder / "made.json").write_text(json.dumps(dashboard(*PANELS)))
    (folder / "other.json").write_text(json.dumps(dashboard(title="Other", uid="other")))
    flags = ["--prometheus", prometheus.url, "--dashboards", str(folder), "--out", str(folder), *WHEN]
    assert main(["dashboards", "preview", *flags]) == 0
    return (folder / "made.html").as_uri()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(prometheus: FakePrometheus) -> AsyncIterator[str]:
    """The URL of a server with the page with every kind of panel and with all shipped dashboards.

    The browser caches the compiled charting library of a server, but not that of a file.
    """
    dashboards = {**SHIPPED, "made": dashboard(*PANELS)}
    with FakePrometheus(anything) as of_shipped:

        def draw(name: str, selection: Selection, start: str | None, end: str | None) -> Mapping[str, Any]:
            url = prometheus.url if name == "made" else of_shipped.url
            return document(dashboards[name], Prometheus(url), View(TimeRange(START, END, 1), selection=selection))

        async with server(dashboards, draw) as running:
            yield str(running.make_url(""))


@pytest.fixture(scope="module")
def page(site: str) -> str:
    """The URL of a served page with every kind of panel."""
    return f"{site}/made"


def console_errors(tab: Tab) -> list[Any]:
    """The errors and warnings of the browser's console."""
    wrong = {"Runtime.exceptionThrown", "Log.entryAdded", "Network.loadingFailed"}
    return [
        (what, how)
        for what, how in tab.events
        if what in wrong or (what == "Runtime.consoleAPICalled" and how["type"] != "log")
    ]


def requests(tab: Tab) -> set[str]:
    urls = {how["request"]["url"] for what, how in tab.events if what == "Network.requestWillBeSent"}
    return {url for url in urls if not url.startswith(("data:", "blob:"))}


async def point_at(tab: Tab, selector: str, across: float = 0.5, down: float = 0.5) -> None:
    """Move the mouse to a position within an element, from a position next to it."""
    box = await tab.evaluate(
        f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
        "const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()"
    )
    x, y, width, height = box
    for off in (3, 0):
        where = {"x": x + width * across + off, "y": y + height * down}
        await tab.send("Input.dispatchMouseEvent", type="mouseMoved", **where)


@pytest.mark.parametrize("theme, colour", [("dark", "rgb(110, 159, 255)"), ("light", "rgb(31, 98, 224)")])
async def test_links_and_headers_have_the_colour_of_grafanas_theme(
    tab: Tab, page: str, theme: str, colour: str
) -> None:
    await tab.show(page, theme=theme)
    colours = await tab.evaluate(
        "['nav a:not([aria-current])', '.table th'].map((each) => getComputedStyle(document.querySelector(each)).color)"
    )
    assert colours == [colour, colour]


async def test_a_panel_shows_as_many_rows_of_a_table_as_grafana(tab: Tab, page: str) -> None:
    await tab.show(page)
    heights = await tab.evaluate(
        "['.panel header', '.table th', '.table td'].map((each) => document.querySelector(each).offsetHeight)"
    )
    assert heights == [32, 34, 36]
    # a panel of eight units is 296 pixels high; Grafana takes 42 for its header, padding and borders
    inner = await tab.evaluate(
        "[...document.querySelectorAll('.panel[data-type=table]')].map((panel) => {"
        "const style = getComputedStyle(panel.querySelector('.body'));"
        "return panel.offsetHeight - panel.querySelector('.body').clientHeight"
        " + parseFloat(style.paddingTop) + parseFloat(style.paddingBottom)})"
    )
    assert set(inner) == {42}


async def test_every_panel_is_drawn_without_console_errors_or_other_requests(tab: Tab, file: str) -> None:
    await tab.show(file)
    facts = {each["title"]: each for each in await tab.evaluate(PANEL_FACTS)}
    assert console_errors(tab) == []
    assert requests(tab) == {file}
    assert len(facts) == len(PANELS) + 1  # one is repeated
    assert all(each["size"] > 0 for each in facts.values())
    assert [title for title, each in facts.items() if each["drawn"] in {None, "0"}] == ["Broken"]
    assert facts["Requests"]["lines"] >= 2
    assert facts["Burn rate"]["lines"] >= 2
    assert facts["Spread"]["cells"] == 1
    assert facts["Engines"]["text"].split() == ["a", "up", "b", "down"]
    assert facts["Budget left"]["text"].split() == ["ttft", "75.0%", "itl", "-25.0%"]
    assert facts["Map"]["text"] == "The preview does not support panels of type geomap"
    assert facts["Note"]["text"].strip() == "Read this <script>throw 1</script>"
    assert facts["Nobody"]["text"] == "no traffic"
    assert {"Of lilo", "Of siso"} <= facts.keys()
    errors = "[...document.querySelectorAll('.errors')].map((each) => each.innerText).filter(Boolean)"
    assert await tab.evaluate(errors) == ["A: unknown function sum("]


async def test_the_page_is_marked_as_a_preview_and_links_to_the_others(tab: Tab, file: str) -> None:
    await tab.show(file)
    bar = await tab.evaluate("document.querySelector('.bar').innerText")
    assert "Preview of the Grafana dashboard, drawn by vllm-slo from live queries; not Grafana" in bar
    assert "Class: All" in bar
    links = "[...document.querySelectorAll('nav a, td a')].map((each) => each.getAttribute('href'))"
    assert await tab.evaluate(links) == ["made.html", "other.html", "other.html", "other.html"]


async def test_a_picture_shows_the_whole_page(tab: Tab, file: str) -> None:
    await tab.show(file)
    screenshot = await tab.screenshot()
    assert screenshot.startswith(b"\x89PNG")
    width, height = (int.from_bytes(screenshot[at : at + 4], "big") for at in (16, 20))
    assert width == 1440
    assert height > 6 * 8 * 38  # six lines of panels, each eight units of the grid high


async def test_writing_a_page_twice_gives_the_same_bytes(prometheus: FakePrometheus, file: str, tmp_path: Path) -> None:
    folder = Path(file.removeprefix("file://")).parent
    flags = ["--prometheus", prometheus.url, "--dashboards", str(folder), "--out", str(tmp_path), *WHEN]
    assert await asyncio.to_thread(main, ["dashboards", "preview", *flags]) == 0
    assert (tmp_path / "made.html").read_bytes() == (folder / "made.html").read_bytes()


async def test_hovering_over_a_graph_shows_the_values_sorted(tab: Tab, page: str) -> None:
    await tab.show(page)
    await point_at(tab, ".plot .nsewdrag")
    await tab.wait_for("!document.getElementById('tip').hidden")
    time, *rows = (await tab.evaluate("document.getElementById('tip').innerText")).split("\n")
    at = int(time[-1]) % 2
    assert rows[:2] == [f"siso\t{4 + at} req/s", "lilo\t1.50 req/s"]
    crosshairs = "[...document.querySelectorAll('.crosshair')].filter((each) => !each.hidden).length"
    assert await tab.evaluate(crosshairs) == 6  # every graph whose query succeeded
    await tab.send("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    await tab.wait_for("document.getElementById('tip').hidden")


@pytest.mark.parametrize(
    "selector, across, text",
    [
        # the config change is 100 s before the end of 300 s
        pytest.param(".plot .nsewdrag", 2 / 3, "seed → 2", id="annotation at a time"),
        # the alert fires from one third to one half of the time range
        pytest.param(".plot .nsewdrag", 0.42, "Burn", id="annotation of a region"),
        pytest.param("[data-type=heatmap] .nsewdrag", 0.5, "100 ms to 500 ms\t3", id="bucket of a heatmap"),
        pytest.param(".info", 0.5, "What of Requests?", id="description of a panel"),
    ],
)
async def test_hovering_shows_a_text(tab: Tab, page: str, selector: str, across: float, text: str) -> None:
    await tab.show(page)
    await point_at(tab, selector, across)
    await tab.wait_for(f"document.getElementById('tip').innerText.includes({json.dumps(text)})")


async def test_a_series_is_drawn_in_the_colour_of_its_override(tab: Tab, page: str) -> None:
    await tab.show(page)
    keys = await tab.evaluate(
        "[...document.querySelectorAll('.panel .legend .key')].map((each) => each.style.background)"
    )
    red, green, blue = (int(BLUE[at : at + 2], 16) for at in (1, 3, 5))
    assert keys[0] == f"rgb({red}, {green}, {blue})"


async def test_a_click_in_the_legend_hides_a_series_and_a_second_click_shows_it(tab: Tab, page: str) -> None:
    await tab.show(page)
    lines = "document.querySelectorAll('.panel .plot')[0].querySelectorAll('.scatterlayer .trace .js-line').length"
    before = await tab.evaluate(lines)
    for after in (before - 1, before):
        await tab.evaluate("document.querySelector('.legend button').click()")
        await tab.wait_for(f"{lines} === {after}")


async def test_a_click_on_a_row_folds_it(tab: Tab, page: str) -> None:
    await tab.show(page)
    for visible in ("false", "true"):
        await tab.evaluate("document.querySelector('.section > button').click()")
        await tab.wait_for(f"(document.querySelector('.panel').offsetParent !== null) === {visible}")


async def test_a_click_on_a_title_sorts_a_table(tab: Tab, page: str) -> None:
    await tab.show(page)
    first = "document.querySelector('.table tbody td').innerText"
    assert await tab.evaluate(first) == "b"  # infinity is more than 250 ms
    await tab.evaluate("document.querySelector('.table th').click()")
    assert await tab.evaluate(first) == "a"


async def test_on_a_phone_panels_are_below_each_other_and_keep_their_height(tab: Tab, page: str) -> None:
    boxes = (
        "[...document.querySelectorAll('.panel')].map((each) => each.getBoundingClientRect())"
        ".map(({x, y, width, height}) => [x, y, width, height])"
    )
    await tab.show(page)
    wide = await tab.evaluate(boxes)
    await tab.show(page, width=390)
    narrow = await tab.evaluate(boxes)
    assert len({x for x, *_ in wide}) == 2
    assert len({(x, width) for x, _, width, _ in narrow}) == 1
    assert sorted(y for _, y, _, _ in narrow) == [y for _, y, _, _ in narrow]
    assert [height for *_, height in narrow] == [height for *_, height in wide]
    assert await tab.evaluate("document.documentElement.scrollWidth") <= 390


# the others are drawn by test_texts_fit
@pytest.mark.parametrize("name", ["slo-overview", "slo-requests"])
async def test_every_panel_of_every_shipped_dashboard_is_drawn(tab: Tab, site: str, name: str) -> None:
    await tab.show(f"{site}/{name}")
    await tab.evaluate("document.querySelectorAll('.section.closed > button').forEach((each) => each.click())")
    await tab.wait_for("[...document.querySelectorAll('.panel')].every((panel) => panel.dataset.drawn)")
    facts = await tab.evaluate(PANEL_FACTS)
    assert [each["title"] for each in facts if each["drawn"] in {None, "0"}] == []
    assert [each["title"] for each in facts if "does not support" in each["text"]] == []
    assert await tab.evaluate("document.querySelector('main').innerText.includes('undefined')") is False
    assert console_errors(tab) == []


MANY = [({"engine": f"engine-{number:02}.example.org:8000"}, float(number)) for number in range(11)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def crowded() -> AsyncIterator[str]:
    """The URL of a page with more series than its panels have room for."""
    legend = {"showLegend": True, "displayMode": "table", "placement": "bottom", "calcs": ["max"]}
    tree = dashboard(
        panel("timeseries", "Lines", "x", legend="{{engine}}", options={"legend": legend}),
        panel("stat", "Values", "x", legend="{{engine}}", options={"textMode": "value_and_name"}),
        panel("stat", "Sized", "x", legend="{{engine}}", options={"text": {"titleSize": 12, "valueSize": 20}}),
        panel("table", "Rows", "x", fieldConfig=config(override("byName", "engine", custom__width=90))),
    )
    tree["panels"][-1]["gridPos"]["w"] = 6

    def respond(path: str, parameters: dict[str, str]) -> tuple[int, Any]:
        return answer(path, parameters) if "/label/" in path else result_of(path, parameters, [*MANY])

    with FakePrometheus(respond) as fake:

        def draw(name: str, selection: Selection, start: str | None, end: str | None) -> Mapping[str, Any]:
            return document(tree, Prometheus(fake.url), View(TimeRange(START, END, 1), selection=selection))

        async with server({"crowded": tree}, draw) as running:
            yield f"{running.make_url('')}/crowded"


async def test_a_legend_is_not_higher_than_35_percent_of_its_panel(tab: Tab, crowded: str) -> None:
    await tab.show(crowded)
    shown, content, body = await tab.evaluate(
        "(() => { const e = document.querySelector('.legend');"
        "return [e.clientHeight, e.scrollHeight, e.parentElement.clientHeight]; })()"
    )
    assert shown <= 0.35 * body < content
    # one for the legend, one for the table
    assert await tab.evaluate("document.querySelectorAll('.scrollbar').length") == 2


async def test_the_values_of_a_stat_panel_have_small_fonts_that_differ_in_the_last_line(tab: Tab, crowded: str) -> None:
    await tab.show(crowded)

    async def fonts(title: str) -> list[str]:
        found = await tab.evaluate(
            f"[...[...document.querySelectorAll('.panel')].find((e) => e.innerText.startsWith('{title}'))"
            ".querySelectorAll('.figure b')].map((e) => e.style.fontSize)"
        )
        return list(found)

    automatic = await fonts("Values")
    assert len(automatic) == 11
    assert len(set(automatic)) == 2
    assert automatic[0] != automatic[-1]
    assert set(await fonts("Sized")) == {"20px"}


async def test_a_text_that_is_longer_than_its_column_is_truncated(tab: Tab, crowded: str) -> None:
    await tab.show(crowded)
    widths = await tab.evaluate(
        "[...document.querySelectorAll('.table tbody tr:first-child td')].map((e) => [e.offsetWidth, e.scrollWidth])"
    )
    assert widths[1][0] == 90 < widths[1][1]
    table, body = await tab.evaluate(
        "[document.querySelector('.table table').offsetWidth, document.querySelector('.table').clientWidth]"
    )
    assert table == 90 + 2 * 150 > body


async def test_a_served_page_follows_its_data_selection_and_failures(tab: Tab, prometheus: FakePrometheus) -> None:
    ends = iter(range(END, END + 1000))
    views: list[tuple[Mapping[str, tuple[str, ...]], str | None]] = []
    failing = threading.Event()
    dashboards = {
        "made": dashboard(*PANELS[:1], {**PANELS[-1], "repeat": None}),
        "other": dashboard(title="Other", uid="other"),
    }

    def draw(name: str, selection: Selection, start: str | None, end: str | None) -> Mapping[str, Any]:
        views.append((dict(selection), start))
        if failing.is_set():
            raise UsageError("cannot reach Prometheus")
        view = View(TimeRange(START, next(ends), 1), selection=selection)
        return document(dashboards[name], Prometheus(prometheus.url), view)

    async with server(dashboards, draw, refresh=0.2) as running:
        url = str(running.make_url(""))
        await tab.show(f"{url}/made")
        when = "document.querySelector('.when').innerText"
        before = await tab.evaluate(when)
        await tab.evaluate("document.querySelector('.panel').dataset.mine = 'kept'")
        await tab.wait_for(f"{when} !== {json.dumps(before)}")
        # a refresh fills the panels and does not replace them
        assert await tab.evaluate("document.querySelector('.panel').dataset.mine") == "kept"

        failing.set()
        await tab.wait_for("document.querySelector('.trouble').innerText === 'No new data: cannot reach Prometheus'")
        failing.clear()
        await tab.wait_for("document.querySelector('.trouble').innerText === ''")

        for change, search in (
            ("const [choice] = document.querySelectorAll('.chosen select'); choice.value = 'siso'", "?var-class=siso"),
            (
                "const choice = document.querySelector('[aria-label=\"Time range\"]'); choice.value = 'now-1h'",
                "?var-class=siso&from=now-1h&to=now",
            ),
        ):
            await tab.evaluate(f"{{ {change}; choice.dispatchEvent(new Event('change')); }}")
            await tab.wait_for(f"location.search === '{search}' && document.documentElement.dataset.drawn > 0")
        assert await tab.evaluate("[...document.querySelectorAll('h2')].map((each) => each.innerText)") == [
            "Requests",
            "Of siso",
        ]
        assert ({"class": ("siso",)}, "now-1h") in views
        links = await tab.evaluate("[...document.querySelectorAll('nav a')].map((each) => each.getAttribute('href'))")
        assert links == [f"{name}?var-class=siso&from=now-1h&to=now" for name in ("made", "other")]

        await tab.show(f"{url}/d/made?viewPanel=panel-2")
        outlined = "[...document.querySelectorAll('.spotlight h2')].map((each) => each.innerText)"
        assert await tab.evaluate(outlined) == ["Of All"]
        assert [how for what, how in tab.events if what == "Runtime.exceptionThrown"] == []
