"""Reads the tables of a page of the documentation."""

from itertools import takewhile
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def section(page: Path, heading: str) -> list[str]:
    """The lines from a heading of the second or third level to the next one of the second level."""
    _, _, rest = page.read_text(encoding="utf-8").partition(f"## {heading}\n")
    return [*takewhile(lambda line: not line.startswith("## "), rest.splitlines())]


def tables(page: Path, heading: str) -> list[list[list[str]]]:
    """The cells of the tables of a section, with their headings and without the lines under them."""
    found: list[list[list[str]]] = [[]]
    for line in section(page, heading):
        if not line.startswith("|"):
            found.append([])
        elif not line.startswith("|---"):
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
    return [rows for rows in found if rows]


def table_rows(page: Path, heading: str) -> dict[str, list[str]]:
    """The rows of all tables of a section, by their first cell."""
    return {row[0]: row for rows in tables(page, heading) for row in rows}
