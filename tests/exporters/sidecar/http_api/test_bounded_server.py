"""Bounds on the connections of the exporter's ports: their number, idle clients, incomplete requests, slow readers."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import ClientSession, web

from exporters.sidecar.http_api.bounded_server import BoundedServer, connection_limit
from tests.support.waiting import HANG, until

LARGE = 20_000_000
"""More bytes than the kernel's socket buffers hold."""


@dataclass
class Port:
    """A bounded server with a short, a large and a delayed response, and its clients."""

    server: BoundedServer
    number: int
    may_respond: asyncio.Event
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def connect(self, data: bytes = b"", receive_buffer: int | None = None) -> asyncio.StreamReader:
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.number))
        reader, writer = await asyncio.open_connection(sock=sock, limit=2**10)
        writer.write(data)
        self.writers.append(writer)
        return reader

    async def ask(self, path: str = "/short") -> bytes:
        """The body of the response on a connection of its own."""
        async with ClientSession() as session, session.get(f"http://127.0.0.1:{self.number}{path}") as response:
            return await response.read()

    @property
    def open(self) -> int:
        return len(self.server._connections)

    @property
    def stalled(self) -> int:
        return sum(connection.stalled for connection in self.server._connections.values())

    @property
    def handling(self) -> int:
        return sum(connection.handling for connection in self.server._connections.values())


@contextlib.asynccontextmanager
async def serving(*, limit: int = 100, idle: float = HANG, response: float = HANG) -> AsyncIterator[Port]:
    may_respond = asyncio.Event()

    async def short(_: web.Request) -> web.Response:
        return web.Response(text="short")

    async def large(_: web.Request) -> web.Response:
        return web.Response(body=bytes(LARGE))

    async def delayed(_: web.Request) -> web.Response:
        await may_respond.wait()
        return web.Response(text="delayed")

    app = web.Application()
    app.add_routes([web.get("/short", short), web.get("/large", large), web.get("/delayed", delayed)])
    server = BoundedServer(app, limit=limit, idle=idle, response=response, shutdown_timeout=0.01)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await server.start(sock=listener)
        port = Port(server, listener.getsockname()[1], may_respond)
        try:
            yield port
        finally:
            for writer in port.writers:
                writer.transport.abort()
            await server.close()
            await until(lambda: not port.open)


async def closed(reader: asyncio.StreamReader) -> bool:
    """Wait until the server has closed the connection, also with a reset."""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(HANG):
            while await reader.read(2**20):
                pass
    return True


def get(path: str, headers: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n".encode()


BODY = b"POST /short HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nabc"


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"G", id="one byte"),
        pytest.param(get("/short")[:-2], id="an incomplete head"),
        pytest.param(get("/short"), id="a request, and nothing after its response"),
        pytest.param(get("/short") + b"GET", id="a request and an incomplete head"),
        pytest.param(BODY, id="an incomplete body that is not read"),
        pytest.param(get("/short", "connection: upgrade\r\nupgrade: websocket\r\n") + b"x", id="an upgrade"),
        pytest.param(b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\nx", id="a tunnel"),
        pytest.param(b"\x16\x03\x01", id="TLS"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2"),
    ],
)
async def test_a_client_that_sends_nothing_more_is_disconnected(sent: bytes) -> None:
    async with serving(idle=0.1) as port:
        assert await closed(await port.connect(sent))
        await until(lambda: not port.open)


async def test_a_head_that_arrives_byte_by_byte_does_not_prolong_its_time() -> None:
    async with serving(idle=0.2) as port:
        await port.connect()
        await until(lambda: port.open == 1)
        async with asyncio.timeout(HANG):
            while port.open:
                port.writers[0].write(b"G")
                await asyncio.sleep(0.01)  # a slow client


