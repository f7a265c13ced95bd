"""Limits on the size of requests and heads, and on the memory of uploads and slow readers."""

import asyncio
import contextlib
import tracemalloc
from pathlib import Path

import pytest

from exporters.http.parser import MAX_HEADERS, MAX_OPTIONS, MAX_PATH
from exporters.relay.connections.client import MAX_PIPELINED
from exporters.relay.connections.exchange import Exchange
from exporters.vocabulary.signals import Outcome
from tests.exporters.relay.engines import behind
from tests.support.scripted_relay import (
    CHAT,
    STREAM_HEAD,
    UNARY,
    Received,
    chunk,
    content,
    error_in,
    ok,
    post,
    read_request,
    staged,
)
from tests.support.waiting import until


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(post(b"x" * 1001), id="by content-length"),
        pytest.param(post(b"x" * 1001, path="/v1/chat/completions/batch"), id="on a path that is not parsed"),
        pytest.param(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
            + chunk(b"x" * 600) * 2 + b"0\r\n\r\n", id="by received bytes"),
        pytest.param(b"POST /v1/chat/completions/batch HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
            + chunk(b"x" * 1001), id="while it is streamed"),
    ],
)  # fmt: skip
async def test_a_body_over_the_limit_is_rejected_and_counted(tmp_path: Path, request_bytes: bytes) -> None:
    async with staged(tmp_path, ok, max_body=1000) as stage:
        response = await stage.ask(request_bytes)
        assert response.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close\r\n" in response
        assert error_in(response)["message"] == "vllm-slo: the request body is larger than 1000 bytes"
        record = await stage.record()
        assert (record.outcome, record.status) == (Outcome.CLIENT_ERROR, 413)
        assert stage.requests == []


async def test_a_body_at_the_limit_passes(tmp_path: Path) -> None:
    async with staged(tmp_path, ok, max_body=len(UNARY)) as stage:
        assert (await stage.ask(post(UNARY))).endswith(b"ok")


