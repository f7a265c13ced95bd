"""The growth check of the soak test."""

import pytest

from tests.faults.soak import DESCRIPTORS, MEGABYTES, REQUESTS, growth


@pytest.mark.parametrize(
    "unit,values,grown",
    [
        pytest.param(MEGABYTES, [10, 20, 20, 20], [], id="growth during warm-up"),
        pytest.param(MEGABYTES, [20, 20, 24, 26], [], id="within the tolerance"),
        pytest.param(MEGABYTES, [20, 20, 24, 28], ["20.0 to 28.0 MB"], id="a memory leak"),
        pytest.param(DESCRIPTORS, [400, 400, 410, 420], ["400.0 to 420.0 descriptors"], id="a descriptor leak"),
        pytest.param(REQUESTS, [0, 200, 210, 240], ["200.0 to 240.0 requests"], id="a growing gauge"),
        pytest.param(REQUESTS, [200, 200, 100, 50], [], id="shrinking"),
    ],
)
def test_growth_is_from_the_second_quarter_to_the_last_beyond_a_tolerance(
    unit: str, values: list[float], grown: list[str]
) -> None:
    samples = [{("relay", unit): float(value)} for value in values for _ in range(5)]
    assert growth(samples) == [f"relay has grown from {change}" for change in grown]
