"""Durations and sizes: valid and invalid texts, parsing and formatting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.text.errors import InvalidValueError
from exporters.text.units import number, parse_duration, parse_size, spell_duration


@given(st.integers(1, 10**12))
def test_a_spelled_duration_is_parsed_to_the_same_value(milliseconds: int) -> None:
    assert parse_duration(spell_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000, abs=1e-6)


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("250ms", 0.25),
        ("5s", 5.0),
        ("1.5m", 90.0),
        ("1h30m", 5400.0),
        ("30d", 2_592_000.0),
        ("2w", 1_209_600.0),
    ],
)
def test_a_duration_is_a_sum_of_numbers_with_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "-5s", "5sec", "0s", "1e3s", "5s."])
def test_other_texts_are_rejected_as_duration(text: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        parse_duration(text, "15m")
    assert str(refused.value) == f"{text!r} is not a valid duration; write a number with a unit, such as 15m"


def test_zero_is_a_duration_if_allowed() -> None:
    assert parse_duration("0s", allow_zero=True) == 0.0


@pytest.mark.parametrize("text, size", [("1", 1), ("4096", 4096), ("64KiB", 65536), ("256MiB", 2**28), ("1GiB", 2**30)])
def test_a_size_is_a_count_of_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "64kB", "64 KiB", "1.5MiB", "-1", "never"])
def test_other_texts_are_rejected_as_size(text: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        parse_size(text)
    assert (
        str(refused.value)
        == f"{text!r} is not a valid size; write bytes or a number with a unit, such as 64KiB or 256MiB"
    )


@pytest.mark.parametrize("value, text", [(5.0, "5"), (0.25, "0.25"), (1_000_000.0, "1000000"), (1e-3, "0.001")])
def test_a_number_has_no_trailing_zeros_or_exponent(value: float, text: str) -> None:
    assert number(value) == text
