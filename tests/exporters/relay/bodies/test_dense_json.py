"""Bodies of many small values, which are not decoded: what is known of them agrees with decoding them."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.relay.bodies.dense_json import MAX_OBJECTS, MAX_QUOTES, has_many_strings
from exporters.relay.bodies.request_body import CHARACTERS_PER_TOKEN, LONG_BODY, RequestBody, parse
from exporters.relay.dialects.paths import METERED

SALT = b"salt"
HASHING = ThreadPoolExecutor(1, "hashing")
MIB = 1024 * 1024

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
EMBEDDINGS, RERANK, TOKENIZE = "/v1/embeddings", "/v1/rerank", "/tokenize"

MODULE, DIALECTS = "exporters.relay.bodies.request_body", "exporters.relay.dialects"
DECODERS = {
    CHAT: (MODULE, "_decode_long"),
    COMPLETIONS: (MODULE, "_decode_texts"),
    RESPONSES: (f"{DIALECTS}.responses", "_decode_body"),
    MESSAGES: (f"{DIALECTS}.messages", "_decode_body"),
    EMBEDDINGS: (f"{DIALECTS}.one_answer", "_decode_input"),
    RERANK: (f"{DIALECTS}.one_answer", "_decode_input"),
    TOKENIZE: (f"{DIALECTS}.one_answer", "_decode_input"),
}
"""What decodes the prompt of each API."""


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


def filled(item: object, size: int = MIB // 4) -> list[object]:
    return [item] * (size // (len(json.dumps(item, separators=(",", ":"))) + 1))


def encoded(fields: dict[str, object]) -> bytes:
    return json.dumps({"model": "m", **fields}, separators=(",", ":")).encode()


def parsed(path: str, data: bytes) -> RequestBody:
    body = METERED[path].parse(data, SALT, HASHING)
    assert body is not None
    return body


@contextmanager
def all_decoded() -> Iterator[None]:
    """Decode all prompts, as those of ordinary bodies."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MAX_QUOTES", "MAX_OBJECTS", "MAX_LISTS", "MAX_COMMAS"):
            patch.setattr(f"exporters.relay.bodies.dense_json.{name}", 1 << 40)
        patch.setattr(f"{DIALECTS}.one_answer._MAX_QUOTES", 1 << 40)
        yield


TEXT = "The quick brown fox jumps over the lazy dog, and so on. "
CODE = 'if (a[i] == "b") {\n\treturn {"c": "d"};\n}\n'
CALL = {"id": "call_0", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.c", "line": 12}'}}
TURN = [
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_0", "content": CODE * 30},
]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 50_000}}

