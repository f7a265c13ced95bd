"""A comparison as a table for a terminal, as Markdown and as JSON."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from exporters.analysis.estimates.estimates import CONFIDENCE, Estimate, Interval, Z
from exporters.analysis.estimates.figures import OFFERED, Measurement, Unit
from exporters.analysis.estimates.significance import Finding, Row
from exporters.analysis.estimates.windows import Plan, Window
from exporters.text.units import spell_duration

_COLOURS = {Finding.BETTER: "green", Finding.WORSE: "red", Finding.HIGHER: "cyan", Finding.LOWER: "cyan"}
UNBOUNDED = -math.inf, math.inf
_TITLES = ("class", "figure", "before", "after", "difference", "verdict")


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A conclusion as sentences, and as fields of a JSON object."""

    sentences: tuple[str, str, str]
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The content of a report."""

    conclusion: Conclusion
    source: str
    plan: Plan
    rows: tuple[Row, ...]
    min_events: int
    settle: float
    notes: tuple[str, ...]


def table(comparison: Comparison, console: Console) -> None:
    """Print a table of at most 100 columns."""
    for sentence in comparison.conclusion.sentences:
        console.print(Text(sentence, style="bold"))
    console.print()
    for line in _head(comparison):
        console.print(Text(line))
    console.print()
    console.print(row_table(comparison.rows))
    for note in _foot(comparison):
        console.print()
        console.print(Text(note))


def row_table(rows: Iterable[Row], before: str = "before", after: str = "after") -> Table:
    """The rows by class; `before` and `after` are the headings of the two sides."""
    grid = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    grid.add_column("figure")
    for title in (before, after, "difference"):
        grid.add_column(title, justify="right")
    grid.add_column("verdict")
    for name, these in groupby(rows, lambda row: row.request_class):
        grid.add_row(Text(name, style="bold"))
        for row in these:
            _, *cells, verdict = _cells(row)
            grid.add_row(*map(Text, cells), Text(verdict, style=_COLOURS.get(row.finding, "")))
    return grid


def markdown(comparison: Comparison) -> str:
    lines = [" ".join(map(escape_markdown, comparison.conclusion.sentences)), ""]
    lines += [f"- {escape_markdown(line)}" for line in _head(comparison)]
    lines += ["", markdown_row(_TITLES), "|---|---|--:|--:|--:|---|"]
    lines += [markdown_row(_cells(row)) for row in comparison.rows]
    return "\n".join([*lines, "", *(f"- {escape_markdown(note)}" for note in _foot(comparison)), ""])


def as_json(comparison: Comparison) -> str:
    """Shares from 0 to 1, durations in seconds, times in unix seconds; null for no bound and for an infinite value."""
    plan = comparison.plan
    head = {
        "conclusion": list(comparison.conclusion.sentences),
        **comparison.conclusion.fields,
        "source": comparison.source,
        "change": plan.change.text,
        "left_out": _json_window(Window(plan.change.start, plan.after.start)),
        "restart": plan.restart and _json_window(plan.restart),
        "before": _json_window(plan.before),
        "after": _json_window(plan.after),
        "settle": comparison.settle,
    }
    return json_report(head, comparison.rows, comparison.min_events, _notes(comparison))


def json_report(head: Mapping[str, object], rows: Sequence[Row], min_events: int, notes: Iterable[str]) -> str:
    """The rows and what they mean, after `head`, which says what is compared."""
    body = {
        "min_events": min_events,
        "confidence": CONFIDENCE,
        "tests": _tests(rows),
        "correction": "holm",
        "rows": [_json_row(row) for row in rows],
        "notes": list(notes),
    }
    return json.dumps({**head, **body}, indent=2, allow_nan=False)


def _json_window(window: Window) -> dict[str, Any]:
    return {"start": round(window.start, 6), "end": round(window.end, 6)}


def _json_row(row: Row) -> dict[str, Any]:
    """Shares from 0 to 1, durations in seconds; null for no bound and for an infinite value."""

    def value(of: float, interval: Interval) -> dict[str, float | None]:
        ends = zip(("value", "low", "high"), (of, *interval), strict=True)
        return {name: float(f"{end:.6g}") if math.isfinite(end) else None for name, end in ends}

    def side(measurement: Measurement) -> dict[str, float | None]:
        estimate = measurement.estimate
        return {"events": measurement.events} | (value(estimate.value, _interval(row, estimate)) if estimate else {})

    difference = row.difference
    return {
        "class": row.request_class,
        "figure": row.figure.name,
        "better": row.figure.better.value,
        "before": side(row.before),
        "after": side(row.after),
        "difference": difference and value(difference.value, difference.interval(Z)),
        "test": difference and difference.test,
        "p": row.p,
        "p_corrected": row.corrected,
        "verdict": row.finding.value,
    }


def _head(comparison: Comparison) -> list[str]:
    plan, change = comparison.plan, comparison.plan.change
    moment = _moment(change.start)
    if change.end - change.start >= 0.001:
        moment = f"between {moment} and {_moment(change.end, date=False)}"
    restart = plan.restart and (
        f"; engine down from {_moment(plan.restart.start, date=False)} to {_moment(plan.restart.end, date=False)}"
    )
    length = spell_duration(round(plan.before.seconds) or plan.before.seconds)
    return [
        f"{change.text}, {moment} UTC{restart or ''}",
        (
            f"before: {length} from {_moment(plan.before.start)}; "
            f"after: {length} from {_moment(plan.after.start)}; excluded between them: "
            f"{plan.after.start - plan.before.end:.1f} s, including {spell_duration(comparison.settle)} settling time"
        ),
        *([f"shorter windows: {plan.shortened}"] if plan.shortened else []),
        f"source: {comparison.source}",
    ]


def _foot(comparison: Comparison) -> list[str]:
    named = [_test_names(comparison.rows)] if _tests(comparison.rows) else []
    return [remark(comparison.rows, comparison.min_events, "a window"), *named, *_notes(comparison)]


def _test_names(rows: Iterable[Row]) -> str:
    """Each test with the figures that it was used for."""
    figures: dict[str, list[str]] = {}
    for row in rows:
        if row.difference is not None:
            figures.setdefault(row.difference.test, []).append(row.figure.name)
    used = "; ".join(f"{test}: {', '.join(dict.fromkeys(names))}" for test, names in figures.items())
    return f"Tests: {used}."


def remark(rows: Sequence[Row], min_events: int, side: str) -> str:
    """What the intervals and the verdicts mean; `side` is the noun for one of the two sides, with its article."""
    tested = _tests(rows)
    uncorrected = sum(row.only_uncorrected for row in rows)
    chance = (1 - CONFIDENCE) * tested
    text = (
        f"{tested} rows were tested. An interval has {CONFIDENCE:.0%} confidence for its row alone: without any real "
        f"difference, about {chance:.1f} of {tested} intervals would exclude 0. Verdicts are therefore corrected by "
        f"Holm's procedure: the probability of one or more wrong verdicts is at most {1 - CONFIDENCE:.0%}."
    )
    if uncorrected:
        text += f" Rows that would be significant without the correction are marked ~: {uncorrected}."
    if any(row.finding is Finding.NOT_STATIONARY for row in rows):
        text += (
            " Not tested: the backlog grew or shrank in a window, so these figures of requests depend on the time of "
            "arrival; tests of block means do not need a constant backlog."
        )
    few = [row for row in rows if row.finding is Finding.TOO_FEW]
    if few:
        least = max(row.figure.min_events for row in few)
        text += f" Not enough events: fewer than {min_events} in {side}"
        text += f", or than the {least} that a p95 needs." if least > min_events else "."
    return text


def _notes(comparison: Comparison) -> list[str]:
    unequal = [
        f"{row.request_class} {format_value(row.difference.value, UNBOUNDED, row.figure.unit, signed=True)}/s"
        for row in comparison.rows
        if row.figure == OFFERED and row.finding in {Finding.HIGHER, Finding.LOWER} and row.difference
    ]
    if not unequal:
        return [*comparison.notes]
    load = f"The load differed ({', '.join(unequal)}), so it may cause other differences instead of the config change."
    return [load, *comparison.notes]


def _tests(rows: Iterable[Row]) -> int:
    """The number of rows that Holm's procedure corrects."""
    return sum(row.p is not None for row in rows)


