"""The official clients of OpenAI and Anthropic through the sidecar: their token counts are those of log and series."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.support.sidecar_process import Running, sidecar
from tests.support.simulator import simulator
from tests.support.waiting import until

QUESTION = "Name three cities in Europe."
SYSTEM = "Answer briefly. " * 20
TOKENS = 8

Counts = tuple[int, int, int]
"""Prompt tokens, completion tokens and cached prompt tokens, as the client reads them."""


def openai_counts(usage: Any) -> Counts:
    return usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens_details.cached_tokens


def responses_counts(usage: Any) -> Counts:
    return usage.input_tokens, usage.output_tokens, usage.input_tokens_details.cached_tokens


def messages_counts(usage: Any) -> Counts:
    cached, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    return usage.input_tokens + cached + written, usage.output_tokens, cached


async def chat(url: str) -> Counts:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        messages: Any = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
        answer = await client.chat.completions.create(model="tiny", messages=messages, max_completion_tokens=TOKENS)
    return openai_counts(answer.usage)


async def chat_stream(url: str) -> Counts:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        messages: Any = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
        stream = await client.chat.completions.create(
            model="tiny", messages=messages, max_tokens=TOKENS, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert len("".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)) > TOKENS
    return openai_counts(chunks[-1].usage)


async def completions(url: str) -> Counts:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        answer = await client.completions.create(model="tiny", prompt=SYSTEM + QUESTION, max_tokens=TOKENS)
    return openai_counts(answer.usage)


async def responses(url: str) -> Counts:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        answer = await client.responses.create(
            model="tiny", instructions=SYSTEM, input=QUESTION, max_output_tokens=TOKENS
        )
    return responses_counts(answer.usage)


async def responses_stream(url: str) -> Counts:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        conversation: Any = [{"role": "user", "content": QUESTION}]
        async with client.responses.stream(
            model="tiny", instructions=SYSTEM, input=conversation, max_output_tokens=TOKENS
        ) as stream:
            numbers = [event.sequence_number async for event in stream]
            answer = await stream.get_final_response()
    assert numbers == list(range(len(numbers)))
    return responses_counts(answer.usage)


async def messages(url: str) -> Counts:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
        answer = await client.messages.create(
            model="tiny", system=SYSTEM, messages=[{"role": "user", "content": QUESTION}], max_tokens=TOKENS
        )
    return messages_counts(answer.usage)


async def messages_stream(url: str) -> Counts:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
        conversation: list[anthropic.types.MessageParam] = [{"role": "user", "content": QUESTION}]
        async with client.messages.stream(
            model="tiny", system=SYSTEM, messages=conversation, max_tokens=TOKENS
        ) as stream:
            texts = [text async for text in stream.text_stream]
            answer = await stream.get_final_message()
    assert len(texts) == TOKENS
    return messages_counts(answer.usage)


async def _total(running: Running, series: str) -> float:
    return sum(value for name, value in (await running.samples()).items() if name.startswith(f"{series}{{"))


@pytest.mark.parametrize(
    "request_of, endpoint, stream",
    [
        pytest.param(chat, "/v1/chat/completions", False, id="openai chat"),
        pytest.param(chat_stream, "/v1/chat/completions", True, id="openai chat stream"),
        pytest.param(completions, "/v1/completions", False, id="openai completions"),
        pytest.param(responses, "/v1/responses", False, id="openai responses"),
        pytest.param(responses_stream, "/v1/responses", True, id="openai responses stream"),
        pytest.param(messages, "/v1/messages", False, id="anthropic messages"),
        pytest.param(messages_stream, "/v1/messages", True, id="anthropic messages stream"),
    ],
)
async def test_the_clients_token_counts_are_those_of_the_log_and_of_the_series(
    tmp_path: Path, request_of: Callable[[str], Awaitable[Counts]], endpoint: str, *, stream: bool
) -> None:
    async with simulator("tiny") as engine, sidecar(tmp_path, engine) as running:
        counts = [await request_of(running.url) for _ in range(2)]
        await until(lambda: len(running.lines()) == 2)
        assert [
            (line["prompt_tokens"], line["completion_tokens"], line["cached_tokens"]) for line in running.lines()
        ] == counts
        assert counts[1][2] > 0  # the second prompt is in the prefix cache
        for line in running.lines():
            assert (line["endpoint"], line["stream"], line["outcome"], line["model"]) == (
                endpoint,
                stream,
                "ok",
                "tiny",
            )
            assert (line["ttft_ms"] is not None, line["slo"]) == (stream, {"availability": "good"})
        prompt, completion, cached = map(sum, zip(*counts, strict=True))
        await until(lambda: _has_counted(running, 2))
        assert await _total(running, "llm_prompt_tokens_total") == prompt
        assert await _total(running, "llm_completion_tokens_total") == completion
        assert await _total(running, "llm_cached_prompt_tokens_total") == cached


async def _has_counted(running: Running, requests: int) -> bool:
    return await _total(running, "llm_requests_total") == requests


async def test_the_clients_get_the_engines_errors_unchanged(tmp_path: Path) -> None:
    async with simulator("tiny") as engine, sidecar(tmp_path, engine) as running:
        async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client:
            with pytest.raises(openai.NotFoundError, match="The model `nope` does not exist"):
                await client.responses.create(model="nope", input=QUESTION)
        async with anthropic.AsyncAnthropic(base_url=running.url, api_key="none", max_retries=0) as claude:
            counted = await claude.messages.count_tokens(
                model="tiny", system=SYSTEM, messages=[{"role": "user", "content": QUESTION}]
            )
            assert counted.input_tokens > TOKENS
            with pytest.raises(anthropic.NotFoundError, match="The model `nope` does not exist"):
                await claude.messages.create(
                    model="nope", messages=[{"role": "user", "content": QUESTION}], max_tokens=TOKENS
                )
        await until(lambda: len(running.lines()) == 3)
        assert [(line["endpoint"], line["outcome"]) for line in running.lines()] == [
            ("/v1/responses", "client_error"),
            ("/v1/messages/count_tokens", "ok"),
            ("/v1/messages", "client_error"),
        ]
