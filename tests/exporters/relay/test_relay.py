"""The relay over real sockets, in front of a scripted upstream."""

import asyncio
import gzip
import time
from pathlib import Path
from typing import Any

import pytest

from exporters.relay.bodies import request_body
from exporters.relay.dialects import chat
from exporters.vocabulary.signals import Outcome, Phase, Verdict
from tests.support.scripted_relay import (
    CHAT,
    CHAT_WITH_USAGE,
    DONE,
    END,
    EVENTS,
    ROLE,
    STREAM_HEAD,
    UNARY,
    USAGE,
    Received,
    body_of,
    chunk,
    closes,
    content,
    error_in,
    ok,
    post,
    sends,
    staged,
    streams,
    whole_stream,
)
from tests.support.waiting import cpu_time_until


@pytest.mark.parametrize(
    "after",
    [
        pytest.param([], id="before the head"),
        pytest.param([STREAM_HEAD, chunk(ROLE)], id="before the first token"),
        pytest.param([STREAM_HEAD, chunk(ROLE), chunk(content("a")), chunk(content("b"))], id="mid-stream"),
    ],
)
async def test_a_client_that_disconnects_frees_the_engine_within_100_ms(tmp_path: Path, after: list[bytes]) -> None:
    freed, sent = asyncio.Event(), asyncio.Event()

    async def stall(received: Received) -> None:
        await received.send(*after)
        sent.set()
        await received.gone()
        freed.set()

    async with staged(tmp_path, stall) as stage:
        client = await stage.client(post(CHAT))
        await sent.wait()
        if len(after) > 1:
            await client.until(b"\n\n\r\n")
        client.leave()
        assert await cpu_time_until(lambda: stage.records and freed.is_set()) < 0.1
        record = await stage.record()
        assert record.outcome is Outcome.CLIENT_ABORT
        tokens = 2 if len(after) > 2 else None
        assert record.completion_tokens == tokens
        met = {"ttft": Verdict.GOOD} if tokens else {"ttft": Verdict.ABANDONED}
        assert record.slo == {**met, "availability": Verdict.ABANDONED}
        assert (record.wait_at_least is None) == bool(tokens)


@pytest.mark.parametrize("how", ["reset", "close", "end without [DONE]"])
async def test_a_stream_that_stops_early_is_truncated_without_a_fabricated_end(tmp_path: Path, how: str) -> None:
    has_chunks = asyncio.Event()

    async def stop(received: Received) -> None:
        await received.send(STREAM_HEAD, chunk(ROLE), chunk(content("a")))
        await has_chunks.wait()
        if how == "reset":
            received.writer.transport.abort()
        elif how == "close":
            received.writer.close()
        else:
            await received.send(END)

    async with staged(tmp_path, stop) as stage:
        client = await stage.client(post(CHAT))
        await client.until(content("a"))
        has_chunks.set()
        assert await client.rest() == b"\r\n" + (END if how == "end without [DONE]" else b"")
        record = await stage.record()
        assert record.outcome is Outcome.TRUNCATED
        assert record.slo == {"ttft": Verdict.GOOD, "availability": Verdict.BAD}


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(content("a", "abort"), id="finish_reason abort"),
        pytest.param(content("a", "error"), id="finish_reason error"),
    ],
)
async def test_an_error_inside_a_stream_is_an_upstream_error(tmp_path: Path, event: bytes) -> None:
    async with staged(tmp_path, streams(ROLE, event, DONE)) as stage:
        assert body_of(await stage.ask(post(CHAT))) == ROLE + event + DONE
        assert (await stage.record()).outcome is Outcome.UPSTREAM_ERROR


@pytest.mark.parametrize(
    "status,outcome,verdict",
    [
        pytest.param(400, Outcome.CLIENT_ERROR, None, id="400"),
        pytest.param(404, Outcome.CLIENT_ERROR, None, id="404"),
        pytest.param(429, Outcome.REJECTED, Verdict.BAD, id="429"),
        pytest.param(503, Outcome.REJECTED, Verdict.BAD, id="503"),
        pytest.param(500, Outcome.UPSTREAM_ERROR, Verdict.BAD, id="500"),
    ],
)
async def test_the_engines_own_errors_pass_unchanged(
    tmp_path: Path, status: int, outcome: Outcome, verdict: Verdict | None
) -> None:
    body = b'{"error":{"message":"no"}}'
    reply = b"HTTP/1.1 %d Said\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)
    async with staged(tmp_path, sends(reply)) as stage:
        response = await stage.ask(post(CHAT))
        assert response.startswith(b"HTTP/1.1 %d Said\r\n" % status)
        assert response.endswith(body)
        record = await stage.record()
        assert (record.outcome, record.status) == (outcome, status)
        assert record.slo == ({} if verdict is None else {"ttft": verdict, "availability": verdict})


