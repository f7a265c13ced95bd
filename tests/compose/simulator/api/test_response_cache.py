"""A response cache answers a repeated body without the engine, with the same bytes."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compose.simulator.api import response_cache
from compose.simulator.api.response_cache import ResponseCache
from tests.compose.simulator.engine_series import value
from tests.support.simulator import simulator

MESSAGES = [{"role": "user", "content": "What is the capital of Singapore?"}]
CHAT: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "max_tokens": 8, "temperature": 0}
REQUESTS = [
    pytest.param("/v1/chat/completions", CHAT, id="chat"),
    pytest.param("/v1/chat/completions", CHAT | {"stream": True}, id="chat stream"),
    pytest.param("/v1/completions", {"prompt": "hello", "max_tokens": 8, "stream": True}, id="completions stream"),
    pytest.param("/v1/responses", {"input": "hello", "max_output_tokens": 8, "stream": True}, id="responses stream"),
    pytest.param("/v1/messages", {"model": "tiny", "messages": MESSAGES, "max_tokens": 8}, id="messages"),
]


@given(st.lists(st.tuples(st.sampled_from(["/a", "/b"]), st.binary(max_size=2), st.integers()), max_size=20))
def test_a_cache_finds_the_last_response_to_a_path_and_a_body(kept: list[tuple[str, bytes, int]]) -> None:
    cache, last = ResponseCache[int](), dict[tuple[str, bytes], int]()
    for path, body, response in kept:
        assert cache.find(path, body) == last.get((path, body))
        cache.keep(path, body, response)
        last[path, body] = response
    assert all(cache.find(*request) == response for request, response in last.items())


def test_a_full_cache_removes_the_oldest_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_cache, "CAPACITY", 2)
    cache = ResponseCache[int]()
    for number in range(3):
        cache.keep("/", bytes([number]), number)
    assert [cache.find("/", bytes([number])) for number in range(3)] == [None, 1, 2]


class Client:
    """A client of a simulator with a response cache."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, bytes, str]:
        async with self._session.post(path, json=body) as response:
            return response.status, await response.read(), response.headers["Content-Type"]

    async def generated(self) -> float:
        """The output tokens that the engine has counted."""
        return await value(self._session, "vllm:generation_tokens_total")


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with simulator(response_cache=True) as url, aiohttp.ClientSession(url) as session:
        yield Client(session)


@pytest.mark.parametrize("path, body", REQUESTS)
async def test_the_second_request_with_the_same_body_has_the_same_bytes_and_no_tokens_of_the_engine(
    client: Client, path: str, body: dict[str, Any]
) -> None:
    first = await client.post(path, body)
    assert first[0] == 200
    generated = await client.generated()
    assert generated > 0
    assert await client.post(path, body) == first
    assert await client.generated() == generated


async def test_a_stream_and_a_unary_request_have_entries_of_their_own(client: Client) -> None:
    _, unary, _ = await client.post("/v1/chat/completions", CHAT)
    generated = await client.generated()
    _, stream, kind = await client.post("/v1/chat/completions", CHAT | {"stream": True})
    assert await client.generated() > generated
    assert kind.startswith("text/event-stream")
    assert stream != unary
    assert stream.endswith(b"data: [DONE]\n\n")


async def test_an_error_is_not_kept(client: Client) -> None:
    for _ in range(2):
        status, body, _ = await client.post("/v1/chat/completions", CHAT | {"model": "other"})
        assert (status, b"does not exist" in body) == (404, True)


async def test_without_the_flag_every_request_reaches_the_engine() -> None:
    async with simulator() as url, aiohttp.ClientSession(url) as session:
        client = Client(session)
        await client.post("/v1/chat/completions", CHAT | {"ignore_eos": True})
        generated = await client.generated()
        await client.post("/v1/chat/completions", CHAT | {"ignore_eos": True})
        assert await client.generated() == 2 * generated