def _cells(row: Row) -> Sequence[str]:
    difference, change = row.difference, ""
    if difference is not None:
        change = format_value(difference.value, difference.interval(Z), row.figure.unit, signed=True)
    elif row.finding is Finding.TOO_FEW:
        change = f"{row.before.events} and {row.after.events} events"
    unit = row.figure.unit.value[0]
    return (
        row.request_class,
        f"{row.figure.name} {unit}{' ~' if row.only_uncorrected else ''}",
        _side(row, row.before),
        _side(row, row.after),
        change,
        row.finding.value,
    )


def _side(row: Row, measurement: Measurement) -> str:
    estimate = measurement.estimate
    return "-" if estimate is None else format_value(estimate.value, _interval(row, estimate), row.figure.unit)


def _interval(row: Row, estimate: Estimate) -> Interval:
    """Unbounded if the figure has no stable distribution."""
    return UNBOUNDED if row.finding is Finding.NOT_STATIONARY else estimate.interval(Z)


def format_value(value: float, interval: Interval, unit: Unit, *, signed: bool = False) -> str:
    """`0.41 (0.38..0.45)`; an end without a bound is empty."""
    low, high = (_digits(end / unit.value[1]) if math.isfinite(end) else "" for end in interval)
    text = _digits(value / unit.value[1]) if math.isfinite(value) else "never"
    plus = "+" if signed and value > 0 else ""
    return f"{plus}{text} ({low}..{high})" if low or high else f"{plus}{text}"


def _digits(value: float) -> str:
    """Three significant digits, two below 1, and all digits before the point."""
    if abs(value) >= 999.5:
        return f"{value:.0f}"
    return f"{round(value, 3) + 0.0:.{3 if abs(value) >= 1 else 2}g}"


def _moment(at: float, *, date: bool = True) -> str:
    return datetime.fromtimestamp(round(at, 1), UTC).isoformat(" ", "milliseconds")[0 if date else 11 : 21]


def markdown_row(cells: Iterable[str]) -> str:
    """The cells as one row of a Markdown table."""
    return f"| {' | '.join(escape_markdown(cell) for cell in cells)} |"


def escape_markdown(text: str) -> str:
    """Escape markup, because names of classes and files may have any characters."""
    escaped = "".join(f"\\{letter}" if letter in "\\`*_[]<>|~" else letter for letter in text)
    return escaped.replace("\n", " ")
