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

_STYLES = {State.OK: "green", State.WARNING: "yellow", State.FAILED: "bold red", State.NOT_CHECKED: "dim"}
_GAP = 2


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
    shown = {""}
    name_width = max(len(check.name) for check, _ in findings)
    state_width = max(map(len, State))
    for check, finding in findings:
        grid = Table.grid(padding=(0, _GAP, 0, 0))
        grid.add_column(width=state_width)
        grid.add_column(width=name_width)
        grid.add_column(overflow="fold")
        grid.add_row(Text(finding.state, style=_STYLES[finding.state]), check.name, Text(finding.found))
        if finding.state in {State.WARNING, State.FAILED}:
            grid.add_row("", Text("looked at", style="dim"), Text(finding.looked_at))
            grid.add_row("", Text("cost", style="dim"), Text(finding.cost))
        console.print(grid)
        if finding.fix not in shown:
            shown.add(finding.fix)
            fix = Text(" " * (state_width + _GAP)).append("fix".ljust(name_width + _GAP), "dim").append(finding.fix)
            console.print(fix, soft_wrap=True)
    total = ", ".join(f"{count} {state}" for state, count in counts(findings).items())
    console.print(Text(f"\n{len(findings)} checks: {total}"))
