"""The relay's own errors as the official clients of Anthropic and OpenAI read them."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from exporters.vocabulary.signals import Outcome
from tests.support.scripted_relay import (
    CHAT,
    STREAM_HEAD,
    Received,
    Stage,
    body_of,
    chunk,
    content,
    holds,
    ok,
    post,
    staged,
)
from tests.support.waiting import until

MESSAGES: Any = [{"role": "user", "content": "hi"}]
START = b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":3}}}\n\n'
DELTA = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"a"}}\n\n'
)


def client_of_anthropic(stage: Stage) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{stage.port}", api_key="none", max_retries=0)


def client_of_openai(stage: Stage) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{stage.port}/v1", api_key="none", max_retries=0)


async def create(client: anthropic.AsyncAnthropic) -> object:
    return await client.messages.create(model="m", max_tokens=5, messages=MESSAGES)


async def count(client: anthropic.AsyncAnthropic) -> object:
    return await client.messages.count_tokens(model="m", messages=MESSAGES)


async def list_batches(client: anthropic.AsyncAnthropic) -> object:
    return await client.messages.batches.list()


UNREACHABLE = "the engine at 127.0.0.1:{port} cannot be reached: connection refused"


@pytest.mark.parametrize(
    "ask, settings, error, status, kind, message",
    [
        pytest.param(list_batches, {}, anthropic.PermissionDeniedError, 403, "permission_error",
            "/v1/messages/batches is not an inference path; the operator can allow it with --allow-path", id="403"),
        pytest.param(create, {"max_body": 10}, anthropic.APIStatusError, 413, "request_too_large",
            "the request body is larger than 10 bytes", id="413"),
        pytest.param(create, {}, anthropic.InternalServerError, 502, "api_error", UNREACHABLE, id="502"),
        pytest.param(count, {}, anthropic.InternalServerError, 502, "api_error", UNREACHABLE, id="502 of a count"),
        pytest.param(create, {"client_limit": 0}, anthropic.InternalServerError, 503, "overloaded_error",
            "the limit of 0 client connections is reached", id="503"),
    ],
)  # fmt: skip
async def test_the_client_of_anthropic_reads_an_error_in_its_format(
    tmp_path: Path,
    ask: Callable[[anthropic.AsyncAnthropic], Awaitable[object]],
    settings: dict[str, Any],
    error: type[anthropic.APIStatusError],
    status: int,
    kind: str,
    message: str,
) -> None:
    limit = settings.pop("client_limit", None)
    async with staged(tmp_path, None, **settings) as stage, client_of_anthropic(stage) as client:
        if limit is not None:
            stage.relay.client_limit = limit
        with pytest.raises(error) as caught:
            await ask(client)
        record = await stage.record()
        message = message.format(port=stage.relay.pool.origin.port)
        assert caught.value.status_code == status == record.status
        assert caught.value.type == kind
        assert caught.value.body == {
            "type": "error",
            "error": {"type": kind, "message": f"vllm-slo: {message}"},
            "request_id": record.request_id,
        }


async def test_the_client_of_anthropic_reads_a_timeout(tmp_path: Path) -> None:
    async with staged(tmp_path, Received.gone) as stage, client_of_anthropic(stage) as client:
        asking = asyncio.create_task(create(client))
        await stage.reached()
        stage.relay.cut_timed_out(time.monotonic() + 601)
        with pytest.raises(anthropic.InternalServerError, match="the engine sent no data for 600 s") as caught:
            await asking
        assert (caught.value.status_code, caught.value.type) == (504, "timeout_error")


async def test_a_request_to_anthropics_api_that_is_invalid_http_gets_its_format(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        response = await stage.ask(
            b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nx-request-id: abc\r\n\r\nzz\r\n"
        )
        assert response.startswith(b"HTTP/1.1 400 ")
        assert json.loads(response.partition(b"\r\n\r\n")[2]) == {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "vllm-slo: the request body has invalid chunked encoding",
            },
            "request_id": "abc",
        }


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/messages2", "/messages", "/"]
)
async def test_every_other_path_gets_openais_format(tmp_path: Path, path: str) -> None:
    async with staged(tmp_path, None) as stage:
        response = await stage.ask(post(b"{}", path=path, headers="x-request-id: abc\r\n"))
        body = json.loads(response.partition(b"\r\n\r\n")[2])
        assert body.keys() == {"error", "request_id"}
        assert body["error"].keys() == {"message", "type", "param", "code"}
        assert body["request_id"] == "abc"


async def test_the_client_of_openai_reads_an_error(tmp_path: Path) -> None:
    async with staged(tmp_path, None) as stage, client_of_openai(stage) as client:
        with pytest.raises(openai.InternalServerError, match=r"vllm-slo: the engine at .* cannot be reached") as caught:
            await client.chat.completions.create(model="m", messages=MESSAGES)
        assert (caught.value.status_code, caught.value.code) == (502, "upstream_unreachable")
        assert caught.value.type == "upstream_error"


async def test_the_client_of_anthropic_reads_why_its_stream_was_cut(tmp_path: Path) -> None:
    async with (
        staged(tmp_path, holds(STREAM_HEAD, chunk(START), chunk(DELTA))) as stage,
        client_of_anthropic(stage) as client,
    ):
        events = await client.messages.create(model="m", max_tokens=5, messages=MESSAGES, stream=True)
        kinds = []
        with pytest.raises(anthropic.APIStatusError, match="no data for 600 s") as caught:  # noqa: PT012
            async for event in events:
                kinds.append(event.type)
                if event.type == "content_block_delta":
                    stage.relay.cut_timed_out(time.monotonic() + 601)
        assert kinds == ["message_start", "content_block_delta"]
        record = await stage.record()
        assert (record.outcome, record.status) == (Outcome.TIMEOUT_IDLE, 200)
        assert caught.value.type == "timeout_error"
        assert caught.value.body == {
            "type": "error",
            "error": {"type": "timeout_error", "message": "vllm-slo: the engine sent no data for 600 s"},
            "request_id": record.request_id,
        }


async def test_the_client_of_openai_reads_why_its_stream_was_cut(tmp_path: Path) -> None:
    async with staged(tmp_path, holds(STREAM_HEAD, chunk(content("a")))) as stage, client_of_openai(stage) as client:
        chunks = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError, match=r"^vllm-slo: the engine sent no data for 600 s$") as caught:  # noqa: PT012
            async for _ in chunks:
                stage.relay.cut_timed_out(time.monotonic() + 601)
        assert caught.value.code == "timeout_idle"


@pytest.mark.parametrize(
    "path, head, sent",
    [
        pytest.param("/v1/messages", STREAM_HEAD, START + DELTA[:-1], id="in the middle of an event"),
        pytest.param("/v1/messages", STREAM_HEAD, START + b'data: {"type":"message_stop"}\n\n', id="after the end"),
        pytest.param("/v1/responses", STREAM_HEAD, DELTA, id="of numbered events"),
        pytest.param("/v1/messages", STREAM_HEAD.replace(b"x-engine: it", b"content-encoding: gzip"), b"compressed\n\n",
            id="of a compressed stream"),
        pytest.param("/v1/messages", STREAM_HEAD.replace(b"text/event-stream", b"application/json"), b"{",
            id="of no stream"),
        pytest.param("/v1/chat/completions/batch", STREAM_HEAD, DELTA, id="on a path that is not measured"),
    ],
)  # fmt: skip
async def test_a_response_in_which_no_event_may_follow_only_stops(
    tmp_path: Path, path: str, head: bytes, sent: bytes
) -> None:
    async with staged(tmp_path, holds(head, chunk(sent))) as stage:
        client = await stage.client(post(CHAT, path=path))
        received = await client.until(sent)
        stage.relay.cut_timed_out(time.monotonic() + 601)
        assert await client.rest() == b"\r\n"
        assert body_of(received + b"\r\n0\r\n\r\n") == sent


async def test_a_stream_that_a_shutdown_cuts_has_an_error_event(tmp_path: Path) -> None:
    async with staged(tmp_path, holds(STREAM_HEAD, chunk(DELTA))) as stage:
        client = await stage.client(post(CHAT, path="/v1/messages"))
        await client.until(DELTA + b"\r\n")
        stage.relay.close()
        rest = await client.rest()
        await until(lambda: stage.records)
        assert b"event: error\ndata: " in rest
        assert b"the sidecar is shutting down" in rest
        assert not rest.endswith(b"0\r\n\r\n")
