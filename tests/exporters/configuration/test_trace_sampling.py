"""The share of traces that their ids select."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.configuration.trace_sampling import in_share, parse_share

TRACE_IDS = st.integers(1, 2**128 - 1).map(lambda number: f"{number:032x}")
SHARES = st.floats(0, 1)


@pytest.mark.parametrize(
    "low,share,kept",
    [
        # The thresholds of the specification: ot=th:8 is 50 %, ot=th:c is 25 %, ot=th:0 is 100 %.
        pytest.param(0x80_0000_0000_0000, 0.5, True, id="at the threshold of 50 %"),
        pytest.param(0x7F_FFFF_FFFF_FFFF, 0.5, False, id="below the threshold of 50 %"),
        pytest.param(0xC0_0000_0000_0000, 0.25, True, id="at the threshold of 25 %"),
        pytest.param(0xBF_FFFF_FFFF_FFFF, 0.25, False, id="below the threshold of 25 %"),
        pytest.param(0, 1.0, True, id="everything"),
        pytest.param(0xFF_FFFF_FFFF_FFFF, 0.0, False, id="nothing"),
    ],
)
def test_a_trace_is_in_the_share_by_the_low_56_bits_of_its_id(low: int, share: float, kept: bool) -> None:
    for high in (0, 1, 2**72 - 1):
        assert in_share(f"{high << 56 | low:032x}", share) is kept


@given(TRACE_IDS, SHARES, SHARES)
def test_a_smaller_share_is_part_of_a_larger_one(trace_id: str, one: float, other: float) -> None:
    assert in_share(trace_id, min(one, other)) <= in_share(trace_id, max(one, other))


def test_the_share_is_that_of_random_traces() -> None:
    ids = random.Random(1)  # noqa: S311 - a fixed sequence
    kept = sum(in_share(f"{ids.getrandbits(128):032x}", 0.01) for _ in range(100_000))
    assert kept == pytest.approx(1000, rel=0.15)


@pytest.mark.parametrize("text,share", [("1%", 0.01), ("0%", 0.0), ("100%", 1.0), ("0.5%", 0.005)])
def test_a_share_is_written_as_a_percentage(text: str, share: float) -> None:
    assert parse_share(text) == share
