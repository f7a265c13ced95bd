"""What could be read in two ways is refused, answered once, and never reaches the engine."""

from pathlib import Path

import pytest

from exporters.signals import Outcome
from tests.support.scripted_relay import (
    CHAT,
    DONE,
    END,
    EVENTS,
    UNARY,
    Received,
    body_of,
    chunk,
    error_in,
    ok,
    post,
    staged,
    whole_stream,
)

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n"
GET = b"GET /health HTTP/1.1\r\n"


REFUSED = [
    pytest.param(HEAD + b"content-length: 2\r\ncontent-length: 2\r\n\r\n{}", id="two lengths"),
    pytest.param(HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}", id="two different lengths"),
    pytest.param(HEAD + b"content-length: 2, 2\r\n\r\n{}", id="a list of lengths"),
    pytest.param(HEAD + b"content-length: +2\r\n\r\n{}", id="a signed length"),
    pytest.param(HEAD + b"content-length: 0x2\r\n\r\n{}", id="a hexadecimal length"),
    pytest.param(HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", id="length and chunks"),
    pytest.param(HEAD + b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n0\r\n\r\n", id="chunks and length"),
    pytest.param(HEAD + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n", id="chunked not last"),
    pytest.param(HEAD + b"transfer-encoding: gzip\r\n\r\n", id="an encoding that is no framing"),
    pytest.param(
        HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", id="a chunk size that is no number"
    ),
    pytest.param(HEAD + b"transfer-encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n", id="a negative chunk size"),
    pytest.param(
        HEAD + b"transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        id="a chunk size beyond 64 bits",
    ),
    pytest.param(HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}x\r\n0\r\n\r\n", id="a chunk longer than it says"),
    pytest.param(GET + b"host: x\r\n folded: y\r\n\r\n", id="a folded header"),
    pytest.param(GET + b"host : x\r\n\r\n", id="a space before the colon"),
    pytest.param(GET + b"host: x\r\nbad name: y\r\n\r\n", id="a space in a name"),
    pytest.param(GET + b"host: x\r\nname\x00: y\r\n\r\n", id="a zero byte in a name"),
    pytest.param(GET + b"host: x\r\nname: y\x00z\r\n\r\n", id="a zero byte in a value"),
    pytest.param(GET + b"host: x\r\nname: y\rz\r\n\r\n", id="a bare CR in a value"),
    pytest.param(b"GET /health HTTP/1.1\nhost: x\n\n", id="bare LFs"),
    pytest.param(b"GET /he\x00alth HTTP/1.1\r\nhost: x\r\n\r\n", id="a zero byte in the path"),
    pytest.param(b"GET /health HTTP/3.7\r\nhost: x\r\n\r\n", id="an unknown version"),
    pytest.param(GET + b"\r\n", id="no Host"),
    pytest.param(GET + b"host: a\r\nhost: a\r\n\r\n", id="two Hosts"),
    pytest.param(GET + b"host: x\r\nbig: " + b"y" * 70_000 + b"\r\n\r\n", id="a head too large"),
    pytest.param(b"GET /" + b"h" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", id="a path too long"),
    pytest.param(GET + b"host: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n", id="an upgrade"),
    pytest.param(b"CONNECT engine:1 HTTP/1.1\r\nhost: x\r\n\r\n", id="a tunnel"),
]


@pytest.mark.parametrize("request_bytes", REFUSED)
async def test_an_ambiguous_or_broken_request_is_refused_once_and_never_forwarded(
    tmp_path: Path, request_bytes: bytes
) -> None:
    async with staged(tmp_path, ok) as stage:
        # What follows must not be read as a request either.
        answer = await stage.ask(request_bytes + b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert answer[:10] == b"HTTP/1.1 4"
        assert answer.count(b"HTTP/1.1") == 1
        assert b"connection: close\r\n" in answer
        assert stage.requests == []


async def test_hop_by_hop_headers_and_those_that_connection_names_stop_here(tmp_path: Path) -> None:
    async def answer(received: Received) -> None:
        await received.send(
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: x-private\r\nx-private: 1\r\nkeep-alive: 5\r\n"
            b"proxy-authenticate: basic\r\nx-public: 1\r\n\r\nok"
        )

    async with staged(tmp_path, answer) as stage:
        response = await stage.ask(
            GET + b"host: x\r\nconnection: x-secret, close\r\nx-secret: 1\r\nte: trailers\r\nkeep-alive: 1\r\n"
            b"proxy-authorization: basic\r\nx-open: 1\r\n\r\n"
        )
        forwarded = stage.requests[0].head.lower()
        for dropped in (b"x-secret", b"te:", b"keep-alive", b"proxy-authorization"):
            assert dropped not in forwarded
        assert b"x-open: 1\r\n" in forwarded
        for dropped in (b"x-private", b"keep-alive", b"proxy-authenticate"):
            assert dropped not in response.lower()
        assert b"x-public: 1\r\n" in response


async def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        client = await stage.connect()
        await client.send(
            HEAD + b"expect: 100-continue\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(UNARY)
        )
        assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(UNARY)
        assert (await client.rest()).endswith(b"ok")
        assert b"expect" not in stage.requests[0].head.lower()
        assert stage.requests[0].body == UNARY


async def test_trailers_are_no_headers(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        body = chunk(UNARY) + b"0\r\nx-request-class: long\r\nhost: other\r\n\r\n"
        answer = await stage.ask(HEAD + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n" + body)
        assert answer.endswith(b"ok")
        assert stage.requests[0].head.lower().count(b"host:") == 1
        assert (await stage.record()).request_class == "short"


async def test_a_compressed_answer_passes_unread(tmp_path: Path) -> None:
    async def squeezed(received: Received) -> None:
        await received.send(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x8b\x00\x00")

    async with staged(tmp_path, squeezed) as stage:
        assert (await stage.ask(post(UNARY))).endswith(b"\x1f\x8b\x00\x00")
        record = await stage.record()
        assert (record.outcome, record.completion_tokens) == ("ok", None)


async def test_what_the_engine_says_before_its_answer_stays_between_us(tmp_path: Path) -> None:
    async def early(received: Received) -> None:
        await received.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    async with staged(tmp_path, early) as stage:
        answer = await stage.ask(post(UNARY))
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.count(b"HTTP/1.1") == 1


async def test_an_answers_trailers_do_not_become_headers_of_the_next(tmp_path: Path) -> None:
    async def trailing(received: Received) -> None:
        await received.send(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"ok") + b"0\r\nx-late: 1\r\n\r\n"
        )

    async with staged(tmp_path, trailing) as stage:
        client = await stage.connect()
        for _ in range(2):
            await client.send(GET + b"host: x\r\n\r\n")
            assert b"x-late" not in await client.until(END)


@pytest.mark.parametrize(
    "request_head,status",
    [
        pytest.param(b"GET /health HTTP/1.1\r\n\r\n", 400, id="no Host"),
        pytest.param(b"GET /health HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400, id="two Hosts"),
        pytest.param(b"NONSENSE\r\n\r\n", 400, id="no HTTP"),
        pytest.param(
            b"POST /health HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
            400,
            id="CL and TE",
        ),
        pytest.param(b"GET /health HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 70000 + b"\r\n\r\n", 431, id="huge head"),
    ],
)
async def test_a_request_that_is_no_proper_http_is_refused_and_never_forwarded(
    tmp_path: Path, request_head: bytes, status: int
) -> None:
    async with staged(tmp_path, ok) as stage:
        response = await stage.ask(request_head)
        assert response.startswith(b"HTTP/1.1 %d " % status)
        assert "code" in error_in(response)
        assert stage.requests == []


async def test_head_and_204_have_no_body_and_keep_the_framing(tmp_path: Path) -> None:
    async def bodiless(received: Received) -> None:
        if received.head.startswith(b"HEAD"):
            await received.send(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n")
        else:
            await received.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with staged(tmp_path, bodiless) as stage:
        client = await stage.connect()
        await client.send(b"HEAD /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"content-length: 500" in await client.until(b"\r\n\r\n")
        await client.send(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await client.rest()).startswith(b"HTTP/1.1 204 No Content\r\n")


async def test_a_close_delimited_answer_is_whole_when_the_engine_closes(tmp_path: Path) -> None:
    async def until_close(received: Received) -> None:
        await received.send(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        received.writer.close()

    async with staged(tmp_path, until_close) as stage:
        response = await stage.ask(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert body_of(response) == b"all of it"
        assert (await stage.record()).outcome is Outcome.OK


async def test_an_old_client_gets_the_stream_without_chunks(tmp_path: Path) -> None:
    async with staged(tmp_path, whole_stream) as stage:
        response = await stage.ask(
            b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n%s" % (len(CHAT), CHAT)
        )
        assert response.partition(b"\r\n\r\n")[2] == b"".join(EVENTS) + DONE