async def test_a_request_that_takes_longer_than_the_idle_time_is_answered() -> None:
    async with serving(idle=0.3) as port:
        idle = await port.connect()
        reader = await port.connect(get("/delayed"))
        assert await closed(idle)
        port.may_respond.set()
        assert (await reader.readuntil(b"delayed")).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "path, requests",
    [pytest.param("/large", 1, id="one large response"), pytest.param("/short", 50_000, id="pipelined")],
)
async def test_a_client_that_does_not_read_is_disconnected(path: str, requests: int) -> None:
    async with serving(response=0.3) as port:
        reader = await port.connect(get(path) * requests, receive_buffer=4096)
        await until(lambda: port.stalled == 1)
        (connection,) = port.server._connections.values()
        assert len(connection.http._messages) <= 32  # type: ignore[attr-defined]  # requests in the queue of aiohttp
        await until(lambda: not port.open)
        assert await closed(reader)


@pytest.mark.slow
async def test_a_client_that_reads_slowly_receives_all() -> None:
    async with serving() as port:
        reader = await port.connect(get("/large", "connection: close\r\n"), receive_buffer=4096)
        await until(lambda: port.stalled == 1)
        await reader.readuntil(b"\r\n\r\n")
        received = 0
        while data := await reader.read(2**20):
            received += len(data)
        assert received == LARGE


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving() as port:
        reader = await port.connect(get("/short") * 1000 + get("/delayed", "connection: close\r\n"))
        port.may_respond.set()
        received = b""
        while data := await reader.read(2**20):
            received += data
        assert (received.count(b"\r\n\r\nshort"), received.count(b"\r\n\r\ndelayed")) == (1000, 1)
        assert received.endswith(b"delayed")


@pytest.mark.parametrize(
    "descriptors, connections",
    [(64, 16), (256, 16), (320, 20), (1024, 32), (1_048_576, 32), (resource.RLIM_INFINITY, 32)],
)
def test_a_port_has_a_share_of_the_descriptors(descriptors: int, connections: int) -> None:
    assert connection_limit(descriptors) == connections


async def test_idle_connections_give_way_to_others_the_oldest_first() -> None:
    async with serving(limit=3) as port:
        idle = [await port.connect(b"G") for _ in range(3)]
        await until(lambda: port.open == 3)
        assert await port.ask() == b"short"
        assert await closed(idle[0])
        assert port.server.closed_connections == 1
        assert await port.ask() == b"short"
        assert not any(reader.at_eof() for reader in idle[1:])


async def test_300_idle_connections_keep_no_client_away() -> None:
    async with serving(limit=16) as port:
        for _ in range(300):
            await port.connect()
        for _ in range(20):
            assert await port.ask() == b"short"
            assert port.open <= 16
        assert port.server.closed_connections >= 300 - 16


async def test_clients_that_do_not_read_give_way_after_the_idle_ones() -> None:
    async with serving(limit=3) as port:
        slow = [await port.connect(get("/large"), receive_buffer=4096) for _ in range(2)]
        await until(lambda: port.stalled == 2)
        idle = await port.connect()
        await until(lambda: port.open == 3)
        assert await port.ask() == b"short"
        assert await closed(idle)
        assert port.stalled == 2
        async with ClientSession() as session, session.get(f"http://127.0.0.1:{port.number}/short"):
            assert port.open == 3
            assert await port.ask() == b"short"
        await until(lambda: port.stalled == 2)
        third = await port.connect(get("/large"), receive_buffer=4096)
        await until(lambda: port.stalled == 3)
        assert await port.ask() == b"short"
        await until(lambda: port.stalled == 2)
        assert await closed(slow[0])
        assert not third.at_eof()


async def test_a_request_that_is_being_handled_never_gives_way() -> None:
    async with serving(limit=2) as port:
        readers = [await port.connect(get("/delayed", "connection: close\r\n")) for _ in range(2)]
        await until(lambda: port.handling == 2)
        assert await closed(await port.connect(get("/short")))
        assert port.server.closed_connections == 1
        port.may_respond.set()
        for reader in readers:
            assert (await reader.read()).endswith(b"delayed")
        assert await port.ask() == b"short"
