"""Connections of relays to the exporter over an inherited pair of sockets."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator

import pytest

from exporters.records import connection as record_connection
from exporters.records.connection import RelayListener, connect
from tests.support.waiting import until


class Received(asyncio.Protocol):
    """The bytes of all connections."""

    def __init__(self, received: list[bytes], ended: list[str]) -> None:
        self._received, self._ended = received, ended

    def data_received(self, data: bytes) -> None:
        self._received.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.append("ended")


@contextlib.asynccontextmanager
async def listening(
    relays: socket.socket, received: list[bytes], ended: list[str] | None = None
) -> AsyncIterator[RelayListener]:
    ended = [] if ended is None else ended
    listener = RelayListener(relays, lambda: Received(received, ended), asyncio.get_running_loop())
    yield listener
    listener.close()
    await asyncio.sleep(0.01)  # the transports close in the next iterations of the loop


async def test_what_was_sent_before_the_exporter_listens_arrives_also_if_the_relay_has_ended() -> None:
    to_exporter, relays = socket.socketpair()
    received: list[bytes] = []
    ended: list[str] = []
    with to_exporter, relays:
        for text in (b"one", b"two"):
            with connect(to_exporter) as connection:
                connection.sendall(text)
        async with listening(relays, received, ended):
            await until(lambda: len(ended) == 2)
            assert sorted(received) == [b"one", b"two"]


async def test_a_connection_that_an_exporter_has_accepted_ends_with_it() -> None:
    to_exporter, relays = socket.socketpair()
    with to_exporter, relays, connect(to_exporter) as connection:
        _, descriptors, _, _ = socket.recv_fds(relays, 1, 1)
        socket.socket(fileno=descriptors[0]).close()  # as when the exporter is killed
        assert connection.recv(1) == b""


async def test_above_the_number_of_connections_that_can_wait_a_relay_gets_an_error() -> None:
    to_exporter, relays = socket.socketpair()

    def connect_without_end() -> None:
        while True:
            connect(to_exporter).close()

    with to_exporter, relays, pytest.raises(BlockingIOError):
        connect_without_end()


async def test_without_a_free_descriptor_a_connection_is_closed_and_the_next_ones_are_accepted_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_connection, "ACCEPT_PAUSE_SECONDS", 0.01)
    to_exporter, relays = socket.socketpair()
    received: list[bytes] = []
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with to_exporter, relays, connect(to_exporter) as refused, connect(to_exporter) as connection:
        connection.sendall(b"data")
        async with listening(relays, received):
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))  # fewer than are open
            try:
                refused.setblocking(False)
                assert await asyncio.get_running_loop().sock_recv(refused, 1) == b""
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
            await until(lambda: received == [b"data"])


async def test_a_listener_ends_when_the_supervisor_and_all_relays_have_ended() -> None:
    to_exporter, relays = socket.socketpair()
    with relays:
        async with listening(relays, []):
            to_exporter.close()
            loop = asyncio.get_running_loop()
            await until(lambda: not loop.remove_reader(relays))
