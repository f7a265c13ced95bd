"""The growth check of the soak test."""

import pytest

from tests.faults.soak import DESCRIPTORS, MEGABYTES, REQUESTS, growth


@pytest.mark.parametrize(
    "name,unit,values,failures",
    [
        pytest.param("relay PSS", MEGABYTES, [10, 20, 20, 20], [], id="growth during warm-up"),
        pytest.param("relay PSS", MEGABYTES, [20, 20, 24, 26], [], id="within the tolerance"),
        pytest.param(
            "relay PSS",
            MEGABYTES,
            [20, 20, 24, 28],
            ["relay PSS has grown from 20.0 to 28.0 MB"],
            id="a memory leak",
        ),
        pytest.param(
            "relay fds",
            DESCRIPTORS,
            [400, 400, 410, 420],
            ["relay fds has grown from 400.0 to 420.0 descriptors"],
            id="a descriptor leak",
        ),
        pytest.param(
            "streaming",
            REQUESTS,
            [0, 200, 210, 240],
            ["streaming has grown from 200.0 to 240.0 requests"],
            id="a growing gauge",
        ),
        pytest.param("streaming", REQUESTS, [200, 200, 100, 50], [], id="shrinking"),
    ],
)
def test_growth_is_from_the_second_quarter_to_the_last_beyond_a_tolerance(
    name: str, unit: str, values: list[float], failures: list[str]
) -> None:
    assert growth([{(name, unit): float(value)} for value in values for _ in range(5)]) == failures
