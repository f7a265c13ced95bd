"""The report for a terminal, as Markdown and as an HTML page."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from compose.experiment.report_grids import contents, facts
from compose.experiment.report_groups import Experiment
from compose.experiment.report_plots import STYLE, pareto_plots
from compose.experiment.report_tables import Grid, Sentences
from exporters.comparison.rendering import escape_markdown, markdown_row
from loadgen.html_report.html_tables import table
from loadgen.html_report.markup import element
from loadgen.html_report.report_page import fact_list, html_page
from loadgen.report import WIDE

_UNLIMITED = 10_000


def show(experiment: Experiment, console: Console) -> None:
    """Print the report; a table that is too wide is printed in parts, each with its first columns."""
    if not console.is_terminal:
        console.width = max(console.width, WIDE)
    record = experiment.record
    console.print(Text(f"{record.name}: {record.description}", style="bold"))
    for name, text in facts(experiment).items():
        console.print(Text(f"{name}: {text}"))
    for part in contents(experiment):
        console.print()
        if isinstance(part, str):
            console.print(Text(part, style="dim"))
        elif isinstance(part, Sentences):
            console.print(Text(part.title, style="italic"))
            for line in part.lines:
                console.print(Text(f"- {line}"))
        else:
            for piece in _parts(part, console):
                console.print(piece)


def markdown(experiment: Experiment) -> str:
    record = experiment.record
    lines = [f"# {escape_markdown(record.name)}", "", escape_markdown(record.description), ""]
    lines += [f"- {escape_markdown(f'{name}: {text}')}" for name, text in facts(experiment).items()]
    for part in contents(experiment):
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


def page(experiment: Experiment) -> str:
    """The HTML page, with plots."""
    return html_page(f"{experiment.record.name}: experiment", _elements(experiment), STYLE)


def _elements(experiment: Experiment) -> Iterator[Element]:
    record = experiment.record
    yield element("h1", f"Experiment: {record.name}")
    yield element("p", record.description)
    yield fact_list(facts(experiment))
    yield element("h2", "Throughput against latency")
    yield element("div", *pareto_plots(experiment), class_="plots")
    yield element("h2", "Results")
    for part in contents(experiment):
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
