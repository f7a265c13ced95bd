"""Requests as a table that fits the terminal, as CSV and as JSON lines."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO, TextIO

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from exporters.analysis.requests.log_fields import FIELDS, NUMBERS
from exporters.analysis.requests.overlap import Load
from exporters.text.csv_lines import csv_line
from exporters.vocabulary.signals import Outcome, Verdict

Request = dict[str, Any]

_BY_IMPORTANCE = (
    "request_id",
    "time",
    "class",
    "ttft_ms",
    "e2e_ms",
    "slo",
    "queue_ms",
    "outcome",
    "completion_tokens",
    "prompt_tokens",
    "status",
    "tpot_ms",
)
_GAP = 2
_WIDEST = 40
"""The width of a column; longer texts are folded."""

_decode = msgspec.json.Decoder(Request).decode


def _fields(line: bytes) -> Request:
    try:
        return _decode(line)
    except msgspec.DecodeError:  # a number that is out of range, in a field that no condition needs
        return Request(json.loads(line))


def json_lines(lines: Iterable[bytes], columns: Sequence[str] | None, out: BinaryIO) -> None:
    """The lines as they are in the log, or objects of only these fields."""
    for line in lines:
        if columns is None:
            out.write(line + b"\n")
        else:
            request = _fields(line)
            out.write(msgspec.json.encode({name: request.get(name) for name in columns}) + b"\n")


def csv_lines(lines: Iterable[bytes], columns: Sequence[str] | None, out: TextIO) -> None:
    """A header and a line for each request; null is empty, and verdicts are `ttft=bad availability=good`."""
    names = columns or FIELDS
    out.write(csv_line(names))
    for line in lines:
        request = _fields(line)
        out.write(csv_line(_csv(request.get(name)) for name in names))


def _csv(value: Any) -> Any:
    if isinstance(value, dict):
        return " ".join(f"{name}={verdict}" for name, verdict in value.items())
    return value


@dataclass(frozen=True, slots=True)
class Rows:
    """The lines of a table, the most important columns, and the line to mark."""

    lines: Sequence[bytes]
    important: Sequence[str]
    marked: bytes | None


def table(rows: Rows, columns: Sequence[str] | None, console: Console) -> None:
    """Print a table of these columns, or of the most important ones that fit the terminal."""
    requests = [_fields(line) for line in rows.lines]
    times = [msgspec.convert(request["time"], datetime).astimezone(UTC) for request in requests]
    one_day = len({time.date() for time in times}) == 1
    by_importance = (*rows.important, *_BY_IMPORTANCE)
    names = columns or [name for name in FIELDS if name in by_importance]
    cells = {name: [_cell(name, request.get(name)) for request in requests] for name in names}
    if "time" in cells:
        cells["time"] = [Text(time.isoformat(" ", "milliseconds")[11 if one_day else 0 : -6]) for time in times]
    widths = {name: max(min(_WIDEST, text.cell_len) for text in (Text(name), *cells[name])) for name in names}
    shown = columns or _fitting(widths, by_importance, console.width - (2 if rows.marked else 0))
    grid = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    if rows.marked is not None:
        grid.add_column("", width=1)
    for name in shown:
        grid.add_column(
            name, justify="right" if name in NUMBERS else "left", overflow="fold", min_width=min(widths[name], 12)
        )
    for number, line in enumerate(rows.lines):
        marked = line == rows.marked
        mark = [] if rows.marked is None else [Text(">" if marked else "")]
        grid.add_row(*mark, *(cells[name][number] for name in shown), style="bold" if marked else "")
    console.print(grid)
    hidden = [name for name in names if name not in shown]
    console.print()
    console.print(Text(f"times: UTC{f' on {times[0].date()}' if one_day else ''}"))
    if hidden:
        console.print(Text(f"columns that do not fit here: {', '.join(hidden)}"))


def load_table(loads: Iterable[Load], console: Console) -> None:
    """Print how many other requests were in flight at the moments of a request, by phase."""
    grid = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    grid.add_column("other requests at its")
    for title in ("in flight", "waiting", "streaming", "unary"):
        grid.add_column(title, justify="right")
    for load in loads:
        grid.add_row(load.moment, *map(str, (load.in_flight, load.waiting, load.streaming, load.unary)))
    console.print()
    console.print(grid)
    console.print()


def _fitting(widths: Mapping[str, int], by_importance: Iterable[str], width: int) -> list[str]:
    kept: set[str] = set()
    for name in dict.fromkeys(by_importance):
        width -= widths[name] + (_GAP if kept else 0)
        if width < 0 and kept:
            break
        kept.add(name)
    return [name for name in widths if name in kept]


def _cell(name: str, value: Any) -> Text:
    match value:
        case None:
            return Text("-")
        case bool():
            return Text(str(value).lower())
        case float():
            return Text(f"{value:.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}")
        case dict():
            return _verdicts(value)
    text = "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in str(value))
    failed = (name == "outcome" and value != Outcome.OK) or (name == "status" and value >= 400)
    return Text(text, style="red" if failed else "")


def _verdicts(slo: Mapping[str, Any]) -> Text:
    """The SLOs that are not good, or `good`."""
    for verdict, style in ((Verdict.BAD, "red"), (Verdict.ABANDONED, "yellow")):
        names = [name for name, value in slo.items() if value == verdict]
        if names:
            return Text(f"{verdict}: {', '.join(names)}", style=style)
    return Text("good" if slo else "-")
