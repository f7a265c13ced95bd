"""Requests of the official clients of OpenAI and Anthropic to the model `tiny`, and the token counts that they read."""

import json
from collections.abc import Awaitable, Callable
from functools import partial
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
TOOL_TOKENS = 2000
"""Room for the arguments, in which a model with random weights may write many spaces."""

_FUNCTION = {"name": "get_weather", "description": "The weather in a city.", "parameters": SCHEMA, "strict": True}
_CHAT: Any = {"model": "tiny", "max_tokens": TOOL_TOKENS, "messages": [{"role": "user", "content": QUESTION}]}
_CHAT_TOOLS: Any = {**_CHAT, "tools": [{"type": "function", "function": _FUNCTION}]}
_CHAT_TOOL: Any = {**_CHAT_TOOLS, "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
_CHAT_REQUIRED: Any = {**_CHAT_TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
_CHAT_JSON: Any = {
    **_CHAT,
    "response_format": {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA}},
}
_RESPONSES: Any = {"model": "tiny", "max_output_tokens": TOOL_TOKENS, "input": QUESTION}
_RESPONSES_TOOLS: Any = {**_RESPONSES, "tools": [{"type": "function", **_FUNCTION}]}
_RESPONSES_TOOL: Any = {**_RESPONSES_TOOLS, "tool_choice": {"type": "function", "name": "get_weather"}}
_RESPONSES_REQUIRED: Any = {**_RESPONSES_TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
_RESPONSES_JSON: Any = {**_RESPONSES, "text": {"format": {"type": "json_schema", "name": "weather", "schema": SCHEMA}}}
_MESSAGES: Any = {"model": "tiny", "max_tokens": TOOL_TOKENS, "messages": [{"role": "user", "content": QUESTION}]}
_MESSAGES_TOOLS: Any = {
    **_MESSAGES,
    "tools": [{"name": "get_weather", "description": "The weather.", "input_schema": SCHEMA, "strict": True}],
}
_MESSAGES_TOOL: Any = {**_MESSAGES_TOOLS, "tool_choice": {"type": "tool", "name": "get_weather"}}
_MESSAGES_REQUIRED: Any = {**_MESSAGES_TOOLS, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
_MESSAGES_JSON: Any = {**_MESSAGES, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}

Answer = tuple[str, Counts]
"""The arguments of the only tool call, or the text, and the counts."""


async def _chat(fields: Any, url: str) -> Answer:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        answer = await client.chat.completions.create(**fields)
    message = answer.choices[0].message
    if "tools" in fields:
        (call,) = message.tool_calls
        return call.function.arguments, openai_counts(answer.usage)
    return message.content, openai_counts(answer.usage)


async def _chat_stream(fields: Any, url: str) -> Answer:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        stream = await client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **fields)
        chunks = [chunk async for chunk in stream]
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    calls = [call for delta in deltas for call in delta.tool_calls or ()]
    assert {call.index for call in calls} == ({0} if "tools" in fields else set())
    pieces = [call.function.arguments for call in calls] or [delta.content for delta in deltas]
    return "".join(filter(None, pieces)), openai_counts(chunks[-1].usage)


async def _responses(fields: Any, url: str) -> Answer:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        answer = await client.responses.create(**fields)
    (item,) = answer.output
    text = item.arguments if "tools" in fields else answer.output_text
    return text, responses_counts(answer.usage)


async def _responses_stream(fields: Any, url: str) -> Answer:
    async with (
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        client.responses.stream(**fields) as stream,
    ):
        events: list[Any] = [event async for event in stream]
        answer = await stream.get_final_response()
    (item,) = answer.output
    assert item.type == ("function_call" if "tools" in fields else "message")
    text = item.arguments if item.type == "function_call" else answer.output_text
    assert "".join(event.delta for event in events if event.type.endswith(".delta")) == text
    return text, responses_counts(answer.usage)


async def _messages(fields: Any, url: str) -> Answer:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
        answer = await client.messages.create(**fields)
    (block,) = answer.content
    text = json.dumps(block.input) if "tools" in fields else block.text
    return text, messages_counts(answer.usage)


async def _messages_stream(fields: Any, url: str) -> Answer:
    async with (
        anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client,
        client.messages.stream(**fields) as stream,
    ):
        events: list[Any] = [event async for event in stream]
        answer = await stream.get_final_message()
    (block,) = answer.content
    if block.type == "text":
        assert "".join(event.text for event in events if event.type == "text") == block.text
        return block.text, messages_counts(answer.usage)
    assert block.type == "tool_use"
    assert json.loads("".join(event.partial_json for event in events if event.type == "input_json")) == block.input
    return json.dumps(block.input), messages_counts(answer.usage)


_APIS: dict[str, tuple[str, Any, Any, Any, Any, Any]] = {
    "openai chat": ("/v1/chat/completions", _chat, _chat_stream, _CHAT_TOOL, _CHAT_REQUIRED, _CHAT_JSON),
    "openai responses": (
        "/v1/responses",
        _responses,
        _responses_stream,
        _RESPONSES_TOOL,
        _RESPONSES_REQUIRED,
        _RESPONSES_JSON,
    ),
    "anthropic messages": (
        "/v1/messages",
        _messages,
        _messages_stream,
        _MESSAGES_TOOL,
        _MESSAGES_REQUIRED,
        _MESSAGES_JSON,
    ),
}

STRUCTURED: dict[str, tuple[Callable[[str], Awaitable[Answer]], str, bool, str]] = {
    f"{api} {what}{' stream' if streams else ''}": (partial(send, fields), path, streams, kind)
    for api, (path, unary, stream, tool, required, schema) in _APIS.items()
    for what, kind, fields in (
        ("tool", "tool_call", tool),
        ("required tool", "tool_call", required),
        ("json", "json_schema", schema),
    )
    for streams, send in ((False, unary), (True, stream))
}
"""As REQUESTS, for structured output, with its kind."""
