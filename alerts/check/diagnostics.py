"""Renders the findings in an SLO file: as text with a caret under the position, and as JSON."""

import json

from rich.cells import cell_len
from rich.text import Text

from alerts.check.validation import CheckResult, Finding, Level

_COLOURS = {Level.MISTAKE: "red", Level.WARNING: "yellow", Level.NOTE: "cyan"}


def render_text(result: CheckResult) -> Text:
    """Each finding with its line, a caret under its position, and the hint."""
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
                "problem": problem,
                "hint": hint,
            }
            for finding in result.findings
            for problem, hint in [finding.problem_and_hint]
        ],
        indent=2,
    )


def _render(source: str, lines: list[str], finding: Finding) -> Text:
    at, colour = finding.at, _COLOURS[finding.level]
    problem, hint = finding.problem_and_hint
    gutter = " " * len(str(at.line))
    text = Text()
    text.append(f"{source}:{at.line}:{at.column}: ", "bold")
    text.append(f"{finding.level}: ", f"bold {colour}")
    text.append(f"{at.path}: {problem}\n" if at.path else f"{problem}\n")
    # A file that ends too early has its mistake after the last line.
    if at.line <= len(lines):
        line = "".join(
            character if character.isprintable() or character == "\t" else "\N{REPLACEMENT CHARACTER}"
            for character in lines[at.line - 1]
        )
        text_before, marked = line[: at.column - 1], line[at.column - 1 :][: at.length]
        # A tab stays a tab, and some characters are two columns wide.
        indent = "".join("\t" if character == "\t" else " " * cell_len(character) for character in text_before)
        text.append(f"  {at.line} | {line}\n")
        text.append(f"  {gutter} | {indent}")
        text.append("^" * max(1, cell_len(marked)) + "\n", colour)
    if hint:
        text.append(f"  {gutter} = {hint}\n")
    return text
