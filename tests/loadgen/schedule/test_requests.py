"""The planned requests follow the scenario, for every seed."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from loadgen.schedule import prompts as prompt_text
from loadgen.schedule import scenario
from loadgen.schedule.phases import AtOnce, ClosedLoop, Law, Steady
from loadgen.schedule.prompts import Part
from loadgen.schedule.requests import (
    CHAT,
    COMPLETIONS,
    Message,
    PlannedRequest,
    Turn,
    Workload,
    encode_body,
    encode_head,
    schedule_hash,
)
from loadgen.schedule.scenario import Conversation, Shape, Starters, TimeRange, TokenRange
from tests.loadgen.load_records import planned

MIXED = scenario.load(scenario.find("mixed"))


def plan(seed: int, count: int) -> list[PlannedRequest]:
    return list(islice(Workload(MIXED, (Steady("steady", 3600, 2.5),), seed), count))


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_every_request_stays_within_the_bounds_of_its_class(seed: int) -> None:
    for request in plan(seed, 40):
        shape = MIXED.shapes[request.request_class]
        own = request.prompt_tokens
        assert len(request.prompt.split()) == own
        if shape.document:
            document, question = request.parts
            assert document.tokens in MIXED.corpus
            own = question.tokens
        assert shape.prompt_tokens.least <= own <= shape.prompt_tokens.most
        assert shape.output_tokens.least <= request.max_tokens <= shape.output_tokens.most


def test_the_same_seed_plans_the_same_requests() -> None:
    assert plan(5, 50) == plan(5, 50)
    assert plan(5, 50) != plan(6, 50)


def test_a_class_keeps_its_requests_when_another_class_changes() -> None:
    shapes = {name: shape for name, shape in MIXED.shapes.items() if name != "siso"} | {
        "siso": Shape(300, TokenRange(1, 9), TokenRange(1, 9))
    }
    changed = Workload(replace(MIXED, shapes=shapes), (Steady("steady", 3600, 2.5),), 67)

    def others(requests: Iterable[PlannedRequest]) -> list[PlannedRequest]:
        return [structs.replace(request, number=0) for request in requests if request.request_class != "siso"]

    assert others(islice(changed, 50)) == others(plan(67, 50))


def test_the_hash_names_the_schedule() -> None:
    def hashed(seed: int = 67, **changes: Any) -> str:
        return schedule_hash(Workload(replace(MIXED, **changes), (Steady("steady", 20, 2.5),), seed))

    assert hashed() == hashed(description="another text", timeout=1.0)
    assert len({hashed(), hashed(seed=68), hashed(stream_share=0.5), hashed(corpus=(1, 2, 3, 4, 5))}) == 4


TALK = Shape(
    1,
    TokenRange(5, 9),
    TokenRange(3, 4),
    conversation=Conversation(TokenRange(2, 4), TimeRange(1, 3), Starters(20, TokenRange(50, 80), 1.0)),
)


def talks(count: int) -> list[PlannedRequest]:
    return list(islice(Workload(replace(MIXED, shapes={"talk": TALK}), (Steady("s", 1e6, 1),), 1), count))


def test_a_schedule_keeps_its_hash_from_version_to_version() -> None:
    """Runs are paired by it; constant arrivals, whose times depend on no library of the machine."""
    phases = Steady("steady", 60, 5, arrivals=Law.CONSTANT), AtOnce("burst", 1, requests=9)
    whole = Workload(replace(MIXED, shapes={**MIXED.shapes, "talk": TALK}), phases, 67)
    assert schedule_hash(whole) == "ac53d4c299f8eb5a6abcab02d59c250bb1ad90078525d55fe86013ed4638ff8e"


def test_conversations_share_starters_by_a_zipf_law() -> None:
    requests = talks(1000)
    assert {len(request.later) + 1 for request in requests} == {2, 3, 4}
    assert {request.endpoint for request in requests} == {CHAT}
    turns = [turn for request in requests for turn in request.later]
    assert all(1 <= turn.think_time <= 3 and 5 <= turn.part.tokens <= 9 and 3 <= turn.max_tokens <= 4 for turn in turns)
    assert len({turn.part.seed for turn in turns}) == len(turns)
    starters = Counter(request.parts[0] for request in requests)
    assert all(50 <= starter.tokens <= 80 for starter in starters)
    total = sum(1 / rank for rank in range(1, 21))
    for rank in (1, 2, 4, 8):
        share = sum(count for part, count in starters.items() if part.seed.endswith(f"/{rank}")) / len(requests)
        assert abs(share - 1 / rank / total) < 0.04


def test_a_turn_sends_all_that_was_said_before() -> None:
    later = (Turn(2.0, Part("second", 4), 7), Turn(1.0, Part("third", 3), 8))
    first = planned(parts=(Part("starter", 6), Part("first", 5)), later=later)
    second = first.next_turn("fine", 2, ended=10.0)
    assert second is not None
    assert (second.due, second.turn, second.max_tokens, second.prompt_tokens) == (12.0, 1, 7, 6 + 5 + 2 + 4)
    third = second.next_turn("so", 1, ended=20.0)
    assert third is not None
    assert third.history == (
        Message("user", first.prompt, 11),
        Message("assistant", "fine", 2),
        Message("user", second.prompt, 4),
        Message("assistant", "so", 1),
    )
    messages = json.loads(encode_body(third, "m"))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant", "user"]
    assert messages[-1]["content"] == prompt_text.join([Part("third", 3)])
    assert (third.due, third.prompt_tokens, third.next_turn("", 0, ended=30.0)) == (21.0, 11 + 2 + 4 + 1 + 3, None)


def test_users_of_a_closed_loop_get_requests_without_end() -> None:
    phase = ClosedLoop("loop", 10, users=4)
    workload = Workload(MIXED, (phase,), 67)
    assert list(workload) == []
    requests = list(islice(workload.users(phase), 500))
    assert requests == list(islice(Workload(MIXED, (phase,), 67).users(phase), 500))
    assert {request.request_class for request in requests} == set(MIXED.shapes)
    assert len({request.prompt for request in requests}) == 500


def test_classes_streams_and_endpoints_come_in_their_shares() -> None:
    plans = plan(67, 1000)
    classes = Counter(request.request_class for request in plans)
    shares = sum(shape.share for shape in MIXED.shapes.values())
    for name, shape in MIXED.shapes.items():
        assert abs(classes[name] / len(plans) - shape.share / shares) < 0.05
    assert abs(sum(request.stream for request in plans) / len(plans) - MIXED.stream_share) < 0.04
    assert abs(sum(request.endpoint == CHAT for request in plans) / len(plans) - MIXED.chat_share) < 0.04


def test_long_inputs_share_documents_and_all_else_is_unique() -> None:
    plans = plan(67, 600)
    documents = Counter(p.parts[0] for p in plans if len(p.parts) == 2)
    assert len(documents) == len(MIXED.corpus)
    for plan_ in plans:
        assert plan_.prompt.startswith(prompt_text.join(plan_.parts[:1]))
    rest = [prompt_text.join(p.parts[-1:]) for p in plans]
    assert len(set(rest)) == len(rest)
    # The blocks of a prefix cache have about 16 tokens, so short prompts must differ in their first 16.
    beginnings = [p.prompt[:64] for p in plans if len(p.parts) == 1]
    assert len(set(beginnings)) == len(beginnings)


@settings(max_examples=8)
@given(st.integers(1, 3), st.integers(0, 1000))
def test_a_class_repeats_its_number_of_different_prompts(prompts: int, seed: int) -> None:
    shapes = {name: replace(shape, prompts=prompts, document=False) for name, shape in MIXED.shapes.items()}
    sent = Workload(replace(MIXED, shapes=shapes), (Steady("steady", 40, 10),), seed)
    found: dict[str, Counter[tuple[str, int]]] = {name: Counter() for name in shapes}
    for request in sent:
        found[request.request_class][request.prompt, request.max_tokens] += 1
    for name, counts in found.items():
        assert len(counts) <= prompts
        assert len({text for text, _ in counts}) == len(counts)  # each with one length of output
        assert sum(counts.values()) < 20 * prompts or len(counts) == prompts
        for text, tokens in counts:
            assert shapes[name].prompt_tokens.least <= len(text.split()) <= shapes[name].prompt_tokens.most
            assert shapes[name].output_tokens.least <= tokens <= shapes[name].output_tokens.most


def test_a_token_is_a_word_and_four_characters() -> None:
    assert {len(word) for word in prompt_text.WORDS} == {3}
    assert len(set(prompt_text.WORDS)) == len(prompt_text.WORDS)
    text = prompt_text.join([Part("1", 200), Part("2", 300)])
    assert len(text.split()) == 500
    assert len(text) == 4 * 500 - 1


def test_the_body_asks_for_exactly_the_planned_work() -> None:
    kinds = set()
    for request in plan(67, 200):
        body = json.loads(encode_body(request, "m"))
        prompt = body["messages"][0]["content"] if request.endpoint == CHAT else body["prompt"]
        assert prompt == request.prompt
        assert body["max_tokens"] == request.max_tokens
        assert (body["model"], body["temperature"], body["ignore_eos"]) == ("m", 0, True)
        assert body["stream"] is request.stream
        assert body.get("stream_options") == ({"include_usage": True} if request.stream else None)
        kinds.add((request.endpoint, request.stream))
    assert kinds == {(CHAT, True), (CHAT, False), (COMPLETIONS, True), (COMPLETIONS, False)}


def test_the_head_is_http() -> None:
    assert encode_head("/v1/completions", "127.0.0.1:80", 7, [("x-request-class", "siso")]) == (
        b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1:80\r\ncontent-type: application/json\r\n"
        b"content-length: 7\r\nconnection: close\r\nx-request-class: siso\r\n\r\n"
    )
