"""Requests to the Responses and Messages APIs: model, limits and estimated tokens of the prompt."""

import json
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporters.relay.bodies.request_body import LONG_BODY, RequestBody
from exporters.relay.dialects.paths import METERED

SALT = b"salt"
HASHING = ThreadPoolExecutor(1, "hashing")
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
BOTH = pytest.mark.parametrize("path", [RESPONSES, MESSAGES])


def parsed(path: str, fields: dict[str, object]) -> RequestBody:
    body = METERED[path].parse(json.dumps(fields).encode(), SALT, HASHING)
    assert body is not None
    return body


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
IMAGE = {"type": "input_image", "image_url": "data:" + "x" * 999, "detail": "low"}
SOURCE = {"type": "image", "source": {"type": "base64", "data": "x" * 999}}


@pytest.mark.parametrize(
    "path, fields, tokens",
    [
        pytest.param(RESPONSES, {}, 0, id="responses: nothing"),
        pytest.param(RESPONSES, {"input": "abcd"}, 1, id="responses: a text"),
        pytest.param(RESPONSES, {"input": None, "instructions": "abcd"}, 1, id="responses: only instructions"),
        pytest.param(RESPONSES, {"input": "ééé!", "instructions": "abcd"}, 2, id="responses: instructions and a text"),
        pytest.param(RESPONSES, {"input": [user("abcd"), user("efgh")]}, 2, id="responses: messages"),
        pytest.param(RESPONSES, {"input": [user([{"type": "input_text", "text": "abcd"}, IMAGE])]}, 1,
            id="responses: parts"),
        pytest.param(RESPONSES,
            {"input": [CALL, {"type": "function_call_output", "call_id": "c", "output": "abcdefgh"}]}, 2,
            id="responses: the output of a function"),
        pytest.param(RESPONSES,
            {"input": [{"type": "function_call_output", "output": [{"type": "input_text", "text": "abcd"}, IMAGE]}]}, 1,
            id="responses: parts of the output of a function"),
        pytest.param(RESPONSES,
            {"input": [{"type": "computer_call_output", "output": {"type": "computer_screenshot"}}]}, 0,
            id="responses: another output of a tool"),
        pytest.param(RESPONSES,
            {"input": [{"type": "reasoning", "content": None, "summary": [], "encrypted_content": "x" * 99}]}, 0,
            id="responses: encrypted reasoning"),
        pytest.param(MESSAGES, {}, 0, id="messages: nothing"),
        pytest.param(MESSAGES, {"messages": [user("abcd")]}, 1, id="messages: a text"),
        pytest.param(MESSAGES, {"system": "abcd", "messages": [user("efgh")]}, 2, id="messages: a system prompt"),
        pytest.param(MESSAGES,
            {"system": [{"type": "text", "text": "abcd", "cache_control": {"type": "ephemeral"}}], "messages": []}, 1,
            id="messages: blocks of a system prompt"),
        pytest.param(MESSAGES, {"messages": [user([{"type": "text", "text": "abcd"}, SOURCE])]}, 1,
            id="messages: blocks"),
        pytest.param(MESSAGES,
            {"messages": [user([{"type": "tool_result", "tool_use_id": "t", "content": "abcdefgh"}])]}, 2,
            id="messages: the result of a tool"),
        pytest.param(MESSAGES,
            {"messages": [user([{"type": "tool_result", "content": [{"type": "text", "text": "abcd"}, SOURCE]}])]}, 1,
            id="messages: blocks of the result of a tool"),
        pytest.param(MESSAGES,
            {"messages": [user([{"type": "web_search_tool_result", "content": {"error_code": "x"}}])]}, 0,
            id="messages: an error of a tool"),
        pytest.param(MESSAGES,
            {"messages": [user([{"type": "tool_use", "id": "t", "name": "f", "input": {"text": 5}}])]}, 0,
            id="messages: the input of a tool"),
    ],
)  # fmt: skip
def test_prompt_tokens_are_estimated_from_instructions_and_input(
    path: str, fields: dict[str, object], tokens: float
) -> None:
    assert parsed(path, fields).prompt_tokens == tokens


@pytest.mark.parametrize(
    "path, fields, limit",
    [
        pytest.param(RESPONSES, {"max_output_tokens": 9, "max_tokens": 5}, 9, id="responses"),
        pytest.param(RESPONSES, {"max_output_tokens": None}, None, id="responses without a limit"),
        pytest.param(MESSAGES, {"max_tokens": 9, "max_output_tokens": 5}, 9, id="messages"),
    ],
)
def test_each_api_has_its_own_limit_of_tokens(path: str, fields: dict[str, object], limit: int | None) -> None:
    assert parsed(path, fields).max_tokens == limit


@BOTH
def test_model_stream_and_temperature_are_parsed_and_there_is_one_choice(path: str) -> None:
    body = parsed(path, {"model": "m", "stream": True, "temperature": 0.5, "n": 3})
    assert (body.model, body.stream, body.temperature, body.choices) == ("m", True, 0.5, 1)
    assert not parsed(path, {"stream": None}).stream


