"""Which numbers of an engine are plausible."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.vocabulary.engine_values import (
    MAX_COUNT,
    MAX_SAMPLE,
    MAX_SECONDS,
    Number,
    count,
    from_milliseconds,
    is_given,
    is_sample,
    read,
    seconds,
)


@given(st.integers(0, MAX_COUNT))
def test_every_count_from_0_to_the_limit_is_kept(value: int) -> None:
    assert read(Number(b"%d" % value), count) == value


@given(st.floats(0, MAX_SECONDS))
def test_every_time_from_0_to_a_day_is_kept(value: float) -> None:
    assert seconds(value) == value
    assert from_milliseconds(min(value * 1000, MAX_SECONDS * 1000)) == pytest.approx(value)


@pytest.mark.parametrize("value", [-1e-9, -5000.0, math.nan, math.inf, -math.inf, 1.7e308])
def test_no_other_value_is_kept(value: float) -> None:
    assert (count(value), seconds(value), from_milliseconds(value), is_sample(value)) == (None, None, None, False)


@pytest.mark.parametrize(
    "check, value",
    [
        pytest.param(count, MAX_COUNT + 1, id="a count above the limit"),
        pytest.param(count, 7.5, id="a fraction of a token"),
        pytest.param(seconds, MAX_SECONDS + 1, id="more than a day"),
        pytest.param(from_milliseconds, MAX_SECONDS * 1000 + 1, id="more than a day in milliseconds"),
    ],
)
def test_a_value_above_its_limit_is_dropped(check: Callable[[float], float | None], value: float) -> None:
    assert check(value) is None


@pytest.mark.parametrize(
    "json", [b'"7"', b"true", b"[]", b"{}", b"1e400", b"1" * 5000], ids=lambda json: json[:10].decode()
)
def test_json_that_is_not_a_number_or_beyond_a_float_is_dropped(json: bytes) -> None:
    assert (is_given(Number(json)), read(Number(json), count)) == (True, None)


@pytest.mark.parametrize("json", [b"", b"null"])
def test_a_missing_value_is_not_a_dropped_one(json: bytes) -> None:
    assert (is_given(Number(json)), read(Number(json), count)) == (False, None)


def test_a_count_may_be_written_as_a_float() -> None:
    assert read(Number(b"7.0"), count) == 7


def test_a_sample_may_be_a_large_count_of_bytes() -> None:
    assert is_sample(2.0**60)
    assert not is_sample(MAX_SAMPLE * 2)
