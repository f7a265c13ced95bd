"""The class of a request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters import slos

FOUR = slos.loads(
    """
version: 1
period: 30d
classes:
  - {name: siso, prompt_tokens: "<512", max_tokens: "<=512"}
  - {name: silo, prompt_tokens: "<512", max_tokens: ">512"}
  - {name: liso, prompt_tokens: ">=512", max_tokens: "<=512"}
  - {name: lilo, prompt_tokens: ">=512", max_tokens: ">512"}
slos:
  - {name: availability, classes: [siso], signal: availability, objective: 99%}
"""
)
SHORT_ONLY = slos.loads(
    """
version: 1
period: 30d
classes:
  - {name: tiny, max_tokens: "<10"}
  - {name: short, max_tokens: "<=100"}
slos:
  - {name: availability, classes: [short, other], signal: availability, objective: 99%}
"""
)


@pytest.mark.parametrize(
    "prompt_tokens, max_tokens, expected",
    [
        (0, 1, "siso"),
        (511.75, 512, "siso"),
        (512, 512, "liso"),
        (511, 513, "silo"),
        (512, 513, "lilo"),
        (10, None, "silo"),
        (9999, None, "lilo"),
    ],
)
def test_the_size_of_a_request_selects_its_class(prompt_tokens: float, max_tokens: int | None, expected: str) -> None:
    assert FOUR.classify(None, prompt_tokens, max_tokens) == expected


@pytest.mark.parametrize(
    "header, expected",
    [("lilo", "lilo"), ("other", "other"), ("gold", "siso"), ("", "siso"), ("LILO", "siso"), (None, "siso")],
)
def test_a_known_header_selects_the_class_and_an_unknown_one_is_ignored(header: str | None, expected: str) -> None:
    assert FOUR.classify(header, 1, 1) == expected


@pytest.mark.parametrize("max_tokens, expected", [(9, "tiny"), (10, "short"), (101, "other"), (None, "other")])
def test_the_first_class_that_fits_is_used_else_other(max_tokens: int | None, expected: str) -> None:
    assert SHORT_ONLY.classify(None, 1, max_tokens) == expected


@given(st.none() | st.text(), st.floats(0, 1e6), st.none() | st.integers(0, 10**6))
def test_every_request_has_a_class_of_the_bounded_list(header: str | None, prompt: float, most: int | None) -> None:
    for file in (FOUR, SHORT_ONLY):
        assert file.classify(header, prompt, most) in file.class_names
