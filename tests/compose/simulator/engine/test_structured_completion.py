"""JSON of the simulator: the schema or the tool that each API asks for, whole or spoiled."""

import json
import random
from typing import Any

import pytest

from compose.simulator.engine.job import FinishReason
from compose.simulator.engine.structured_completion import (
    RequestedOutput,
    ToolCall,
    chat_output,
    messages_output,
    responses_output,
    structured_completion,
)

CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer"}}}
CHAT_TOOLS = [{"type": "function", "function": {"name": name, "parameters": CITY}} for name in ("get", "set")]
RESPONSES_TOOLS = [
    {"type": "web_search"},
    *({"type": "function", "name": n, "parameters": CITY} for n in ("get", "set")),
]
MESSAGES_TOOLS = [{"name": name, "input_schema": CITY} for name in ("get", "set")]
USER = {"role": "user", "content": "hi"}
GET, SET = ToolCall("get", named=False), ToolCall("set", named=True)


@pytest.mark.parametrize(
    "body, tool",
    [
        pytest.param({}, GET, id="by default"),
        pytest.param({"tool_choice": "auto"}, GET, id="auto"),
        pytest.param({"tool_choice": "required"}, GET, id="required"),
        pytest.param({"tool_choice": "none"}, None, id="none"),
        pytest.param({"tool_choice": {"type": "function", "function": {"name": "set"}}}, SET, id="named"),
        pytest.param({"tool_choice": {"type": "allowed_tools"}}, GET, id="allowed tools"),
        pytest.param({"messages": [USER, {"role": "tool", "content": "x"}]}, None, id="auto after a result"),
        pytest.param(
            {"messages": [USER, {"role": "tool"}], "tool_choice": "required"}, GET, id="required after a result"
        ),
        pytest.param({"tools": None}, None, id="no tools"),
    ],
)
def test_a_chat_request_with_tools_gets_a_call_until_it_has_a_result(
    body: dict[str, Any], tool: ToolCall | None
) -> None:
    output = chat_output({"messages": [USER], "tools": CHAT_TOOLS, **body})
    assert (output and output.tool) == tool


@pytest.mark.parametrize(
    "body, tool",
    [
        pytest.param({"input": "hi"}, GET, id="by default"),
        pytest.param({"input": "hi", "tool_choice": {"type": "function", "name": "set"}}, SET, id="named"),
        pytest.param({"input": "hi", "tool_choice": {"type": "allowed_tools"}}, GET, id="allowed tools"),
        pytest.param({"input": [{"type": "function_call_output", "output": "x"}]}, None, id="after a result"),
    ],
)
def test_a_responses_request_with_tools_gets_a_call_until_it_has_a_result(
    body: dict[str, Any], tool: ToolCall | None
) -> None:
    output = responses_output({"tools": RESPONSES_TOOLS, **body})
    assert (output and output.tool) == tool


@pytest.mark.parametrize(
    "body, tool",
    [
        pytest.param({}, GET, id="by default"),
        pytest.param({"tool_choice": {"type": "any"}}, GET, id="any"),
        pytest.param({"tool_choice": {"type": "tool", "name": "set"}}, SET, id="named"),
        pytest.param({"tool_choice": {"type": "none"}}, None, id="none"),
        pytest.param(
            {"messages": [USER, {"role": "user", "content": [{"type": "tool_result"}]}]}, None, id="after a result"
        ),
    ],
)
def test_a_messages_request_with_tools_gets_a_call_until_it_has_a_result(
    body: dict[str, Any], tool: ToolCall | None
) -> None:
    output = messages_output({"messages": [USER], "tools": MESSAGES_TOOLS, **body})
    assert (output and output.tool) == tool


def test_the_format_of_each_api_has_its_schema() -> None:
    chat = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
    plain = {"type": "json_schema", "name": "city", "schema": CITY}
    outputs = [
        chat_output({"response_format": chat}),
        chat_output({"structured_outputs": {"json": CITY}}),
        responses_output({"text": {"format": plain}}),
        messages_output({"output_config": {"format": plain}}),
    ]
    assert outputs == [RequestedOutput(CITY)] * 4
    objects = [
        chat_output({"response_format": {"type": "json_object"}}),
        chat_output({"structured_outputs": {"json_object": True}}),
        responses_output({"text": {"format": {"type": "json_object"}}}),
    ]
    assert objects == [RequestedOutput({"type": "object"})] * 3
    assert chat_output({"response_format": {"type": "text"}}) is None


@pytest.mark.parametrize(
    "schema, value",
    [
        pytest.param(CITY, {"city": "Oslo", "days": 72}, id="an object"),
        pytest.param({"type": "array", "items": {"type": "boolean"}}, [True], id="an array"),
        pytest.param({"anyOf": [{"type": "null"}, {"const": None}]}, None, id="alternatives"),
        pytest.param({"type": ["string", "null"]}, "simulated", id="several types"),
        pytest.param({"$ref": "#/$defs/a", "$defs": {"a": {"const": 5}}}, 5, id="a reference"),
        pytest.param({"$ref": "#/$defs/b"}, "simulated", id="a reference to nothing"),
        pytest.param({"enum": 5, "type": 5, "properties": 5}, "simulated", id="no schema"),
        pytest.param([], "simulated", id="no object"),
    ],
)
def test_a_value_has_the_types_of_its_schema(schema: Any, value: object) -> None:
    assert json.loads(complete(RequestedOutput(schema))[0]) == value


def test_a_schema_that_refers_to_itself_ends() -> None:
    text, _ = complete(RequestedOutput({"properties": {"next": {"$ref": "#"}}}))
    assert text.count("next") == 8


def complete(output: RequestedOutput, *, max_tokens: int = 999, invalid: float = 0.0) -> tuple[str, FinishReason]:
    completion = structured_completion(output, random.Random(1), max_tokens=max_tokens, invalid=invalid)  # noqa: S311 - no secret
    pieces = [completion.piece(index) for index in range(completion.length)]
    assert b"".join(pieces).decode() == completion.text(completion.length)
    assert all(pieces[:-1])
    assert bool(pieces[-1]) == (completion.finish is FinishReason.LENGTH)
    assert len({completion.token(index) for index in range(completion.length)}) > 1
    return completion.text(completion.length), completion.finish


def test_an_invalid_output_lacks_its_last_character_and_a_short_limit_cuts_it() -> None:
    text, finish = complete(RequestedOutput(CITY))
    assert finish is FinishReason.STOP
    spoiled, finish = complete(RequestedOutput(CITY), invalid=1.0)
    assert (spoiled, finish) == (text[:-1], FinishReason.STOP)
    assert complete(RequestedOutput(CITY), max_tokens=3) == (text[:12], FinishReason.LENGTH)
