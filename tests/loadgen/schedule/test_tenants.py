"""A class names its tenant or weights of tenants and a priority; a phase can have shares of its own."""

import json
from collections import Counter

import pytest

from exporters.text.yaml_reader import FileError, parse_yaml
from loadgen.schedule import scenario
from loadgen.schedule.requests import PlannedRequest, Workload, encode_body

LOAD = """\
name: teams
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
