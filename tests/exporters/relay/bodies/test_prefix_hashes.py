"""Chained hashes of the blocks of a prompt: what two prompts share, in each API."""

import json
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.records.messages import PREFIX_BLOCK
from exporters.relay.bodies.prefix_hashes import MAX_BLOCKS, MAX_OBJECTS, SHORT_BODY, hash_blocks, prompt_text, start
from exporters.relay.bodies.request_body import LONG_BODY
from tests.support.scripted_relay import ok, post, staged

SALT = b"salt"
BLOCK = "b" * PREFIX_BLOCK


def hashes(body: dict[str, Any], salt: bytes = SALT) -> list[int]:
    found, _ = hash_blocks(json.dumps(body).encode(), salt)
    assert found is not None
    return found


def shared(one: list[int], other: list[int]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from("aé\N{GRINNING FACE}"), max_size=6),
    st.lists(st.sampled_from("bc"), max_size=4),
    st.lists(st.sampled_from("de"), max_size=4),
    st.integers(0, PREFIX_BLOCK - 1),
)
def test_prompts_share_the_hashes_of_their_common_whole_blocks_and_none_after(
    common: list[str], one: list[str], other: list[str], rest: int
) -> None:
    prompts = ["".join(letter * PREFIX_BLOCK for letter in [*common, *tail]) for tail in (one, other)]
    first, second = (hashes({"model": "m", "prompt": prompt + "x" * rest}) for prompt in prompts)
    alike = len(common) + len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))
    assert len(first) == len(common) + len(one)
    assert first[:alike] == second[:alike]
    assert not set(first[alike:]) & set(second[alike:])
    assert len(set(first)) == len(first)