@BOTH
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{not json",
        b'{"model":5}',
        b'{"stream":"yes"}',
        b'{"input":5,"messages":5}',
        b'{"input":[{"content":[{"text":5}]}],"messages":[{"content":[{"text":5}]}]}',
        b'{"max_tokens":1e30,"max_output_tokens":1e30}',
        b'{"model":"\\ud800"}',
        b'{"messages":[{"content":' + b'[{"content":' * 3000 + b'""' + b"}]" * 3000 + b'}],"input":5}',
    ],
    ids=range(10),
)
def test_an_invalid_body_is_not_parsed(path: str, body: bytes) -> None:
    assert METERED[path].parse(body, SALT, HASHING) is None


@given(st.sampled_from(sorted(METERED)), st.binary(max_size=80))
@example("/v1/embeddings", b'{"input":' + b"[" * 10_000 + b"]" * 10_000 + b"}")
def test_no_bytes_raise_an_error(path: str, body: bytes) -> None:
    METERED[path].parse(body, SALT, HASHING)


@BOTH
def test_a_long_prompt_is_hashed_by_a_thread_to_its_own_digest(path: str) -> None:
    def long(letter: str) -> dict[str, object]:
        return {"model": "m", "input": letter * LONG_BODY, "messages": [user(letter * LONG_BODY)]}

    one, again, other = (parsed(path, long(letter)) for letter in "aab")
    assert isinstance(one._digests, Future)
    assert one.digests.prompt == again.digests.prompt != other.digests.prompt


@pytest.mark.parametrize(
    "path, prompt, others",
    [
        pytest.param(RESPONSES, {"instructions": "a", "input": "b"},
            [{"input": "ab"}, {"instructions": "a", "input": "c"}, {"instructions": "c", "input": "b"}],
            id="responses"),
        pytest.param(MESSAGES, {"system": "a", "messages": [user("b")]},
            [{"messages": [user("ab")]}, {"system": "a", "messages": [user("c")]}, {"system": "c", "messages": []}],
            id="messages"),
    ],
)  # fmt: skip
def test_the_digest_depends_on_model_and_prompt_only(
    path: str, prompt: dict[str, object], others: list[dict[str, object]]
) -> None:
    one = parsed(path, {"model": "m", **prompt})
    again = parsed(path, {"temperature": 1, **prompt, "model": "m", "max_tokens": 5, "max_output_tokens": 5})
    assert one.digests.prompt == again.digests.prompt
    different = [parsed(path, {"model": "m", **other}) for other in others] + [parsed(path, {"model": "n", **prompt})]
    assert len({body.digests.prompt for body in [one, *different]}) == 5


@pytest.mark.parametrize(
    "path, part",
    [
        pytest.param(RESPONSES, {"type": "input_image", "image_url": "data:%s"}, id="responses: an image"),
        pytest.param(RESPONSES, {"type": "input_image", "file_id": "%s"}, id="responses: an image by id"),
        pytest.param(RESPONSES, {"type": "input_audio", "input_audio": {"data": "%s"}}, id="responses: audio"),
        pytest.param(RESPONSES, {"type": "input_file", "file_data": "%s"}, id="responses: a file"),
        pytest.param(RESPONSES, {"type": "input_file", "file_url": "%s"}, id="responses: the URL of a file"),
        pytest.param(MESSAGES, {"type": "image", "source": {"type": "base64", "data": "%s"}}, id="messages: an image"),
        pytest.param(MESSAGES, {"type": "document", "source": {"url": "%s"}}, id="messages: a document"),
        pytest.param(MESSAGES, {"type": "tool_result", "content": [{"type": "image", "source": {"data": "%s"}}]},
            id="messages: an image of a tool"),
        pytest.param(MESSAGES, {"type": "tool_use", "name": "f", "input": {"a": "%s"}},
            id="messages: a call of a tool"),
    ],
)  # fmt: skip
def test_the_same_text_with_another_part_is_another_prompt(path: str, part: dict[str, object]) -> None:
    def prompt(letter: str, **fields: object) -> RequestBody:
        messages = [user([{"type": "input_text", "text": "a"}, json.loads(json.dumps(part) % letter)])]
        return parsed(path, {"model": "m", "input": messages, "messages": messages, **fields})

    one, warmer, other = prompt("a"), prompt("a", temperature=1), prompt("b")
    assert one.digests.prompt == warmer.digests.prompt != other.digests.prompt
    assert len({one.digests.body, warmer.digests.body, other.digests.body}) == 3


def test_the_arguments_of_a_call_are_part_of_the_prompt_of_responses() -> None:
    calls = [
        {**CALL, "arguments": "[]"},
        {"type": "custom_tool_call", "input": "a"},
        {"type": "custom_tool_call", "input": "b"},
    ]
    assert len({parsed(RESPONSES, {"input": [call]}).digests.prompt for call in [CALL, *calls]}) == 4
