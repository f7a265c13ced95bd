"""Embeddings, tokenize and detokenize of the simulator over a real socket."""

import base64
import json
import struct
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from compose.simulator.api.one_answer import DIMENSIONS
from tests.compose.simulator.engine_series import value
from tests.support.simulator import simulator

Client = aiohttp.ClientSession


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with simulator("tiny", max_num_seqs=1) as url, Client(url) as session:
        yield session


async def post(client: Client, path: str, body: Any) -> tuple[int, Any]:
    async with client.post(path, json=body) as response:
        return response.status, json.loads(await response.read())


@pytest.mark.parametrize(
    "given, sizes",
    [
        pytest.param("hello", [2], id="a text"),
        pytest.param(["hello", "hello", "hi"], [2, 2, 1], id="texts"),
        pytest.param([1, 2, 3], [3], id="token ids"),
        pytest.param([[1, 2, 3], [4]], [3, 1], id="lists of token ids"),
    ],
)
async def test_each_input_is_a_request_to_the_engine_and_has_its_embedding(
    client: Client, given: Any, sizes: list[int]
) -> None:
    status, body = await post(client, "/v1/embeddings", {"model": "tiny", "input": given})
    assert (status, body["object"], body["model"]) == (200, "list", "tiny")
    assert [each["index"] for each in body["data"]] == list(range(len(sizes)))
    assert {len(each["embedding"]) for each in body["data"]} == {DIMENSIONS}
    tokens = sum(sizes)
    assert body["usage"] == {
        "prompt_tokens": tokens,
        "total_tokens": tokens,
        "completion_tokens": 0,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }
    assert await value(client, "vllm:prompt_tokens_total") == tokens
    assert await value(client, "vllm:generation_tokens_total") == 0
    assert await value(client, "vllm:request_success_total") == len(sizes)
    assert await value(client, "vllm:request_generation_tokens_sum") == 0


async def test_equal_inputs_have_equal_embeddings_in_both_encodings(client: Client) -> None:
    _, body = await post(client, "/v1/embeddings", {"input": ["a", "a", "b"]})
    first, second, other = (each["embedding"] for each in body["data"])
    assert first == second != other
    _, encoded = await post(client, "/v1/embeddings", {"input": "a", "encoding_format": "base64"})
    values = struct.unpack(f"<{DIMENSIONS}f", base64.b64decode(encoded["data"][0]["embedding"]))
    assert values == pytest.approx(first)


@pytest.mark.parametrize(
    "path, body, status",
    [
        pytest.param("/v1/embeddings", {"model": "nope", "input": "a"}, 404, id="another model"),
        pytest.param("/v1/embeddings", {"model": "tiny"}, 400, id="no input"),
        pytest.param("/v1/embeddings", {"input": ["a", ""]}, 400, id="an empty input"),
        pytest.param("/v1/embeddings", {"input": [1, "a"]}, 400, id="mixed input"),
        pytest.param("/v1/embeddings", {"input": [7] * 4097}, 400, id="more than the context"),
        pytest.param("/tokenize", {"prompt": 5}, 400, id="no text"),
        pytest.param("/detokenize", {"tokens": ["a"]}, 400, id="no tokens"),
    ],
)
async def test_an_invalid_request_is_rejected(client: Client, path: str, body: Any, status: int) -> None:
    assert (await post(client, path, body))[0] == status
    assert await value(client, "vllm:prompt_tokens_total") == 0


async def test_tokens_are_those_of_a_completion_and_have_their_text(client: Client) -> None:
    _, tokenized = await post(client, "/tokenize", {"model": "tiny", "prompt": "hello you"})
    assert (tokenized["count"], len(tokenized["tokens"]), tokenized["max_model_len"]) == (3, 3, 4096)
    _, completion = await post(client, "/v1/completions", {"prompt": "hello you", "max_tokens": 1})
    assert completion["usage"]["prompt_tokens"] == 3
    assert (await post(client, "/detokenize", {"tokens": tokenized["tokens"]}))[1] == {"prompt": "hello you"}
    messages = {"messages": [{"role": "user", "content": "hello"}]}
    _, chat = await post(client, "/v1/chat/completions", {**messages, "max_tokens": 1})
    assert (await post(client, "/tokenize", messages))[1]["count"] == chat["usage"]["prompt_tokens"]
