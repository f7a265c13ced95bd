"""The Responses and Messages APIs over a real socket: the same scheduler, cache, metrics and aborts as chat."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.compose.simulator.engine_series import value
from tests.support.simulator import simulator
from tests.support.waiting import HANG

TEXT = "hello " * 40
CHAT = {"messages": [{"role": "system", "content": TEXT}, {"role": "user", "content": "hi"}], "max_tokens": 5}
RESPONSES = {"instructions": TEXT, "input": "hi", "max_output_tokens": 5}
MESSAGES = {"model": "tiny", "system": TEXT, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
BODIES = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": MESSAGES}
LONG = {
    "/v1/responses": RESPONSES | {"max_output_tokens": 3000, "ignore_eos": True, "stream": True},
    "/v1/messages": MESSAGES | {"max_tokens": 3000, "ignore_eos": True, "stream": True},
}
Client = aiohttp.ClientSession


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with simulator("tiny", max_num_seqs=1) as url, Client(url) as session:
        yield session


async def post(client: Client, path: str, body: Any) -> Any:
    async with client.post(path, json=body) as response:
        return json.loads(await response.read())


def usage(path: str, body: Any) -> tuple[int, int, int, int]:
    """Prompt tokens, the cached and the newly cached of them, and the tokens of the completion."""
    counts = body["usage"]
    match path:
        case "/v1/responses":
            details = counts["input_tokens_details"]
            cached, written = details["cached_tokens"], details["cache_write_tokens"]
            assert counts["total_tokens"] == counts["input_tokens"] + counts["output_tokens"]
            return counts["input_tokens"], cached, written, counts["output_tokens"]
        case "/v1/messages":
            cached, written = counts["cache_read_input_tokens"], counts["cache_creation_input_tokens"]
            return counts["input_tokens"] + cached + written, cached, written, counts["output_tokens"]
        case _:
            details = counts["prompt_tokens_details"]
            prompt, cached = counts["prompt_tokens"], details["cached_tokens"]
            return prompt, cached, details["created_cache_tokens"], counts["completion_tokens"]


async def test_the_apis_share_the_prefix_cache(client: Client) -> None:
    counts = [usage(path, await post(client, path, body)) for path, body in BODIES.items()]
    prompt = counts[0][0]
    full = prompt // 16 * 16
    assert counts == [(prompt, 0, full, 5), (prompt, full, 0, 5), (prompt, full, 0, 5)]


@pytest.mark.parametrize("path", BODIES)
async def test_a_prompt_can_be_counted_before_it_is_sent(client: Client, path: str) -> None:
    body = {name: MESSAGES[name] for name in ("model", "system", "messages")}
    counted = await post(client, "/v1/messages/count_tokens", body)
    prompt, *_ = usage(path, await post(client, path, BODIES[path]))
    assert counted == {"input_tokens": prompt, "context_management": {"original_input_tokens": prompt}}


@pytest.mark.parametrize("path", LONG)
async def test_the_series_of_the_engine_count_each_api(client: Client, path: str) -> None:
    body = await post(client, path, BODIES[path])
    prompt, _, _, completion = usage(path, body)
    assert await value(client, "vllm:prompt_tokens_total") == prompt
    assert await value(client, "vllm:generation_tokens_total") == completion
    assert await value(client, "vllm:request_success_total", finished_reason="length") == 1
    assert await value(client, "vllm:request_params_max_tokens_sum") == 5
    assert await value(client, "vllm:time_to_first_token_seconds_count") == 1


@pytest.mark.parametrize("path", LONG)
async def test_a_client_that_disconnects_frees_its_blocks(client: Client, path: str) -> None:
    async with client.post(path, json=LONG[path]) as response:
        await response.content.readline()
        response.close()
    async with asyncio.timeout(HANG):
        while await value(client, "vllm:num_requests_running") or await value(client, "vllm:num_requests_waiting"):
            await asyncio.sleep(0)
    assert await value(client, "vllm:kv_cache_usage_perc") == 0
    assert await value(client, "vllm:request_success_total") == 0


async def test_only_a_responses_stream_has_events_while_its_request_is_in_the_queue(client: Client) -> None:
    """VLLM sends `response.created` before it schedules a request, and `message_start` with the first token."""
    async with client.post("/v1/responses", json=LONG["/v1/responses"]) as running:
        await running.content.readuntil(b"response.output_text.delta")
        async with client.post("/v1/responses", json=LONG["/v1/responses"]) as queued:
            opening = [await queued.content.readuntil(b"\n\n") for _ in range(2)]
            assert await value(client, "vllm:num_requests_waiting") == 1
            async with client.post("/v1/messages", json=LONG["/v1/messages"]) as also_queued:
                assert also_queued.status == 200
                assert await value(client, "vllm:num_requests_waiting") == 2
                assert not also_queued.content.total_bytes
    assert [event.partition(b"\n")[0] for event in opening] == [
        b"event: response.created",
        b"event: response.in_progress",
    ]
