"""Request bodies: accepted forms, and the messages of rejections."""

import random
from typing import Any

import pytest

from compose.simulator.api.chat_request import CompletionRequest, Endpoint, parse_request
from compose.simulator.engine.job import FinishReason
from compose.simulator.engine.request import RequestError, ServedModel
from tests.compose.golden_texts import assert_golden

HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - no secret


def parsed(body: Any, endpoint: Endpoint = Endpoint.CHAT) -> CompletionRequest:
    return parse_request(endpoint, body, ServedModel("tiny", 2048, seeded(0)))


def test_a_chat_without_max_tokens_is_limited_by_the_context_length() -> None:
    request = parsed(HELLO | {"ignore_eos": True})
    assert len(request.prompt) + request.completion.length == 2048
    assert request.completion.finish is FinishReason.LENGTH


def test_a_completion_without_max_tokens_gets_sixteen() -> None:
    assert parsed({"prompt": "hello"}, Endpoint.COMPLETIONS).max_tokens == 16


def test_max_tokens_beyond_the_rest_of_the_context_is_reduced_to_it() -> None:
    body = {"messages": [{"role": "user", "content": "x" * 8000}], "max_tokens": 100, "ignore_eos": True}
    request = parsed(body)
    assert (len(request.prompt), request.max_tokens, request.completion.length) == (2009, 39, 39)


def test_max_completion_tokens_overrides_max_tokens() -> None:
    assert parsed(HELLO | {"max_tokens": 5, "max_completion_tokens": 7}).max_tokens == 7


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param("abcdefgh", id="a string"),
        pytest.param(["abcdefgh"], id="a list of one string"),
        pytest.param([7, 8], id="token ids"),
        pytest.param([[7, 8]], id="a list of one list of token ids"),
    ],
)
def test_a_prompt_may_be_text_or_tokens(prompt: Any) -> None:
    assert len(parsed({"prompt": prompt}, Endpoint.COMPLETIONS).prompt) == 2


def test_the_text_parts_of_a_message_count() -> None:
    parts = [{"type": "text", "text": "hel"}, {"type": "image_url", "image_url": {"url": "x"}}, {"text": "lo"}]
    assert parsed({"messages": [{"role": "user", "content": parts}]}).prompt == parsed(HELLO).prompt


def test_a_seed_in_the_body_gives_the_same_completion_each_time() -> None:
    rng = seeded(0)
    body = HELLO | {"seed": 4}
    one, two = (parse_request(Endpoint.CHAT, body, ServedModel("tiny", 2048, rng)).completion for _ in range(2))
    assert one == two


def test_a_bad_request_is_refused() -> None:
    """Messages about the length are recorded ones of vLLM, as those in tests/contract."""
    content = {"role": "user", "content": "x"}
    bodies: dict[str, Any] = {
        "more output than the context": HELLO | {"max_tokens": 99999},
        "prompt too long": {"messages": [content | {"content": "x" * 9000}], "max_tokens": 100},
        "a prompt that fills the context": {"messages": [content | {"content": "x" * 4 * (2048 - 9)}]},
        "not an object": [],
        "no messages": {},
        "no message": {"messages": ["hi"]},
        "no content": {"messages": [content | {"content": 1}]},
        "two choices": HELLO | {"n": 2},
        "no tokens": HELLO | {"max_tokens": 0},
        "not a boolean": HELLO | {"stream": "yes"},
        "stream options without a stream": HELLO | {"stream_options": {"include_usage": True}},
        "invalid stream options": HELLO | {"stream": True, "stream_options": 1},
        "an unknown model": HELLO | {"model": "nope"},
    }
    found = {}
    for name, body in bodies.items():
        with pytest.raises(RequestError) as refusal:
            parsed(body)
        found[name] = str(refusal.value.body["error"])
    assert_golden(__file__, "refused chats", found)


@pytest.mark.parametrize("prompt", [None, "", [], ["a", "b"], [1, "a"], [-1]])
def test_an_invalid_prompt_is_rejected(prompt: Any) -> None:
    with pytest.raises(RequestError) as refusal:
        parsed({"prompt": prompt}, Endpoint.COMPLETIONS)
    assert str(refusal.value) == (
        "prompt must be a non-empty string or list of token ids; the simulator does not support batches"
    )
