"""What is asked for has the shape that the scenario states, whatever the seed."""

import json
from collections import Counter
from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen import prompt_text, scenario
from loadgen.arrivals import arrivals
from loadgen.request_plan import CHAT, COMPLETIONS, Planned, Workload, body, head

MIXED = scenario.load(scenario.find("mixed"))


def plan(seed: int, count: int) -> list[Planned]:
    return list(islice(Workload(MIXED, seed).plan(arrivals(MIXED.phases, seed)), count))


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_every_request_stays_within_the_bounds_of_its_class(seed: int) -> None:
    shapes = {shape.name: shape for shape in MIXED.shapes}
    for planned in plan(seed, 40):
        shape = shapes[planned.request_class]
        own = planned.prompt_tokens
        if shape.document:
            document, question = planned.prompt.split("\n\n")
            assert len(document.split()) in MIXED.corpus
            own = len(question.split())
            assert planned.prompt_tokens == len(document.split()) + own
        assert shape.prompt_tokens.least <= own <= shape.prompt_tokens.most
        assert shape.output_tokens.least <= planned.max_tokens <= shape.output_tokens.most


def test_the_same_seed_plans_the_same_requests() -> None:
    assert plan(5, 50) == plan(5, 50)
    assert plan(5, 50) != plan(6, 50)


def test_classes_streams_and_endpoints_come_in_their_shares() -> None:
    plans = plan(67, 1000)
    classes = Counter(planned.request_class for planned in plans)
    weights = {shape.name: shape.share for shape in MIXED.shapes}
    for name, weight in weights.items():
        assert abs(classes[name] / len(plans) - weight / sum(weights.values())) < 0.05
    assert abs(sum(planned.stream for planned in plans) / len(plans) - MIXED.stream_share) < 0.04
    assert abs(sum(planned.endpoint == CHAT for planned in plans) / len(plans) - MIXED.chat_share) < 0.04


def test_long_inputs_share_their_documents_and_nothing_else_repeats() -> None:
    plans = plan(67, 600)
    documents = Counter(p.prompt.split("\n\n")[0] for p in plans if "\n\n" in p.prompt)
    assert len(documents) == len(MIXED.corpus)
    rest = [p.prompt.split("\n\n")[-1] for p in plans]
    assert len(set(rest)) == len(rest)
    # A prefix cache works in blocks of 16 tokens or so: short prompts must differ before that.
    beginnings = [p.prompt[:64] for p in plans if "\n\n" not in p.prompt]
    assert len(set(beginnings)) == len(beginnings)


def test_a_token_is_a_word_and_four_characters() -> None:
    assert {len(word) for word in prompt_text.WORDS} == {3}
    assert len(set(prompt_text.WORDS)) == len(prompt_text.WORDS)
    text = prompt_text.documents(1, [500])[0]
    assert len(text.split()) == 500
    assert len(text) == 4 * 500 - 1


def test_the_body_asks_for_exactly_the_planned_work() -> None:
    seen = set()
    for planned in plan(67, 200):
        asked = json.loads(body(planned, "m"))
        prompt = asked["messages"][0]["content"] if planned.endpoint == CHAT else asked["prompt"]
        assert prompt == planned.prompt
        assert asked["max_tokens"] == planned.max_tokens
        assert (asked["model"], asked["temperature"], asked["ignore_eos"]) == ("m", 0, True)
        assert asked["stream"] is planned.stream
        assert asked.get("stream_options") == ({"include_usage": True} if planned.stream else None)
        seen.add((planned.endpoint, planned.stream))
    assert seen == {(CHAT, True), (CHAT, False), (COMPLETIONS, True), (COMPLETIONS, False)}


def test_the_head_is_http() -> None:
    assert head("/v1/completions", "127.0.0.1:80", 7, [("x-request-class", "siso")]) == (
        b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1:80\r\ncontent-type: application/json\r\n"
        b"content-length: 7\r\nconnection: close\r\nx-request-class: siso\r\n\r\n"
    )
