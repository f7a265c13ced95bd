"""Addresses: valid and invalid texts, parsing and formatting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.text.addresses import Address, parse_address, parse_url
from exporters.text.errors import InvalidValueError, UsageError


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


HOST = "a label of its host is empty, longer than 63 bytes or has an invalid character"
INVALID_HOSTS = pytest.mark.parametrize(
    "host",
    [
        pytest.param("a..b", id="an empty label"),
        pytest.param(".a", id="an empty label at the start"),
        pytest.param("a" * 64, id="64 letters"),
        pytest.param(f"engine.{'a' * 64}.example.org", id="a label of 64 letters"),
        pytest.param("\N{LATIN SMALL LETTER A WITH DIAERESIS}" * 60, id="longer than 63 bytes in ASCII"),
        pytest.param("a\N{OBJECT REPLACEMENT CHARACTER}", id="an invalid character"),
    ],
)


@INVALID_HOSTS
def test_an_address_with_a_host_that_cannot_be_resolved_is_rejected(host: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        parse_address(f"{host}:1")
    assert str(refused.value) == (
        f"{f'{host}:1'!r} is not a valid address: {HOST}; write HOST:PORT, such as 127.0.0.1:8001"
    )


@INVALID_HOSTS
def test_a_url_with_a_host_that_cannot_be_resolved_is_rejected(host: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_url("--upstream", f"http://{host}:1/path", "http://host:port")
    assert (
        str(refused.value) == f"--upstream: 'http://{host}:1/path' is not a valid URL: {HOST}; write http://host:port"
    )


@pytest.mark.parametrize(
    "host", ["a" * 63, "engine.example.org.", "my_engine", "127.0.0.1", "::1", "b\u00fccher.example"]
)
def test_other_hosts_are_accepted(host: str) -> None:
    assert parse_url("--upstream", f"http://{Address(host, 1)}", "http://host:port").host == host
