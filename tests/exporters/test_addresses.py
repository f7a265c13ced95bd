"""Addresses: valid and invalid texts, parsing and formatting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.addresses import Address, parse_address
from exporters.errors import InvalidValueError


@given(st.sampled_from(["127.0.0.1", "localhost", "engine-1.example.org", "::1", "2001:db8::7"]), st.integers(0, 65535))
def test_a_formatted_address_is_parsed_to_the_same_value(host: str, port: int) -> None:
    assert parse_address(str(Address(host, port))) == (host, port)


def test_an_address_without_host_means_all_interfaces() -> None:
    assert parse_address(":9464") == ("0.0.0.0", 9464)


@pytest.mark.parametrize(
    "text", ["", "localhost", "9464", "localhost:", "h:65536", "h:-1", "h:x", "h:\N{SUPERSCRIPT TWO}", "a b:1"]
)
def test_other_texts_are_rejected(text: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        parse_address(text, "127.0.0.1:9465")
    assert str(refused.value) == f"{text!r} is not a valid address; write HOST:PORT, such as 127.0.0.1:9465"


def test_an_address_without_host_is_rejected_if_a_host_is_required() -> None:
    with pytest.raises(InvalidValueError):
        parse_address(":3001", needs_host=True)
