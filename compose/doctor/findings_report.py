"""The findings as text for a terminal, and as JSON."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from compose.doctor.check_list import Check
from compose.doctor.finding import Finding, State

Findings = Sequence[tuple[Check, Finding]]

_STYLES = {State.OK: "green", State.WARNING: "yellow", State.FAILED: "bold red", State.NOT_CHECKED: "cyan"}
_GAP = 2
_LOOKED_AT = "looked at"
_LABEL_WIDTH = len(_LOOKED_AT)
_STATE_WIDTH = max(map(len, State))


def counts(findings: Findings) -> dict[State, int]:
    """The number of findings in each state."""
    found = Counter(finding.state for _, finding in findings)
    return {state: found[state] for state in State}


def as_json(findings: Findings) -> str:
    """`cost` and `fix` are empty if the state is `ok`."""
    checks = [{"check": check.name, **asdict(finding)} for check, finding in findings]
    return json.dumps({"checks": checks, "counts": counts(findings)}, indent=2)


def print_report(findings: Findings, console: Console) -> None:
    """One line per check; below it what is needed to correct it.

    A command is not wrapped, so that it can be copied, and is shown once.
    """
    name_width = max(len(check.name) for check, _ in findings)
    shown = {""}
    for check, finding in findings:
        state = Text(finding.state, style=_STYLES[finding.state])
        console.print(_row((_STATE_WIDTH, state), (name_width, Text(check.name)), Text(finding.found)))
        if finding.state in {State.WARNING, State.FAILED}:
            for label, text in ((_LOOKED_AT, finding.looked_at), ("cost", finding.cost)):
                console.print(_row((_STATE_WIDTH, Text()), (_LABEL_WIDTH, Text(label, style="dim")), Text(text)))
        if finding.fix not in shown:
            shown.add(finding.fix)
            indent, label = " " * (_STATE_WIDTH + _GAP), "fix".ljust(_LABEL_WIDTH + _GAP)
            console.print(Text(indent).append(label, "dim").append(finding.fix), soft_wrap=True)
    total = ", ".join(f"{count} {state}" for state, count in counts(findings).items())
    console.print(Text(f"\n{len(findings)} checks: {total}"))


def _row(first: tuple[int, Text], second: tuple[int, Text], last: Text) -> Table:
    """Two columns of fixed width, and one that wraps."""
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    for width, _ in (first, second):
        grid.add_column(width=width)
    grid.add_column(overflow="fold")
    grid.add_row(first[1], second[1], last)
    return grid
