"""Names from outside are cut at a character, and a cut name is not taken for another one."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporters.text.names import MAX_BYTES, cut, is_unique

NAMES = st.text(st.sampled_from("aé€😀\n"), max_size=300)


@given(NAMES | st.text(max_size=300))
@example("a" * 255 + "é")
@example("a" * 253 + "😀")
def test_a_cut_name_is_the_longest_beginning_that_fits(name: str) -> None:
    short = cut(name)
    rest = name.removeprefix(short)
    assert short + rest == name
    assert len(short.encode()) <= MAX_BYTES
    assert not rest or len((short + rest[0]).encode()) > MAX_BYTES


@given(NAMES, st.text(min_size=1))
@example("a" * 252, "b")
@example("a" * 253, "😀")
@example("a" * 256, "b")
def test_a_longer_name_is_not_cut_to_a_unique_name(name: str, more: str) -> None:
    assert not is_unique(name) or cut(name + more) != name


@pytest.mark.parametrize("character", ["a", "é", "😀"])
def test_a_name_of_a_megabyte_is_cut_to_at_most_256_bytes(character: str) -> None:
    assert cut(character * 1_000_000) == character * (256 // len(character.encode()))


def test_a_name_that_fits_is_unchanged() -> None:
    names = ["", "tiny", "m" * 256, "é" * 128]
    assert [cut(name) for name in names] == names
