"""HTTP framing on both sides: what is rejected, and what is forwarded."""

from dataclasses import replace
from pathlib import Path

import pytest

from exporters.configuration.origin import origin
from exporters.configuration.otlp_endpoints import Collector
from exporters.http.parser import MAX_OPTIONS
from exporters.vocabulary.signals import Outcome
from tests.support.scripted_relay import (
    CHAT,
    DONE,
    END,
    EVENTS,
    STREAM_HEAD,
    UNARY,
    USAGE,
    Received,
    body_of,
    chunk,
    closes,
    error_in,
    ok,
    post,
    sends,
    staged,
    whole_stream,
)
from tests.support.waiting import until

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n"
GET = b"GET /health HTTP/1.1\r\n"


REJECTED = {
    "two lengths": HEAD + b"content-length: 2\r\ncontent-length: 2\r\n\r\n{}",
    "two different lengths": HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "a list of lengths": HEAD + b"content-length: 2, 2\r\n\r\n{}",
    "a signed length": HEAD + b"content-length: +2\r\n\r\n{}",
    "a hexadecimal length": HEAD + b"content-length: 0x2\r\n\r\n{}",
    "length and chunks": HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": HEAD + b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n0\r\n\r\n",
    "chunked not last": HEAD + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "an encoding other than chunked": HEAD + b"transfer-encoding: gzip\r\n\r\n",
    "a chunk size that is not a number": HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "a negative chunk size": HEAD + b"transfer-encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
    "a chunk size beyond 64 bits": HEAD + b"transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    "a chunk longer than its size": HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}x\r\n0\r\n\r\n",
    "a folded header": GET + b"host: x\r\n folded: y\r\n\r\n",
    "a space before the colon": GET + b"host : x\r\n\r\n",
    "a space in a name": GET + b"host: x\r\nbad name: y\r\n\r\n",
    "a zero byte in a name": GET + b"host: x\r\nname\x00: y\r\n\r\n",
    "a zero byte in a value": GET + b"host: x\r\nname: y\x00z\r\n\r\n",
    "a bare CR in a value": GET + b"host: x\r\nname: y\rz\r\n\r\n",
    "bare LFs": b"GET /health HTTP/1.1\nhost: x\n\n",
    "a zero byte in the path": b"GET /he\x00alth HTTP/1.1\r\nhost: x\r\n\r\n",
    "an unknown version": b"GET /health HTTP/3.7\r\nhost: x\r\n\r\n",
    "no Host": GET + b"\r\n",
    "two Hosts": GET + b"host: a\r\nhost: a\r\n\r\n",
    "no HTTP": b"NONSENSE\r\n\r\n",
    "too many options of Connection": GET + b"host: x\r\nconnection: a" + b",a" * MAX_OPTIONS + b"\r\n\r\n",
}


