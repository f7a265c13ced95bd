"""HTML tables, also of the tables that the terminal shows."""

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element

from rich.table import Table
from rich.text import Text

from loadgen.report.markup import element

Cell = str | Text
_LONG = 40  # characters above which a cell has more than one line


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[Cell]], left: Sequence[int] = (0,)) -> Element:
    """A table that scrolls sideways on a narrow screen; columns except `left` are aligned to the right."""
    head = element("tr", *(_cell("th", heading, left=index in left) for index, heading in enumerate(headings)))
    body = (element("tr", *(_cell("td", each, left=index in left) for index, each in enumerate(row))) for row in rows)
    caption = [element("caption", title)] if title else []
    whole = element("table", *caption, element("thead", head), element("tbody", *body))
    return element("div", whole, class_="scroll")


def of_terminal(shown: Table) -> Element:
    """The same table as the terminal's."""
    cells = [[cell if isinstance(cell, Text) else str(cell) for cell in column.cells] for column in shown.columns]
    return table(
        str(shown.title or ""),
        [str(column.header) for column in shown.columns],
        list(zip(*cells, strict=True)),
        [index for index, column in enumerate(shown.columns) if column.justify == "left"],
    )


def _cell(tag: str, value: Cell, *, left: bool) -> Element:
    text, style = (value, "") if isinstance(value, str) else (value.plain, f"is-{value.style}")
    classes = " ".join(filter(None, ["left" if left else "", "long" if len(text) > _LONG else "", style]))
    return element(tag, text, class_=classes) if classes else element(tag, text)
