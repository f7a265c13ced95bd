"""The time of a read is its arrival in the kernel, whenever the event loop reads it."""

import select
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

import gevent
import gevent.socket
import pytest

from exporters.http.parser import BadHttpError
from loadgen.client.completion import CompletionResponse
from loadgen.client.socket_reader import SocketReader, request_timestamps
from loadgen.results.record import ClientOutcome

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n"
BODY = b'{"choices": [{"text": "x", "finish_reason": "stop"}]}'.ljust(90)
CLOCKS = 1e-4
"""Seconds; the monotonic and the wall clock are read one after the other."""


@dataclass(frozen=True, slots=True)
class Connection:
    """The two ends of one connection; `client` belongs to gevent."""

    server: socket.socket
    client: gevent.socket.socket

    def arrive(self, data: bytes) -> tuple[float, float]:
        """Send to the client; returns times before and after the arrival, and nothing is read in between."""
        before = time.monotonic()
        self.server.sendall(data)
        select.select([self.client.fileno()], [], [])
        return before, time.monotonic()


def connect(*, timestamps: bool) -> Connection:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = gevent.socket.socket()
        if timestamps:
            request_timestamps(client)
        client.connect(listening.getsockname())
        server, _ = listening.accept()
    return Connection(server, client)


@pytest.fixture
def connection() -> Iterator[Connection]:
    one = connect(timestamps=True)
    # The kernel begins to stamp some time after the first socket has asked for it.
    while not stamped(one):
        pass
    with one.server, one.client:
        yield one


def stamped(connection: Connection) -> bool:
    connection.arrive(b"x")
    return bool(connection.client.recvmsg(1, 64)[1])


def test_a_read_has_the_time_of_its_arrival_not_that_of_the_read(connection: Connection) -> None:
    before, after = connection.arrive(HEAD + BODY)
    response = CompletionResponse()
    SocketReader().read(connection.client, response, since=0.0)
    assert response.outcome() == (ClientOutcome.OK, None)
    assert response.first_byte == response.end
    assert response.end is not None
    assert before - CLOCKS <= response.end <= after + CLOCKS


def test_without_timestamps_the_time_is_that_of_the_read() -> None:
    one = connect(timestamps=False)
    with one.server, one.client:
        _, after = one.arrive(HEAD + BODY)
        response = CompletionResponse()
        SocketReader().read(one.client, response, since=0.0)
        assert response.end is not None
        assert after <= response.end <= time.monotonic()


@pytest.mark.parametrize("hours", [pytest.param(1, id="forward"), pytest.param(-1, id="back")])
def test_a_wall_clock_that_was_set_moves_no_arrival_out_of_the_time_of_the_request(
    connection: Connection, hours: int
) -> None:
    response, since = CompletionResponse(), time.monotonic()
    connection.arrive(HEAD + BODY)
    SocketReader(lambda: time.time() + hours * 3600).read(connection.client, response, since)
    assert response.end is not None
    assert since <= response.end <= time.monotonic()


def test_every_response_is_fed_whatever_the_number_of_rounds(connection: Connection) -> None:
    others = [connect(timestamps=True) for _ in range(20)]
    reader, responses = SocketReader(), [CompletionResponse() for _ in others]
    greenlets = [
        gevent.spawn(reader.read, one.client, response, 0.0) for one, response in zip(others, responses, strict=True)
    ]
    for piece in (HEAD, BODY[:30], BODY[30:]):
        for one in others:
            one.server.sendall(piece)
            gevent.sleep(0)
    gevent.joinall(greenlets, raise_error=True)
    assert [response.outcome() for response in responses] == [(ClientOutcome.OK, None)] * len(others)
    connection.server.sendall(HEAD + BODY)  # after all others have ended
    last = CompletionResponse()
    reader.read(connection.client, last, 0.0)
    assert last.outcome() == (ClientOutcome.OK, None)
    for one in others:
        one.server.close()
        one.client.close()


def test_an_error_is_raised_in_the_greenlet_of_its_request_only(connection: Connection) -> None:
    other, reader, response = connect(timestamps=True), SocketReader(), CompletionResponse()
    greenlet = gevent.spawn(reader.read, connection.client, response, 0.0)
    other.server.sendall(b"SSH-2.0\r\n\r\n")
    with pytest.raises(BadHttpError, match=r"; the response starts with 'SSH-2\.0'$"):
        reader.read(other.client, CompletionResponse(), 0.0)
    connection.server.sendall(HEAD)
    connection.server.close()
    greenlet.get()
    assert response.outcome() == (ClientOutcome.TRUNCATED, "the response is incomplete")
    other.server.close()
    other.client.close()


def test_a_request_that_is_killed_leaves_nothing_in_the_event_loop(connection: Connection) -> None:
    reader = SocketReader()
    greenlet = gevent.spawn(reader.read, connection.client, CompletionResponse(), 0.0)
    gevent.sleep(0)
    active = gevent.get_hub().loop.activecnt
    greenlet.kill()
    assert gevent.get_hub().loop.activecnt < active
