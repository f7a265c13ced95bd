"""Requests of the official clients of OpenAI and Anthropic to the model `tiny`, and the token counts that they read."""

from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import openai

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
    assert "".join(texts) == "".join(block.text for block in answer.content if block.type == "text")
    return messages_counts(answer.usage)


async def embeddings(url: str) -> int:
    """Prompt tokens of two inputs, as the client reads them."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        answer = await client.embeddings.create(model="tiny", input=[QUESTION, SYSTEM])
    assert [len(each.embedding) > 1 for each in answer.data] == [True, True]
    assert answer.usage.total_tokens == answer.usage.prompt_tokens
    return answer.usage.prompt_tokens


REQUESTS: dict[str, tuple[Callable[[str], Awaitable[Counts]], str, bool]] = {
    "openai chat": (chat, "/v1/chat/completions", False),
    "openai chat stream": (chat_stream, "/v1/chat/completions", True),
    "openai completions": (completions, "/v1/completions", False),
    "openai responses": (responses, "/v1/responses", False),
    "openai responses stream": (responses_stream, "/v1/responses", True),
    "anthropic messages": (messages, "/v1/messages", False),
    "anthropic messages stream": (messages_stream, "/v1/messages", True),
}
"""A function that sends a request to the URL of a server, the endpoint, and whether it streams; by name."""
