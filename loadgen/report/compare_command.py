"""`vllm-slo load compare`: compares two runs of the load generator."""

import argparse
from functools import partial
from pathlib import Path

from rich.console import Console

from exporters.analysis.estimates.significance import Finding
from exporters.text.errors import UsageError
from exporters.text.units import parse_count
from exporters.text.yaml_reader import nearest
from exporters.vocabulary.slo_file import MinEvents
from loadgen.report.comparison import compare_runs, read
from loadgen.report.comparison_report import as_json, table

FORMATS = ("table", "json")


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
    parser.add_argument("--format", default="table", choices=FORMATS, help="output format (default: %(default)s)")
    parser.add_argument(
        "--fail-if-worse", action="store_true", help="exit with 1 if a figure is worse in B, or a run is INVALID"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compare and print."""
    comparison = compare_runs(read(Path(arguments.before)), read(Path(arguments.after)), arguments.min_events)
    match arguments.format:
        case "table":
            table(comparison, Console(highlight=False))
        case "json":
            print(as_json(comparison))
        case other:  # argparse does not check defaults, which may come from the environment
            raise UsageError(f"--format: {other!r} is unknown; {nearest(other, FORMATS)}")
    worse = any(row.finding is Finding.WORSE for row in comparison.rows)
    invalid = comparison.before.faults or comparison.after.faults
    return 1 if arguments.fail_if_worse and (worse or invalid) else 0
