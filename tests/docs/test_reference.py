"""The generated pages of the documentation are what the code gives, and every part of them has a meaning."""

import re

import pytest

from docs.generate import ENGINES, FOLDER, ON_CALL, PAGES, RENAMED, on_call_page, renamed_page


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_what_the_code_gives(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run `make generate`"


def test_the_page_on_call_beside_the_runbooks_is_that_of_the_documentation() -> None:
    assert ON_CALL.read_text(encoding="utf-8") == on_call_page(), "run `make generate`"


def test_the_page_of_changed_names_has_all_renamed_flags() -> None:
    assert RENAMED.read_text(encoding="utf-8") == renamed_page(), "run `make generate`"
    assert "| `flip` | `--admin` | `--sidecar` |" in renamed_page()


@pytest.mark.parametrize("name", [name for name in PAGES if name != ENGINES])
def test_every_row_says_what_it_means(name: str) -> None:
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in PAGES[name]().splitlines() if line.startswith("| `")]
    assert len(rows) > 20
    assert [row[0].strip() for row in rows if not row[-1].strip()] == []


@pytest.mark.parametrize("name", PAGES)
def test_no_page_shows_a_path_of_the_machine_that_wrote_it(name: str) -> None:
    assert str(FOLDER.parents[1]) not in PAGES[name]()
