"""Scrapers of fake engines, and a server that sends fixed bytes."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from exporters.engines.scrape_targets import Target, targets
from exporters.engines.scraper import Scraper
from tests.support.fake_engine import CACHING_ON, Engine, serving

HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
PAGE = CACHING_ON.encode()
TLS = ssl.create_default_context()


@dataclass
class RawServer:
    """Its URLs as a scrape target, and the number of received requests."""

    target: Target
    requests: int = 0


@contextlib.asynccontextmanager
async def raw_server(response: bytes, *, hangs: bool = False) -> AsyncIterator[RawServer]:
    """Send these bytes in response to each request and close; or stall after half of them."""
    closing = asyncio.Event()
    handlers = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        # A client whose time is up may leave before it has sent its request.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError), contextlib.closing(writer):
            await reader.readuntil(b"\r\n\r\n")
            running.requests += 1
            writer.write(response[: len(response) // 2] if hangs else response)
            if hangs:
                await closing.wait()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        running = RawServer(Target("e", f"{url}/metrics", url, f"{url}/v1/models"))
        yield running
        closing.set()
        await asyncio.gather(*filter(None, handlers))


@dataclass
class CountingEngine(Engine):
    """Counts the requests for its metrics and for its /server_info."""

    scrapes: int = 0
    info_requests: int = 0

    async def metrics_page(self, request: web.Request) -> web.Response:
        self.scrapes += 1
        return await super().metrics_page(request)

    async def server_info_page(self, request: web.Request) -> web.Response:
        self.info_requests += 1
        return await super().server_info_page(request)


def scraper_of(engine: Engine, models: list[str] | None = None, metrics: Sequence[str] = ()) -> Scraper:
    (target,) = targets(engine.url, metrics)
    return Scraper(target, 1.0, (models if models is not None else []).extend, TLS)


async def scraped(engine: Engine, session: aiohttp.ClientSession, models: list[str] | None = None) -> Scraper:
    """The scraper after one scrape of an engine that then goes down."""
    async with serving(engine):
        scraper = scraper_of(engine, models)
        await scraper.scrape(session)
    return scraper


async def scrape_once(target: Target, session: aiohttp.ClientSession) -> Scraper:
    scraper = Scraper(target, 1.0, lambda _: None, TLS)
    await scraper.scrape(session)
    return scraper
