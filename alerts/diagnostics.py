"""Renders the findings in an SLO file: as text with a caret under the place, and as JSON."""

import json

from rich.cells import cell_len
from rich.text import Text

from alerts.validation import CheckResult, Finding, Level

_COLOURS = {Level.MISTAKE: "red", Level.WARNING: "yellow", Level.NOTE: "cyan"}


def render_text(result: CheckResult) -> Text:
    """Each finding with its line, a caret under its place, and the hint."""
    lines = result.content.splitlines()
    return Text("\n").join(_render(result.source, lines, finding) for finding in result.findings)


def as_json(result: CheckResult) -> str:
    """A list of objects; `hint` is null if there is none."""
    return json.dumps(
        [
            {
                "file": result.source,
                "line": finding.at.line,
                "column": finding.at.column,
                "path": finding.at.path,
                "level": finding.level,
                "problem": finding.what,
                "hint": finding.hint,
            }
            for finding in result.findings
        ],
        indent=2,
    )


def _render(source: str, lines: list[str], finding: Finding) -> Text:
    at, colour = finding.at, _COLOURS[finding.level]
    gutter = " " * len(str(at.line))
    text = Text()
    text.append(f"{source}:{at.line}:{at.column}: ", "bold")
    text.append(f"{finding.level}: ", f"bold {colour}")
    text.append(f"{at.path}: {finding.what}\n" if at.path else f"{finding.what}\n")
    if at.line <= len(lines):  # a file that ends too early is wrong after its last line
        line = "".join(
            letter if letter.isprintable() or letter == "\t" else "\N{REPLACEMENT CHARACTER}"
            for letter in lines[at.line - 1]
        )
        text_before, marked = line[: at.column - 1], line[at.column - 1 :][: at.length]
        text.append(f"  {at.line} | {line}\n")
        text.append(f"  {gutter} | {_blanks(text_before)}")
        text.append("^" * max(1, cell_len(marked)) + "\n", colour)
    if finding.hint:
        text.append(f"  {gutter} = {finding.hint}\n")
    return text


def _blanks(text: str) -> str:
    """Blanks of the same width: a tab stays a tab, some letters are two columns wide."""
    return "".join("\t" if letter == "\t" else " " * cell_len(letter) for letter in text)
