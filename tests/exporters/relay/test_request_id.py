"""The id of a request, which the engine, the client, the record and the errors of the relay have."""

import json
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.support.scripted_relay import OK, UNARY, Received, Stage, holds, ok, post, sends, staged

MESSAGES: Any = [{"role": "user", "content": "hi"}]


def values(head: bytes, name: bytes) -> list[bytes]:
    lines = [line.partition(b": ") for line in head.partition(b"\r\n\r\n")[0].split(b"\r\n")]
    return [value for each, _, value in lines if each.lower() == name]


async def asked(stage: Stage, headers: str, path: str = "/v1/chat/completions") -> tuple[list[bytes], list[bytes]]:
    """The ids that the engine and the client receive."""
    request = post(UNARY, path=path, headers=headers).decode("latin-1").encode("latin-1")
    response = await stage.ask(request)
    return values(stage.requests[0].head, b"x-request-id"), values(response, b"x-request-id")


@pytest.mark.parametrize(
    "request_id",
    [
        pytest.param("x", id="one character"),
        pytest.param("x" * 128, id="128 characters"),
        pytest.param("018f3c5e-7a2b-7cc1-9d7e-0123456789ab", id="a UUID"),
        pytest.param('{"a":%20,!~}', id="any printable characters"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/embeddings"])
async def test_a_valid_id_reaches_the_engine_the_client_and_the_record(
    tmp_path: Path, request_id: str, path: str
) -> None:
    async with staged(tmp_path, ok) as stage:
        sent = [request_id.encode()]
        assert await asked(stage, f"X-Request-Id: {request_id}\r\n", path) == (sent, sent)
        assert (await stage.record()).request_id == request_id


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param("", id="none"),
        pytest.param("x-request-id:\r\n", id="an empty one"),
        pytest.param(f"x-request-id: {'secret' * 22}\r\n", id="132 characters"),
        pytest.param("x-request-id: secret b\r\n", id="with a space"),
        pytest.param("x-request-id: secret\tb\r\n", id="with a tab"),
        pytest.param("x-request-id: secreté\r\n", id="not ASCII"),
        pytest.param("x-request-id: secret\r\nx-other: 1\r\nX-Request-Id: b\r\n", id="two"),
    ],
)
async def test_an_id_that_is_missing_or_invalid_is_replaced(tmp_path: Path, headers: str) -> None:
    async with staged(tmp_path, ok) as stage:
        assert await asked(stage, headers) == ([b"relay-1"], [b"relay-1"])
        assert (await stage.record()).request_id == "relay-1"
        assert b"secret" not in stage.requests[0].head


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_an_id_of_the_engine_is_not_doubled(tmp_path: Path, path: str) -> None:
    async with staged(
        tmp_path, sends(OK.replace(b"\r\n\r\n", b"\r\nX-Request-Id: a\r\nrequest-id: b\r\n\r\n"))
    ) as stage:
        response = await stage.ask(post(UNARY, path=path, headers="x-request-id: mine\r\n"))
        assert values(response, b"x-request-id") == [b"mine"]
        assert values(response, b"request-id") == ([b"mine"] if path == "/v1/messages" else [b"b"])


async def test_the_official_clients_read_the_id_of_a_response_and_of_an_error(tmp_path: Path) -> None:
    async def answer(received: Received) -> None:
        body = b'{"choices":[],"content":[]}'
        await received.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
        await received.send(b"content-length: %d\r\n\r\n" % len(body), body)

    async with staged(tmp_path, answer, allow_paths=()) as stage:
        url = f"http://127.0.0.1:{stage.port}"
        async with (
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as openais,
            anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as anthropics,
        ):
            completion = await openais.chat.completions.create(model="m", messages=MESSAGES)
            message = await anthropics.messages.create(model="m", max_tokens=5, messages=MESSAGES)
            with pytest.raises(openai.PermissionDeniedError) as of_openai:
                await openais.fine_tuning.jobs.list()
            with pytest.raises(anthropic.PermissionDeniedError) as of_anthropic:
                await anthropics.messages.batches.list()
        ids = [completion._request_id, message._request_id, of_openai.value.request_id, of_anthropic.value.request_id]
        await stage.record(4)
        assert ids == [record.request_id for record in stage.records] == [f"relay-{number}" for number in range(1, 5)]
        assert json.loads(of_anthropic.value.response.text)["request_id"] == ids[3]


async def test_a_switch_of_protocols_has_the_id(tmp_path: Path) -> None:
    async with staged(
        tmp_path, holds(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
    ) as stage:
        client = await stage.client(
            b"GET /v1/realtime HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
        )
        assert values(await client.until(b"\r\n\r\n"), b"x-request-id") == [b"relay-1"]
