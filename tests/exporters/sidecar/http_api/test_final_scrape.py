"""The scrape that ends the linger time: it began after the last request was counted, and its response is sent."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

from aiohttp import ClientSession
from aiohttp.test_utils import TestServer
from prometheus_client.core import GaugeMetricFamily, Metric

from exporters.sidecar.drain_control import Drain, Report
from exporters.sidecar.http_api.http_server import application
from tests.support.waiting import HANG, until

LARGE = 20_000_000
"""More bytes than the kernel's socket buffers hold."""


@contextlib.asynccontextmanager
async def serving(
    drain: Drain, collect: Callable[[], Iterable[Metric]]
) -> AsyncIterator[tuple[int, Callable[[], list[Report]]]]:
    """The metrics port, and a function that returns the reports to the supervisor since its last call."""
    loop = asyncio.get_running_loop()
    supervisor, exporter = socket.socketpair()
    supervisor.setblocking(False)

    def reports() -> list[Report]:
        with contextlib.suppress(BlockingIOError):
            return list(map(Report, supervisor.recv(64)))
        return []

    with supervisor, exporter:
        drain.connect(exporter, loop)
        async with TestServer(application(collect, lambda: None, drain=drain)) as server:
            assert server.port is not None
            yield server.port, reports
        loop.remove_reader(exporter)


async def test_only_a_scrape_that_began_after_the_last_request_was_counted_is_reported() -> None:
    drain = Drain()

    def collect() -> Iterator[Metric]:
        drain.end()
        yield from ()

    async with serving(drain, collect) as (port, reports), ClientSession() as session:
        for method, expected in (("GET", []), ("HEAD", []), ("GET", [Report.FINAL_SCRAPE])):
            async with session.request(method, f"http://127.0.0.1:{port}/metrics") as response:
                assert response.status == 200
                await response.read()
            async with session.get(f"http://127.0.0.1:{port}/healthz"):  # after the handler of the scrape
                assert reports() == expected


async def test_a_scrape_is_reported_when_its_response_is_sent() -> None:
    drain = Drain()
    drain.end()

    def collect() -> Iterator[Metric]:
        yield GaugeMetricFamily("large", "x" * LARGE)

    async with serving(drain, collect) as (port, reports), asyncio.timeout(HANG):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        assert reports() == []
        await reader.readexactly(LARGE)
        await until(lambda: reports() == [Report.FINAL_SCRAPE])
        writer.close()
