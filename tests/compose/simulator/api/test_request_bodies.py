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
from compose.simulator.engine.request import RequestError, ServedModel
from compose.simulator.engine.tokenizer import encode_chat
from tests.compose.golden_texts import assert_golden

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


def test_an_invalid_request_is_rejected_in_openais_format() -> None:
    message = {"model": "tiny", "max_tokens": 5}
    cases: dict[str, tuple[Callable[[Any, ServedModel], object], Any]] = {
        "not an object": (parse_responses, []),
        "a number as input": (parse_responses, {"input": 1}),
        "a number as item": (parse_responses, {"input": [1]}),
        "an item without content": (parse_responses, {"input": [{"role": "user"}]}),
        "instructions": (parse_responses, {"input": "hi", "instructions": 1}),
        "a part of a token": (parse_responses, {"input": "hi", "max_output_tokens": 1.5}),
        "stream is not a boolean": (parse_responses, {"input": "hi", "stream": 1}),
        "messages are no list": (parse_messages, message | {"messages": "hi"}),
        "no message": (parse_messages, message | {"messages": ["hi"]}),
        "no content": (parse_messages, message | {"messages": [{"role": "user"}]}),
    }
    found = {}
    for name, (parse, body) in cases.items():
        with pytest.raises(RequestError) as refusal:
            parse(body, SERVED)
        error = refusal.value.body if parse is parse_responses else error_body(refusal.value)
        found[name] = str(error["error"])
    assert_golden(__file__, "rejected bodies", found)


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
