"""Engine connections are reused and closed in time; a request is retried only if the engine cannot have read it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from exporters.relay.connections.upstream import IDLE_SECONDS
from exporters.vocabulary.signals import Outcome
from tests.support.scripted_relay import CHAT, END, OK, UNARY, error_in, post, read_request, staged, whole_stream
from tests.support.waiting import HANG, until

LARGE = UNARY[:-1] + b',"user":"' + b"x" * 6_000_000 + b'"}'
"""Larger than the kernel's socket buffers, smaller than the limit for streaming."""

Connection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def good(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Responds to every request."""
    while True:
        await read_request(reader)
        writer.write(OK)


async def resets_in_the_second(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Responds to one request and resets in the middle of the next."""
    await read_request(reader)
    writer.write(OK)
    await resets(reader, writer)


async def resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Resets in the middle of its first request."""
    await reader.readuntil(b"\r\n\r\n")
    # The relay fills the kernel's socket buffers meanwhile.
    await asyncio.sleep(0.1)
    writer.transport.abort()


@contextlib.asynccontextmanager
async def engine(*connections: Connection) -> AsyncIterator[tuple[str, list[int]]]:
    """An engine whose nth connection runs the nth script; yields its address and the numbers of its connections."""
    opened: list[int] = []
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(len(opened))
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await connections[opened[-1]](reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", opened
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        # The transports close in the next iterations of the loop.
        await asyncio.sleep(0.02)


async def test_a_request_on_a_reused_connection_that_resets_is_retried_on_a_new_one(tmp_path: Path) -> None:
    async with engine(resets_in_the_second, good) as (url, opened), staged(tmp_path, None, upstream=url) as stage:
        assert (await stage.ask(post(UNARY))).endswith(b"ok")
        assert (await stage.ask(post(LARGE))).endswith(b"ok")
        assert opened == [0, 1]
        assert [record.outcome for record in stage.records] == [Outcome.OK, Outcome.OK]


async def test_a_request_that_may_be_retried_is_kept_until_it_is_written(tmp_path: Path) -> None:
    may_read = asyncio.Event()

    async def reads_the_second_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await reader.readuntil(b"\r\n\r\n")
        await may_read.wait()
        await reader.read()

    async with engine(reads_the_second_late) as (url, _), staged(tmp_path, None, upstream=url) as stage:
        await stage.ask(post(UNARY))
        await stage.client(post(LARGE))
        await until(lambda: stage.relay._open)
        (exchange,) = stage.relay._open
        await until(lambda: exchange._upstream is not None)
        assert exchange._upstream is not None
        assert exchange._upstream.unwritten
        assert sum(map(len, exchange._body)) == len(LARGE)
        may_read.set()
        await until(lambda: exchange._upstream is None or not exchange._upstream.unwritten)
        assert exchange._body == []


async def test_a_request_is_retried_once(tmp_path: Path) -> None:
    async with (
        engine(resets_in_the_second, resets, good) as (url, opened),
        staged(tmp_path, None, upstream=url) as stage,
    ):
        await stage.ask(post(UNARY))
        response = await stage.ask(post(LARGE))
        assert error_in(response)["code"] == "upstream_closed"
        assert opened == [0, 1]


@pytest.mark.parametrize(
    "body,first",
    [
        pytest.param(UNARY, [resets_in_the_second], id="the engine may have started to process it"),
        pytest.param(LARGE, [], id="the connection was new"),
    ],
)
async def test_a_request_that_the_engine_may_have_read_is_not_retried(
    tmp_path: Path, body: bytes, first: list[Connection]
) -> None:
    async with engine(*(first or [resets]), good) as (url, opened), staged(tmp_path, None, upstream=url) as stage:
        if first:
            await stage.ask(post(UNARY))
        response = await stage.ask(post(body))
        assert response.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
        assert error_in(response)["code"] == "upstream_closed"
        assert opened == [0]
        assert stage.records[-1].outcome is Outcome.UPSTREAM_ERROR


async def test_a_connection_that_the_engine_may_close_soon_is_not_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # uvicorn, the HTTP server of vLLM, closes idle connections after 5 s.
    assert IDLE_SECONDS < 5
    monkeypatch.setattr("exporters.relay.connections.upstream.IDLE_SECONDS", HANG)
    async with engine(good, good) as (url, opened), staged(tmp_path, None, upstream=url) as stage:
        await stage.ask(post(UNARY))
        await stage.ask(post(UNARY))
        assert opened == [0]
        monkeypatch.setattr("exporters.relay.connections.upstream.IDLE_SECONDS", 0.0)
        await stage.ask(post(UNARY))
        assert opened == [0, 1]


async def test_a_connection_with_bytes_after_the_response_is_not_reused(tmp_path: Path) -> None:
    async def respond_twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK + OK.replace(b"ok", b"no"))
        await reader.read()

    async with engine(respond_twice, good) as (url, opened), staged(tmp_path, None, upstream=url) as stage:
        for _ in range(2):
            response = await stage.ask(post(UNARY))
            assert response.count(b"HTTP/1.1") == 1
            assert response.endswith(b"ok")
        assert opened == [0, 1]


async def test_a_response_before_the_end_of_the_upload_only_closes_the_connection(tmp_path: Path) -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno")
        # Keeps the connection open for the test.
        await asyncio.sleep(HANG)

    async with engine(early, good) as (url, opened), staged(tmp_path, None, upstream=url) as stage:
        assert (await stage.ask(post(LARGE + b" " * 2_000_000))).endswith(b"no")
        assert (await stage.ask(post(UNARY))).endswith(b"ok")
        assert opened == [0, 1]


async def test_connections_are_reused_on_both_sides(tmp_path: Path) -> None:
    async with staged(tmp_path, whole_stream) as stage:
        client = await stage.connect()
        for _ in range(3):
            await client.send(post(CHAT, close=False))
            await client.until(END)
        assert len({received.writer for received in stage.requests}) == 1
        assert len(stage.records) == 3


async def test_a_connection_is_opened_ahead_for_each_new_client(tmp_path: Path) -> None:
    async with engine(good, good, good) as (url, opened), staged(tmp_path, None, upstream=url) as stage:
        clients = [await stage.connect() for _ in range(3)]
        await until(lambda: opened == [0, 1, 2])
        for client in clients:
            await client.send(post(UNARY))
            assert (await client.until(b"ok")).endswith(b"ok")
        assert opened == [0, 1, 2]


async def test_no_connection_is_opened_ahead_while_enough_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporters.relay.connections.upstream.MAX_AHEAD", 2)
    async with engine(good, good) as (url, opened), staged(tmp_path, None, upstream=url) as stage:
        clients = [await stage.connect() for _ in range(4)]
        await until(lambda: len(stage.relay.connections) == 4)
        await until(lambda: opened == [0, 1])
        for client in clients:
            await client.send(post(UNARY, close=False))
            await client.until(b"ok")
        await stage.connect()
        await until(lambda: len(stage.relay.connections) == 5)
        assert opened == [0, 1]


async def test_a_connection_opened_ahead_that_fails_is_not_reported_but_the_request_is(tmp_path: Path) -> None:
    async with staged(tmp_path, None) as stage:
        client = await stage.connect()
        await until(lambda: len(stage.relay.connections) == 1 and not stage.relay.pool.opening)
        await client.send(post(UNARY))
        assert error_in(await client.rest())["code"] == "upstream_unreachable"
        assert [record.outcome for record in stage.records] == [Outcome.UPSTREAM_UNREACHABLE]
