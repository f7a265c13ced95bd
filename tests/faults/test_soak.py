"""The growth check of the soak test, and the times when it kills processes."""

import pytest

from tests.faults.soak import DESCRIPTORS, MEGABYTES, REQUESTS, THREADS, growth, may_kill


@pytest.mark.parametrize(
    "unit,values,grown",
    [
        pytest.param(MEGABYTES, [10, 20, 20, 20], [], id="growth during warm-up"),
        pytest.param(MEGABYTES, [20, 20, 24, 26], [], id="within the tolerance"),
        pytest.param(MEGABYTES, [20, 20, 24, 28], ["20.0 to 28.0 MB"], id="a memory leak"),
        pytest.param(DESCRIPTORS, [400, 400, 410, 420], ["400.0 to 420.0 descriptors"], id="a descriptor leak"),
        pytest.param(THREADS, [2, 2, 2, 4], ["2.0 to 4.0 threads"], id="threads that do not end"),
        pytest.param(REQUESTS, [0, 200, 210, 240], ["200.0 to 240.0 requests"], id="a growing gauge"),
        pytest.param(REQUESTS, [200, 200, 100, 50], [], id="shrinking"),
    ],
)
def test_growth_is_from_the_second_quarter_to_the_last_beyond_a_tolerance(
    unit: str, values: list[float], grown: list[str]
) -> None:
    samples = [{("relay", unit): float(value)} for value in values for _ in range(5)]
    assert growth(samples) == [f"relay has grown from {change}" for change in grown]


def test_processes_are_older_in_the_last_quarter_than_in_the_second() -> None:
    """If each was killed at the last possible time before the middle of the quarter."""
    killed = [share / 1000 for share in range(1000) if may_kill(share / 1000)]
    ages = [middle - max(share for share in killed if share < middle) for middle in (3 / 8, 7 / 8)]
    assert ages[1] >= 1.9 * ages[0]
    assert not [share for share in killed if 1 / 4 <= share < 1 / 2 or share >= 3 / 4]