@given(st.integers(0, 4 * PREFIX_BLOCK - 1))
def test_a_changed_character_changes_the_hash_of_its_block_and_all_later_ones(at: int) -> None:
    text = "a" * 4 * PREFIX_BLOCK
    before, after = (hashes({"prompt": prompt}) for prompt in (text, text[:at] + "b" + text[at + 1 :]))
    changed = [one != other for one, other in zip(before, after, strict=True)]
    assert changed == [number >= at // PREFIX_BLOCK for number in range(4)]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"prompt": [1, 22, 333] * (LONG_BODY // 8)}, id="token ids"),
        pytest.param({"prompt": [[1, 22], [333]] * (LONG_BODY // 8), "other": [1.5]}, id="lists of token ids"),
        pytest.param({"messages": [{"role": "user", "content": "a" * LONG_BODY}], "tools": [{"a": 1}]}, id="a message"),
        pytest.param({"prompt": [1] * 5000, "user": "a" * LONG_BODY}, id="few token ids"),
    ],
)
def test_long_prompts_have_the_hashes_of_their_decoded_text(
    monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]
) -> None:
    data = json.dumps({"model": "m", **body}).encode()
    found = hash_blocks(data, SALT)
    monkeypatch.setattr("exporters.relay.bodies.prefix_hashes.LONG_BODY", len(data))
    assert found == hash_blocks(data, SALT)
    assert found[1] == len(prompt_text(body))


def test_the_text_of_many_token_ids_or_of_a_dense_prompt_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    values = ([7] * LONG_BODY, [{"role": "user", "content": "a"}] * 10_000)
    bodies = [json.dumps({"model": "m", "prompt": value}).encode() for value in values]
    decode = msgspec.json.decode

    def decode_few(json: bytes, **options: Any) -> Any:
        assert options or len(json) <= LONG_BODY
        return decode(json, **options)

    monkeypatch.setattr(msgspec.json, "decode", decode_few)
    ids, messages = (hash_blocks(body, SALT)[1] for body in bodies)
    assert (ids, messages) == (2 * LONG_BODY, len(json.dumps(values[1])))


def test_dense_prompts_share_the_hashes_of_the_beginning_of_their_json() -> None:
    one, other = ([{"role": "user", "content": letter} for letter in "a" * 5000 + change * 5000] for change in "bc")
    common = json.dumps(one).index('"b"') + 1
    first, second = hashes({"messages": one}), hashes({"messages": other})
    assert len(first) == len(second) == len(json.dumps(one)) // PREFIX_BLOCK
    assert shared(first, second) == common // PREFIX_BLOCK
    assert not set(first[common // PREFIX_BLOCK :]) & set(second)


def test_hashes_differ_by_salt_and_model() -> None:
    body = {"model": "m", "prompt": BLOCK * 2}
    found = [*hashes(body), *hashes(body, b"pepper"), *hashes({**body, "model": "n"})]
    assert len(set(found)) == 6
    assert all(0 <= each < 2**64 for each in found)


@pytest.mark.parametrize(
    "characters, blocks",
    [(0, 0), (PREFIX_BLOCK - 1, 0), (PREFIX_BLOCK, 1), (MAX_BLOCKS * PREFIX_BLOCK + 5 * PREFIX_BLOCK, MAX_BLOCKS)],
)
def test_whole_blocks_are_hashed_up_to_a_limit_and_all_characters_counted(characters: int, blocks: int) -> None:
    found, counted = hash_blocks(json.dumps({"prompt": "é" * characters}).encode(), SALT)
    assert found is not None
    assert (len(found), counted) == (blocks, characters)


def test_only_a_long_body_is_hashed_by_a_thread_and_to_the_same_hashes() -> None:
    short, long = ({"model": "m", "prompt": "a" * size} for size in (SHORT_BODY // 2, SHORT_BODY))
    with ThreadPoolExecutor(1) as hashing:
        assert start(json.dumps(short).encode(), SALT, hashing) == (hashes(short), SHORT_BODY // 2)
        future = start(json.dumps(long).encode(), SALT, hashing)
        assert isinstance(future, Future)
        assert future.result() == (hashes(long), SHORT_BODY)


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SOURCE = {"type": "image", "source": {"type": "base64", "data": "AAAA"}}
TEXT = {"type": "text", "text": "t"}


@pytest.mark.parametrize(
    "body, text",
    [
        pytest.param({"messages": [user("a"), user("b")]}, "\nuser\na\nuser\nb", id="chat"),
        pytest.param({"messages": [user([TEXT, "plain"])]}, "\nuser\ntplain", id="chat: parts"),
        pytest.param({"prompt": "abc"}, "abc", id="completions"),
        pytest.param({"prompt": ["abc", "d"]}, "abcd", id="completions: several prompts"),
        pytest.param({"prompt": [1, 22, 3]}, "1,22,3,", id="completions: token ids"),
        pytest.param({"prompt": [[1, 22], [3]]}, "1,22,3,", id="completions: several prompts of token ids"),
        pytest.param({"instructions": "i", "input": "abc"}, "iabc", id="responses"),
        pytest.param(
            {"input": [user([{"type": "input_text", "text": "a"}]), {"type": "function_call_output", "output": "o"}]},
            "\nuser\nao",
            id="responses: items",
        ),
        pytest.param({"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}]}, "'f''{}'",
            id="responses: a call"),
        pytest.param({"system": "s", "messages": [user("a")]}, "s\nuser\na", id="messages"),
        pytest.param({"system": [TEXT], "messages": [user([TEXT])]}, "t\nuser\nt", id="messages: blocks"),
        pytest.param({"messages": [user([{"type": "tool_result", "tool_use_id": "1", "content": [TEXT]}])]},
            "\nuser\nt", id="messages: the result of a tool"),
        pytest.param({"tools": [{"name": "f"}], "messages": [user("a")]}, "[{'name': 'f'}]\nuser\na", id="tools"),
        pytest.param({"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": 1}]}]},
            "\nassistant\n[{'id': 1}]", id="chat: a call of a tool"),
        pytest.param({"messages": None, "prompt": None}, "", id="nothing"),
    ],
)  # fmt: skip
def test_the_text_of_a_prompt_in_each_api(body: dict[str, Any], text: str) -> None:
    assert prompt_text(body) == text


@pytest.mark.parametrize("image", [IMAGE, SOURCE, {"type": "input_image", "image_url": "https://a.example/AAAA"}])
def test_an_image_is_a_hash_in_its_place(image: dict[str, Any]) -> None:
    other = json.loads(json.dumps(image).replace("AAAA", "BBBB"))
    bodies = [user([{"text": BLOCK}, each, {"text": "x" * 4 * PREFIX_BLOCK}]) for each in (image, other)]
    first, second = (hashes({"messages": [body]}) for body in bodies)
    assert len(first) == len(second) == 5
    assert shared(first, second) == 1
    assert all(one != two for one, two in pairwise([*first[1:], *second[1:]]))
    assert len(prompt_text({"messages": [user([image])]})) == len("\nuser\n") + 64


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{not json", id="no JSON"),
        pytest.param(b'{"prompt":"\\ud800"}', id="no text"),
        pytest.param(b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="too deep"),
        pytest.param(b'{"prompt":[' + b"1" * 5000 + b"]}", id="a token id of 5,000 digits"),
        pytest.param(b'{"tools":[' + b"1" * 5000 + b"]}", id="a number of 5,000 digits"),
    ],
)
def test_an_invalid_body_has_no_hashes(body: bytes) -> None:
    assert hash_blocks(body, SALT) == (None, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "text", "input", "type"]), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = st.sampled_from(["messages", "prompt", "input", "system", "tools", "model"])


@settings(max_examples=30)
@given(st.dictionaries(FIELDS, JSON))
def test_no_values_raise_an_error(fields: dict[str, object]) -> None:
    hash_blocks(json.dumps(fields).encode(), SALT)


@pytest.mark.parametrize("flag", [True, False])
async def test_only_with_the_flag_a_record_has_the_hashes(tmp_path: Path, flag: bool) -> None:
    async with staged(tmp_path, ok, log_prefix_hashes=flag) as stage:
        for number, size in enumerate((2 * PREFIX_BLOCK, LONG_BODY), 1):
            body = {"model": "m", "messages": [user("a" * size)]}
            await stage.ask(post(json.dumps(body).encode()))
            record = await stage.record(number)
            expected = (hashes(body), size + len("\nuser\n")) if flag else (None, None)
            assert (record.prefix_hashes, record.prefix_characters) == expected


def test_a_prompt_of_very_many_parts_has_the_hashes_of_its_json() -> None:
    body = {"model": "m", "input": [user([{}] * MAX_OBJECTS)], "instructions": "i"}
    text = json.dumps(body["instructions"]) + json.dumps(body["input"])
    assert hash_blocks(json.dumps(body).encode(), SALT) == (hashes({"model": "m", "prompt": text}), len(text))


def test_the_texts_of_nested_lists_are_in_order() -> None:
    nested: object = "c"
    for _ in range(400):
        nested = ["a", nested, "d"]
    assert prompt_text({"prompt": [nested, [["e"]]]}) == "a" * 400 + "c" + "d" * 400 + "e"
