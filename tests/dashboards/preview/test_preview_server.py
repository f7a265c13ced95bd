"""Served pages: they ask again, keep their choices in their address, and say when nothing answers."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from dashboards.audit import TimeRange
from dashboards.preview.chromium import BROWSER_NAMES, browser, find_browser
from dashboards.preview.command import parse_time_range
from dashboards.preview.document import document
from dashboards.preview.html_page import PageSet
from dashboards.preview.preview_server import PreviewServer, Selection
from dashboards.preview.view_state import View
from exporters.errors import UsageError
from exporters.prometheus_api import Prometheus
from tests.dashboards.preview.sample_dashboard import END, PANELS, START, answer, dashboard
from tests.support.fake_prometheus import FakePrometheus

PAGES = PageSet({"made": "Made", "other": "Other"}, {"made": "made", "other": "other"}, "*")
BOARD = dashboard(*PANELS[:1], {**PANELS[-1], "repeat": None})


@asynccontextmanager
async def serving(draw: Any, refresh: float) -> AsyncIterator[str]:
    async with TestServer(PreviewServer(PAGES, draw, refresh).application()) as server:
        yield str(server.make_url("")).rstrip("/")


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    fake = FakePrometheus(answer)
    yield fake
    fake.close()


async def test_concurrent_viewers_cause_one_set_of_queries_in_a_refresh() -> None:
    draws = []

    def draw(name: str, choices: Selection, start: str | None, end: str | None) -> Mapping[str, Any]:
        draws.append((name, dict(choices), start, end))
        time.sleep(0.05)  # as long as others need to ask, too
        return {"title": name}

    async with serving(draw, refresh=60) as url, ClientSession() as http:

        async def ask(path: str) -> Any:
            async with http.get(url + path) as response:
                return await response.json()

        assert await asyncio.gather(*(ask("/made/data") for _ in range(5))) == [{"title": "made"}] * 5
        assert draws == [("made", {}, None, None)]
        await ask("/other/data?var-class=siso&var-class=lilo&from=now-1h&to=now")
        assert draws[1:] == [("other", {"class": ("siso", "lilo")}, "now-1h", "now")]


async def test_data_is_queried_again_after_the_refresh() -> None:
    numbers = iter(range(10))
    async with serving(lambda *_: {"number": next(numbers)}, refresh=0) as url, ClientSession() as http:
        for number in range(3):
            async with http.get(f"{url}/made/data") as response:
                assert await response.json() == {"number": number}


async def test_the_root_redirects_to_the_first_dashboard_and_an_unknown_one_is_404() -> None:
    async with serving(lambda *_: {}, refresh=1) as url, ClientSession() as http:
        async with http.get(url) as response:
            assert response.url.path == "/made"
            assert "plotly.js" in await response.text()
        async with http.get(f"{url}/nope") as response:
            assert (response.status, await response.text()) == (404, "no dashboard 'nope'; there are: made, other")


async def test_the_path_of_grafana_redirects_to_the_page_and_keeps_the_query() -> None:
    async with serving(lambda *_: {}, refresh=1) as url, ClientSession() as http:
        for path in ("/d/made", "/d/made/any-title"):
            async with http.get(f"{url}{path}?viewPanel=7&var-class=a%2Fb") as response:
                assert response.url.path_qs == "/made?viewPanel=7&var-class=a/b"
        async with http.get(f"{url}/d/nope") as response:
            assert (response.status, await response.text()) == (
                404,
                "no dashboard has the uid 'nope'; there are: made, other",
            )


async def test_a_prometheus_that_does_not_answer_is_a_message() -> None:
    def draw(*_: Any) -> Mapping[str, Any]:
        raise UsageError("cannot reach Prometheus")

    async with serving(draw, refresh=1) as url, ClientSession() as http, http.get(f"{url}/made/data") as response:
        assert (response.status, await response.text()) == (502, "cannot reach Prometheus")


@pytest.mark.parametrize(
    "start, end, span",
    [
        pytest.param(None, None, (100.0, 1000.0), id="the flags' own"),
        pytest.param("now-5m", "now", (700.0, 1000.0), id="the last minutes"),
        pytest.param("now-15m", "now-5m", (100.0, 700.0), id="some minutes before"),
        pytest.param("200000", "300000", (200.0, 300.0), id="unix milliseconds"),
    ],
)
def test_a_time_range_in_an_address_is_read_as_grafana_writes_it(
    start: str | None, end: str | None, span: tuple[float, float]
) -> None:
    assert parse_time_range(start, end, TimeRange(100, 1000, 15)) == TimeRange(*span, 15)


@pytest.mark.parametrize(
    "start, end, message",
    [
        pytest.param("soon", None, "'soon' is no time; write now, now-15m or unix milliseconds", id="no time"),
        pytest.param("now-x", None, "'now-x' is no time; write now, now-15m or unix milliseconds", id="no duration"),
        pytest.param("now", "now-5m", "now is not before now-5m", id="backwards"),
    ],
)
def test_a_wrong_time_range_in_an_address_is_refused(start: str, end: str | None, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_time_range(start, end, TimeRange(100, 1000, 15))
    assert str(refused.value) == message


@pytest.mark.skipif(find_browser() is None, reason=f"no browser on PATH; looked for {', '.join(BROWSER_NAMES)}")
async def test_a_served_page_follows_its_data_its_choices_and_its_failures(prometheus: FakePrometheus) -> None:
    ends = iter(range(END, END + 1000))
    views: list[tuple[Mapping[str, tuple[str, ...]], str | None]] = []
    failures: list[str] = []

    def draw(name: str, choices: Selection, start: str | None, end: str | None) -> Mapping[str, Any]:
        views.append((dict(choices), start))
        if failures:
            failures.pop()
            raise UsageError("cannot reach Prometheus")
        return document(BOARD, Prometheus(prometheus.url), View(TimeRange(START, next(ends), 1), selection=choices))

    async with serving(draw, refresh=0.2) as url, browser() as tab:
        await tab.show(f"{url}/made")
        when = "document.querySelector('.when').innerText"
        before = await tab.evaluate(when)
        await tab.evaluate("document.querySelector('.panel').dataset.mine = 'kept'")
        await tab.wait_for(f"{when} !== {json.dumps(before)}")
        assert (
            await tab.evaluate("document.querySelector('.panel').dataset.mine") == "kept"
        )  # drawn anew, not made anew

        failures.append("one")
        await tab.wait_for("document.querySelector('.trouble').innerText === 'No new data: cannot reach Prometheus'")
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
