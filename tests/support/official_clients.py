"""Requests of the official clients of OpenAI and Anthropic to the model `tiny`, and the token counts that they read."""

import json
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

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome", "Lima"]}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOL_TOKENS = 400
"""Room for the arguments, in which a model with random weights may write many spaces."""

_FUNCTION = {"name": "get_weather", "description": "The weather in a city.", "parameters": SCHEMA}
_CHAT_TOOLS: Any = {
    "messages": [{"role": "user", "content": QUESTION}],
    "tools": [{"type": "function", "function": _FUNCTION}],
    "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
}
_RESPONSES_TOOLS: Any = {
    "input": QUESTION,
    "tools": [{"type": "function", "strict": True, **_FUNCTION}],
    "tool_choice": {"type": "function", "name": "get_weather"},
}
_MESSAGES_TOOLS: Any = {
    "messages": [{"role": "user", "content": QUESTION}],
    "tools": [{"name": "get_weather", "description": "The weather in a city.", "input_schema": SCHEMA}],
    "tool_choice": {"type": "tool", "name": "get_weather"},
}
_FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA}}

Answer = tuple[str, Counts]
"""The arguments of the only tool call, or the text, and the counts."""


async def chat_tool(url: str) -> Answer:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        answer = await client.chat.completions.create(model="tiny", max_tokens=TOOL_TOKENS, **_CHAT_TOOLS)
    (call,) = answer.choices[0].message.tool_calls
    return call.function.arguments, openai_counts(answer.usage)


async def chat_tool_stream(url: str) -> Answer:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        stream = await client.chat.completions.create(
            model="tiny", max_tokens=TOOL_TOKENS, stream=True, stream_options={"include_usage": True}, **_CHAT_TOOLS
        )
        chunks = [chunk async for chunk in stream]
    calls = [call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or ()]
    assert {call.index for call in calls} == {0}
    return "".join(call.function.arguments or "" for call in calls), openai_counts(chunks[-1].usage)


async def chat_json(url: str) -> Answer:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        answer = await client.chat.completions.create(
            model="tiny",
            max_tokens=TOOL_TOKENS,
            messages=[{"role": "user", "content": QUESTION}],
            response_format=_FORMAT,
        )
    return answer.choices[0].message.content or "", openai_counts(answer.usage)


async def responses_tool(url: str) -> Answer:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        answer = await client.responses.create(model="tiny", max_output_tokens=TOOL_TOKENS, **_RESPONSES_TOOLS)
    (item,) = answer.output
    return item.arguments, responses_counts(answer.usage)


async def responses_tool_stream(url: str) -> Answer:
    async with (
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        client.responses.stream(model="tiny", max_output_tokens=TOOL_TOKENS, **_RESPONSES_TOOLS) as stream,
    ):
        events: list[Any] = [event async for event in stream]
        answer = await stream.get_final_response()
    (item,) = answer.output
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert item.type == "function_call"
    assert "".join(deltas) == item.arguments
    return item.arguments, responses_counts(answer.usage)


async def messages_tool(url: str) -> Answer:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
        answer = await client.messages.create(model="tiny", max_tokens=TOOL_TOKENS, **_MESSAGES_TOOLS)
    (block,) = answer.content
    return json.dumps(block.input), messages_counts(answer.usage)


async def messages_tool_stream(url: str) -> Answer:
    async with (
        anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client,
        client.messages.stream(model="tiny", max_tokens=TOOL_TOKENS, **_MESSAGES_TOOLS) as stream,
    ):
        pieces = [event.partial_json async for event in stream if event.type == "input_json"]
        answer = await stream.get_final_message()
    (block,) = answer.content
    assert block.type == "tool_use"
    assert json.loads("".join(pieces)) == block.input
    return json.dumps(block.input), messages_counts(answer.usage)


STRUCTURED: dict[str, tuple[Callable[[str], Awaitable[Answer]], str, bool, str]] = {
    "openai chat tool": (chat_tool, "/v1/chat/completions", False, "tool_call"),
    "openai chat tool stream": (chat_tool_stream, "/v1/chat/completions", True, "tool_call"),
    "openai chat json": (chat_json, "/v1/chat/completions", False, "json_schema"),
    "openai responses tool": (responses_tool, "/v1/responses", False, "tool_call"),
    "openai responses tool stream": (responses_tool_stream, "/v1/responses", True, "tool_call"),
    "anthropic messages tool": (messages_tool, "/v1/messages", False, "tool_call"),
    "anthropic messages tool stream": (messages_tool_stream, "/v1/messages", True, "tool_call"),
}
"""As REQUESTS, for structured output, with its kind."""
