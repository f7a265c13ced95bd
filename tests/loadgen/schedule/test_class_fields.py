"""Tenants, priority and more body fields of a class, shares of a phase; answers that must be JSON are checked."""

import json
from collections import Counter
from typing import Any

import pytest

from exporters.text.yaml_reader import FileError, parse_yaml
from exporters.vocabulary.signals import OutputResult
from loadgen.client.completion import CompletionResponse
from loadgen.schedule import scenario
from loadgen.schedule.requests import CHAT, PlannedRequest, Workload, encode_body

LOAD = """\
name: teams
chat_share: 0.5
classes:
  chat: {share: 1, CHAT, prompt_tokens: {min: 5, max: 9}, output_tokens: {min: 3, max: 4}}
  batch: {share: 0, prompt_tokens: {min: 5, max: 9}, output_tokens: {min: 3, max: 4}}
phases:
  - {name: before, duration: 100s, rate: 4}
  - {name: burst, duration: 100s, PHASE}
"""
TALK = "conversation: {turns: {min: 2, max: 2}, think_time: {min: 1s, max: 2s}}"


def plan(chat: str = "timeout: 9s", phase: str = "rate: 4") -> list[PlannedRequest]:
    load = scenario.parse(parse_yaml(LOAD.replace("CHAT", chat).replace("PHASE", phase), "load.yaml"))
    return list(Workload(load, load.phases, 1))


def without_tenant(requests: list[PlannedRequest]) -> list[tuple[object, ...]]:
    return [(each.due, each.parts, each.max_tokens, each.stream, each.endpoint) for each in requests]


def test_weights_of_tenants_divide_a_class_and_change_nothing_else() -> None:
    requests = plan("tenant: {team-a: 3, team-b: 1}")
    counts = Counter(request.tenant for request in requests)
    assert counts.keys() == {"team-a", "team-b"}
    assert 0.68 < counts["team-a"] / len(requests) < 0.82
    assert without_tenant(requests) == without_tenant(plan())
    assert {request.tenant for request in plan("tenant: team-a")} == {"team-a"}


def test_a_priority_is_in_the_body_only_if_the_class_has_one() -> None:
    assert {json.loads(encode_body(request, "m"))["priority"] for request in plan("priority: -2")} == {-2}
    assert {"priority" in json.loads(encode_body(request, "m")) for request in plan()} == {False}


def test_later_turns_keep_tenant_and_priority() -> None:
    first = plan(f"tenant: {{team-a: 1, team-b: 1}}, priority: 3, {TALK}")[0]
    later = first.next_turn("an answer", 2, 10.0)
    assert later is not None
    assert (later.tenant, later.priority) == (first.tenant, 3)


def test_the_shares_of_a_phase_replace_those_of_the_classes() -> None:
    usual, burst = plan(), plan(phase="rate: 44, shares: {chat: 1, batch: 10}")
    counts = Counter((request.phase, request.request_class) for request in burst)
    assert counts["before", "batch"] == 0
    assert 3600 < counts["burst", "batch"] < 4400
    chats = [request.due for request in burst if request.request_class == "chat"]
    assert chats == pytest.approx([request.due for request in usual])


def test_shares_apply_to_requests_at_once() -> None:
    counts = Counter(request.request_class for request in plan(phase="requests: 50, shares: {batch: 2}"))
    assert counts["batch"] == 50


@pytest.mark.parametrize(
    "chat, phase, mistake",
    [
        ("tenant: {}", "rate: 1", "classes.chat.tenant: has no tenant; write a name, or weights"),
        ("tenant: {a: 0}", "rate: 1", "classes.chat.tenant.a: expected a number above 0, found '0'"),
        ("priority: high", "rate: 1", "classes.chat.priority: expected a whole number"),
        ("timeout: 9s", "rate: 1, shares: {chats: 1}", "phases[1].shares: 'chats' is not a class; did you mean"),
        ("timeout: 9s", "rate: 1, shares: {chat: 0}", "phases[1].shares: no class has a share above 0"),
        ("timeout: 9s", "users: 1, shares: {chat: 1}", "phases[1].shares: applies to rate, steps and requests only"),
    ],
)  # fmt: skip
def test_mistakes_are_reported(chat: str, phase: str, mistake: str) -> None:
    with pytest.raises(FileError) as refusal:
        plan(chat, phase)
    assert mistake in str(refusal.value)


FORMAT = "extra_body: {response_format: {type: json_object}}"
TOOLS = "extra_body: {tools: [{type: function, function: {name: f}}]}"


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
        f"load.yaml:4:{column}: classes.chat.extra_body.{name}: {name} is set by the load generator; remove it"
        for name, column in (("model", 40), ("stream", 51))
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
