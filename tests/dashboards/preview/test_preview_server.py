"""Served pages over HTTP: cached data, redirects, time ranges and errors."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from dashboards.live.reader import TimeRange
from dashboards.preview.command import parse_time_range
from dashboards.preview.page import PageSet
from dashboards.preview.server import Draw, PreviewServer, Selection
from exporters.text.errors import UsageError

PAGES = PageSet({"made": "Made", "other": "Other"}, {"made": "made", "other": "other"}, "*")
Client = TestClient[web.Request, web.Application]


@asynccontextmanager
async def serving(draw: Draw, refresh: float, *middlewares: Any) -> AsyncIterator[Client]:
    application = PreviewServer(PAGES, draw, refresh).application()
    application.middlewares.extend(middlewares)
    async with TestClient(TestServer(application)) as client:
        yield client


async def test_concurrent_viewers_cause_one_set_of_queries_in_a_refresh() -> None:
    draws = []
    arrivals, all_arrived = count(1), threading.Event()

    @web.middleware
    async def count_arrivals(request: web.Request, handler: Callable[..., Awaitable[Any]]) -> Any:
        if next(arrivals) == 5:
            all_arrived.set()
        return await handler(request)

    def draw(name: str, selection: Selection, start: str | None, end: str | None) -> Mapping[str, Any]:
        assert all_arrived.wait(60)
        draws.append((name, dict(selection), start, end))
        return {"title": name}

    async with serving(draw, 60, count_arrivals) as client:
        responses = await asyncio.gather(*(client.get("/made/data") for _ in range(5)))
        assert [await response.json() for response in responses] == [{"title": "made"}] * 5
        assert draws == [("made", {}, None, None)]
        await client.get("/other/data?var-class=siso&var-class=lilo&from=now-1h&to=now")
        assert draws[1:] == [("other", {"class": ("siso", "lilo")}, "now-1h", "now")]


async def test_data_is_queried_again_after_the_refresh() -> None:
    numbers = iter(range(10))
    async with serving(lambda *_: {"number": next(numbers)}, refresh=0) as client:
        for number in range(3):
            response = await client.get("/made/data")
            assert await response.json() == {"number": number}


async def test_the_root_redirects_to_the_first_dashboard() -> None:
    async with serving(lambda *_: {}, refresh=1) as client:
        response = await client.get("/")
        assert response.url.path == "/made"
        assert "plotly.js" in await response.text()


@pytest.mark.parametrize("path", ["/d/made", "/d/made/any-title"])
async def test_grafanas_path_redirects_to_the_page_and_keeps_the_query(path: str) -> None:
    async with serving(lambda *_: {}, refresh=1) as client:
        response = await client.get(f"{path}?viewPanel=7&var-class=a%2Fb")
        assert response.url.path_qs == "/made?viewPanel=7&var-class=a/b"


async def test_an_unknown_dashboard_is_404() -> None:
    async with serving(lambda *_: {}, refresh=1) as client:
        for path, message in (("/nope", "no dashboard 'nope'"), ("/d/nope", "no dashboard has the uid 'nope'")):
            response = await client.get(path)
            assert (response.status, await response.text()) == (404, f"{message}; available: made, other")


async def test_an_unreachable_prometheus_is_a_message() -> None:
    def draw(*_: Any) -> Mapping[str, Any]:
        raise UsageError("cannot reach Prometheus")

    async with serving(draw, refresh=1) as client:
        response = await client.get("/made/data")
        assert (response.status, await response.text()) == (502, "cannot reach Prometheus")


@pytest.mark.parametrize(
    "start, end, span",
    [
        pytest.param(None, None, (100.0, 1000.0), id="default"),
        pytest.param("now-5m", "now", (700.0, 1000.0), id="the last minutes"),
        pytest.param("now-15m", "now-5m", (100.0, 700.0), id="some minutes before"),
        pytest.param("200000", "300000", (200.0, 300.0), id="unix milliseconds"),
    ],
)
def test_a_time_range_in_a_url_is_parsed_as_in_grafana(
    start: str | None, end: str | None, span: tuple[float, float]
) -> None:
    assert parse_time_range(start, end, TimeRange(100, 1000, 15)) == TimeRange(*span, 15)


@pytest.mark.parametrize(
    "start, end, message",
    [
        pytest.param("soon", None, "'soon' is not a time; write now, now-15m or unix milliseconds", id="no time"),
        pytest.param("now-x", None, "'now-x' is not a time; write now, now-15m or unix milliseconds", id="no duration"),
        pytest.param("now", "now-5m", "now is not before now-5m", id="backwards"),
    ],
)
def test_an_invalid_time_range_in_a_url_is_rejected(start: str, end: str | None, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_time_range(start, end, TimeRange(100, 1000, 15))
    assert str(refused.value) == message
