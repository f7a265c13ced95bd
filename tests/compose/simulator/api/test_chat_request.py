"""Request bodies: accepted forms, and the messages of rejections."""

import random
from typing import Any

import pytest

from compose.simulator.api.chat_request import CompletionRequest, Endpoint, parse_request
from compose.simulator.engine.request import RequestError, ServedModel
from compose.simulator.engine.scheduler import FinishReason

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


@pytest.mark.parametrize(
    "body, param, message",
    [
        pytest.param(
            HELLO | {"max_tokens": 99999},
            "max_tokens",
            "max_tokens=99999 cannot be greater than max_model_len=2048. Please request fewer output tokens. "
            "(parameter=max_tokens, value=99999)",
            id="a recorded message of vLLM",
        ),
        pytest.param(
            {"messages": [{"role": "user", "content": "x" * 9000}], "max_tokens": 100},
            "input_tokens",
            "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input "
            "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input "
            "prompt. (parameter=input_tokens, value=2049)",
            id="prompt too long, a recorded message of vLLM",
        ),
        pytest.param(
            {"messages": [{"role": "user", "content": "x" * 4 * (2048 - 9)}]},
            "max_tokens",
            "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)",
            id="a prompt that fills the context, a recorded message of vLLM",
        ),
        pytest.param([], None, "the request body must be a JSON object", id="not an object"),
        pytest.param({}, "messages", "messages must be a list of at least one message", id="no messages"),
        pytest.param(
            {"messages": ["hi"]}, "messages", "each of messages must be an object with a role", id="no message"
        ),
        pytest.param(
            {"messages": [{"role": "user", "content": 1}]},
            "messages",
            "the content of a message must be a string or a list of parts",
            id="no content",
        ),
        pytest.param(HELLO | {"n": 2}, "n", "the simulator supports n=1 only", id="two choices"),
        pytest.param(
            HELLO | {"max_tokens": 0}, "max_tokens", "max_tokens must be a whole number from 1, not 0", id="no tokens"
        ),
        pytest.param(
            HELLO | {"stream": "yes"}, "stream", "stream must be true or false, not 'yes'", id="not a boolean"
        ),
        pytest.param(
            HELLO | {"stream_options": {"include_usage": True}},
            "stream_options",
            "Stream options can only be defined when `stream=True`.",
            id="stream options without a stream",
        ),
        pytest.param(
            HELLO | {"stream": True, "stream_options": 1},
            "stream_options",
            "stream_options must be an object",
            id="invalid stream options",
        ),
    ],
)
def test_a_bad_request_is_refused(body: Any, param: str | None, message: str) -> None:
    with pytest.raises(RequestError) as refusal:
        parsed(body)
    error = {"message": message, "type": "BadRequestError", "param": param, "code": 400}
    assert refusal.value.body == {"error": error}


def test_an_unknown_model_is_not_found() -> None:
    with pytest.raises(RequestError) as refusal:
        parsed(HELLO | {"model": "nope"})
    message = "The model `nope` does not exist. Valid aliases: tiny."
    error = {"message": message, "type": "NotFoundError", "param": "model", "code": 404}
    assert refusal.value.body == {"error": error}


@pytest.mark.parametrize("prompt", [None, "", [], ["a", "b"], [1, "a"], [-1]])
def test_an_invalid_prompt_is_rejected(prompt: Any) -> None:
    with pytest.raises(RequestError) as refusal:
        parsed({"prompt": prompt}, Endpoint.COMPLETIONS)
    assert str(refusal.value) == (
        "prompt must be a non-empty string or list of token ids; the simulator does not support batches"
    )
