"""Time limits of clients and engines, and what does not count as their time."""

import asyncio
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from exporters.relay.connections.exchange_state import RequestState
from exporters.vocabulary.signals import Outcome, Verdict
from tests.exporters.relay.engines import behind
from tests.support.scripted_relay import (
    CHAT,
    DONE,
    STREAM_HEAD,
    UNARY,
    Received,
    Script,
    Stage,
    chunk,
    content,
    error_in,
    holds,
    ok,
    post,
    staged,
)
from tests.support.waiting import until


async def test_an_idle_client_connection_is_closed(tmp_path: Path) -> None:
    async with staged(tmp_path, ok, client_idle=75.0) as stage:
        silent = await stage.connect()
        used = await stage.client(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        await used.until(b"ok")
        stage.move_clock(74)
        assert len(stage.relay.connections) == 2
        stage.move_clock(76)
        assert await silent.rest() == b""
        assert await used.rest() == b""


@pytest.mark.parametrize(
    "incomplete,recorded",
    [
        pytest.param(b"GET /health HTTP/1.1\r\nhost: ", 0, id="in its head"),
        pytest.param(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{", 1, id="in its body"),
    ],
)
async def test_an_incomplete_request_times_out_with_408(tmp_path: Path, incomplete: bytes, recorded: int) -> None:
    async with staged(tmp_path, ok, client_idle=75.0) as stage:
        slow = await stage.client(incomplete)
        assert (await stage.ask(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).endswith(b"ok")
        stage.move_clock(76)
        response = await slow.rest()
        assert response.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert error_in(response)["message"] == "vllm-slo: the client sent no data for 75 s"
        assert [record.outcome for record in stage.records] == [Outcome.OK, *([Outcome.CLIENT_ERROR] * recorded)]


def ok_when(may_respond: asyncio.Event) -> Script:
    """The script of an engine that responds after the event."""

    async def later(received: Received) -> None:
        await may_respond.wait()
        await ok(received)

    return later


async def test_a_client_that_waits_for_its_response_is_not_idle(tmp_path: Path) -> None:
    may_respond = asyncio.Event()
    async with staged(tmp_path, ok_when(may_respond), client_idle=75.0) as stage:
        waiting = await stage.client(post(UNARY))
        await stage.reached()
        stage.move_clock(1000)
        may_respond.set()
        assert (await waiting.rest()).endswith(b"ok")


class Clock:
    """The clock of all connections, which tests can advance."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = 0.0
        moved = SimpleNamespace(monotonic=lambda: time.monotonic() + self.passed)
        for connection in ("client", "upstream"):
            monkeypatch.setattr(f"exporters.relay.connections.{connection}.time", moved)


async def test_idle_time_counts_from_the_end_of_the_response(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, may_respond = Clock(monkeypatch), asyncio.Event()
    async with staged(tmp_path, ok_when(may_respond), client_idle=75.0) as stage:
        client = await stage.client(post(UNARY, close=False))
        await stage.reached()
        clock.passed = 80.0
        may_respond.set()
        await client.until(b"ok")
        stage.move_clock(80 + 74)
        await client.send(post(UNARY, close=False))
        await client.until(b"ok")
        stage.move_clock(80 + 76)
        assert await client.rest() == b""


async def test_a_client_that_reads_the_end_of_its_response_slowly_is_stalled_and_not_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    async with staged(tmp_path, ok, client_idle=75.0, cut_stalled_client=300.0) as stage:
        client = await stage.client(post(UNARY, close=False))
        await client.until(b"ok")
        (connection,) = stage.relay.connections
        connection.pause_writing()  # as the transport does while bytes are unsent
        stage.move_clock(299)
        assert not connection._transport.is_closing()
        clock.passed = 299.0
        connection.resume_writing()
        stage.move_clock(299 + 74)
        assert not connection._transport.is_closing()
        connection.pause_writing()
        stage.move_clock(299 + 301)
        assert await client.rest() == b""


async def test_the_time_for_which_the_engine_delays_an_upload_is_no_idle_time_of_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    async with staged(tmp_path, Received.gone, client_idle=75.0) as stage:
        client = await stage.client(post(UNARY)[:-1])
        await until(lambda: any(connection._receiving for connection in stage.relay.connections))
        (connection,) = stage.relay.connections
        connection.pause_upload(pause=True)  # as the exchange does while the engine does not read
        stage.move_clock(100)
        clock.passed = 100.0
        connection.pause_upload(pause=False)
        stage.move_clock(100 + 74)
        assert stage.records == []
        stage.move_clock(100 + 76)
        assert (await client.rest()).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    "head, refused",
    [
        pytest.param(b"GET /health HTTP/1.1\r\nhost: x", True, id="a head"),
        pytest.param(b"\r\n" * 5 + b"GET /health HTTP/1.1", True, id="empty lines and a head"),
        pytest.param(b"\r\n" * 15, False, id="empty lines, which are closed as an idle connection is"),
    ],
)
async def test_a_head_that_arrives_byte_by_byte_times_out_30_s_after_its_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes, refused: bool
) -> None:
    clock = Clock(monkeypatch)
    async with staged(tmp_path, ok, client_idle=75.0) as stage:
        client = await stage.client(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        await client.until(b"ok")
        (connection,) = stage.relay.connections
        clock.passed = 60.0
        for number in range(len(head)):
            connection.data_received(head[number : number + 1])
            clock.passed += 29 / len(head)
        stage.move_clock(60 + 29)
        assert not connection._transport.is_closing()
        stage.move_clock(60 + 31)
        assert connection._closed or connection._transport.is_closing()
        response = await client.rest()
        if refused:
            assert response.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
            assert error_in(response)["message"] == "vllm-slo: the request head was not complete within 30 s"
        else:
            assert response == b""


async def test_the_time_before_the_response_to_the_previous_request_does_not_count_for_a_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, may_respond = Clock(monkeypatch), asyncio.Event()
    async with staged(tmp_path, ok_when(may_respond)) as stage:
        client = await stage.client(post(UNARY, close=False) + b"GET /health HTTP/1.1\r\n")
        await stage.reached()
        clock.passed = 60.0
        may_respond.set()
        await client.until(b"ok")
        (connection,) = stage.relay.connections
        await until(lambda: connection._scanned)
        stage.move_clock(60 + 29)
        await client.send(b"host: x\r\n\r\n")
        await client.until(b"ok")
        stage.move_clock(60 + 31)
        assert not connection._transport.is_closing()


async def flood(received: Received) -> None:
    """Streams large events."""
    await received.send(STREAM_HEAD)
    for _ in range(200):
        await received.send(chunk(content("x" * 60_000)))
    await received.send(chunk(content("y", "stop")), chunk(DONE), b"0\r\n\r\n")


async def test_a_stalled_client_is_cut(tmp_path: Path) -> None:
    async with staged(tmp_path, flood, cut_stalled_client=300.0) as stage:
        await stage.client(post(CHAT))
        await stage.stalled()
        stage.move_clock(299)
        assert stage.records == []
        stage.move_clock(302)
        assert (await stage.record()).outcome is Outcome.CLIENT_ABORT
        await stage.requests[0].gone()


async def test_a_client_that_leaves_before_it_has_read_done_is_an_abort(tmp_path: Path) -> None:
    async with staged(tmp_path, holds(STREAM_HEAD, chunk(content("a", "stop")), chunk(DONE))) as stage:
        client = await stage.client(post(CHAT))
        await client.until(DONE)
        (connection,) = stage.relay.connections
        connection.pause_writing()  # as the transport does while bytes are unsent
        client.leave()
        assert (await stage.record()).outcome is Outcome.CLIENT_ABORT


async def test_the_time_for_which_a_client_does_not_read_is_not_attributed_to_the_engine(tmp_path: Path) -> None:
    async with staged(tmp_path, flood) as stage:
        slow = await stage.client(post(CHAT))
        await stage.stalled()
        stalled_at = time.monotonic()
        await asyncio.sleep(0.05)  # time that no event ends
        stalled = time.monotonic() - stalled_at
        assert (await slow.rest())[-5:] == b"0\r\n\r\n"
        record = await stage.record()
        assert record.outcome is Outcome.OK
        assert record.paused >= stalled
        assert sum(record.gap_counts.values()) == 200
        assert record.gap_sum <= record.e2e - record.paused + 1e-6  # of rounding


async def test_a_connection_that_delayed_a_response_reads_the_next_one(tmp_path: Path) -> None:
    async with staged(tmp_path, flood) as stage:
        slow = await stage.connect()
        for delayed in (True, False):
            await slow.send(post(CHAT, close=False))
            if delayed:
                await stage.stalled()
            response = b""
            while not response.endswith(b"\r\n0\r\n\r\n"):
                response += await slow.some()
        assert [record.outcome for record in stage.records] == [Outcome.OK] * 2


async def test_connecting_to_the_engine_times_out(tmp_path: Path) -> None:
    # The backlog of one is taken, so the kernel drops further connection attempts.
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            async with staged(tmp_path, None, upstream=f"http://127.0.0.1:{port}", connect_timeout=0.2) as stage:
                response = await stage.ask(post(UNARY))
                assert response.startswith(b"HTTP/1.1 502 ")
                assert error_in(response)["message"] == (
                    f"vllm-slo: the engine at 127.0.0.1:{port} cannot be reached: connection timed out after 0.2 s"
                )
                assert (await stage.record()).outcome is Outcome.UPSTREAM_UNREACHABLE


async def test_an_engine_that_stops_sending_is_cut_after_the_idle_timeout(tmp_path: Path) -> None:
    async with staged(tmp_path, holds(STREAM_HEAD, chunk(content("a")), chunk(content("b"))), cut_idle=600.0) as stage:
        client = await stage.client(post(CHAT))
        await client.until(content("b"))
        stage.relay.cut_timed_out(time.monotonic() + 601)
        response = await client.rest()
        assert not response.endswith(b"0\r\n\r\n")
        assert b"[DONE]" not in response
        assert (await stage.record()).outcome is Outcome.TIMEOUT_IDLE


async def test_the_time_for_which_a_client_does_not_read_is_no_silence_of_the_engine(tmp_path: Path) -> None:
    async with staged(
        tmp_path, holds(STREAM_HEAD, *[chunk(content("x" * 60_000))] * 200, chunk(content("last"))), cut_idle=600.0
    ) as stage:
        slow = await stage.client(post(CHAT))
        await stage.stalled()
        stalled_at = time.monotonic()
        stage.relay.cut_timed_out(stalled_at + 1000)
        assert stage.records == []
        tail = b""
        while content("last") not in tail:
            tail = (tail + await slow.some())[-1000:]
        await until(lambda: all(connection.writable for connection in stage.relay.connections))
        stage.relay.cut_timed_out(stalled_at + 600)
        assert stage.records == []
        stage.relay.cut_timed_out(time.monotonic() + 601)
        assert (await stage.record()).outcome is Outcome.TIMEOUT_IDLE


def forwarding(stage: Stage) -> bool:
    return any(exchange._state.request is RequestState.FORWARDING for exchange in stage.relay._open)


@pytest.mark.parametrize("path", ["/v1/chat/completions/batch", "/v1/chat/completions"])
async def test_the_time_of_an_upload_is_no_silence_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr("exporters.relay.connections.exchange.PARSED_LIMIT", 60)
    async with staged(tmp_path, Received.gone, cut_idle=600.0) as stage:
        client = await stage.connect()
        request = post(UNARY, path=path)
        await client.send(request[:-1])
        await until(lambda: forwarding(stage))
        stage.relay.cut_timed_out(time.monotonic() + 1000)
        assert stage.records == []
        last_byte_at = time.monotonic()
        await client.send(request[-1:])
        await stage.reached()
        stage.relay.cut_timed_out(last_byte_at + 600)
        assert stage.records == []
        stage.relay.cut_timed_out(time.monotonic() + 601)
        assert error_in(await client.rest())["code"] == "timeout_idle"
        assert (await stage.record()).outcome is Outcome.TIMEOUT_IDLE


async def test_an_engine_that_stops_reading_an_upload_is_silent(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def never_read(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.transport.abort()

    async with behind(tmp_path, never_read, cut_idle=600.0) as stage:
        client = await stage.connect()
        client.writer.write(b"POST /v1/chat/completions/batch HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\n\r\n")
        client.writer.write(b"x" * 50_000_000)
        await until(lambda: forwarding(stage) and any(one._upload_paused for one in stage.relay.connections))
        stage.relay.cut_timed_out(time.monotonic() + 601)
        assert (await stage.record()).outcome is Outcome.TIMEOUT_IDLE
        ended.set()


async def test_a_request_without_a_first_token_is_cut_after_cut_first_token(tmp_path: Path) -> None:
    async with staged(tmp_path, Received.gone, cut_first_token=30.0) as stage:
        client = await stage.client(post(CHAT))
        await stage.reached()
        stage.relay.cut_timed_out(time.monotonic() + 31)
        response = await client.rest()
        assert response.startswith(b"HTTP/1.1 504 Gateway Timeout\r\n")
        assert error_in(response)["code"] == "timeout_first_token"
        assert (await stage.record()).outcome is Outcome.TIMEOUT_FIRST_TOKEN


CUT_AFTER = """
version: 1
period: 30d
classes:
  - {name: short, max_tokens: "<=10", cut_after: 2m}
  - {name: long}
slos:
  - {name: served, classes: [short, long], signal: availability, objective: 99%}
"""


@pytest.mark.parametrize(
    "request_class,after,outcome",
    [("short", 119, None), ("short", 121, Outcome.TIMEOUT_TOTAL), ("long", 599, None)],
)
async def test_a_stream_that_flows_is_cut_after_the_time_of_its_class(
    tmp_path: Path, request_class: str, after: float, outcome: Outcome | None
) -> None:
    flows = holds(STREAM_HEAD, chunk(content("a")))
    async with staged(tmp_path, flows, slo_file=CUT_AFTER) as stage:
        arrived = time.monotonic()
        client = await stage.client(post(CHAT, headers=f"x-request-class: {request_class}\r\n"))
        await client.until(content("a"))
        stage.relay.cut_timed_out(arrived + after if outcome is None else time.monotonic() + after)
        if outcome is None:
            assert (stage.records, stage.relay.open_requests) == ([], 1)
            return
        rest = await client.rest()
        assert b'"code": "timeout_total"' in rest
        assert b"vllm-slo: not complete within 120 s (cut_after of its class)" in rest
        record = await stage.record()
        assert (record.outcome, record.slo) == (outcome, {"served": Verdict.BAD})


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_a_unary_response_that_has_not_ended_after_cut_first_token_is_cut(tmp_path: Path, path: str) -> None:
    async with staged(
        tmp_path,
        holds(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"),
        cut_first_token=30.0,
    ) as stage:
        client = await stage.client(post(b'{"model":"m"}', path=path))
        await client.until(b"{")
        stage.relay.cut_timed_out(time.monotonic() + 31)
        assert (await stage.record()).outcome is Outcome.TIMEOUT_FIRST_TOKEN


@pytest.mark.parametrize("path", ["/v1/responses/resp_1?stream=true", "/v1/audio/speech"])
async def test_a_response_on_an_unmeasured_path_is_not_cut_once_it_flows(tmp_path: Path, path: str) -> None:
    async with staged(tmp_path, holds(STREAM_HEAD, chunk(b"flows")), cut_first_token=30.0) as stage:
        client = await stage.client(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        await client.until(b"flows")
        stage.relay.cut_timed_out(time.monotonic() + 31)
        assert (stage.records, stage.relay.open_requests) == ([], 1)
