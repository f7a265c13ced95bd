"""Parsing a request body, and adding the request for usage without changing other fields."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.configuration.sidecar import LogContent
from exporters.relay.bodies import request_body
from exporters.relay.bodies.request_body import (
    LONG_BODY,
    MANY_PROMPTS,
    MANY_TOKEN_IDS,
    MAX_MEMBERS,
    MAX_PARSED_AGAIN,
    Digests,
    RequestBody,
    decode_members,
    parse,
)
from exporters.relay.dialects.paths import METERED
from exporters.relay.relay import WARM_UP_BYTES
from tests.support.prompt_hashing import SALT, Hashing
from tests.support.scripted_relay import ok, post, staged

FORMS = {"/v1/audio/transcriptions", "/v1/audio/translations"}


def parsed(data: bytes, salt: bytes = SALT) -> RequestBody:
    body = parse(data, salt, Hashing())
    assert body is not None
    return body


def with_usage(body: bytes, *, has_options: bool) -> bytes:
    return b"".join(request_body.with_usage(body, has_options=has_options))


def estimated(fields: dict[str, object]) -> float:
    return parsed(json.dumps(fields).encode()).prompt_tokens


def user(content: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": content}]}


@pytest.mark.parametrize(
    "fields, tokens",
    [
        pytest.param({}, 0, id="nothing"),
        pytest.param(user("twelve chars"), 3, id="a text"),
        pytest.param(user("ééé!"), 1, id="characters, not bytes"),
        pytest.param({"messages": [{"content": "abcd"}, {"content": "efgh"}]}, 2, id="all messages"),
        pytest.param(user([{"type": "text", "text": "abcdefgh"}]), 2, id="a part"),
        pytest.param(
            user([{"type": "text", "text": "abcd"}, {"type": "image_url", "image_url": {"url": "data:" + "x" * 999}}]),
            1,
            id="images are not counted",
        ),
        pytest.param({"messages": [{"role": "assistant", "content": None, "tool_calls": []}]}, 0, id="no content"),
        pytest.param(user(["abcd", {"type": "text", "text": "efgh"}]), 2, id="a part that is a plain string"),
        pytest.param({"prompt": "abcdefgh"}, 2, id="a prompt"),
        pytest.param({"prompt": ["abcd", "efgh"]}, 2, id="several prompts"),
        pytest.param({"prompt": [1, 2, 3]}, 3, id="token ids"),
        pytest.param({"prompt": [[1, 2, 3], [4, 5]]}, 5, id="several prompts of token ids"),
    ],
)
def test_prompt_tokens_are_estimated_from_the_decoded_text(fields: dict[str, object], tokens: float) -> None:
    assert estimated(fields) == tokens


@pytest.mark.parametrize(
    "body, expected",
    [
        (b"{}", None),
        (b'{"max_tokens":null}', None),
        (b'{"max_tokens":7}', 7),
        (b'{"max_completion_tokens":9}', 9),
        (b'{"max_tokens":7,"max_completion_tokens":null}', 7),
        (b'{"max_tokens":7,"max_completion_tokens":9}', 9),
        (b'{"max_tokens":0}', 0),
    ],
)
def test_max_completion_tokens_takes_precedence_over_max_tokens(body: bytes, expected: int | None) -> None:
    assert parsed(body).max_tokens == expected


@pytest.mark.parametrize(
    "body, found",
    [
        (b"{}", (False, False, False)),
        (b'{"stream":null}', (False, False, False)),
        (b'{"stream":true}', (True, False, False)),
        (b'{"stream":true,"stream_options":null}', (True, False, True)),
        (b'{"stream":true,"stream_options":{}}', (True, False, True)),
        (b'{"stream":true,"stream\\u005foptions":{}}', (True, False, True)),
        (b'{"stream":true,"messages":[{"content":"a","stream_options":{}}]}', (True, False, False)),
        (b'{"stream":true,"stream_options":{"include_usage":false}}', (True, False, True)),
        (b'{"stream":true,"stream_options":{"include_usage":true}}', (True, True, True)),
        (b'{"stream":true,"stream_options":{"continuous_usage_stats":true,"include_usage":true}}', (True, True, True)),
    ],
)
def test_stream_and_its_options_are_parsed(body: bytes, found: tuple[bool, bool, bool]) -> None:
    request = parsed(body)
    assert (request.stream, request.includes_usage, request.has_options) == found


@pytest.mark.parametrize(
    "body, choices",
    [
        pytest.param(b"{}", 1, id="no prompt"),
        pytest.param(b'{"n":null}', 1, id="n is null"),
        pytest.param(b'{"n":3}', 3, id="n without a prompt"),
        pytest.param(b'{"prompt":"a"}', 1, id="a prompt"),
        pytest.param(b'{"prompt":["a"]}', 1, id="a list of one prompt"),
        pytest.param(b'{"prompt":["a","b"]}', 2, id="two prompts"),
        pytest.param(b'{"prompt":["a","b"],"n":3}', 6, id="n choices for each of two prompts"),
        pytest.param(b'{"prompt":[1,2,3]}', 1, id="a prompt of token ids"),
        pytest.param(b'{"prompt":[[1,2,3],[4]]}', 2, id="two prompts of token ids"),
        pytest.param(b'{"prompt":[]}', 1, id="an empty list, which engines reject"),
    ],
)
def test_a_response_has_n_choices_for_each_prompt(body: bytes, choices: int) -> None:
    assert parsed(body).choices == choices


def test_messages_that_are_null_are_none() -> None:
    null, absent = parsed(b'{"messages":null,"prompt":"abcd"}'), parsed(b'{"prompt":"abcd"}')
    assert (null.prompt_tokens, null.digests.prompt) == (1, absent.digests.prompt)


def test_a_model_that_is_null_is_the_engines_default_model() -> None:
    null, absent = parsed(b'{"model":null,"prompt":"a"}'), parsed(b'{"prompt":"a"}')
    assert (null.model, null.digests.prompt) == ("", absent.digests.prompt)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{not json",
        b'{"stream":true} more',
        b'{"model":5}',
        b'{"max_tokens":"many"}',
        b'{"max_tokens":1e30}',
        b'{"messages":"hi"}',
        b'{"messages":[{"content":[{"text":5}]}]}',
        b'{"stream":true,"stream_options":5}',
        b'{"prompt":"\xff"}',
        b'{"model":"\\ud800"}',
    ],
)
def test_an_invalid_body_is_not_parsed(body: bytes) -> None:
    assert parse(body, SALT, Hashing()) is None


def test_the_digest_of_a_prompt_does_not_depend_on_other_fields_or_escapes() -> None:
    one = parsed(b'{"model":"m","messages":[{"role":"user","content":"\\u0061b"}],"max_tokens":5}')
    two = parsed(b'{"max_tokens":9, "messages":[{"content":"ab"}],\n"model":"m","temperature":1}')
    assert one.digests.prompt == two.digests.prompt
    assert re.fullmatch("[0-9a-f]{64}", one.digests.prompt or "")


TEXT, IMAGE = {"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "b"}}
PROMPTS: list[dict[str, Any]] = [
    {"model": "m", "prompt": "a"},
    {"model": "n", "prompt": "a"},
    {"model": "m", "prompt": "b"},
    *(user(parts) for parts in ([TEXT, IMAGE], [IMAGE, TEXT], [TEXT, IMAGE, IMAGE])),
    *({"messages": [{"tool_calls": [{"function": {"name": "f", "arguments": each}}]}]} for each in ("{}", "[]")),
]


def test_the_digest_depends_on_model_prompt_and_salt() -> None:
    digests = {parsed(json.dumps(fields).encode(), salt).digests.prompt for fields in PROMPTS for salt in (SALT, b"b")}
    assert len(digests) == 2 * len(PROMPTS)


BODY = {"model": "m", "prompt": "a", "temperature": 0.5, "response_format": {"type": "text"}}


def body_digest(fields: dict[str, object], separators: tuple[str, str] = (",", ":")) -> str | None:
    return parsed(json.dumps(fields, separators=separators).encode()).digests.body


@pytest.mark.parametrize(
    "field",
    [
        {"stream": True},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"user": "u"},
        {"metadata": {"run": "1"}},
    ],
)
def test_the_digest_of_a_body_does_not_depend_on_fields_that_do_not_change_the_answer(field: dict[str, object]) -> None:
    assert body_digest({**BODY, **field}) == body_digest({**field, **BODY}) == body_digest(BODY)
    assert body_digest({**BODY, **field}, (", ", ":")) == body_digest(BODY)


@pytest.mark.parametrize(
    "field",
    [
        {"temperature": 0.6},
        {"response_format": {"type": "json_object"}},
        {"seed": 1},
        {"model": "n"},
        {"prompt": "b"},
        {"prompt": '","stream":true,"user":"'},
        {"tools": [{"user": "u"}]},
    ],
)
def test_the_digest_of_a_body_depends_on_all_other_fields(field: dict[str, object]) -> None:
    digests = {
        body_digest({**BODY, **field}),
        body_digest(BODY),
        parsed(json.dumps(BODY).encode(), b"pepper").digests.body,
    }
    assert len(digests - {None}) == 3


def test_a_body_with_an_invalid_name_of_a_field_has_a_digest_of_its_prompt_only() -> None:
    body = parsed(b'{"model":"m","prompt":"a","\xff":1}')
    assert (body.digests.prompt is None, body.digests.body) == (False, None)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://a.example/%s"}},
        {"type": "image_url", "image_url": "data:image/png;base64,%s"},
        {"type": "image_url", "image_url": None, "uuid": "%s"},
        {"type": "image_embeds", "image_embeds": "%s"},
        {"type": "input_audio", "input_audio": {"data": "%s", "format": "wav"}},
        {"type": "audio_url", "audio_url": {"url": "data:%s"}},
        {"type": "audio_embeds", "audio_embeds": "%s"},
        {"type": "video_url", "video_url": {"url": "data:%s"}},
        {"type": "file", "file": {"file_id": "%s"}},
    ],
    ids="-".join,
)
@pytest.mark.parametrize("length", [5, LONG_BODY])
def test_the_same_text_with_other_media_is_another_prompt(part: dict[str, object], length: int) -> None:
    def prompt(letter: str, **fields: object) -> str:
        other = json.loads(json.dumps(part) % (letter * length))
        return digest_of(json.dumps({**user([{"type": "text", "text": "what is this?"}, other]), **fields}).encode())

    assert prompt("a") == prompt("a", temperature=1) != prompt("b")


def test_a_long_prompt_is_hashed_by_a_thread_to_the_same_digest() -> None:
    prompt, hashing = "a" * LONG_BODY, Hashing()
    body = parse(json.dumps({"model": "m", "prompt": prompt}).encode(), SALT, hashing)
    (task,) = hashing.tasks
    task()
    assert body is not None
    packed = b"\x92\x90\xdb" + len(prompt).to_bytes(4, "big") + prompt.encode()  # msgpack of [[], prompt]
    assert body.digests.prompt == hashlib.sha256(b"saltm" + packed).hexdigest()


def long_ids(prompts: int, *, separators: tuple[str, str] = (",", ":"), model: str = "m", last: int = 7) -> bytes:
    ids = [[1, 22, 333] * (MANY_TOKEN_IDS // prompts), *([[4, 5]] * (prompts - 1))]
    ids[-1][-1] = last
    prompt = ids if prompts > 1 else ids[0]
    return json.dumps({"model": model, "n": 2, "prompt": prompt}, separators=separators).encode()


@pytest.mark.parametrize("length", [5, LONG_BODY])
def test_without_a_salt_nothing_is_hashed(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    text, hashing = "a" * length, Hashing()
    monkeypatch.setattr("exporters.relay.bodies.request_body.hashlib", None)
    data = json.dumps({"input": text, "prompt": text, **user(text)}).encode()
    for path in METERED.keys() - FORMS:
        body = METERED[path].parse(data, None, hashing)
        assert body is not None, path
        assert (body.prompt_tokens > 0, body.digests, hashing.tasks) == (True, Digests(), []), path


@pytest.mark.parametrize("length", [5, LONG_BODY])
async def test_with_log_content_off_no_prompt_is_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr("exporters.relay.bodies.request_body.hashlib", None)
    async with staged(tmp_path, ok, log_content=LogContent.OFF) as stage:
        await stage.ask(post(json.dumps(user("a" * length)).encode()))
        record = await stage.record()
        assert (record.status, record.metered) == (200, True)
        assert (record.prompt_sha256, record.body_sha256) == (None, None)


async def test_a_relay_parses_and_hashes_a_long_prompt_at_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[RequestBody | None] = []
    monkeypatch.setattr(request_body, "parse", lambda *arguments: hashed.append(parse(*arguments)))
    async with staged(tmp_path, ok, warm_up=WARM_UP_BYTES):
        (body,) = hashed
        assert body is not None
        assert body.prompt_tokens == WARM_UP_BYTES / 4
        assert body.digests.prompt is not None


@pytest.mark.parametrize("prompts", [1, 2, 3])
def test_long_token_ids_are_counted_without_decoding_them(monkeypatch: pytest.MonkeyPatch, prompts: int) -> None:
    monkeypatch.setattr("exporters.relay.bodies.request_body._decode_prompt", None)
    body = parsed(long_ids(prompts))
    assert body.prompt_tokens == MANY_TOKEN_IDS // prompts * 3 + 2 * (prompts - 1)
    assert body.choices == 2 * prompts


def digest_of(body: bytes) -> str:
    hashing = Hashing()
    request = parse(body, SALT, hashing)
    for task in hashing.tasks:
        task()
    assert request is not None
    assert request.digests.prompt is not None
    return request.digests.prompt


def test_the_digest_of_long_token_ids_depends_on_them_and_the_model_and_not_on_spaces() -> None:
    digests = {digest_of(long_ids(1)), digest_of(long_ids(1, last=8)), digest_of(long_ids(1, model="n"))}
    assert len(digests) == 3
    assert digest_of(long_ids(1, separators=(" , ", " : "))) in digests


@pytest.mark.parametrize(
    "prompt, tokens",
    [
        pytest.param("a" * LONG_BODY, LONG_BODY / 4, id="a text"),
        pytest.param(["a" * LONG_BODY, "b" * 4], LONG_BODY / 4 + 1, id="several texts"),
        pytest.param([1, 2], 2, id="few token ids"),
        pytest.param(None, 0, id="none"),
    ],
)
def test_other_prompts_of_a_long_body_are_decoded(prompt: object, tokens: float) -> None:
    body = {"model": "m", "prompt": prompt, "user": "x" * LONG_BODY}
    assert estimated(body) == tokens
    assert digest_of(json.dumps(body).encode()) == digest_of(json.dumps({**body, "user": ""}).encode())


@pytest.mark.parametrize("value", ["1.5", "true", "null", "{}", "1e3"])
def test_a_long_prompt_of_other_values_is_not_parsed(value: str) -> None:
    body = '{"prompt":[' + "1," * LONG_BODY + value + "]}"
    assert parse(body.encode(), SALT, Hashing()) is None


ODD = (
    b'{"model":"m","seed":1.50e3,"temperature":1E0,"big":123456789012345678901234567890,'
    b'"text":"\\u00e9\\/","a":[1, 2],"o":{"b":1,"a":2},"stream":true}'
)


@pytest.mark.parametrize("has_options", [True, False])
@pytest.mark.parametrize("space", [b"", b" \r\n\t"])
def test_with_usage_keeps_the_bytes_and_the_order_of_other_fields(has_options: bool, space: bytes) -> None:
    sent = with_usage(ODD + space, has_options=has_options)
    assert sent == ODD[:-1] + b',"stream_options":{"include_usage":true}}'


def test_a_stream_without_options_is_neither_parsed_again_nor_copied_to_add_usage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = b'{"stream":true, "prompt":"a" }\n'
    has_options = parsed(body).has_options
    monkeypatch.setattr("exporters.relay.bodies.request_body.decode_members", None)
    first, last = request_body.with_usage(body, has_options=has_options)
    assert isinstance(first, memoryview)
    assert first.obj is body
    assert b"".join((first, last)) == b'{"stream":true, "prompt":"a" ,"stream_options":{"include_usage":true}}'


@pytest.mark.parametrize(
    "options, sent",
    [
        (b"null", b'{"include_usage":true}'),
        (b"{}", b'{"include_usage":true}'),
        (b'{"include_usage":false}', b'{"include_usage":true}'),
        (
            b'{"continuous_usage_stats":true,"other":1.50}',
            b'{"continuous_usage_stats":true,"other":1.50,"include_usage":true}',
        ),
    ],
)
def test_with_usage_keeps_other_stream_options(options: bytes, sent: bytes) -> None:
    body = b'{"stream_options":' + options + b',"stream":true}'
    assert with_usage(body, has_options=True) == b'{"stream_options":' + sent + b',"stream":true}'


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30)
@given(
    st.dictionaries(st.text(max_size=8).filter(lambda key: key != "stream_options"), JSON, max_size=6), st.booleans()
)
def test_with_usage_changes_only_stream_options(fields: dict[str, object], has_options: bool) -> None:
    fields["stream"] = True
    sent = with_usage(json.dumps(fields).encode(), has_options=has_options)
    assert json.loads(sent) == {**fields, "stream_options": {"include_usage": True}}


def object_of(members: int, size: int = 0) -> bytes:
    return json.dumps({f"member {number}": "x" * (size // members) for number in range(members)}).encode()


@pytest.mark.parametrize("size", [0, 2 * LONG_BODY])
def test_an_object_has_members_up_to_a_limit(size: int) -> None:
    data = object_of(MAX_MEMBERS, size)
    members = decode_members(data)
    assert {name: json.loads(bytes(value)) for name, value in members.items()} == json.loads(data)
    assert {type(name) for name in members} == {str}
    with pytest.raises(msgspec.DecodeError) as caught:
        decode_members(object_of(MAX_MEMBERS + 1, size))
    assert str(caught.value) == "an object has more than 256 members"
    with pytest.raises(msgspec.DecodeError):
        with_usage(object_of(MAX_MEMBERS + 1, size), has_options=True)


def test_a_long_object_is_not_decoded_after_the_limit_of_its_members() -> None:
    data = object_of(MAX_MEMBERS + 1, 2 * LONG_BODY)
    with pytest.raises(msgspec.DecodeError, match="an object has more than 256 members"):
        decode_members(data[:-1] + b", no JSON")


@pytest.mark.slow
@pytest.mark.parametrize("members", [MAX_MEMBERS + 1, 100_000])
def test_a_body_of_many_members_is_parsed_and_has_no_hash_of_the_whole_body(members: int) -> None:
    """The hash sorts the members, for which the JSON encoder took quadratic time and the stack of the process."""
    parameters = {"prompt": "a", "model": "m", **{f"{number:06}": 1 for number in range(members)}, "a": 1}
    hashing = Hashing()
    body = parse(json.dumps(parameters).encode(), SALT, hashing)
    while hashing.tasks:
        hashing.tasks.pop()()
    if body is not None:  # a dense body is not parsed
        assert body.digests.prompt is not None
        assert body.digests.body is None
    assert (body is None) == (members == 100_000)


def test_stream_options_of_a_very_long_body_are_not_changed() -> None:
    parameters = {"stream": True, "stream_options": {"include_usage": False}, "prompt": "a"}
    assert not parsed(json.dumps(parameters).encode()).leaves_usage
    assert parsed(json.dumps({**parameters, "prompt": "a" * MAX_PARSED_AGAIN}).encode()).leaves_usage
    assert parsed(json.dumps({**parameters, "x": [[[]]] * LONG_BODY}).encode()).leaves_usage


@pytest.mark.parametrize(
    "prompt, tokens, choices",
    [
        pytest.param([[1, 2]] * (MANY_PROMPTS - 1), 2 * MANY_PROMPTS - 2, MANY_PROMPTS - 1, id="few prompts"),
        pytest.param([[1, 2]] * (MANY_PROMPTS + 1), 2 * MANY_PROMPTS + 2, MANY_PROMPTS + 1, id="many prompts"),
        pytest.param(["abcd"] * MANY_PROMPTS, MANY_PROMPTS, MANY_PROMPTS, id="texts"),
        pytest.param("abcd", 1, 1, id="a text"),
        pytest.param(None, 0, 1, id="null"),
    ],
)
def test_the_prompts_of_a_long_body_are_counted(prompt: object, tokens: float, choices: int) -> None:
    body = parsed(json.dumps({"prompt": prompt, "user": "x" * LONG_BODY}).encode())
    assert (body.prompt_tokens, body.choices) == (tokens, choices)


@pytest.mark.parametrize("prompt", [["a", 1], ["a", [1]], [1, "a"], [[1], "a"], [1.5], [[], "a"], [None]])
def test_a_long_list_of_texts_and_token_ids_is_not_parsed(prompt: list[object]) -> None:
    assert parse(json.dumps({"prompt": prompt, "user": "x" * LONG_BODY}).encode(), SALT, Hashing()) is None
