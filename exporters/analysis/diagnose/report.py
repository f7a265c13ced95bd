"""A diagnosis as text for a terminal, conclusions first, and as JSON."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from exporters.analysis.diagnose.evidence import ClassEvidence, EngineEvidence, Facts, Quantity, spell
from exporters.analysis.diagnose.rules import Binding, Diagnosis

MOST_UNKNOWN = 4
"""Unknown figures that the report names in its line without --verbose."""


@dataclass(frozen=True, slots=True)
class Report:
    """The content of a report; times in unix seconds."""

    sources: tuple[str, ...]
    start: float
    end: float
    classes: Sequence[tuple[ClassEvidence, Diagnosis]]
    engine: EngineEvidence
    notes: tuple[str, ...]


def as_json(report: Report) -> str:
    """Shares from 0 to 1, durations in seconds, times in unix seconds; null for unknown values."""
    return json.dumps(
        {
            "sources": report.sources,
            "start": round(report.start, 3),
            "end": round(report.end, 3),
            "classes": [
                {
                    "class": of.name,
                    "binding": diagnosis.binding.value,
                    "conclusion": conclusion(of, diagnosis),
                    "because": diagnosis.because,
                    "lever": _json_lever(diagnosis),
                    "figures": _json_figures(of),
                }
                for of, diagnosis in report.classes
            ],
            "engine": {"figures": _json_figures(report.engine), "settings": dict(report.engine.settings)},
            "notes": report.notes,
        },
        indent=2,
        allow_nan=False,
    )


def _json_lever(diagnosis: Diagnosis) -> dict[str, str] | None:
    if diagnosis.choice is None:
        return None
    lever = diagnosis.choice.lever
    return {
        "name": lever.name,
        "how": lever.how,
        "why": diagnosis.choice.why,
        "price": lever.price,
        "measure": lever.measure,
    }


def _json_figures(facts: Facts) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "value": None if fact.value is None else float(f"{fact.value:.6g}"),
            "unit": quantity.value,
            "unknown" if fact.value is None else "from": fact.origin,
        }
        for name, _, quantity, fact in facts.shown()
    }


def conclusion(of: ClassEvidence, diagnosis: Diagnosis) -> str:
    """One sentence: what binds the class, by which number, and the first lever."""
    first = diagnosis.because[0]
    match diagnosis.binding:
        case Binding.NOTHING:
            text = f"meets its SLOs: {first}"
        case Binding.UNKNOWN:
            text = f"unknown what binds: {first}"
        case binding:
            text = f"bound by {binding.value}: {first}"
    lever = f"; try first: {diagnosis.choice.lever.name}" if diagnosis.choice else ""
    return f"{of.name}: {text}{lever}."


def print_report(report: Report, console: Console, *, verbose: bool) -> None:
    """Conclusions, evidence and levers; all figures with `verbose`, else one line with those that are unknown."""
    for line in _head(report):
        console.print(Text(line))
    console.print()
    for of, diagnosis in report.classes:
        console.print(Text(conclusion(of, diagnosis)))
    console.print()
    for of, diagnosis in report.classes:
        if not (details := [*_details(diagnosis)]):
            continue
        console.print(Text(of.name, style="bold"))
        grid = Table(box=None, show_header=False, padding=(0, 1, 0, 2), pad_edge=False)
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for title, text in details:
            grid.add_row(f"  {title}", Text(text))
        console.print(grid)
        console.print()
    if not verbose:
        console.print(Text(_unknown(report)), soft_wrap=True)
        for note in report.notes:
            console.print(Text(note))
        return
    console.print(_figures("figure", {of.name: of for of, _ in report.classes}))
    console.print()
    console.print(_figures("engine", {"": report.engine}))
    for line in _foot(report):
        console.print()
        console.print(Text(line))


def _head(report: Report) -> Iterator[str]:
    yield f"source: {'; '.join(report.sources)}"
    yield f"time: {_moment(report.start)} to {_moment(report.end)} UTC"


def _details(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    for index, statement in enumerate(diagnosis.because[1:]):
        yield "" if index else "evidence", statement
    if diagnosis.choice:
        lever = diagnosis.choice.lever
        yield "lever", f"{lever.name}: {lever.how}"
        yield "reason", diagnosis.choice.why
        yield "price", lever.price
        yield "measure", lever.measure


def _unknown(report: Report) -> str:
    """The titles of the figures that the engine lacks, and of those that all classes lack."""
    classes = [{title for _, title, _, fact in of.shown() if fact.value is None} for of, _ in report.classes]
    engine = [title for _, title, _, fact in report.engine.shown() if fact.value is None]
    titles = [*engine, *sorted(set.intersection(*classes) if classes else ())]
    if not titles:
        return "unknown: none (--verbose: all figures)"
    more = f" and {len(titles) - MOST_UNKNOWN} more" if len(titles) > MOST_UNKNOWN else ""
    return f"unknown: {'; '.join(titles[:MOST_UNKNOWN])}{more} (--verbose: all figures)"


def _figures(title: str, facts: Mapping[str, Facts]) -> Table:
    """A column for each of the facts, which are of one kind."""
    grid = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    grid.add_column(title)
    for name in facts:
        grid.add_column(Text(name), justify="right")
    grid.add_column("from, or what would give it", overflow="fold")
    for row in zip(*(each.shown() for each in facts.values()), strict=True):
        _, name, quantity, _ = row[0]
        cells = [fact for *_, fact in row]
        known = [fact for fact in cells if fact.value is not None]
        grid.add_row(name, *(_cell(fact.value, quantity) for fact in cells), Text((known or cells)[0].origin))
    return grid


def _cell(value: float | None, quantity: Quantity) -> str:
    return "unknown" if value is None else spell(value, quantity)


def _foot(report: Report) -> Iterable[str]:
    if len(report.classes) > 1:
        yield "The last column of the first table is that of the first class that has the figure."
    yield from report.notes


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(" ", "seconds")[:19]
