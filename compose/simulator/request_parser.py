"""Reads an OpenAI request body into what the engine needs, or refuses it in vLLM's words."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from compose.simulator.tokenizer import Answer, draw_answer, encode, encode_chat

COMPLETIONS_MAX_TOKENS = 16
"""What the completions endpoint takes for a missing max_tokens; chat goes on to the model's length."""


class Endpoint(Enum):
    """What differs between the two: id prefix, object names."""

    CHAT = ("chatcmpl", "chat.completion")
    COMPLETIONS = ("cmpl", "text_completion")


class Refusal(Exception):  # noqa: N818 - the client's mistake, not ours
    """An error body and its status."""

    def __init__(self, message: str, *, param: str | None, code: int = 400, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.code = code
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One accepted request."""

    endpoint: Endpoint
    prompt: list[int]
    max_tokens: int
    answer: Answer
    stream: bool
    include_usage: bool


def read(endpoint: Endpoint, body: Any, *, model: str, max_model_len: int, rng: random.Random) -> Ask:
    """The request in `body`; `rng` is drawn from once, unless the body brings its own `seed`."""
    if not isinstance(body, dict):
        raise Refusal("the request body must be a JSON object", param=None)
    asked = body.get("model")
    if asked is not None and asked != model:
        raise Refusal(
            f"The model `{asked}` does not exist. Valid aliases: {model}.",
            param="model",
            code=404,
            kind="NotFoundError",
        )
    if _whole(body, "n", least=1) not in {None, 1}:
        raise Refusal("the simulator gives one choice a request, so n must be 1", param="n")
    prompt = _chat(body) if endpoint is Endpoint.CHAT else _prompt(body)
    max_tokens = _max_tokens(endpoint, body, prompt=len(prompt), max_model_len=max_model_len)
    seed = body.get("seed")
    answer = draw_answer(
        random.Random(seed) if isinstance(seed, int) else rng,  # noqa: S311 - a model, no secret
        max_tokens=max_tokens,
        min_tokens=_whole(body, "min_tokens", least=0) or 0,
        ignore_eos=_switch(body, "ignore_eos"),
    )
    stream = _switch(body, "stream")
    options = body.get("stream_options")
    if options is not None and not stream:
        raise Refusal("Stream options can only be defined when `stream=True`.", param="stream_options")
    if options is not None and not isinstance(options, dict):
        raise Refusal("stream_options must be an object", param="stream_options")
    return Ask(
        endpoint=endpoint,
        prompt=prompt,
        max_tokens=max_tokens,
        answer=answer,
        stream=stream,
        include_usage=_switch(options or {}, "include_usage"),
    )


def _max_tokens(endpoint: Endpoint, body: Mapping[str, Any], *, prompt: int, max_model_len: int) -> int:
    name = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    default = max_model_len - prompt if endpoint is Endpoint.CHAT else min(COMPLETIONS_MAX_TOKENS, max_model_len)
    asked = _whole(body, name, least=1)
    if asked is not None and asked > max_model_len:
        raise Refusal(
            f"{name}={asked} cannot be greater than max_model_len={max_model_len}. Please request fewer output tokens. "
            f"(parameter={name}, value={asked})",
            param=name,
        )
    if prompt + (asked or 1) > max_model_len:
        raise Refusal(
            f"This model's maximum context length is {max_model_len} tokens. However, you requested {asked or 0} "
            f"output tokens and your prompt contains at least {prompt} input tokens, for a total of at least "
            f"{prompt + (asked or 1)} tokens. Please reduce the length of the input prompt or the number of requested "
            f"output tokens. (parameter=input_tokens, value={prompt})",
            param="input_tokens",
        )
    return min(asked or default, max_model_len - prompt)


def _chat(body: Mapping[str, Any]) -> list[int]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refusal("messages must be a list of at least one message", param="messages")
    return encode_chat(_message(message) for message in messages)


def _message(message: Any) -> tuple[str, str]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise Refusal("each of messages must be an object with a role", param="messages")
    content = message.get("content")
    if isinstance(content, list):  # parts: text counts, images and audio do not
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    if content is not None and not isinstance(content, str):
        raise Refusal("the content of a message must be a string or a list of parts", param="messages")
    return message["role"], content or ""


def _prompt(body: Mapping[str, Any]) -> list[int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return encode(prompt)
    if isinstance(prompt, list) and prompt and all(type(token) is int and token >= 0 for token in prompt):
        return prompt
    raise Refusal(
        "prompt must be one string or one list of token ids, and not empty; the simulator takes no batches",
        param="prompt",
    )


def _switch(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise Refusal(f"{name} must be true or false, not {value!r}", param=name)
    return bool(value)


def _whole(body: Mapping[str, Any], name: str, *, least: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not int or value < least:
        raise Refusal(f"{name} must be a whole number from {least}, not {value!r}", param=name)
    return value