ORDINARY = {
    "a text": [user(TEXT * (MIB // len(TEXT)))],
    "code with escapes": [user(CODE * (MIB // 60))],
    "text with backslashes": [user('ab \\"c' * (MIB // 8))],
    "hundreds of messages": filled(user(TEXT * 50), MIB),
    "calls of tools": filled(TURN[0])[:300] + filled(TURN[1])[:300],
    "images": [user([{"type": "text", "text": TEXT}, IMAGE])] * 4,
    "thousands of short messages": [user("a")] * 2000,
    "a text about empty texts": [user('"",' * (MIB // 3))],
    "a text about empty objects": [user('{"a": ""}, {}' * (MIB // 13))],
}
DENSE = {
    "messages": (CHAT, {"messages": filled(user("a"))}),
    "parts": (CHAT, {"messages": [user(filled({"type": "text", "text": "a"}))]}),
    "parts that are strings": (CHAT, {"messages": [user(filled("a"))]}),
    "empty messages": (CHAT, {"messages": [*filled({}), user("a")]}),
    "prompts": (COMPLETIONS, {"prompt": filled("abc")}),
    "empty prompts": (COMPLETIONS, {"prompt": [*filled(""), "a"]}),
    "items": (RESPONSES, {"input": filled(user("a"))}),
    "items that are strings": (RESPONSES, {"input": filled("a")}),
    "blocks": (MESSAGES, {"messages": [user(filled({"type": "text", "text": "a"}))]}),
    "a system prompt": (MESSAGES, {"system": filled({"type": "text", "text": "a"}), "messages": [user("a")]}),
    "texts": (EMBEDDINGS, {"input": filled("abc")}),
    "documents": (RERANK, {"documents": filled({"content": "a"})}),
    "messages to tokenize": (TOKENIZE, {"messages": filled(user("a"))}),
}


@pytest.mark.parametrize("messages", ORDINARY.values(), ids=ORDINARY)
def test_the_messages_of_an_ordinary_body_are_decoded(messages: list[object]) -> None:
    data = encoded({"messages": messages})
    found = parsed(CHAT, data)
    assert not has_many_strings(data)
    with all_decoded():
        assert found.prompt_tokens == parsed(CHAT, data).prompt_tokens


@pytest.mark.parametrize("path, fields", DENSE.values(), ids=DENSE)
def test_a_dense_prompt_is_not_decoded(monkeypatch: pytest.MonkeyPatch, path: str, fields: dict[str, object]) -> None:
    data = encoded(fields)
    if path != TOKENIZE and has_many_strings(data):  # objects are counted while they are decoded
        monkeypatch.setattr(".".join(DECODERS[path]), None)
    body = parsed(path, data)
    prompt = max(fields.values(), key=lambda value: len(json.dumps(value)))
    estimate = len(json.dumps(prompt, separators=(",", ":"))) / CHARACTERS_PER_TOKEN
    assert body.prompt_tokens == pytest.approx(estimate, rel=0.001)


TEXTS = st.text(max_size=9)
MESSAGE = st.builds(user, TEXTS | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}), max_size=2))
PROMPTS = {
    CHAT: ("messages", MESSAGE),
    COMPLETIONS: ("prompt", TEXTS),
    RESPONSES: ("input", MESSAGE),
    MESSAGES: ("messages", MESSAGE),
    EMBEDDINGS: ("input", TEXTS),
    RERANK: ("documents", TEXTS | st.builds(user, TEXTS)),
}
PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        "model": st.text(max_size=5),
        "stream": st.booleans(),
        "stream_options": st.fixed_dictionaries({}, optional={"include_usage": st.booleans()}),
        "n": st.integers(1, 4),
        "max_tokens": st.integers(1, 100),
        "max_completion_tokens": st.integers(1, 100),
        "max_output_tokens": st.integers(1, 100),
        "temperature": st.floats(0, 2),
        "background": st.booleans(),
    },
)


@pytest.mark.slow
@given(st.sampled_from([*PROMPTS]), st.data(), PARAMETERS, st.booleans())
@settings(max_examples=20)
def test_all_that_is_known_of_a_dense_body_agrees_with_its_values(
    path: str, data: st.DataObject, parameters: dict[str, object], ascii_only: bool
) -> None:
    field, item = PROMPTS[path]
    items = data.draw(st.lists(item, min_size=1, max_size=5)) * MAX_QUOTES
    body = json.dumps({**parameters, field: items[:MAX_QUOTES]}, ensure_ascii=ascii_only).encode()
    dense = parsed(path, body)
    with all_decoded():
        exact = parsed(path, body)
    assert exact.prompt_tokens <= dense.prompt_tokens <= len(body) / CHARACTERS_PER_TOKEN
    if b"\\" in body:
        assert min(exact.choices, 2 * exact.n) <= dense.choices <= exact.choices
    else:
        assert dense.choices == exact.choices
    alike = {"prompt_tokens": 0.0, "choices": 1, "_digests": None}
    assert msgspec.structs.replace(dense, **alike) == msgspec.structs.replace(exact, **alike)


@pytest.mark.parametrize(
    "prompt, choices",
    [
        pytest.param(["a"], 2, id="a short prompt"),
        pytest.param(["{}" * (MIB // 2)], 2, id="a long prompt with empty objects"),
        pytest.param(['{"a": {}}, \\' * (MIB // 16)], 2, id="a long prompt with escapes"),
        pytest.param("\\" * MIB, 2, id="a text"),
        pytest.param(["a\n"] * 2 * MAX_QUOTES, 2 * MAX_QUOTES, id="a lower bound with escapes"),
        pytest.param(['\\"\\'] * 2 * MAX_QUOTES, 4, id="the least lower bound"),
        pytest.param([[7]] * MAX_QUOTES, 2 * MAX_QUOTES, id="prompts of token ids"),
    ],
)
def test_the_prompts_of_a_dense_body_are_counted(prompt: object, choices: int) -> None:
    body = parsed(COMPLETIONS, encoded({"prompt": prompt, "n": 2, "tools": filled("a")}))
    assert body.choices == choices


@pytest.mark.parametrize("path, fields", DENSE.values(), ids=DENSE)
def test_the_hash_of_a_dense_prompt_depends_on_model_and_prompt_only(path: str, fields: dict[str, object]) -> None:
    def digest(**other: object) -> str | None:
        return parsed(path, encoded({**fields, **other})).digests.prompt

    (name, value), *_ = sorted(fields.items(), key=lambda field: -len(json.dumps(field[1])))
    changed = json.loads(json.dumps(value).replace("a", "b", 1))
    expected = 1 if path == TOKENIZE else 3  # counts of tokens have no hash
    assert len({digest(), digest(temperature=1.5), digest(model="n"), digest(**{name: changed})}) == expected


def test_a_body_above_1_mib_may_have_more_strings() -> None:
    messages = [user("a")] * 6000
    assert has_many_strings(encoded({"messages": messages}))
    assert not has_many_strings(encoded({"messages": messages, "user": "x" * 7 * MIB}))


def test_values_between_texts_are_counted() -> None:
    """Samples at fixed places would see only the texts."""
    parts = ["x" * 500, *[{"text": "a"}] * 600]
    data = encoded({"messages": [user(parts * (MIB // 9000))]})
    assert has_many_strings(data)
    assert parsed(CHAT, data).prompt_tokens == pytest.approx(len(data) / CHARACTERS_PER_TOKEN, rel=0.001)


@pytest.mark.parametrize("objects", [MAX_OBJECTS - 1, MAX_OBJECTS, MAX_OBJECTS + 1])
@pytest.mark.parametrize("path, field", [(CHAT, "messages"), (RESPONSES, "input"), (MESSAGES, "messages")])
def test_objects_without_strings_are_decoded_up_to_a_limit(path: str, field: str, objects: int) -> None:
    data = encoded({field: [user("a" * (LONG_BODY // 2)), *[{}] * (objects - 1)], "x": "y" * LONG_BODY})
    tokens = parsed(path, data).prompt_tokens
    exact = LONG_BODY / 2 / CHARACTERS_PER_TOKEN
    assert (tokens == exact) == (objects <= MAX_OBJECTS)


def test_only_parameters_up_to_a_limit_are_read_of_a_dense_body() -> None:
    fields: dict[str, object] = {"messages": filled(user("a")), "stream_options": {"x": "y" * LONG_BODY}}
    assert parse(encoded(fields), SALT, HASHING) is None
