"""Bugs that the fuzzers found."""

from pathlib import Path

import pytest

from tests.fuzz.wire import Bench, feed, settle
from tests.support.scripted_relay import (
    CHAT,
    DONE,
    END,
    OK,
    ROLE,
    STREAM_HEAD,
    USAGE,
    Received,
    chunk,
    content,
    ok,
    post,
    staged,
)

NEXT = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


async def test_a_relay_error_in_response_to_head_has_no_body(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        response = await stage.ask(b"HEAD /metrics HTTP/1.1\r\nhost: x\r\n\r\n" + NEXT)
        head, _, rest = response.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 403 ")
        assert rest.startswith(b"HTTP/1.1 200 ") or rest == b""


async def test_a_truncated_response_without_framing_ends_with_a_reset(tmp_path: Path) -> None:
    async def stops_early(received: Received) -> None:
        await received.send(STREAM_HEAD, chunk(ROLE), chunk(content("a")))
        received.writer.close()

    async with staged(tmp_path, stops_early) as stage:
        with pytest.raises(ConnectionResetError):
            await stage.ask(post(CHAT).replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert (await stage.record()).outcome == "truncated"


async def test_an_event_stream_with_a_content_length_is_complete_without_the_usage_event(tmp_path: Path) -> None:
    async def sized(received: Received) -> None:
        if b"/health" in received.head:
            await received.send(OK)
            return
        stream = content("a", "stop") + USAGE + DONE
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
        await received.send(head % len(stream), stream)

    async with staged(tmp_path, sized) as stage:
        client = await stage.connect()
        await client.send(post(CHAT, close=False) + NEXT)
        head = (await client.until(b"\r\n\r\n")).lower()
        body = await client.until(DONE)
        assert USAGE not in body
        assert b"content-length: %d\r\n" % len(body) in head or b"transfer-encoding: chunked\r\n" in head
        assert (await client.rest()).removeprefix(b"\r\n" + END).startswith(b"HTTP/1.1 200 ")


async def test_an_empty_line_before_a_request_is_ignored_for_any_split_into_reads() -> None:
    bench = Bench()
    for piece in (b"\r", b"\n", NEXT):
        feed(bench.client, piece)
    await settle()
    (engine,) = bench.pool.wires
    assert engine.sent.startswith(b"GET /health HTTP/1.1\r\n")
