"""Checks the numbers that an engine reports: a single absurd one would corrupt sums, histograms and verdicts."""

from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec

Number = msgspec.Raw
"""The JSON of a number, which is decoded when it is checked, so that an invalid one affects no other value."""

ABSENT = Number()

MAX_COUNT = 2**53
"""The maximum of a count; larger integers are not exact as a float."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
"""A count that is checked while it is decoded."""

MAX_SECONDS = 86_400.0

MAX_SAMPLE = 2.0**63
"""The limit of scraped series, which may have counted bytes for years."""

_T = TypeVar("_T")

_decode = msgspec.json.Decoder(int | float).decode

_SAFE_DIGITS = len(str(MAX_COUNT)) - 1

# All comparisons are false for NaN.


def count(value: float) -> int | None:
    """The value, if it can be a count of tokens."""
    return int(value) if 0 <= value <= MAX_COUNT and value == int(value) else None


def seconds(value: float) -> float | None:
    """The value, if it can be a part of the time of a request."""
    return value if 0 <= value <= MAX_SECONDS else None


def from_milliseconds(value: float) -> float | None:
    """The value in seconds, as `seconds`."""
    return value / 1000 if 0 <= value <= MAX_SECONDS * 1000 else None


def is_given(json: bytes | msgspec.Raw) -> bool:
    """Whether a member of a JSON object is neither absent nor null."""
    return bool(json) and bytes(json) != b"null"


def read(number: Number, check: Callable[[float], _T | None]) -> _T | None:
    """The checked number; also None if the JSON is none, or is beyond the range of a float."""
    try:
        return check(_decode(number))
    except msgspec.DecodeError:
        return None


def read_count(number: Number) -> int | None:
    """The checked count."""
    digits = bytes(number)
    # Nearly every count: decoding and checking it takes four times as long.
    return int(digits) if digits.isdigit() and len(digits) <= _SAFE_DIGITS else read(number, count)


def is_sample(value: float) -> bool:
    """Whether it can be a value of a scraped series."""
    return 0 <= value <= MAX_SAMPLE
