"""The planned requests follow the scenario, for every seed."""

import json
from collections import Counter
from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen import prompt_text, scenario
from loadgen.arrivals import arrivals
from loadgen.request_plan import CHAT, COMPLETIONS, PlannedRequest, Workload, encode_body, encode_head

MIXED = scenario.load(scenario.find("mixed"))


def plan(seed: int, count: int) -> list[PlannedRequest]:
    return list(islice(Workload(MIXED, seed).plan(arrivals(MIXED.phases, seed)), count))


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_every_request_stays_within_the_bounds_of_its_class(seed: int) -> None:
    for request in plan(seed, 40):
        shape = MIXED.shapes[request.request_class]
        own = request.prompt_tokens
        if shape.document:
            document, question = request.prompt.split("\n\n")
            assert len(document.split()) in MIXED.corpus
            own = len(question.split())
            assert request.prompt_tokens == len(document.split()) + own
        assert shape.prompt_tokens.least <= own <= shape.prompt_tokens.most
        assert shape.output_tokens.least <= request.max_tokens <= shape.output_tokens.most


def test_the_same_seed_plans_the_same_requests() -> None:
    assert plan(5, 50) == plan(5, 50)
    assert plan(5, 50) != plan(6, 50)


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
    documents = Counter(p.prompt.split("\n\n")[0] for p in plans if "\n\n" in p.prompt)
    assert len(documents) == len(MIXED.corpus)
    rest = [p.prompt.split("\n\n")[-1] for p in plans]
    assert len(set(rest)) == len(rest)
    # The blocks of a prefix cache have about 16 tokens, so short prompts must differ in their first 16.
    beginnings = [p.prompt[:64] for p in plans if "\n\n" not in p.prompt]
    assert len(set(beginnings)) == len(beginnings)


def test_a_token_is_a_word_and_four_characters() -> None:
    assert {len(word) for word in prompt_text.WORDS} == {3}
    assert len(set(prompt_text.WORDS)) == len(prompt_text.WORDS)
    text = prompt_text.documents(1, [500])[0]
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
