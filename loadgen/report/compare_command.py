"""`vllm-slo load compare`: compares two runs of the load generator."""

import argparse
from functools import partial
from pathlib import Path

from rich.console import Console

from exporters.analysis.estimates.significance import Finding
from exporters.text.command_flags import add_format
from exporters.text.units import parse_count
from exporters.vocabulary.slo_file import MinEvents
from loadgen.report.comparison import compare_runs, read
from loadgen.report.comparison_report import as_json, table


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
