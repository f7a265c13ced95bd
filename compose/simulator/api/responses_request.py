"""Parses the body of a Responses request, with vLLM's error messages."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
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
    text_of,
)
from compose.simulator.engine.structured_completion import responses_output
from compose.simulator.engine.tokenizer import encode_chat

# What vLLM says about requests that need stored responses, unless VLLM_ENABLE_RESPONSES_API_STORE is set.
_NOT_STORED = "background can only be used when `store` is true (parameter=background)"
_NO_BACKGROUND = (
    "This vLLM engine does not support `store=True` and therefore does not support the background mode. To enable "
    "these features, set the environment variable `VLLM_ENABLE_RESPONSES_API_STORE=1` when launching the vLLM server."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesRequest(EngineRequest):
    """One accepted request; the response repeats most fields of `body`."""

    body: Mapping[str, Any]


def parse_responses(raw_body: Any, served: ServedModel) -> ResponsesRequest:
    """The request in a JSON body.

    Raises:
        RequestError: the body is invalid, or the response would have to be stored.
    """
    body = fields(raw_body)
    if not body.get("tools"):
        body = {**body, "tool_choice": "none"}
    background = boolean(body, "background")
    if background and body.get("store", True) is not True:
        raise RequestError(_NOT_STORED, param="background")
    messages = [*_instructions(body), *_input(required(body, "input"))]
    limit = parsed_integer(body, "max_output_tokens")
    stream = boolean(body, "stream")
    served.check_name(body)
    if background:
        raise RequestError(_NO_BACKGROUND, param="background", kind="invalid_request_error")
    if body.get("previous_response_id") is not None:
        raise response_not_found(str(body["previous_response_id"]))
    prompt = encode_chat(messages)
    max_tokens = served.max_tokens(len(prompt), limit, "max_output_tokens")
    completion = served.draw(body, max_tokens, responses_output(body))
    return ResponsesRequest(prompt=prompt, max_tokens=max_tokens, completion=completion, stream=stream, body=body)


def response_not_found(response_id: str) -> RequestError:
    """The error of every request that names a response, because none is stored."""
    return RequestError(
        f"Response with id '{response_id}' not found.", param="response_id", code=404, kind="invalid_request_error"
    )


def _instructions(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    text = body.get("instructions")
    if text is not None and not isinstance(text, str):
        raise FieldError("string_type", "instructions", "Input should be a valid string", text)
    return [("system", text)] if text else []


def _input(given: Any) -> list[tuple[str, str]]:
    if isinstance(given, str):
        return [("user", given)]
    if not isinstance(given, list):
        raise FieldError("string_type", "input", "Input should be a valid string", given)
    return [_item(item) for item in given]


def _item(item: Any) -> tuple[str, str]:
    """The role and the text of an item: a message, reasoning, a tool call or its output."""
    if not isinstance(item, dict):
        raise FieldError("string_type", "input", "Input should be a valid string", [item])
    match item.get("type", "message"):
        case "message":
            text = text_of(item.get("content"))
            if text is None or not isinstance(item.get("role"), str):
                raise FieldError("string_type", "input", "Input should be a valid string", [item])
            return item["role"], text
        case "function_call_output":
            return "tool", text_of(item.get("output")) or ""
        case "reasoning":
            return "assistant", text_of(item.get("content")) or ""
        case _:
            return "assistant", json.dumps(item)
