"""`vllm-slo load compare`: compares two runs of the load generator, as a table or as JSON."""

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

from exporters.analysis.compare.report import json_report, remark, row_table
from exporters.analysis.estimates.significance import Finding
from exporters.text.command_flags import add_format
from exporters.text.units import parse_count
from exporters.vocabulary.slo_file import MinEvents
from loadgen.report.comparison import FinishedRun, RunComparison, compare_runs, outcomes, read
from loadgen.report.tables import INVALID

_PAIRED = (
    "Differences are paired: their intervals are from a bootstrap that draws blocks of consecutive requests, in both "
    "runs together. The turns of a conversation are in one block. Failed requests have infinite times."
)
_UNPAIRED = (
    "The schedules differ, so the runs did not send the same requests, and their differences are those of independent "
    "samples: they include the difference between the loads. Failed requests have infinite times."
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="A", help="output folder of the first run")
    parser.add_argument("after", metavar="B", help="output folder of the second run")
    parser.add_argument(
        "--min-events",
        type=partial(parse_count, what="events"),
        metavar="N",
        default=MinEvents().page,
        help="events that a verdict needs in each run (default: %(default)s)",
    )
    add_format(parser)
    parser.add_argument(
        "--fail-if-worse", action="store_true", help="exit with 1 if a figure is worse in B, or a run is INVALID"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compare and print."""
    comparison = compare_runs(read(Path(arguments.before)), read(Path(arguments.after)), arguments.min_events)
    if arguments.format == "json":
        print(as_json(comparison))
    else:
        table(comparison, Console(highlight=False))
    worse = any(row.finding is Finding.WORSE for row in comparison.rows)
    invalid = comparison.before.faults or comparison.after.faults
    return 1 if arguments.fail_if_worse and (worse or invalid) else 0


def table(comparison: RunComparison, console: Console) -> None:
    """Print a table of at most 100 columns."""
    sides = {"A": comparison.before, "B": comparison.after}
    for letter, side in sides.items():
        console.print(Text(_head(letter, side)))
        for fault in side.faults:
            console.print(Text(f"{INVALID}: {letter}: {fault}", style="bold red"))
    console.print(Text(_pairing(comparison)))
    console.print()
    titles = (f"{letter} ({INVALID})" if side.faults else letter for letter, side in sides.items())
    console.print(row_table(comparison.rows, *titles))
    for note in _notes(comparison):
        console.print()
        console.print(Text(note))


def as_json(comparison: RunComparison) -> str:
    """`before` and `after` are A and B; shares from 0 to 1, times in seconds; null for no bound and infinite values."""
    head = {
        "before": _json_side(comparison.before),
        "after": _json_side(comparison.after),
        "paired": comparison.pairing and asdict(comparison.pairing),
    }
    return json_report(head, comparison.rows, comparison.min_events, _notes(comparison))


def _json_side(side: FinishedRun) -> dict[str, object]:
    return {
        "folder": side.name,
        "scenario": side.run.scenario,
        "seed": side.run.seed,
        "schedule": side.run.schedule,
        "requests": len(side.records),
        "valid": not side.faults,
        "faults": list(side.faults),
    }


def _head(letter: str, side: FinishedRun) -> str:
    run = side.run
    return (
        f"{letter}: {side.name}: {run.scenario}, seed {run.seed}, {run.target}, {run.model}: {run.ended} after "
        f"{run.seconds:.0f} s; {outcomes(side)}"
    )


def _pairing(comparison: RunComparison) -> str:
    pairing = comparison.pairing
    if pairing is None:
        return "not paired: the schedules differ"
    text = f"paired by the same schedule: {pairing.requests} requests; ok in A only: {pairing.lost}, in B only: "
    text += str(pairing.gained)
    if pairing.only_before or pairing.only_after:
        text += f"; recorded in A only: {pairing.only_before}, in B only: {pairing.only_after}, which are not compared"
    return text


def _notes(comparison: RunComparison) -> Iterator[str]:
    yield _UNPAIRED if comparison.pairing is None else _PAIRED
    yield remark(comparison.rows, comparison.min_events, "a run")
