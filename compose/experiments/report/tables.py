"""A report as tables of text and sentences, for a terminal, as Markdown and as an HTML page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from exporters.analysis.compare.report import escape_markdown, markdown_row
from loadgen.report.html_tables import table
from loadgen.report.markup import element
from loadgen.report.page import fact_list, html_page
from loadgen.report.tables import WIDE

_UNLIMITED = 10_000


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; the first `labels` columns are repeated where the others do not fit, `left` are aligned to the left.

    With `labels` of 0, it is never split.
    """

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 0
    left: Sequence[int] = field(default_factory=lambda: (0,))


@dataclass(frozen=True, slots=True)
class Sentences:
    """A list of sentences under a title."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Report:
    """What every format shows: facts by name, then tables, sentences and notes in this order."""

    name: str
    description: str
    facts: Mapping[str, str]
    parts: Sequence[Grid | Sentences | str]


def show(report: Report, console: Console) -> None:
    """Print the report."""
    if not console.is_terminal:
        console.width = max(console.width, WIDE)
    console.print(Text(f"{report.name}: {report.description}", style="bold"))
    for name, text in report.facts.items():
        console.print(Text(f"{name}: {text}"))
    for part in report.parts:
        console.print()
        if isinstance(part, str):
            console.print(Text(part, style="dim"))
        elif isinstance(part, Sentences):
            console.print(Text(part.title, style="italic"))
            for line in part.lines:
                console.print(Text(f"- {line}"))
        else:
            print_grid(part, console)


def print_grid(grid: Grid, console: Console) -> None:
    """Print a table, in parts if it is too wide, each with its first columns."""
    if not console.is_terminal:
        console.width = max(console.width, WIDE)
    for piece in _parts(grid, console):
        console.print(piece)


def markdown(report: Report) -> str:
    lines = [f"# {escape_markdown(report.name)}", "", escape_markdown(report.description), ""]
    lines += [f"- {escape_markdown(f'{name}: {text}')}" for name, text in report.facts.items()]
    for part in report.parts:
        if isinstance(part, str):
            lines += ["", escape_markdown(part)]
            continue
        lines += ["", f"## {escape_markdown(part.title)}", ""]
        if isinstance(part, Sentences):
            lines += [f"- {escape_markdown(line)}" for line in part.lines]
            continue
        sides = (":--" if index in part.left else "--:" for index in range(len(part.headings)))
        lines += [markdown_row(part.headings), f"| {' | '.join(sides)} |"]
        lines += [markdown_row(row) for row in part.rows]
    return "\n".join([*lines, ""])


def page(report: Report, plots: Iterable[Element], style: str) -> str:
    """The HTML page, with plots of this style."""
    return html_page(f"{report.name}: experiment", _elements(report, plots), style)


def _elements(report: Report, plots: Iterable[Element]) -> Iterator[Element]:
    yield element("h1", f"Experiment: {report.name}")
    yield element("p", report.description)
    yield fact_list(report.facts)
    yield element("h2", "Throughput against latency")
    yield element("div", *plots, class_="plots")
    yield element("h2", "Results")
    for part in report.parts:
        if isinstance(part, str):
            yield element("p", part, class_="note")
        elif isinstance(part, Sentences):
            yield element("h3", part.title)
            yield element("ul", *(element("li", line) for line in part.lines))
        else:
            yield table(part.title, part.headings, part.rows, left=part.left)


def _parts(grid: Grid, console: Console) -> Iterator[Table]:
    """The whole table, or parts of its columns that fit."""
    count, begin = len(grid.headings), grid.labels
    while begin < count:
        end = count
        while grid.labels and end > begin + 1 and not _fits(_table(grid, begin, end), console):
            end -= 1
        yield _table(grid, begin, end)
        begin = end


def _fits(made: Table, console: Console) -> bool:
    unlimited = console.options.update_width(_UNLIMITED)  # a measurement never exceeds the width of its options
    return Measurement.get(console, unlimited, made).maximum <= console.width


def _table(grid: Grid, begin: int, end: int) -> Table:
    made = Table(title=grid.title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    columns = [*range(grid.labels), *range(begin, end)]
    for index in columns:
        left = index in grid.left
        made.add_column(grid.headings[index], justify="left" if left else "right", no_wrap=bool(grid.labels))
    for row in grid.rows:
        made.add_row(*(Text(row[index]) for index in columns))
    return made
