"""A body whose long prompt of token ids is cut out before it is parsed has the same values."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from exporters.relay.bodies import request_body
from exporters.relay.bodies.request_body import LONG_BODY, RequestBody, parse
from exporters.relay.bodies.token_id_prompt import cut_prompt

IDS = [1, 22, 333] * (LONG_BODY // 4)
LIST = json.dumps(IDS)


def values(data: bytes) -> tuple[Any, ...] | None:
    with ThreadPoolExecutor(1) as hashing:
        body = parse(data, b"salt", hashing)
        if body is None:
            return None
        others = [getattr(body, name) for name in RequestBody.__struct_fields__ if name != "_digests"]
        return (*others, body.digests.prompt, body.digests.body)


BODIES = [
    pytest.param({"prompt": IDS, "model": "m", "stream": True}, True, id="first"),
    pytest.param({"model": "m", "stream": True, "prompt": IDS}, True, id="last"),
    pytest.param({"model": "m", "prompt": IDS, "max_tokens": 3, "n": 2}, True, id="between"),
    pytest.param({"model": "m", "prompt": [IDS, [1], [2, 3]], "n": 2}, True, id="several prompts"),
    pytest.param({"model": "m", "prompt": [[1, 2]] * LONG_BODY, "n": 2}, True, id="short prompts"),
    pytest.param({"model": "m", "prompt": "a", "nested": {"prompt": IDS, "b": 1}}, False, id="of a nested object"),
    pytest.param({"prompt": [1], "nested": [{"prompt": IDS, "b": 1}]}, False, id="of a nested object in a list"),
    pytest.param({"nested": {"b": 1, "prompt": IDS}, "prompt": "a"}, False, id="at the end of a nested object"),
    pytest.param({'a "prompt': IDS, "prompt": "a"}, False, id="of a name that ends like prompt"),
    pytest.param({"my prompt": IDS, "prompt": "a"}, False, id="of a longer name"),
    pytest.param({"prompt": f',"prompt":{LIST},'}, False, id="in a text"),
    pytest.param({"other": f'{{"prompt":{LIST}', "prompt": [7]}, False, id="in another text"),
    pytest.param({"prompt": [*IDS, "a"]}, False, id="with a string"),
    pytest.param({"prompt": "a" * LONG_BODY}, False, id="a text"),
    pytest.param({"prompt": [1.5] * LONG_BODY, "model": "m"}, False, id="other numbers"),
    pytest.param({"other": IDS, "prompt": [7]}, False, id="another list"),
    pytest.param({"prompt": IDS, "user": "a" * len(LIST) * 2}, False, id="shorter than the rest"),
]


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\r\n", "\t:  ")])
@pytest.mark.parametrize("body, is_cut", BODIES)
def test_a_body_has_the_values_that_parsing_all_of_it_gives(
    monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], is_cut: bool, separators: tuple[str, str]
) -> None:
    data = json.dumps(body, separators=separators).encode() + b" "
    parsed: list[int] = []

    def noted(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        def decoding(json: bytes) -> Any:
            parsed.append(len(json))
            return decode(json)

        return decoding

    for name in ("_decode_long", "decode_members"):
        monkeypatch.setattr(request_body, name, noted(getattr(request_body, name)))
    found = values(data)
    assert (max(parsed) < 200) == is_cut
    monkeypatch.setattr(request_body, "cut_prompt", lambda _: None)
    assert found == values(data)


def test_the_list_of_a_duplicate_name_is_not_cut_if_another_one_counts() -> None:
    data = f'{{"prompt":{LIST},"prompt":"abcd"}}'.encode()
    assert cut_prompt(data) is not None
    assert (parsed := values(data)) is not None
    assert parsed[RequestBody.__struct_fields__.index("prompt_tokens")] == 1