@pytest.mark.parametrize(
    "sent,code",
    [
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", "bad_upstream_response", id="another protocol"),
        pytest.param(b"", "upstream_closed", id="no byte"),
    ],
)
async def test_an_engine_without_http_is_an_upstream_error_and_the_client_receives_502(
    tmp_path: Path, sent: bytes, code: str
) -> None:
    async with staged(tmp_path, closes(sent)) as stage:
        response = await stage.ask(post(CHAT))
        assert response.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
        assert error_in(response)["code"] == code
        assert (await stage.record()).outcome is Outcome.UPSTREAM_ERROR


@pytest.mark.parametrize("strips_usage", [True, False])
@pytest.mark.parametrize("encoding", [b"gzip", b"GZIP", b"br"])
async def test_a_compressed_stream_is_unmetered_and_counted_and_its_bytes_are_unchanged(
    tmp_path: Path, encoding: bytes, strips_usage: bool
) -> None:
    data = gzip.compress(b"".join([*EVENTS, USAGE, DONE]))
    awaited = asyncio.Event()

    async def compress(received: Received) -> None:
        head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: %s\r\n\r\n" % encoding)
        await received.send(head, chunk(data[:20]))
        await awaited.wait()
        await received.send(chunk(data[20:]), END)

    async with staged(tmp_path, compress) as stage:
        client = await stage.client(post(CHAT if strips_usage else CHAT_WITH_USAGE))
        head = await client.until(data[:20] + b"\r\n")
        assert b"content-encoding: %s\r\n" % encoding in head
        (exchange,) = stage.relay._open
        assert exchange.measurement.phase is Phase.STREAMING
        awaited.set()
        assert body_of(b"\r\n\r\n" + chunk(data[:20]) + await client.rest()) == data
        record = await stage.record()
        assert (record.outcome, record.unmetered) == (Outcome.OK, "encoded")
        assert record.slo == {"ttft": Verdict.ABANDONED, "availability": Verdict.ABANDONED}
        assert record.wait_at_least is None


async def test_a_compressed_stream_on_a_path_without_metering_is_not_counted(tmp_path: Path) -> None:
    async def compress(received: Received) -> None:
        head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
        await received.send(head, chunk(b"\x1f\x8b\x00\x00"), END)

    async with staged(tmp_path, compress) as stage:
        await stage.ask(post(CHAT, path="/v1/audio/speech"))
        record = await stage.record()
        assert (record.outcome, record.metered, record.unmetered) == (Outcome.OK, False, None)


async def test_a_compressed_error_of_the_engine_has_its_verdicts(tmp_path: Path) -> None:
    async def fail(received: Received) -> None:
        head = b"HTTP/1.1 500 No\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n"
        await received.send(head + b"\r\n\x1f\x8b\x00\x00")

    async with staged(tmp_path, fail) as stage:
        assert body_of(await stage.ask(post(CHAT))) == b"\x1f\x8b\x00\x00"
        record = await stage.record()
        assert (record.outcome, record.unmetered) == (Outcome.UPSTREAM_ERROR, None)
        assert record.slo == {"ttft": Verdict.BAD, "availability": Verdict.BAD}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/models", "/metrics"])
@pytest.mark.parametrize("request_body", [b"", UNARY])
async def test_options_is_forwarded_if_its_path_is_allowed_and_is_no_request_event(
    tmp_path: Path, path: str, request_body: bytes
) -> None:
    allowed = path != "/metrics"
    async with staged(tmp_path, sends(b"HTTP/1.1 405 No\r\nallow: POST\r\ncontent-length: 0\r\n\r\n")) as stage:
        client = await stage.connect()
        request = f"OPTIONS {path} HTTP/1.1\r\nhost: x\r\norigin: y\r\ncontent-length: {len(request_body)}\r\n\r\n"
        await client.send(request.encode() + request_body)
        head = await client.until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 405 No\r\n" if allowed else b"HTTP/1.1 403 Forbidden\r\n")
        assert [received.body for received in stage.requests] == [request_body] * allowed
        assert b"origin: y\r\n" in b"".join(received.head for received in stage.requests) or not allowed
        await stage.ask(b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await stage.record()).route == "/v1/models"
        assert (len(stage.records), stage.judged, stage.relay.open_requests) == (1, [], 0)


