"""Lists of which only the first elements are decoded."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.relay.bodies.first_elements import First

LIMIT = 3


class Item(msgspec.Struct):
    number: int = 0


DECODE = msgspec.json.Decoder(First[list[Item], LIMIT]).decode
DECODE_RAW = msgspec.json.Decoder(First[list[msgspec.Raw], LIMIT]).decode


@given(st.lists(st.integers(0, 9), max_size=6))
def test_the_first_elements_are_those_of_the_list(numbers: list[int]) -> None:
    found = DECODE(msgspec.json.encode([{"number": number} for number in numbers]))
    assert [item.number for item in found] == numbers[:LIMIT]
    assert bool(found) == bool(numbers)
    if numbers:
        assert found[0].number == numbers[0]
    assert [bytes(raw) for raw in DECODE_RAW(msgspec.json.encode(numbers))] == [b"%d" % one for one in numbers[:LIMIT]]


def test_elements_after_the_limit_may_be_anything() -> None:
    assert len(list(DECODE(b'[{},{},{},1,null,"a",[[]]]'))) == LIMIT


@pytest.mark.parametrize("json", [b"null", b"{}", b"[1]", b"[null]", b"[{},{},{},]", b"[{}"])
def test_other_json_is_rejected(json: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        DECODE(json)
