"""Parses an OpenAI request body, with vLLM's error messages."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from compose.simulator.completion import Completion, draw_completion
from compose.simulator.tokenizer import encode, encode_chat

COMPLETIONS_MAX_TOKENS = 16
"""The default max_tokens of the completions endpoint; the default for chat is the rest of the context length."""


class Endpoint(Enum):
    """The prefix of the ids of each endpoint."""

    CHAT = "chatcmpl"
    COMPLETIONS = "cmpl"


class RequestError(Exception):
    """A request is rejected with this body and status."""

    def __init__(self, message: str, *, param: str | None, code: int = 400, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.code = code
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """One accepted request."""

    endpoint: Endpoint
    prompt: list[int]
    max_tokens: int
    completion: Completion
    stream: bool
    include_usage: bool


def parse_request(
    endpoint: Endpoint, body: Any, *, model: str, max_model_len: int, rng: random.Random
) -> CompletionRequest:
    """The request in `body`; `rng` is used once, unless the body has a `seed`.

    Raises:
        RequestError: the body is invalid.
    """
    if not isinstance(body, dict):
        raise RequestError("the request body must be a JSON object", param=None)
    name = body.get("model")
    if name is not None and name != model:
        raise RequestError(
            f"The model `{name}` does not exist. Valid aliases: {model}.",
            param="model",
            code=404,
            kind="NotFoundError",
        )
    if _integer(body, "n", least=1) not in {None, 1}:
        raise RequestError("the simulator supports n=1 only", param="n")
    prompt = _chat(body) if endpoint is Endpoint.CHAT else _prompt(body)
    max_tokens = _max_tokens(endpoint, body, prompt=len(prompt), max_model_len=max_model_len)
    seed = body.get("seed")
    completion = draw_completion(
        random.Random(seed) if isinstance(seed, int) else rng,  # noqa: S311 - a model, not a secret
        max_tokens=max_tokens,
        min_tokens=_integer(body, "min_tokens", least=0) or 0,
        ignore_eos=_boolean(body, "ignore_eos"),
    )
    stream = _boolean(body, "stream")
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
        include_usage=_boolean(options or {}, "include_usage"),
    )


def _max_tokens(endpoint: Endpoint, body: Mapping[str, Any], *, prompt: int, max_model_len: int) -> int:
    name = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    default = max_model_len - prompt if endpoint is Endpoint.CHAT else min(COMPLETIONS_MAX_TOKENS, max_model_len)
    limit = _integer(body, name, least=1)
    if limit is not None and limit > max_model_len:
        raise RequestError(
            f"{name}={limit} cannot be greater than max_model_len={max_model_len}. Please request fewer output tokens. "
            f"(parameter={name}, value={limit})",
            param=name,
        )
    if prompt + (limit or 1) > max_model_len:
        raise RequestError(
            f"This model's maximum context length is {max_model_len} tokens. However, you requested {limit or 0} "
            f"output tokens and your prompt contains at least {prompt} input tokens, for a total of at least "
            f"{prompt + (limit or 1)} tokens. Please reduce the length of the input prompt or the number of requested "
            f"output tokens. (parameter=input_tokens, value={prompt})",
            param="input_tokens",
        )
    return min(limit or default, max_model_len - prompt)


def _chat(body: Mapping[str, Any]) -> list[int]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages must be a list of at least one message", param="messages")
    return encode_chat(_message(message) for message in messages)


def _message(message: Any) -> tuple[str, str]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError("each of messages must be an object with a role", param="messages")
    content = message.get("content")
    if isinstance(content, list):  # text parts count, images and audio do not
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    if content is not None and not isinstance(content, str):
        raise RequestError("the content of a message must be a string or a list of parts", param="messages")
    return message["role"], content or ""


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


def _boolean(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise RequestError(f"{name} must be true or false, not {value!r}", param=name)
    return bool(value)


def _integer(body: Mapping[str, Any], name: str, *, least: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not int or value < least:
        raise RequestError(f"{name} must be a whole number from {least}, not {value!r}", param=name)
    return value
