"""The two steps of a drain: clients are asked to reconnect, then no request is accepted and open ones finish."""

import asyncio
from pathlib import Path

import pytest

from exporters.vocabulary.signals import Outcome
from tests.support.scripted_relay import (
    CHAT,
    DONE,
    END,
    OK,
    STREAM_HEAD,
    UNARY,
    Received,
    chunk,
    content,
    error_in,
    ok,
    post,
    staged,
)
from tests.support.waiting import until


async def test_clients_are_served_and_asked_to_reconnect_when_the_drain_is_announced(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        idle = await stage.client(post(UNARY, close=False))
        assert b"connection: close" not in await idle.until(OK[-6:])
        stage.relay.announce_drain()
        await idle.send(post(UNARY, close=False))  # the relay has not closed the idle connection
        new = await stage.client(post(UNARY, close=False))
        for client in (idle, new):
            response = await client.rest()
            assert response.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"connection: close\r\n" in response


async def test_an_error_response_asks_the_client_to_reconnect_when_the_drain_is_announced(tmp_path: Path) -> None:
    async with staged(tmp_path, None) as stage:
        stage.relay.announce_drain()
        response = await stage.ask(post(UNARY, close=False))
        assert response.startswith(b"HTTP/1.1 502 ")
        assert b"connection: close\r\n" in response


async def test_a_connection_whose_stream_began_before_the_announcement_is_not_closed_without_notice(
    tmp_path: Path,
) -> None:
    """The client may send its next request at the moment at which the stream ends."""
    may_finish = asyncio.Event()

    async def stream(received: Received) -> None:
        await received.send(STREAM_HEAD, chunk(content("a")))
        await may_finish.wait()
        await received.send(chunk(DONE), END)

    async with staged(tmp_path, stream) as stage:
        client = await stage.client(post(CHAT, close=False))
        await client.until(b'"a"')
        stage.relay.announce_drain()
        may_finish.set()
        await client.until(END)
        await client.send(post(CHAT, close=False))
        response = await client.rest()
        assert response.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"connection: close\r\n" in response


@pytest.mark.parametrize("received", [pytest.param(50, id="its head"), pytest.param(-10, id="its body")])
async def test_a_request_that_is_still_being_received_is_open_and_finishes(tmp_path: Path, received: int) -> None:
    async with staged(tmp_path, ok) as stage:
        idle = await stage.connect()
        client = await stage.connect()
        request = post(UNARY, close=False)
        await client.send(request[:received])
        await until(lambda: stage.relay.open_requests == 1)
        stage.relay.drain()
        assert await idle.rest() == b""
        assert stage.relay.open_requests == 1
        await client.send(request[received:])
        response = await client.rest()
        assert response.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"connection: close\r\n" in response
        await until(lambda: stage.relay.open_requests == 0)
        assert (await stage.record()).outcome is Outcome.OK


async def test_a_request_is_open_until_its_response_is_written(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        client = await stage.client(post(UNARY, close=False))
        await client.until(OK[-6:])
        (connection,) = stage.relay.connections
        assert stage.relay.open_requests == 0
        connection.pause_writing()  # as the event loop does if the client has not read all
        assert stage.relay.open_requests == 1
        connection.resume_writing()
        assert stage.relay.open_requests == 0


async def test_a_request_that_is_still_being_received_at_the_end_is_cut_and_recorded(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        client = await stage.client(post(UNARY)[:-10])
        await until(lambda: stage.relay.open_requests == 1)
        stage.relay.drain()
        stage.relay.close()
        response = await client.rest()
        assert error_in(response)["message"] == "vllm-slo: the sidecar is shutting down"
        record = await stage.record()
        assert (record.outcome, record.status) == (Outcome.UPSTREAM_ERROR, 504)
        assert stage.requests == []
