"""Reads the tables of a page of the documentation."""

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def table_rows(page: Path, heading: str) -> dict[str, list[str]]:
    """The cells of all tables of a section, by their first cell."""
    section = page.read_text(encoding="utf-8").split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row for row in rows}