async def test_a_path_that_the_operator_allows_passes(tmp_path: Path) -> None:
    async with staged(tmp_path, ok, allow_paths=("/sleep",)) as stage:
        response = await stage.ask(b"POST /sleep HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        assert response.endswith(b"ok")


@pytest.mark.parametrize("path", ["/metrics", "/metrics?name=vllm:num_requests_waiting", "//metrics"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_exposed_engine_metrics_are_relayed_and_are_no_request_event(
    tmp_path: Path, method: str, path: str
) -> None:
    async with staged(tmp_path, ok, expose_engine_metrics=True) as stage:
        client = await stage.client(
            f"{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer key\r\n\r\n".encode()
        )
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"authorization: Bearer key\r\n" in stage.requests[0].head
        await stage.ask(b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await stage.record()).route == "/v1/models"
        assert (len(stage.records), stage.judged, stage.relay.open_requests) == (1, [], 0)


@pytest.mark.parametrize("method, path", [("POST", "/metrics"), ("GET", "/metrics/x")])
async def test_exposed_engine_metrics_open_nothing_else(tmp_path: Path, method: str, path: str) -> None:
    async with staged(tmp_path, ok, expose_engine_metrics=True) as stage:
        request = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        response = await stage.ask(request.encode())
        assert error_in(response)["code"] == "path_not_allowed"
        assert stage.requests == []
        assert (await stage.record()).outcome is Outcome.CLIENT_ERROR


async def test_the_wait_before_the_sidecar_counts_if_the_sender_is_trusted(tmp_path: Path) -> None:
    began = time.monotonic()
    async with staged(tmp_path, whole_stream) as stage:
        for sent in (f"t={time.time() - 300:.6f}", f"t={time.time() + 60:.6f}", "t=garbage"):
            await stage.ask(post(CHAT, headers=f"x-request-start: {sent}\r\n"))
        waited, future, garbage = [await stage.record(number) for number in (1, 2, 3)]
        assert waited.ttft is not None
        passed = time.monotonic() - began
        assert 300 <= waited.ttft < 300 + passed + 0.1
        assert waited.slo["ttft"] is Verdict.BAD
        assert 300 <= waited.before_relay < 300 + passed + 0.1
        assert waited.frontend is not None
        assert waited.frontend < passed + 0.1
        assert future.before_relay == garbage.before_relay == 0
        for record in (future, garbage):
            assert record.ttft is not None
            assert record.ttft < passed + 0.1


@pytest.mark.parametrize("header", ["", "x-request-start: t={}\r\n"])
async def test_time_zero_is_the_end_of_the_request_and_not_that_of_its_parsing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str
) -> None:
    began: list[float] = []
    parse = request_body.parse

    def note_time(*arguments: Any) -> request_body.RequestBody | None:
        began.append(time.monotonic())
        return parse(*arguments)

    monkeypatch.setattr(chat, "parse", note_time)
    async with staged(tmp_path, Received.gone) as stage:
        sent = time.monotonic()
        await stage.client(post(CHAT, headers=header.format(time.time())))
        await stage.reached()
        (exchange,) = stage.relay._open
        assert sent - 0.005 <= exchange.measurement.zero <= began[0]


async def test_pipelined_requests_receive_their_responses_in_order(tmp_path: Path) -> None:
    async def echo(received: Received) -> None:
        path = received.head.split(b" ")[1]
        # The relay receives the next request before this response.
        await asyncio.sleep(0.02)
        await received.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(path), path))

    async with staged(tmp_path, echo) as stage:
        ask = "GET /v1/models/{} HTTP/1.1\r\nhost: x\r\n{}\r\n"
        response = await stage.ask(
            "".join([ask.format(1, ""), ask.format(2, ""), ask.format(3, "connection: close\r\n")]).encode()
        )
        assert [part[-12:] for part in response.split(b"HTTP/1.1 200 OK")[1:]] == [
            b"/v1/models/1",
            b"/v1/models/2",
            b"/v1/models/3",
        ]
        assert len(stage.records) == 3


SLOS_ON_TOKENS = """
version: 1
period: 12h
scrape_interval: 1s
classes:
  - {name: any}
slos:
  - {name: tpot, classes: [any], signal: tpot, threshold: 10s, objective: 95%}
  - {name: itl, classes: [any], signal: itl_p95, threshold: 10s, objective: 95%}
  - {name: availability, classes: [any], signal: availability, objective: 99%}
"""


@pytest.mark.parametrize(
    "prompt, judged",
    [
        pytest.param(b'["one","two"]', {"availability"}, id="two prompts"),
        pytest.param(b"[[1,2],[3]]", {"availability"}, id="two prompts of token ids"),
        pytest.param(b'["one"]', {"tpot", "itl", "availability"}, id="one prompt"),
        pytest.param(b"[1,2,3]", {"tpot", "itl", "availability"}, id="one prompt of token ids"),
    ],
)
async def test_a_completion_of_several_prompts_has_no_time_between_tokens(
    tmp_path: Path, prompt: bytes, judged: set[str]
) -> None:
    async def completions(received: Received) -> None:
        event = b'data: {"choices":[{"index":%d,"text":"a","finish_reason":null}]}\n\n'
        await received.send(STREAM_HEAD)
        for index in (0, 1, 0, 1):
            await received.send(chunk(event % index))
        await received.send(chunk(USAGE), chunk(DONE), END)

    body = b'{"model":"m","stream":true,"max_tokens":50,"prompt":%s}' % prompt
    async with staged(tmp_path, completions, slo_file=SLOS_ON_TOKENS) as stage:
        await stage.ask(post(body, path="/v1/completions"))
        record = await stage.record()
        assert (record.slo, record.outcome) == (dict.fromkeys(judged, Verdict.GOOD), Outcome.OK)
        has_gaps = "itl" in judged
        measured = (record.tpot, record.itl_p50, record.itl_p95)
        assert [value is not None for value in measured] == [has_gaps] * 3
        assert bool(record.gap_counts) == has_gaps
        assert record.ttft is not None
