"""The forwarder between two services cuts and restores the network, and delays requests with a body."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from compose.ports import HOST
from tests.alerts.alertmanager.tcp_forwarder import Forwarder


@contextlib.asynccontextmanager
async def forwarder() -> AsyncIterator[Forwarder]:
    """In front of a server that sends back what it receives."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(100):
                writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, HOST, 0)
    async with server, Forwarder(server.sockets[0].getsockname()[1]).listening() as started:
        yield started


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, request: bytes) -> bytes:
        """The response; nothing if the connection was cut."""
        try:
            self._writer.write(request)
            return await self._reader.read(100)
        except OSError:
            return b""


@contextlib.asynccontextmanager
async def client(to: Forwarder) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(HOST, to.listens_on)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_a_cut_ends_open_and_new_connections_until_the_network_is_restored() -> None:
    async with forwarder() as network, client(network) as before:
        assert await before.ask(b"GET /") == b"GET /"
        network.cut()
        assert await before.ask(b"GET /") == b""
        async with client(network) as during:
            assert await during.ask(b"GET /") == b""
        network.restore()
        async with client(network) as after:
            assert await after.ask(b"GET /") == b"GET /"


async def test_requests_with_a_body_are_delayed() -> None:
    async with forwarder() as network, client(network) as slow:
        network.delay = 0.05
        start = asyncio.get_running_loop().time()
        assert await slow.ask(b"POST /") == b"POST /"
        assert asyncio.get_running_loop().time() - start >= 0.05
