"""Every request has an end: refusals of the relay, and clients that leave before their request is complete."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from exporters.http.parser import MAX_PATH
from exporters.records.messages import REFUSALS, Refused
from exporters.relay.connections.client import MAX_PIPELINED
from exporters.vocabulary.signals import Outcome, Verdict
from exporters.vocabulary.verdicts import outcome_of_status
from tests.support.scripted_relay import CHAT, OK, UNARY, RawClient, Received, Stage, chunk, error_in, ok, post, staged
from tests.support.waiting import until

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n"
GET = b"GET /health HTTP/1.1\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n"
SWITCH = b"upgrade: websocket\r\nconnection: upgrade\r\n"
LATE = 100.0
"""Seconds, longer than the client timeouts."""


async def served_one(stage: Stage) -> None:
    """Connect the only client that the relay may have."""
    stage.relay.client_limit = 1
    await stage.connect()
    await until(lambda: len(stage.relay.connections) == 1)


WITHOUT_HEAD = {
    (400, "bad_request"): b"NONSENSE\r\n\r\n",
    (400, "bad_host"): GET + b"\r\n",
    (400, "bad_content_length"): HEAD + b"content-length: x\r\n\r\n",
    (400, "bad_transfer_encoding"): HEAD + b"transfer-encoding: gzip\r\n\r\n",
    (400, "bad_framing"): HEAD + b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n",
    (408, "request_timeout"): GET + b"host: x\r\n",
    (414, "path_too_long"): b"GET /" + b"h" * MAX_PATH + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    (431, "head_too_large"): GET + b"host: x\r\nbig: " + b"y" * 2 * MAX_PATH + b"\r\n\r\n",
}
WITH_HEAD = {
    (400, "bad_chunk"): CHUNKED + b"\r\nzz\r\n",
    (403, "path_not_allowed"): b"GET /sleep HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    (408, "request_timeout"): HEAD + b"content-length: 9\r\n\r\n{}",
    (413, "body_too_large"): HEAD + b"content-length: 1001\r\n\r\n",
    (426, "upgrade_not_supported"): GET + b"host: x\r\n" + SWITCH + b"\r\n",
    (503, "too_many_connections"): post(UNARY),
}
ELSEWHERE = {(503, "upload_stalled")}
"""Tested in test_body_memory.py."""


def test_each_refusal_is_tested() -> None:
    assert {*WITHOUT_HEAD, *WITH_HEAD} | ELSEWHERE == {*REFUSALS}


async def refused(stage: Stage, reason: str, request_bytes: bytes) -> bytes:
    if reason == "too_many_connections":
        await served_one(stage)
    client = await stage.client(request_bytes)
    if reason == "request_timeout":
        await until(lambda: any(connection.busy for connection in stage.relay.connections))
        stage.move_clock(LATE)
    return await client.rest()


@pytest.mark.parametrize("status, reason", WITHOUT_HEAD)
async def test_a_refusal_without_a_valid_head_is_counted_by_status_and_reason_and_has_no_line(
    tmp_path: Path, status: int, reason: str
) -> None:
    async with staged(tmp_path, ok, max_head=2 * MAX_PATH) as stage:
        response = await refused(stage, reason, WITHOUT_HEAD[status, reason])
        assert response.startswith(b"HTTP/1.1 %d " % status)
        assert error_in(response)["code"] == reason
        assert (stage.refused, stage.records, stage.requests) == ([Refused(status, reason)], [], [])


@pytest.mark.parametrize("status, reason", WITH_HEAD)
async def test_a_refusal_after_a_valid_head_has_a_record_with_its_reason(
    tmp_path: Path, status: int, reason: str
) -> None:
    async with staged(tmp_path, ok, max_body=1000) as stage:
        response = await refused(stage, reason, WITH_HEAD[status, reason])
        assert response.startswith(b"HTTP/1.1 %d " % status)
        assert error_in(response)["code"] == reason
        (record,) = stage.records
        assert (record.status, record.refused, record.unparsed) == (status, reason, None)
        assert record.outcome is outcome_of_status(status)
        assert b"x-request-id: %s\r\n" % record.request_id.encode() in response
        assert (stage.refused, stage.requests) == ([], [])


async def test_a_refusal_for_lack_of_resources_is_bad_and_any_other_is_no_event(tmp_path: Path) -> None:
    async with staged(tmp_path, ok, max_body=10) as stage:
        await stage.ask(post(UNARY))
        await served_one(stage)
        await stage.ask(post(UNARY))
        too_large, too_many = stage.records
        assert (too_large.outcome, too_large.slo) == (Outcome.CLIENT_ERROR, {})
        assert (too_many.outcome, too_many.slo) == (Outcome.REJECTED, {"availability": Verdict.BAD})


async def test_a_refused_preflight_is_counted_and_has_no_record(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        response = await stage.ask(b"OPTIONS /sleep HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 403 ")
        assert (stage.refused, stage.records) == ([Refused(403, "path_not_allowed")], [])


async def test_a_response_of_the_engine_is_no_refusal(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        await stage.ask(post(UNARY))
        assert ((await stage.record()).refused, stage.refused) == (None, [])


@pytest.mark.parametrize(
    "request_bytes, path",
    [
        pytest.param(GET.replace(b"/health", b"/v1/chat/completions") + b"host: x\r\n" + SWITCH + b"\r\n",
                     "/v1/chat/completions", id="a WebSocket on a measured path"),
        pytest.param(GET + b"host: x\r\nupgrade: h2c, websocket\r\nconnection: upgrade\r\n\r\n", "/health",
                     id="a choice of protocols"),
        pytest.param(HEAD + SWITCH + b"content-length: 2\r\n\r\n{}", "/v1/completions", id="with a body"),
        pytest.param(b"CONNECT engine:1 HTTP/1.1\r\nhost: x\r\n\r\n", "/1", id="a tunnel"),
    ],
)  # fmt: skip
async def test_a_refused_upgrade_has_one_record_and_is_the_last_request_of_its_connection(
    tmp_path: Path, request_bytes: bytes, path: str
) -> None:
    async with staged(tmp_path, ok) as stage:
        response = await stage.ask(request_bytes + GET + b"host: x\r\n\r\n")
        assert response.count(b"HTTP/1.1 ") == 1
        assert b"connection: close\r\n" in response
        (record,) = stage.records
        assert (record.status, record.outcome, record.route) == (426, Outcome.CLIENT_ERROR, path)


UPLOADS = {
    "a sized body": post(UNARY)[:-10],
    "a chunked body, between two chunks": CHUNKED + b"\r\n" + chunk(b"{"),
    "a chunked body, in a chunk": CHUNKED + b"\r\nff\r\n{",
    "nothing of the body": HEAD + b"content-length: 9\r\n\r\n",
    "a streamed body": post(UNARY, path="/v1/chat/completions/batch")[:-10],
    "a chunked streamed body": CHUNKED.replace(b"completions", b"chat/completions/batch") + b"\r\nff\r\n{",
}


async def abort(client: RawClient) -> None:
    client.leave()


async def end(client: RawClient) -> None:
    client.writer.close()


@pytest.mark.parametrize("leave", [abort, end])
@pytest.mark.parametrize("upload", UPLOADS)
async def test_a_client_that_leaves_during_its_upload_is_an_abort_with_a_record(
    tmp_path: Path, upload: str, leave: Callable[[RawClient], Awaitable[None]]
) -> None:
    async with staged(tmp_path, ok) as stage:
        client = await stage.client(UPLOADS[upload])
        await until(lambda: any(connection.busy for connection in stage.relay.connections))
        await leave(client)
        record = await stage.record()
        assert (record.outcome, record.status, record.unparsed) == (Outcome.CLIENT_ABORT, None, None)
        assert {*record.slo.values()} <= {Verdict.ABANDONED}
        assert stage.relay.bodies.held == 0
        await until(lambda: not stage.relay.connections)
        assert len(stage.records) == 1


async def test_a_client_that_leaves_after_100_continue_is_an_abort_with_a_record(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        client = await stage.client(HEAD + b"expect: 100-continue\r\ncontent-length: 9\r\n\r\n")
        await client.until(b"100 Continue\r\n\r\n")
        client.leave()
        record = await stage.record()
        assert (record.outcome, record.status) == (Outcome.CLIENT_ABORT, None)
        assert record.slo == {"availability": Verdict.ABANDONED}


async def test_a_client_that_leaves_before_its_head_is_complete_has_begun_no_request(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        client = await stage.client(post(CHAT)[:40])
        await until(lambda: any(connection.busy for connection in stage.relay.connections))
        client.leave()
        await until(lambda: not stage.relay.connections)
        assert (stage.records, stage.refused) == ([], [])


async def test_a_client_that_leaves_after_many_pipelined_bytes_is_an_abort_and_frees_the_engine(tmp_path: Path) -> None:
    freed = asyncio.Event()

    async def hold(received: Received) -> None:
        await received.gone()
        freed.set()

    async with staged(tmp_path, hold) as stage:
        client = await stage.client(post(UNARY, close=False))
        await stage.reached()
        await client.send(post(b"x" * 2 * MAX_PIPELINED, close=False))
        await until(lambda: stage.relay.unread)
        client.writer.close()
        await freed.wait()
        await until(lambda: not stage.relay.connections)
        assert [(record.outcome, record.status) for record in stage.records] == [(Outcome.CLIENT_ABORT, None)]
        assert (len(stage.requests), stage.relay.unread) == (1, set())


async def test_a_client_that_leaves_while_its_upload_waits_for_memory_is_an_abort(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        client = await stage.client(post(UNARY)[:-10])
        await until(lambda: any(connection.busy for connection in stage.relay.connections))
        stage.relay.bodies.hold(stage.relay.bodies.limit)
        await until(lambda: stage.relay.unread)
        client.leave()
        record = await stage.record()
        assert (record.outcome, record.refused) == (Outcome.CLIENT_ABORT, None)


async def test_a_client_that_waits_while_nothing_is_read_from_it_is_served(tmp_path: Path) -> None:
    may_answer = asyncio.Event()

    async def late(received: Received) -> None:
        await may_answer.wait()
        await received.send(OK)

    async with staged(tmp_path, late) as stage:
        client = await stage.client(post(UNARY, close=False))
        await stage.reached()
        await client.send(post(b"x" * 2 * MAX_PIPELINED))
        await until(lambda: stage.relay.unread)
        stage.relay._check_unread()
        may_answer.set()
        assert (await client.rest()).count(b"ok") == 2
        await until(lambda: len(stage.records) == 2)
        assert [record.outcome for record in stage.records] == [Outcome.OK] * 2


async def test_a_request_that_is_pipelined_behind_the_last_one_of_a_drain_has_not_begun(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        stage.relay.announce_drain()
        response = await stage.ask(post(UNARY, close=False) * 2)
        assert response.count(b"HTTP/1.1 ") == 1
        assert b"connection: close\r\n" in response
        assert [record.outcome for record in stage.records] == [Outcome.OK]
        assert (stage.refused, len(stage.requests)) == ([], 1)
