"""Parses the body of a chat or a completions request, with vLLM's error messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from compose.simulator.engine.request import (
    EngineRequest,
    RequestError,
    ServedModel,
    boolean,
    fields,
    integer,
    parsed_integer,
    text_of,
)
from compose.simulator.engine.structured_completion import chat_output
from compose.simulator.engine.tokenizer import encode, encode_chat

COMPLETIONS_MAX_TOKENS = 16
"""The default max_tokens of the completions endpoint; the default for chat is the rest of the context length."""


class Endpoint(Enum):
    """The prefix of the ids of each endpoint."""

    CHAT = "chatcmpl"
    COMPLETIONS = "cmpl"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest(EngineRequest):
    """One accepted request."""

    endpoint: Endpoint
    include_usage: bool


def parse_request(endpoint: Endpoint, raw_body: Any, served: ServedModel) -> CompletionRequest:
    """The request in a JSON body.

    Raises:
        RequestError: the body is invalid.
    """
    body = fields(raw_body)
    served.check_name(body)
    if integer(body, "n", least=1) not in {None, 1}:
        raise RequestError("the simulator supports n=1 only", param="n")
    prompt = chat_prompt(body) if endpoint is Endpoint.CHAT else _prompt(body)
    max_tokens = _max_tokens(endpoint, body, prompt, served)
    completion = served.draw(body, max_tokens, chat_output(body))
    stream = boolean(body, "stream")
    options = body.get("stream_options")
    if options is not None and not stream:
        raise RequestError("Stream options can only be defined when `stream=True`.", param="stream_options")
    if options is not None and not isinstance(options, dict):
        raise RequestError("stream_options must be an object", param="stream_options")
    return CompletionRequest(
        endpoint=endpoint,
        prompt=prompt,
        max_tokens=max_tokens,
        completion=completion,
        stream=stream,
        priority=parsed_integer(body, "priority") or 0,
        include_usage=boolean(options or {}, "include_usage"),
    )


def _max_tokens(endpoint: Endpoint, body: Mapping[str, Any], prompt: list[int], served: ServedModel) -> int:
    name = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    limit = integer(body, name, least=1)
    if limit is None and endpoint is Endpoint.COMPLETIONS:
        limit = min(COMPLETIONS_MAX_TOKENS, served.max_model_len)
    return served.max_tokens(len(prompt), limit, name)


def chat_prompt(body: Mapping[str, Any]) -> list[int]:
    """The tokens of `messages`.

    Raises:
        RequestError: they are invalid.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages must be a list of at least one message", param="messages")
    return encode_chat(_message(message) for message in messages)


def _message(message: Any) -> tuple[str, str]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError("each of messages must be an object with a role", param="messages")
    content = message.get("content")
    text = "" if content is None else text_of(content)
    if text is None:
        raise RequestError("the content of a message must be a string or a list of parts", param="messages")
    return message["role"], text


def _prompt(body: Mapping[str, Any]) -> list[int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return encode(prompt)
    if isinstance(prompt, list) and prompt and all(type(token) is int and token >= 0 for token in prompt):
        return prompt
    raise RequestError(
        "prompt must be a non-empty string or list of token ids; the simulator does not support batches",
        param="prompt",
    )
