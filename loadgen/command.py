"""`vllm-slo load`: runs a load scenario, or prints the report of an earlier run."""

import argparse
from pathlib import Path

from rich.console import Console

from exporters.logging_setup import add_logging_flags, configure_logging
from exporters.output_files import write_file
from loadgen import report, run_settings
from loadgen.html_report.report_page import render_page
from loadgen.request_record import read_records, read_run
from loadgen.summary import summarise


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "run an open-loop load test and report the results"
    run = actions.add_parser("run", help=text, description=f"{text.capitalize()}.")
    run.add_argument("scenario", metavar="SCENARIO", help="a file, or a built-in scenario: demo, mixed or vllm-cpu")
    run_settings.add_flags(run)
    add_logging_flags(run)
    run.set_defaults(run=_run)
    text = "replay recorded traffic and report the results"
    replay = actions.add_parser(
        "replay",
        help=text,
        description=f"{text.capitalize()}: a request log of the sidecar, a Mooncake trace (JSON lines), or a CSV file "
        "with the columns time (seconds), prompt_tokens, output_tokens and, optionally, class. Prompts are synthetic; "
        "those whose hashes begin alike begin with the same text.",
    )
    replay.add_argument("trace", metavar="FILE", help="the trace")
    run_settings.add_trace_flags(replay)
    run_settings.add_flags(replay)
    add_logging_flags(replay)
    replay.set_defaults(run=_replay)
    text = "print the report of an earlier run"
    show = actions.add_parser("report", help=text, description=f"{text.capitalize()}.")
    show.add_argument("folder", metavar="DIR", help="output folder of the run")
    show.add_argument("--html", type=Path, metavar="FILE", help="also write the report to this file, with plots")
    show.set_defaults(run=_report)


def _run(arguments: argparse.Namespace) -> int:
    configure_logging(arguments.log_level, arguments.log_format, "load")
    return _send(run_settings.from_arguments(arguments))


def _replay(arguments: argparse.Namespace) -> int:
    configure_logging(arguments.log_level, arguments.log_format, "load")
    return _send(run_settings.of_trace(arguments))


def _send(settings: run_settings.RunSettings) -> int:
    from loadgen import locust_headless  # noqa: PLC0415 - importing Locust patches the sockets of this process

    return locust_headless.run(settings)


def _report(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.folder)
    run = read_run(folder)
    records = read_records(folder)
    result = summarise(run, records)
    report.show(run, result, Console())
    if arguments.html:
        write_file(arguments.html, render_page(run, result, records))
    return 0
