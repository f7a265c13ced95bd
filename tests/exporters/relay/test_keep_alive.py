"""Connections to the engine are kept, retired in time, and a request is sent twice only where that can do no harm."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from exporters.relay.upstream import IDLE_SECONDS
from exporters.signals import Outcome
from tests.support.scripted_relay import (
    CHAT,
    END,
    OK,
    UNARY,
    error_in,
    post,
    read_request,
    staged,
    whole_stream,
)
from tests.support.waiting import HANG

LARGE = UNARY[:-1] + b',"user":"' + b"x" * 7_000_000 + b'"}'
"""More than the kernel takes at once, less than is streamed through."""

Connection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def good(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers whatever comes."""
    while True:
        await read_request(reader)
        writer.write(OK)


async def dies_in_the_second(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers one request and resets in the middle of the next."""
    await read_request(reader)
    writer.write(OK)
    await reader.readuntil(b"\r\n\r\n")
    await asyncio.sleep(0.1)
    writer.transport.abort()


async def resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Resets in the middle of its first request."""
    await reader.readuntil(b"\r\n\r\n")
    await asyncio.sleep(0.1)
    writer.transport.abort()


@contextlib.asynccontextmanager
async def engine(*connections: Connection) -> AsyncIterator[tuple[str, list[int]]]:
    """An engine whose first connection runs the first script, and so on; its address, and the numbers it has begun."""
    begun: list[int] = []
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.append(len(begun))
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await connections[begun[-1]](reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", begun
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0.02)


async def test_a_request_cut_off_by_a_dying_idle_connection_is_sent_again_on_a_new_one(tmp_path: Path) -> None:
    async with (
        engine(dies_in_the_second, good) as (url, begun),
        staged(tmp_path, None, upstream=url) as stage,
    ):
        assert (await stage.ask(post(UNARY))).endswith(b"ok")
        assert (await stage.ask(post(LARGE))).endswith(b"ok")
        assert begun == [0, 1]
        assert [record.outcome for record in stage.records] == [Outcome.OK, Outcome.OK]


async def test_it_is_sent_again_once_and_no_more(tmp_path: Path) -> None:
    async with (
        engine(dies_in_the_second, resets, good) as (url, begun),
        staged(tmp_path, None, upstream=url) as stage,
    ):
        await stage.ask(post(UNARY))
        answer = await stage.ask(post(LARGE))
        assert error_in(answer)["code"] == "upstream_closed"
        assert begun == [0, 1]


@pytest.mark.parametrize(
    "body,first",
    [
        pytest.param(UNARY, [dies_in_the_second], id="the engine may have begun to work on it"),
        pytest.param(LARGE, [], id="the connection was new, so that the engine itself refuses"),
    ],
)
async def test_a_request_that_the_engine_may_have_seen_is_not_sent_again(
    tmp_path: Path, body: bytes, first: list[Connection]
) -> None:
    async with (
        engine(*(first or [resets]), good) as (url, begun),
        staged(tmp_path, None, upstream=url) as stage,
    ):
        if first:
            await stage.ask(post(UNARY))
        answer = await stage.ask(post(body))
        assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
        assert error_in(answer)["code"] == "upstream_closed"
        assert begun == [0]
        assert stage.records[-1].outcome is Outcome.UPSTREAM_ERROR


async def test_a_connection_that_the_engine_may_be_about_to_close_is_not_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert IDLE_SECONDS < 5  # after which uvicorn, which vLLM serves with, closes
    monkeypatch.setattr("exporters.relay.upstream.IDLE_SECONDS", HANG)
    async with engine(good, good) as (url, begun), staged(tmp_path, None, upstream=url) as stage:
        await stage.ask(post(UNARY))
        await stage.ask(post(UNARY))
        assert begun == [0]
        monkeypatch.setattr("exporters.relay.upstream.IDLE_SECONDS", 0.0)
        await stage.ask(post(UNARY))
        assert begun == [0, 1]


async def test_a_connection_on_which_the_engine_says_more_than_its_answer_is_not_used_again(tmp_path: Path) -> None:
    async def talkative(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK + OK)
        await reader.read()

    async with engine(talkative, good) as (url, begun), staged(tmp_path, None, upstream=url) as stage:
        assert (await stage.ask(post(UNARY))).count(b"200 OK") == 1
        assert (await stage.ask(post(UNARY))).count(b"200 OK") == 1
        assert begun == [0, 1]


async def test_an_answer_before_the_end_of_the_upload_costs_the_connection_and_nothing_else(tmp_path: Path) -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno")
        await asyncio.sleep(HANG)  # as long as the test runs: the connection stays open

    async with engine(early, good) as (url, begun), staged(tmp_path, None, upstream=url) as stage:
        assert (await stage.ask(post(LARGE + b" " * 2_000_000))).endswith(b"no")
        assert (await stage.ask(post(UNARY))).endswith(b"ok")
        assert begun == [0, 1]


async def test_connections_are_kept_on_both_sides(tmp_path: Path) -> None:
    async with staged(tmp_path, whole_stream) as stage:
        client = await stage.connect()
        for _ in range(3):
            await client.send(post(CHAT, close=False))
            await client.until(END)
        assert len({received.writer for received in stage.requests}) == 1
        assert len(stage.records) == 3