@pytest.mark.parametrize("request_bytes", REJECTED.values(), ids=REJECTED)
async def test_an_ambiguous_or_malformed_request_is_rejected_once_and_not_forwarded(
    tmp_path: Path, request_bytes: bytes
) -> None:
    async with staged(tmp_path, ok) as stage:
        # The relay must not parse the following bytes as a request either.
        response = await stage.ask(request_bytes + b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 400 ")
        assert response.count(b"HTTP/1.1") == 1
        assert b"connection: close\r\n" in response
        assert "code" in error_in(response)
        assert stage.requests == []


async def test_hop_by_hop_headers_and_headers_in_connection_are_not_forwarded(tmp_path: Path) -> None:
    async with staged(
        tmp_path,
        sends(
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: x-private\r\nx-private: 1\r\nkeep-alive: 5\r\n"
            b"proxy-authenticate: basic\r\nx-public: 1\r\n\r\nok"
        ),
    ) as stage:
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


async def test_connection_removes_the_clients_headers_and_none_of_the_relays(tmp_path: Path) -> None:
    names = "X-Request-Id, traceparent, authorization, Host, content-length, accept-encoding, close"
    sent = {"x-request-id": "theirs", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "authorization": "Bearer theirs"}
    headers = "".join(f"{name}: {value}\r\n" for name, value in sent.items()) + f"connection: {names}\r\n"
    async with staged(tmp_path, ok, otlp=Collector(url="http://127.0.0.1:1/v1/traces")) as stage:
        response = await stage.ask(post(UNARY, headers=headers, close=False))
        record = await stage.record()
        head = stage.requests[0].head.decode()
        _, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
        assert dict(line.split(": ") for line in lines) == {
            "host": stage.relay.pool.origin.host_header,
            "x-request-id": "relay-1",
            "traceparent": f"00-{record.trace_id}-{record.span_id}-01",
            "accept-encoding": "identity",
            "content-length": str(len(UNARY)),
        }
        assert len(lines) == 5
        assert record.request_id == "relay-1"
        assert b"x-request-id: relay-1\r\n" in response
        assert stage.requests[0].body == UNARY


async def test_connection_cannot_remove_the_framing_of_a_chunked_request(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        head = b"POST /v1/chat/completions/batch HTTP/1.1\r\nhost: x\r\nconnection: Transfer-Encoding, close\r\n"
        await stage.ask(head + b"Transfer-Encoding: Chunked\r\n\r\n" + chunk(UNARY) + END)
        assert b"transfer-encoding: chunked\r\n" in stage.requests[0].head
        assert stage.requests[0].body == UNARY


async def test_connection_of_the_engine_removes_none_of_the_relays_headers(tmp_path: Path) -> None:
    async with staged(
        tmp_path, sends(b"HTTP/1.1 200 OK\r\nconnection: x-request-id, Content-Length\r\ncontent-length: 2\r\n\r\nok")
    ) as stage:
        response = await stage.ask(post(UNARY))
        assert b"x-request-id: relay-1\r\n" in response
        assert response.endswith(b"content-length: 2\r\nconnection: close\r\n\r\nok")


@pytest.mark.parametrize(
    "offer",
    [
        pytest.param(
            b"connection: Upgrade, HTTP2-Settings\r\nhttp2-settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
            b"upgrade: h2c\r\n",
            id="as the client of the JDK sends it",
        ),
        pytest.param(b"Connection: upgrade\r\nUpgrade: H2C\r\nHTTP2-Settings: AA\r\n", id="settings not listed"),
    ],
)
async def test_an_offer_of_http_2_is_ignored_and_not_forwarded(tmp_path: Path, offer: bytes) -> None:
    async with staged(tmp_path, ok) as stage:
        client = await stage.connect()
        for number in range(1, 3):
            await client.send(HEAD + offer + b"content-length: %d\r\n\r\n" % len(UNARY) + UNARY)
            head = await client.until(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"upgrade" not in head.lower()
            await client.until(b"ok")
            forwarded = (await stage.reached(number)).head.lower()
            for dropped in (b"upgrade", b"http2-settings", b"h2c"):
                assert dropped not in forwarded
            assert stage.requests[-1].body == UNARY


@pytest.mark.parametrize(
    "upstream, host",
    [
        ("http://engine", b"engine"),
        ("http://engine:80/prefix", b"engine"),
        ("https://engine", b"engine"),
        ("https://engine:443", b"engine"),
        ("http://engine:8000", b"engine:8000"),
        ("http://engine:443", b"engine:443"),
        ("https://engine:80", b"engine:80"),
        ("http://[::1]:80", b"[::1]"),
        ("http://[::1]:8080", b"[::1]:8080"),
    ],
)
async def test_the_host_header_for_the_engine_has_no_default_port(tmp_path: Path, upstream: str, host: bytes) -> None:
    async with staged(tmp_path, ok) as stage:
        pool = stage.relay.pool
        # The test listens on neither port 80 nor 443.
        pool.origin = replace(origin(upstream), host=pool.origin.host, port=pool.origin.port, tls=None)
        await stage.ask(GET + b"host: client.example\r\nconnection: close\r\n\r\n")
        lines = stage.requests[0].head.split(b"\r\n")
        assert [line for line in lines if line.lower().startswith(b"host:")] == [b"host: " + host]


@pytest.mark.parametrize("expectation", [b"100-continue", b"100-Continue", b"other, 100-CONTINUE"])
async def test_a_client_that_expects_100_continue_receives_it(tmp_path: Path, expectation: bytes) -> None:
    async with staged(tmp_path, ok) as stage:
        client = await stage.client(
            HEAD + b"expect: " + expectation + b"\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(UNARY)
        )
        assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(UNARY)
        assert (await client.rest()).endswith(b"ok")
        assert b"expect" not in stage.requests[0].head.lower()
        assert stage.requests[0].body == UNARY


@pytest.mark.parametrize(
    "version, expectation",
    [
        pytest.param(b"1.0", b"100-continue", id="HTTP/1.0 has no interim responses"),
        pytest.param(b"1.1", b"100-continued", id="another expectation"),
    ],
)
async def test_a_client_that_does_not_know_100_continue_does_not_receive_it(
    tmp_path: Path, version: bytes, expectation: bytes
) -> None:
    async with staged(tmp_path, ok) as stage:
        client = await stage.connect()
        head = HEAD.replace(b"HTTP/1.1", b"HTTP/" + version)
        await client.send(
            head + b"expect: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (expectation, len(UNARY))
        )
        await until(lambda: any(connection.busy for connection in stage.relay.connections))
        await client.send(UNARY)
        assert (await client.rest()).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    "content_type",
    [
        b"Text/Event-Stream",
        b"TEXT/EVENT-STREAM; Charset=UTF-8",
        b"text/event-stream ;charset=utf-8",
        b"text/event-stream;",
    ],
)
async def test_the_type_of_an_event_stream_is_recognised_in_any_case_and_with_parameters(
    tmp_path: Path, content_type: bytes
) -> None:
    async def stream(received: Received) -> None:
        head = STREAM_HEAD.replace(b"text/event-stream; charset=utf-8", content_type)
        await received.send(head, *map(chunk, [*EVENTS, USAGE, DONE]), END)

    async with staged(tmp_path, stream) as stage:
        response = await stage.ask(post(CHAT))
        assert b"content-type: %s\r\n" % content_type in response
        assert body_of(response) == b"".join([*EVENTS, DONE])
        record = await stage.record()
        assert (record.completion_tokens, record.ttft is None) == (3, False)


async def test_a_type_that_only_begins_as_that_of_an_event_stream_is_none(tmp_path: Path) -> None:
    async def other(received: Received) -> None:
        head = STREAM_HEAD.replace(b"text/event-stream; charset=utf-8", b"text/event-stream-index")
        await received.send(head, chunk(EVENTS[1]), END)

    async with staged(tmp_path, other) as stage:
        assert body_of(await stage.ask(post(CHAT))) == EVENTS[1]
        record = await stage.record()
        assert (record.outcome, record.ttft) == (Outcome.OK, None)


async def test_request_trailers_are_not_headers(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        body = chunk(UNARY) + b"0\r\nx-request-class: long\r\nhost: other\r\n\r\n"
        response = await stage.ask(HEAD + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n" + body)
        assert response.endswith(b"ok")
        assert stage.requests[0].head.lower().count(b"host:") == 1
        assert (await stage.record()).request_class == "short"


async def test_a_compressed_response_passes_unparsed(tmp_path: Path) -> None:
    async with staged(
        tmp_path, sends(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x8b\x00\x00")
    ) as stage:
        assert (await stage.ask(post(UNARY))).endswith(b"\x1f\x8b\x00\x00")
        record = await stage.record()
        assert (record.outcome, record.completion_tokens) == ("ok", None)


async def test_interim_responses_are_not_forwarded(tmp_path: Path) -> None:
    async with staged(
        tmp_path, sends(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
    ) as stage:
        response = await stage.ask(post(UNARY))
        assert response.startswith(b"HTTP/1.1 200 OK\r\n")
        assert response.count(b"HTTP/1.1") == 1


async def test_response_trailers_are_not_forwarded(tmp_path: Path) -> None:
    async with staged(
        tmp_path,
        sends(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"ok") + b"0\r\nx-late: 1\r\n\r\n"),
    ) as stage:
        client = await stage.connect()
        for _ in range(2):
            await client.send(GET + b"host: x\r\n\r\n")
            assert b"x-late" not in await client.until(END)


async def test_head_and_204_have_no_body_and_keep_the_connection(tmp_path: Path) -> None:
    async def bodiless(received: Received) -> None:
        if received.head.startswith(b"HEAD"):
            await received.send(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n")
        else:
            await received.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with staged(tmp_path, bodiless) as stage:
        client = await stage.client(b"HEAD /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"content-length: 500" in await client.until(b"\r\n\r\n")
        await client.send(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await client.rest()).startswith(b"HTTP/1.1 204 No Content\r\n")


async def test_a_close_delimited_response_ends_when_the_engine_closes(tmp_path: Path) -> None:
    async with staged(tmp_path, closes(b"HTTP/1.1 200 OK\r\n\r\nall of it")) as stage:
        response = await stage.ask(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert body_of(response) == b"all of it"
        assert (await stage.record()).outcome is Outcome.OK


async def test_an_http_1_0_client_receives_the_stream_without_chunks(tmp_path: Path) -> None:
    async with staged(tmp_path, whole_stream) as stage:
        response = await stage.ask(
            b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n%s" % (len(CHAT), CHAT)
        )
        assert response.partition(b"\r\n\r\n")[2] == b"".join(EVENTS) + DONE
