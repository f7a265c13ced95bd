"""Lines of CSV, read back by Python's reader and as a spreadsheet reads them."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.text.csv_lines import csv_line

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
FORMULA = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"


def read(line: str, delimiter: str = ",") -> list[str]:
    (row,) = csv.reader(io.StringIO(line, newline=""), delimiter=delimiter)
    return row


@given(st.lists(TEXT, min_size=2))
def test_each_text_is_one_cell_and_has_a_quote_before_it_if_it_could_be_a_formula(texts: list[str]) -> None:
    assert read(csv_line(texts)) == [f"'{text}" if text[:1] in {*FORMULA} else text for text in texts]


@pytest.mark.parametrize("begin", FORMULA)
def test_no_cell_begins_as_a_formula(begin: str) -> None:
    (cell,) = read(csv_line([f"{begin}HYPERLINK(1)"]))
    assert cell == f"'{begin}HYPERLINK(1)"


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_a_text_opens_no_cell_in_a_spreadsheet_that_splits_at_another_character(delimiter: str) -> None:
    assert read(csv_line([f"a{delimiter}=1+1"]), delimiter) == [f"a{delimiter}=1+1"]


def test_numbers_stay_numbers() -> None:
    assert csv_line([-5, -0.25, 7, 1e300, None, True, False]) == "-5,-0.25,7,1e+300,,true,false\n"