async def test_a_client_that_is_still_uploading_receives_the_error(tmp_path: Path) -> None:
    async with staged(tmp_path, ok, max_body=1000) as stage:
        client = await stage.client(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 50000000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                client.writer.write(b"x" * 100_000)
                await asyncio.sleep(0)
        assert (await client.rest()).startswith(b"HTTP/1.1 413 ")


async def test_no_100_continue_is_sent_for_a_body_over_the_limit(tmp_path: Path) -> None:
    async with staged(tmp_path, ok, max_body=10) as stage:
        response = await stage.ask(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 11\r\n\r\n"
        )
        assert response.startswith(b"HTTP/1.1 413 ")


async def test_the_operator_sets_the_limit_of_the_head(tmp_path: Path) -> None:
    async with staged(tmp_path, ok, max_head=300) as stage:
        head = "GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\nlong: {}\r\n\r\n"
        assert (await stage.ask(head.format("y" * 100).encode())).endswith(b"ok")
        response = await stage.ask(head.format("y" * 300).encode())
        assert response.startswith(b"HTTP/1.1 431 ")
        assert error_in(response)["message"] == "vllm-slo: the request head is larger than 300 bytes"


@pytest.mark.parametrize(
    "path, headers, status, message",
    [
        pytest.param("/health", "a:\r\n" * MAX_HEADERS, 431, "the head has more than 1000 headers", id="headers"),
        pytest.param("/health", "connection: a\r\n" * (MAX_OPTIONS + 1), 400,
            "the Connection header has more than 100 options", id="options"),
        pytest.param("/health", f"expect: {',' * MAX_OPTIONS}\r\n", 400, "the Expect header has more than 100 options",
            id="expectations"),
        pytest.param("/" + "a" * MAX_PATH, "", 414, "the path of the request is longer than 8192 bytes", id="path"),
    ],
)  # fmt: skip
async def test_a_head_with_too_many_parts_is_rejected(
    tmp_path: Path, path: str, headers: str, status: int, message: str
) -> None:
    async with staged(tmp_path, ok) as stage:
        response = await stage.ask(f"GET {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n".encode())
        assert response.startswith(f"HTTP/1.1 {status} ".encode())
        assert b"connection: close\r\n" in response
        assert error_in(response)["message"] == f"vllm-slo: {message}"
        assert stage.requests == []


async def test_a_head_at_its_limits_is_forwarded(tmp_path: Path) -> None:
    options = "a," * (MAX_OPTIONS - 1) + "close"
    target = f"/v1/models/{'a' * (MAX_PATH - 11)}?{'q' * MAX_PATH}"
    headers = "a:\r\n" * (MAX_HEADERS - 2)
    async with staged(tmp_path, ok) as stage:
        response = await stage.ask(
            f"GET {target} HTTP/1.1\r\nhost: x\r\nconnection: {options}\r\n{headers}\r\n".encode()
        )
        assert response.endswith(b"ok")
        assert stage.requests[0].head.startswith(f"GET {target} ".encode())


async def test_a_head_may_arrive_in_parts_up_to_its_limit(tmp_path: Path) -> None:
    async with staged(tmp_path, ok, max_head=300_000) as stage:
        client = await stage.client(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: long\r\nlong: " + b"y" * 140_000)
        await until(lambda: any(connection._scanned > MAX_PIPELINED for connection in stage.relay.connections))
        (connection,) = stage.relay.connections
        assert connection._reading
        await client.send(b"y" * 140_000 + b"\r\n\r\n")
        assert (await client.until(b"ok")).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.slow
async def test_an_upload_of_100_mb_is_streamed_and_never_buffered_whole(tmp_path: Path) -> None:
    megabyte, received_bytes = b"x" * 1_000_000, 0

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received_bytes
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnext")
            writer.close()
            return
        assert b"content-length: 100000000\r\n" in head
        while received_bytes < 100_000_000:
            received_bytes += len(await reader.read(1 << 18))
            await asyncio.sleep(0.001)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        writer.close()

    async with behind(tmp_path, slow) as stage:
        client = await stage.client(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\n\r\n")
        tracemalloc.start()
        try:
            for _ in range(100):
                client.writer.write(megabyte)
                await client.writer.drain()
            assert (await client.until(b"ok")).startswith(b"HTTP/1.1 200 OK\r\n")
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await client.send(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await client.until(b"next")).startswith(b"HTTP/1.1 200 OK\r\n")
        assert received_bytes == 100_000_000
        assert most < 50_000_000
        record = await stage.record()
        assert (record.unparsed, record.request_class, record.outcome) == ("too_large", "long", Outcome.OK)
        assert (record.model, record.prompt_estimate) == ("", 100_000_000 / 4)


async def test_the_chunks_of_an_upload_that_arrive_together_are_forwarded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[int] = []
    forward = Exchange.body

    def count(exchange: Exchange, data: bytes, at: float) -> None:
        pieces.append(len(data))
        forward(exchange, data, at)

    monkeypatch.setattr(Exchange, "body", count)
    async with staged(tmp_path, ok) as stage:
        head = b"POST /v1/chat/completions/batch HTTP/1.1\r\nhost: x\r\n"
        head += b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        assert (await stage.ask(head + (chunk(b"ab") + chunk(b"cde")) * 5000 + b"0\r\n\r\n")).endswith(b"ok")
        assert stage.requests[0].body == b"abcde" * 5000
        assert sum(pieces) == 25_000
        assert len(pieces) < 100  # the number of reads


async def test_the_prompts_of_40_streams_are_released_once_they_are_written_to_the_engine(tmp_path: Path) -> None:
    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(STREAM_HEAD + chunk(content("a")))
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.transport.abort()

    request = post(CHAT.replace(b"twelve chars", b"x" * 1_000_000))
    async with behind(tmp_path, stream) as stage:
        tracemalloc.start()
        try:
            for _ in range(40):
                client = await stage.client(request)
                await client.until(b"\n\n")
            assert stage.relay.open_requests == 40
            # The thread that hashes the prompts of the last requests may still hold them.
            await until(lambda: tracemalloc.get_traced_memory()[0] < 8_000_000)
            assert stage.relay.open_requests == 40
        finally:
            tracemalloc.stop()


async def test_a_slow_reader_pauses_the_engine_and_memory_is_bounded(tmp_path: Path) -> None:
    sent = 0

    async def flood(received: Received) -> None:
        nonlocal sent
        await received.send(STREAM_HEAD)
        event = chunk(content("x" * 60_000))
        while sent < 200_000_000:
            await received.send(event)
            sent += len(event)

    async with staged(tmp_path, flood) as stage:
        client = await stage.client(post(CHAT))
        await (await stage.reached()).stalled()
        # At most the kernel's socket buffers and one write buffer.
        assert sent < 40_000_000
        client.leave()
        assert (await stage.record()).outcome is Outcome.CLIENT_ABORT
