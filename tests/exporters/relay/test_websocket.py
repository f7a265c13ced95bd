"""WebSockets through the relay: with the client and the server of aiohttp, and with scripted bytes."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from exporters.relay.connections import websocket_exchange
from exporters.vocabulary.signals import Endpoint, Outcome, Phase
from tests.exporters.configuration.certificates import authority, needs_openssl
from tests.exporters.relay.engines import accepting_tls
from tests.support.scripted_relay import OK, RawClient, Received, Script, Stage, closes, error_in, ok, sends, staged
from tests.support.sidecar_process import PATIENCE
from tests.support.waiting import cpu_time_until, until
from tests.support.web_server import served

MIB = 1024 * 1024
BEGIN = (
    b"GET /v1/realtime?model=m HTTP/1.1\r\nhost: x\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n"
)
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: WebSocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)
MASK = b"\x01\x02\x03\x04"
CLOSE = b"\x88\x02\x03\xe8"
CLOSE_OF_CLIENT = b"\x88\x82" + MASK + b"\x02\xea"


def text(data: bytes, *, first: int = 0x81) -> bytes:
    assert len(data) < 126
    return bytes([first, len(data)]) + data


@contextlib.asynccontextmanager
async def engine(handler: Callable[[web.WebSocketResponse], Awaitable[None]]) -> AsyncIterator[str]:
    """The URL of a server that handles each WebSocket."""

    async def accept(request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(max_msg_size=16 * MIB, protocols=("realtime",))
        await websocket.prepare(request)
        await handler(websocket)
        return websocket

    app = web.Application()
    app.router.add_get("/v1/realtime", accept)
    async with served(app) as url:
        yield url


async def echo(websocket: web.WebSocketResponse) -> None:
    async for message in websocket:
        if message.type is WSMsgType.TEXT:
            await websocket.send_str(message.data)
        else:
            await websocket.send_bytes(message.data)


@contextlib.asynccontextmanager
async def opened(
    port: int, *, compress: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    url = f"{'wss' if tls else 'ws'}://127.0.0.1:{port}/v1/realtime"
    async with (
        aiohttp.ClientSession(timeout=PATIENCE) as session,
        session.ws_connect(
            url, protocols=("realtime",), max_msg_size=16 * MIB, compress=compress, ssl=tls or True
        ) as websocket,
    ):
        assert websocket.protocol == "realtime"
        yield websocket


@contextlib.asynccontextmanager
async def scripted(tmp_path: Path, script: Script, **settings: Any) -> AsyncIterator[tuple[Stage, RawClient]]:
    """A WebSocket of a raw client with an engine that runs `script` after its response with status 101."""

    async def switch(received: Received) -> None:
        await received.send(SWITCH)
        await script(received)

    async with staged(tmp_path, switch, **settings) as stage:
        client = await stage.client(BEGIN)
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
        yield stage, client


async def check_messages(websocket: aiohttp.ClientWebSocketResponse) -> None:
    for words in ("hello", "", "é" * 100):
        await websocket.send_str(words)
        assert await websocket.receive_str() == words
    for size in (0, 1, 125, 126, 65_535, 65_536, 8 * MIB):
        await websocket.send_bytes(bytes(size))
        assert await websocket.receive_bytes() == bytes(size)
    await websocket.ping()
    await websocket.send_str("after a ping")
    assert await websocket.receive_str() == "after a ping"


@pytest.mark.parametrize("compress", [pytest.param(0, id="plain"), pytest.param(15, id="permessage-deflate")])
async def test_messages_of_all_sizes_pass_both_ways_and_the_duration_is_recorded(tmp_path: Path, compress: int) -> None:
    async with engine(echo) as url, staged(tmp_path, None, upstream=url) as stage:
        before = time.monotonic()
        async with opened(stage.port, compress=compress) as websocket:
            assert bool(websocket.compress) == bool(compress)
            await check_messages(websocket)
            assert stage.records == []
        record = await stage.record()
        assert (record.outcome, record.status, record.route) == (Outcome.OK, 101, "/v1/realtime")
        assert record.api is Endpoint.REALTIME
        assert 0 < record.e2e <= time.monotonic() - before
        assert (record.metered, record.stream, record.slo, record.goodput) == (False, False, {}, None)
        assert stage.judged == []
        await until(lambda: stage.relay.open_requests == 0)


@needs_openssl
async def test_a_websocket_passes_over_tls(tmp_path: Path) -> None:
    trusted = authority(tmp_path / "trusted")
    async with (
        engine(echo) as url,
        staged(tmp_path, None, upstream=url) as stage,
        accepting_tls(stage, trusted),
        opened(stage.port, tls=trusted.client()) as websocket,
    ):
        await check_messages(websocket)
    assert (await stage.record()).outcome is Outcome.OK


async def test_the_request_keeps_its_websocket_headers_and_has_no_other_hop_by_hop_header(tmp_path: Path) -> None:
    async with scripted(tmp_path, Received.gone) as (stage, _):
        head = stage.requests[0].head
        assert head.startswith(b"GET /v1/realtime?model=m HTTP/1.1\r\nhost: 127.0.0.1:")
        assert b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n" in head
        assert b"x-request-id: relay-1\r\n" in head
        assert head.endswith(b"connection: Upgrade\r\nupgrade: websocket\r\n\r\n")
        assert head.lower().count(b"connection:") == head.lower().count(b"upgrade:") == 1


async def test_fragmented_messages_and_bytes_sent_with_a_head_pass_unchanged(tmp_path: Path) -> None:
    fragments = [text(b"a", first=0x01), text(b"b", first=0x00), text(b"c", first=0x80)]
    sent_with_head = asyncio.Event()

    async def script(received: Received) -> None:
        await received.send(SWITCH + fragments[0])
        sent_with_head.set()
        assert await received.reader.readexactly(len(CLOSE_OF_CLIENT) * 2) == CLOSE_OF_CLIENT * 2
        for fragment in b"".join(fragments[1:]):
            await received.send(bytes([fragment]))
        await received.send(CLOSE)
        received.writer.close()

    async with staged(tmp_path, script) as stage:
        client = await stage.client(BEGIN + CLOSE_OF_CLIENT)
        await sent_with_head.wait()
        await client.send(CLOSE_OF_CLIENT)
        response = await client.rest()
        head, _, data = response.partition(b"\r\n\r\n")
        assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nconnection: Upgrade" in head
        assert data == b"".join(fragments) + CLOSE


async def test_a_response_other_than_101_is_an_ordinary_response_and_the_last_of_its_connection(tmp_path: Path) -> None:
    async with staged(
        tmp_path, sends(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\nx-engine: it\r\n\r\nno")
    ) as stage:
        response = await stage.ask(BEGIN + b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 403 Forbidden\r\n")
        assert response.endswith(b"\r\n\r\nno")
        assert b"connection: close\r\n" in response
        assert b"x-engine: it\r\n" in response
        record = await stage.record()
        assert (record.outcome, record.status) == (Outcome.CLIENT_ERROR, 403)
        assert len(stage.requests) == 1


@pytest.mark.parametrize(
    "request_bytes, response",
    [
        pytest.param(BEGIN, SWITCH.replace(b"WebSocket", b"h2c"), id="to another protocol"),
        pytest.param(BEGIN, SWITCH.replace(b"upgrade: WebSocket\r\n", b""), id="to no protocol"),
        pytest.param(b"GET /v1/realtime HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", SWITCH, id="unrequested"),
    ],
)
async def test_an_engine_that_switches_to_what_was_not_requested_is_a_bad_upstream_response(
    tmp_path: Path, request_bytes: bytes, response: bytes
) -> None:
    async with staged(tmp_path, sends(response)) as stage:
        answer = await stage.ask(request_bytes)
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert error_in(answer)["code"] == "bad_upstream_response"
        assert (await stage.record()).outcome is Outcome.UPSTREAM_ERROR


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(BEGIN.replace(b"/v1/realtime", b"/v1/models"), id="on another inference path"),
        pytest.param(BEGIN.replace(b"/v1/realtime", b"/v1/responses"), id="on a measured path"),
        pytest.param(BEGIN.replace(b"/v1/realtime", b"/debug"), id="on a path that is not allowed"),
        pytest.param(BEGIN.replace(b"GET", b"POST"), id="by another method"),
        pytest.param(BEGIN.replace(b"HTTP/1.1", b"HTTP/1.0"), id="by HTTP/1.0"),
        pytest.param(BEGIN.replace(b"host: x", b"host: x\r\ncontent-length: 1"), id="with a body"),
        pytest.param(BEGIN.replace(b"host: x", b"host: x\r\ntransfer-encoding: chunked"), id="with a chunked body"),
        pytest.param(BEGIN.replace(b"host: x", b"host: x\r\nupgrade: h2c"), id="with another upgrade"),
    ],
)
async def test_any_other_request_for_a_websocket_is_rejected_and_not_forwarded(
    tmp_path: Path, request_bytes: bytes
) -> None:
    async with staged(tmp_path, ok) as stage:
        response = await stage.ask(request_bytes)
        assert response.startswith(b"HTTP/1.1 426 ")
        assert error_in(response)["code"] == "upgrade_not_supported"
        assert stage.requests == []


async def test_the_operator_can_allow_a_websocket_on_a_path(tmp_path: Path) -> None:
    async with staged(tmp_path, closes(SWITCH, CLOSE), allow_paths=("/v1/audio",)) as stage:
        client = await stage.client(BEGIN.replace(b"/v1/realtime", b"/v1/audio"))
        await client.until(CLOSE)
        client.leave()
        assert (await stage.record()).route == "/v1/audio"


async def test_a_slow_client_pauses_the_engine_and_memory_is_bounded(tmp_path: Path) -> None:
    sent = 0

    async def flood(received: Received) -> None:
        nonlocal sent
        while sent < 200_000_000:
            await received.send(b"\x82\x7e\xea\x60" + bytes(60_000))
            sent += 60_000

    async with scripted(tmp_path, flood, cut_stalled_client=300.0) as (stage, _):
        await (await stage.reached()).stalled()
        assert sent < 40_000_000
        stage.move_clock(299)
        assert stage.records == []
        stage.move_clock(301)
        assert (await stage.record()).outcome is Outcome.CLIENT_ABORT


async def test_a_slow_engine_pauses_the_client_and_is_cut_by_the_idle_timeout(tmp_path: Path) -> None:
    sent = 0

    async def never_read(received: Received) -> None:
        received.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    async with scripted(tmp_path, never_read, cut_idle=600.0) as (stage, client):

        async def flood() -> None:
            nonlocal sent
            with contextlib.suppress(ConnectionError):
                while sent < 200_000_000:
                    await client.send(b"\x82\xfe\xea\x60" + bytes(60_004))
                    sent += 60_000

        flooding = asyncio.create_task(flood())
        (connection,) = stage.relay.connections
        await until(lambda: connection._upload_paused)
        assert sent < 40_000_000
        stage.relay.cut_timed_out(time.monotonic() + 599)
        assert stage.records == []
        stage.relay.cut_timed_out(time.monotonic() + 601)
        assert (await stage.record()).outcome is Outcome.TIMEOUT_IDLE
        flooding.cancel()


async def test_a_quiet_websocket_is_cut_by_no_timeout(tmp_path: Path) -> None:
    settings = {"cut_idle": 600.0, "client_idle": 75.0, "cut_first_token": 60.0, "cut_stalled_client": 300.0}
    async with scripted(tmp_path, Received.gone, **settings) as (stage, client):
        (exchange,) = stage.relay._open
        assert exchange.measurement.phase is Phase.STREAMING
        stage.move_clock(86_400)
        stage.relay.cut_timed_out(time.monotonic() + 86_400)
        assert stage.records == []
        await client.send(CLOSE_OF_CLIENT)
        client.leave()
        assert (await stage.record()).outcome is Outcome.OK


@pytest.mark.parametrize("how", ["close", "abort"])
@pytest.mark.parametrize(
    "last, outcome",
    [
        pytest.param(text(b"a"), Outcome.TRUNCATED, id="after a message"),
        pytest.param(CLOSE, Outcome.OK, id="after a close frame"),
    ],
)
async def test_when_the_engine_is_lost_the_client_is_closed(
    tmp_path: Path, how: str, last: bytes, outcome: Outcome
) -> None:
    may_end = asyncio.Event()

    async def die(received: Received) -> None:
        await received.send(last)
        await may_end.wait()
        getattr(received.writer.transport, how)()

    async with scripted(tmp_path, die) as (stage, client):
        assert await client.until(last) == last
        may_end.set()
        assert await client.rest() == b""
        client.writer.close()
        record = await stage.record()
        assert (record.outcome, record.status) == (outcome, 101)
        await until(lambda: not stage.relay.connections)


@pytest.mark.parametrize("how", ["close", "abort"])
@pytest.mark.parametrize(
    "last, outcome",
    [
        pytest.param(b"\x81\x81" + MASK + b"a", Outcome.CLIENT_ABORT, id="after a message"),
        pytest.param(CLOSE_OF_CLIENT, Outcome.OK, id="after a close frame"),
    ],
)
async def test_when_the_client_is_lost_the_engine_is_closed_within_100_ms(
    tmp_path: Path, how: str, last: bytes, outcome: Outcome
) -> None:
    received_last, closed = asyncio.Event(), asyncio.Event()

    async def read(received: Received) -> None:
        assert await received.reader.readexactly(len(last)) == last
        received_last.set()
        await received.gone()
        closed.set()

    async with scripted(tmp_path, read) as (stage, client):
        await client.send(last)
        await received_last.wait()
        getattr(client.writer.transport, how)()
        assert await cpu_time_until(closed.is_set) < 0.1
        record = await stage.record()
        assert (record.outcome, record.status) == (outcome, 101)
        await until(lambda: not stage.relay.connections)


async def test_after_a_close_frame_each_side_closes_for_itself(tmp_path: Path) -> None:
    async def answer_after_the_end(received: Received) -> None:
        assert await received.reader.read() == CLOSE_OF_CLIENT
        await received.send(text(b"last"), CLOSE)
        received.writer.close()

    async with scripted(tmp_path, answer_after_the_end) as (stage, client):
        await client.send(CLOSE_OF_CLIENT)
        client.writer.write_eof()
        assert await client.rest() == text(b"last") + CLOSE
        assert (await stage.record()).outcome is Outcome.OK


async def test_a_side_that_does_not_close_after_the_other_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket_exchange, "CLOSING_SECONDS", 0.01)
    async with scripted(tmp_path, Received.gone) as (stage, client):
        await client.send(CLOSE_OF_CLIENT)
        client.writer.write_eof()
        assert await client.rest() == b""
        assert (await stage.record()).outcome is Outcome.OK


async def test_in_a_drain_an_open_websocket_continues_and_is_cut_at_its_end(tmp_path: Path) -> None:
    async def echo_bytes(received: Received) -> None:
        while data := await received.reader.read(100):
            await received.send(data)

    async with scripted(tmp_path, echo_bytes) as (stage, client):
        stage.relay.announce_drain()
        stage.relay.drain()
        await client.send(text(b"a"))
        assert await client.until(b"a") == text(b"a")
        assert stage.relay.open_requests == 1
        stage.relay.close()
        assert stage.relay._cut_requests == 1
        assert await client.rest() == b""
        record = await stage.record()
        assert (record.outcome, record.status) == (Outcome.UPSTREAM_ERROR, 101)


async def test_an_open_websocket_counts_toward_the_limit_of_clients(tmp_path: Path) -> None:
    async with scripted(tmp_path, Received.gone) as (stage, client):
        stage.relay.client_limit = 1
        assert (await stage.ask(BEGIN)).startswith(b"HTTP/1.1 503 ")
        assert (await stage.record()).outcome is Outcome.REJECTED
        client.leave()
        await until(lambda: not stage.relay.connections)
        assert len(stage.relay.pool._idle) == 0


async def test_the_connection_of_a_websocket_is_not_used_again(tmp_path: Path) -> None:
    async def serve(received: Received) -> None:
        if b"/v1/realtime" in received.head:
            await received.send(SWITCH, CLOSE)
            received.writer.write_eof()
            assert await received.reader.read() == CLOSE_OF_CLIENT
            received.writer.close()
        else:
            await received.send(OK)

    async with staged(tmp_path, serve) as stage:
        client = await stage.client(BEGIN)
        await client.until(CLOSE)
        await client.send(CLOSE_OF_CLIENT)
        client.writer.write_eof()
        await stage.record()
        assert (await stage.ask(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).endswith(b"ok")
        assert stage.requests[0].writer is not stage.requests[1].writer
