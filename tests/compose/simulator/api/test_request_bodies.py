"""Bodies of Responses, Messages and count_tokens requests; the recorded rejections are in tests/contract."""

import contextlib
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compose.simulator.api.chat_request import Endpoint, parse_request
from compose.simulator.api.messages_format import error_body
from compose.simulator.api.messages_request import count_tokens, parse_messages
from compose.simulator.api.responses_request import parse_responses
from compose.simulator.engine.request import FieldError, RequestError, ServedModel
from compose.simulator.engine.tokenizer import encode_chat

SERVED = ServedModel("tiny", 2048, random.Random(0))  # noqa: S311 - no secret
CALL = {"type": "function_call", "call_id": "c", "name": "get", "arguments": "{}"}


@pytest.mark.parametrize(
    "given, messages",
    [
        pytest.param("hi", [("user", "hi")], id="a string"),
        pytest.param([{"role": "user", "content": "hi"}], [("user", "hi")], id="a message without a type"),
        pytest.param(
            [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "h"}, {"text": "i"}]}],
            [("user", "hi")],
            id="parts of text",
        ),
        pytest.param(
            [{"type": "function_call_output", "call_id": "c", "output": "42"}], [("tool", "42")], id="output of a tool"
        ),
        pytest.param(
            [{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "so"}]}],
            [("assistant", "so")],
            id="reasoning",
        ),
        pytest.param(
            [CALL],
            [("assistant", '{"type": "function_call", "call_id": "c", "name": "get", "arguments": "{}"}')],
            id="a tool call",
        ),
        pytest.param([], [], id="an empty list"),
    ],
)
def test_the_input_of_a_responses_request_is_a_conversation(given: Any, messages: list[tuple[str, str]]) -> None:
    assert parse_responses({"input": given}, SERVED).prompt == encode_chat(messages)


@pytest.mark.parametrize(
    "content, turns",
    [
        pytest.param("hi", [("user", "hi")], id="a string"),
        pytest.param([{"type": "text", "text": "hi"}], [("user", "hi")], id="a text block"),
        pytest.param([{"type": "thinking", "thinking": "so"}], [("user", "so")], id="thinking"),
        pytest.param(
            [{"type": "tool_use", "id": "t", "name": "get", "input": {"a": 1}}],
            [("user", '{"name": "get", "arguments": {"a": 1}}')],
            id="a tool call",
        ),
        pytest.param(
            [
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "42"}]},
                {"type": "text", "text": "thanks"},
            ],
            [("tool", "42"), ("user", "thanks")],
            id="the result of a tool is a message of its own",
        ),
        pytest.param([{"type": "tool_result", "tool_use_id": "t", "content": "42"}], [("tool", "42")], id="a result"),
        pytest.param([{"type": "image", "source": {}}], [("user", "")], id="an image"),
    ],
)
def test_the_blocks_of_a_message_count(content: Any, turns: list[tuple[str, str]]) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": content}], "max_tokens": 5}
    system = [("system", "Be brief.")]
    parts = [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]
    assert parse_messages(body | {"system": parts}, SERVED).prompt == encode_chat([*system, *turns])
    assert count_tokens(body | {"system": "Be brief."}, SERVED) == len(encode_chat([*system, *turns]))


STRING, LIST, INTEGER = (f"Input should be a valid {kind}" for kind in ("string", "list", "integer"))
MESSAGE = "Input should be a valid dictionary"


@pytest.mark.parametrize(
    "body, error",
    [
        pytest.param([], RequestError("the request body must be a JSON object", param=None), id="not an object"),
        pytest.param({"input": 1}, FieldError("string_type", "input", STRING, 1), id="a number as input"),
        pytest.param({"input": [1]}, FieldError("string_type", "input", STRING, [1]), id="a number as item"),
        pytest.param({"input": [{"role": "user"}]}, FieldError("string_type", "input", STRING, [{}]), id="no content"),
        pytest.param(
            {"input": "hi", "instructions": 1},
            FieldError("string_type", "instructions", STRING, 1),
            id="instructions",
        ),
        pytest.param(
            {"input": "hi", "max_output_tokens": 1.5},
            FieldError("int_type", "max_output_tokens", INTEGER, 1.5),
            id="a part of a token",
        ),
        pytest.param(
            {"input": "hi", "stream": 1},
            RequestError("stream must be true or false, not 1", param="stream"),
            id="stream is not a boolean",
        ),
    ],
)
def test_an_invalid_responses_request_is_rejected(body: Any, error: RequestError) -> None:
    with pytest.raises(RequestError) as refusal:
        parse_responses(body, SERVED)
    assert (refusal.value.code, refusal.value.body) == (400, error.body)


@pytest.mark.parametrize(
    "messages, error",
    [
        pytest.param("hi", FieldError("list_type", "messages", LIST, "hi"), id="no list"),
        pytest.param(["hi"], FieldError("model_attributes_type", "messages.0", MESSAGE, "hi"), id="no message"),
        pytest.param(
            [{"role": "user"}], FieldError("string_type", "messages.0.content", STRING, None), id="no content"
        ),
    ],
)
def test_an_invalid_messages_request_is_rejected_in_openais_format(messages: Any, error: RequestError) -> None:
    with pytest.raises(RequestError) as refusal:
        parse_messages({"model": "tiny", "messages": messages, "max_tokens": 5}, SERVED)
    assert error_body(refusal.value) == error.body


def test_a_field_error_has_vllms_words() -> None:
    text = "1 validation error:\n  {'type': 'list_type', 'loc': 'body.input', 'msg': 'Input should be a valid list'"
    error = {"message": text + ", 'input': 'hi'}", "type": "Bad Request", "param": "body.input", "code": 400}
    assert FieldError("list_type", "input", LIST, "hi").body == {"error": error}


SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.sampled_from(["", "user"])
NAMES = ("type", "role", "content", "text", "output", "message", "tool_result", "thinking", "input")
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ("model", "input", "messages", "prompt", "system", "instructions", "max_tokens", "max_output_tokens", "stream")
TURNS = st.lists(st.fixed_dictionaries({"role": JSON, "content": JSON}, optional={"type": JSON}), max_size=2)
TURN = {"role": "user", "content": "hi"}
VALID = {"model": "tiny", "input": "hi", "messages": [TURN], "prompt": "hi", "max_tokens": 5}
OTHERS = ("background", "store", "previous_response_id", "tools", "seed", "stream_options", "n", "min_tokens")


@pytest.mark.slow
@pytest.mark.parametrize(
    "parse",
    [
        parse_responses,
        parse_messages,
        count_tokens,
        partial(parse_request, Endpoint.CHAT),
        partial(parse_request, Endpoint.COMPLETIONS),
    ],
)
@settings(max_examples=50)
@given(body=JSON | st.dictionaries(st.sampled_from(FIELDS + OTHERS), JSON | TURNS, max_size=2).map(VALID.__or__))
def test_a_body_is_accepted_or_rejected_with_an_error_of_the_api(
    parse: Callable[[Any, ServedModel], object], body: Any
) -> None:
    with contextlib.suppress(RequestError):
        parse(body, SERVED)
