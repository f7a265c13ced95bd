"""A class adds fields to its bodies; where they ask for JSON, the answers are checked."""

import json
from typing import Any

import pytest

from exporters.text.yaml_reader import FileError, parse_yaml
from exporters.vocabulary.signals import OutputResult
from loadgen.client.completion import CompletionResponse
from loadgen.schedule import scenario
from loadgen.schedule.requests import CHAT, PlannedRequest, Workload, encode_body

LOAD = """\
name: json
chat_share: 0.5
classes:
  one: {share: 1, EXTRA, prompt_tokens: {min: 5, max: 9}, output_tokens: {min: 3, max: 4}}
phases: [{name: only, duration: 10s, rate: 4}]
"""
FORMAT = "extra_body: {response_format: {type: json_object}}"
TOOLS = "extra_body: {tools: [{type: function, function: {name: f}}]}"


def plan(extra: str = "timeout: 9s") -> list[PlannedRequest]:
    load = scenario.parse(parse_yaml(LOAD.replace("EXTRA", extra), "load.yaml"))
    return list(Workload(load, load.phases, 1))


def body(request: PlannedRequest) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode_body(request, "m"))
    return found


def test_other_fields_are_added_and_leave_the_rest() -> None:
    for plain, other in zip(plan(), plan("extra_body: {top_p: 0.5}"), strict=True):
        assert body(other) == body(plain) | {"top_p": 0.5}
        assert not other.json_output


def test_json_ends_where_the_engine_ends_it() -> None:
    for plain, other in zip(plan(), plan(FORMAT), strict=True):
        expected = body(plain) | {"response_format": {"type": "json_object"}}
        del expected["ignore_eos"]
        assert body(other) == expected
        assert other.json_output


def test_tools_are_offered_in_chats_only() -> None:
    assert {request.endpoint for request in plan(TOOLS)} == {CHAT}


def test_fields_of_the_load_generator_are_refused() -> None:
    with pytest.raises(FileError) as caught:
        plan("extra_body: {model: m, stream: false}")
    assert str(caught.value).splitlines() == [
        f"load.yaml:4:{column}: classes.one.extra_body.{name}: {name} is set by the load generator; remove it"
        for name, column in (("model", 39), ("stream", 50))
    ]


def answer(*deltas: dict[str, Any], reason: str = "stop") -> CompletionResponse:
    events: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    stream = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"
    response = CompletionResponse(keep_text=True)
    response.feed(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + stream, 1.0)
    response.eof(2.0)
    return response


def call(number: int, arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": number, "function": {"arguments": arguments}}]}


@pytest.mark.parametrize(
    "response, expected",
    [
        (answer({"content": '{"a"'}, {"content": ": 1}"}), OutputResult.VALID),
        (answer({"content": '{"a"'}), OutputResult.INVALID),
        (answer({"content": '{"a"'}, reason="length"), OutputResult.TRUNCATED),
        (answer(), OutputResult.INVALID),
        (answer({"content": "I call"}, call(0, '{"a":'), call(1, "{}"), call(0, " 2}")), OutputResult.VALID),
        (answer(call(0, "{}"), call(1, "{")), OutputResult.INVALID),
    ],
    ids=["text", "half a text", "at the limit of tokens", "nothing", "two calls", "half a call"],
)
def test_a_complete_answer_is_json_or_not(response: CompletionResponse, expected: OutputResult) -> None:
    assert response.json_result is expected
