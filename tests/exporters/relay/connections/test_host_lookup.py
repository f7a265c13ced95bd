"""Lookups of the engine's name."""

import asyncio
import socket
import threading
from typing import Any

import pytest

from exporters.configuration.origin import origin
from exporters.relay.connections.host_lookup import HostLookup
from exporters.relay.connections.upstream import UpstreamConnection, UpstreamPool
from exporters.relay.connections.write_batch import WriteBatch
from tests.support.waiting import until


class Names:
    """A resolver that answers when it may, with the addresses of its field."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
        self.addresses = addresses
        self.lookups = 0
        self.may_answer = threading.Event()
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def _look_up(self, host: str, port: None, **_: Any) -> list[Any]:
        self.lookups += 1
        self.may_answer.wait()
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, f"{host} is unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in self.addresses]


async def test_simultaneous_connections_share_a_lookup_and_later_ones_get_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = Names(monkeypatch, "127.0.0.1", "127.0.0.2", "127.0.0.1")
    lookup = HostLookup("engine", asyncio.get_running_loop())
    waiting = [asyncio.ensure_future(lookup.addresses()) for _ in range(3)]
    await until(lambda: names.lookups == 1)
    waiting[0].cancel()  # a timeout of one of them does not end the lookup of the others
    names.may_answer.set()
    assert await asyncio.gather(*waiting[1:]) == [["127.0.0.1", "127.0.0.2"]] * 2
    names.addresses = ("127.0.0.3",)
    assert await lookup.addresses() == ["127.0.0.3"]
    assert names.lookups == 2


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_an_address_is_not_looked_up(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    names = Names(monkeypatch)
    assert await HostLookup(host, asyncio.get_running_loop()).addresses() == [host]
    assert names.lookups == 0


async def opened(host: str, port: int) -> UpstreamConnection | str:
    """A connection to the engine, or why there is none."""
    loop = asyncio.get_running_loop()
    pool = UpstreamPool(origin(f"http://{host}:{port}"), 10.0, loop, WriteBatch(loop, lambda _error: None))
    found: asyncio.Future[UpstreamConnection | str] = loop.create_future()

    def take(result: UpstreamConnection | str, _at: float) -> None:
        found.set_result(result)

    await pool.connect(take, take)
    return await found


async def test_the_next_address_is_tried_if_one_refuses_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch, "127.0.0.2", "127.0.0.1")
    names.may_answer.set()
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    async with server:
        connection = await opened("engine", server.sockets[0].getsockname()[1])
        assert isinstance(connection, UpstreamConnection)
        assert connection.transport.get_extra_info("peername")[0] == "127.0.0.1"
        connection.transport.abort()
    await asyncio.sleep(0.01)  # the transports close in the next iterations of the loop


async def test_if_all_addresses_refuse_the_reason_is_that_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, "127.0.0.2", "127.0.0.3").may_answer.set()
    assert await opened("engine", 1) == "connection refused"


async def test_a_name_that_is_unknown_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch).may_answer.set()
    assert await opened("engine", 1) == "engine is unknown"
