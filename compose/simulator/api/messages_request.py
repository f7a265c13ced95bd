"""Parses the bodies of Messages and count_tokens requests, with vLLM's error messages."""

import json
from collections.abc import Mapping
from typing import Any

from compose.simulator.engine.request import (
    EngineRequest,
    FieldError,
    RequestError,
    ServedModel,
    boolean,
    fields,
    parsed_integer,
    required,
)
from compose.simulator.engine.structured_completion import messages_output
from compose.simulator.engine.tokenizer import encode_chat

_ROLES = "'user', 'assistant' or 'system'"


def parse_messages(raw_body: Any, served: ServedModel) -> EngineRequest:
    """The request in a JSON body.

    Raises:
        RequestError: the body is invalid.
    """
    body = fields(raw_body)
    messages = _messages(body)
    required(body, "max_tokens")
    limit = parsed_integer(body, "max_tokens")
    if limit is not None and limit <= 0:
        error = ValueError("max_tokens must be positive")
        raise FieldError("value_error", "max_tokens", f"Value error, {error}", limit, {"error": error})
    stream = boolean(body, "stream")
    prompt = _prompt(messages, body, served)
    # The name is that of the chat request that it becomes.
    max_tokens = served.max_tokens(len(prompt), limit, "max_completion_tokens")
    completion = served.draw(body, max_tokens, messages_output(body))
    return EngineRequest(prompt=prompt, max_tokens=max_tokens, completion=completion, stream=stream)


def count_tokens(raw_body: Any, served: ServedModel) -> int:
    """The number of prompt tokens of a count_tokens request.

    Raises:
        RequestError: the body is invalid, or the prompt exceeds the context.
    """
    body = fields(raw_body)
    prompt = _prompt(_messages(body), body, served)
    served.check_prompt(len(prompt))
    return len(prompt)


def _messages(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    required(body, "model")
    given = required(body, "messages")
    if not isinstance(given, list):
        raise FieldError("list_type", "messages", "Input should be a valid list", given)
    return [turn for place, message in enumerate(given) for turn in _turns(place, message)]


def _prompt(messages: list[tuple[str, str]], body: Mapping[str, Any], served: ServedModel) -> list[int]:
    served.check_name(body)
    system = body.get("system")
    text = system if isinstance(system, str) else _joined(system, "")
    if not messages and not text:
        raise RequestError(
            "Cannot apply chat template to an empty conversation. Provide at least one message.", param=None
        )
    return encode_chat([("system", text), *messages] if text else messages)


def _turns(place: int, message: Any) -> list[tuple[str, str]]:
    """The messages of the chat template: each result of a tool is one of its own, before the text."""
    if not isinstance(message, dict):
        raise FieldError("model_attributes_type", f"messages.{place}", "Input should be a valid dictionary", message)
    role = message.get("role")
    if role not in ("user", "assistant", "system"):  # a tuple, because a list cannot be looked up in a set
        text = f"Input should be {_ROLES}"
        raise FieldError("literal_error", f"messages.{place}.role", text, role, {"expected": _ROLES})
    content = message.get("content")
    if isinstance(content, str):
        return [(role, content)]
    if not isinstance(content, list):
        raise FieldError("string_type", f"messages.{place}.content", "Input should be a valid string", content)
    results = [("tool", _text(block)) for block in content if _is_result(block)]
    texts = [_text(block) for block in content if not _is_result(block)]
    return [*results, (role, "".join(texts))] if texts else results


def _is_result(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _text(block: Any) -> str:
    """The text of a content block; images count no tokens."""
    if not isinstance(block, dict):
        return ""
    match block.get("type"):
        case "text":
            return str(block.get("text") or "")
        case "thinking":
            return str(block.get("thinking") or "")
        case "tool_use":
            return json.dumps({"name": block.get("name"), "arguments": block.get("input")})
        case "tool_result":
            content = block.get("content")
            return content if isinstance(content, str) else _joined(content, "\n")
        case _:
            return ""


def _joined(blocks: Any, separator: str) -> str:
    return separator.join(_text(block) for block in blocks) if isinstance(blocks, list) else ""
