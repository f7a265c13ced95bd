"""`vllm-slo load`: runs a load scenario, prints the report of an earlier run, or compares two runs."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console

from exporters.text.command_flags import add_fields, add_format
from exporters.text.logs import add_logging_flags, configure_logging
from exporters.text.output_files import write_file
from exporters.vocabulary import slo_file
from loadgen.report import comparison_report, tables
from loadgen.report.page import render_page
from loadgen.results import export
from loadgen.results.record import read_records, read_run
from loadgen.results.regrading import regrade_run
from loadgen.results.summary import summarise
from loadgen.run import settings as run_settings
from loadgen.run import warm_up
from loadgen.run.settings import RunSettings
from loadgen.search import settings as find_max_settings
from loadgen.warm_up import settings as warm_up_settings


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, text: str, more: str = ".") -> argparse.ArgumentParser:
        return actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}{more}")

    run = add("run", "run an open-loop load test and report the results")
    _add_scenario(run)
    run_settings.add_flags(run)
    add_fields(run, run_settings.WorkerFlags)
    add_logging_flags(run)
    run.set_defaults(run=partial(_send, run_settings.from_arguments))
    replay = add(
        "replay",
        "replay recorded traffic and report the results",
        ": a request log of the sidecar, a Mooncake trace (JSON lines), a CSV file with the columns time (seconds), "
        "prompt_tokens, output_tokens and, optionally, class, or the prompts of ShareGPT (a JSON list). Prompts of the "
        "others are synthetic; those whose hashes begin alike begin with the same text.",
    )
    add_fields(replay, run_settings.TraceFlags)
    run_settings.add_flags(replay)
    add_fields(replay, run_settings.WorkerFlags)
    add_logging_flags(replay)
    replay.set_defaults(run=partial(_send, run_settings.of_trace))
    find_max = add(
        "find-max",
        "find the largest rate at which every SLO is met",
        ": offers the classes of a scenario at one rate after the other, by bracketing and bisection. Run it again "
        "with the same settings and folder to continue an interrupted search.",
    )
    _add_scenario(find_max)
    find_max_settings.add_flags(find_max)
    add_logging_flags(find_max)
    find_max.set_defaults(run=_find_max)
    warming = add(
        "warm-up",
        "warm an engine up, and print its TTFT cold and warm",
        ": sends 1, 2, 4 ... N requests at once, with the prompt lengths of the classes of the SLO file, until a pass "
        "is no longer faster than those before. The requests have the class warm-up, which no SLO judges.",
    )
    warm_up_settings.add_flags(warming)
    add_logging_flags(warming)
    warming.set_defaults(run=_warm_up, out=".")
    show = add("report", "print the report of an earlier run")
    show.add_argument("folder", metavar="DIR", help="output folder of the run")
    add_format(show, "csv")
    show.add_argument("--html", type=Path, metavar="FILE", help="also write the report to this file, with plots")
    show.add_argument("--slos", type=Path, metavar="FILE", help="judge the stored requests again by this SLO file")
    show.set_defaults(run=_report)
    compare = add(
        "compare",
        "compare two runs",
        ": goodput, TTFT, E2E and TPOT of each class, with confidence intervals; request by request if both runs have "
        "the same schedule.",
    )
    comparison_report.configure(compare)


def _add_scenario(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scenario",
        default="mixed",
        metavar="NAME",
        help="a file, or a built-in scenario: demo, mixed or vllm-cpu (default: %(default)s)",
    )


def _find_max(arguments: argparse.Namespace) -> int:
    configure_logging(arguments.log_level, arguments.log_format, "load")
    settings = find_max_settings.from_arguments(arguments)
    from loadgen.search import find_max  # noqa: PLC0415 - as in `_send`

    return find_max.run(settings)


def _warm_up(arguments: argparse.Namespace) -> int:
    configure_logging(arguments.log_level, arguments.log_format, "load")
    settings = warm_up_settings.from_arguments(arguments)
    from loadgen.warm_up import warm_up_run  # noqa: PLC0415 - as in `_send`

    return warm_up_run.run(settings)


def _send(read: Callable[[argparse.Namespace], RunSettings], arguments: argparse.Namespace) -> int:
    configure_logging(arguments.log_level, arguments.log_format, "load")
    settings = read(arguments)
    try:
        if arguments.workers == 1:
            from loadgen.run import load_run  # noqa: PLC0415 - gevent is imported by a run only

            return load_run.run(settings)
        from loadgen.distributed import headless  # noqa: PLC0415 - importing Locust patches the sockets of this process

        return headless.run(settings, arguments.workers)
    except KeyboardInterrupt:
        print("vllm-slo load: interrupted before the first request; nothing was sent", file=sys.stderr)
        return 130


def _report(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.folder)
    run, records = read_run(folder), read_records(folder)
    if arguments.slos is not None:
        run, records = regrade_run(run, records, slo_file.load(arguments.slos), arguments.slos)
    result = summarise(run, records)
    match arguments.format:
        case "text":
            console = Console()
            tables.show(run, result, console)
            warm_up.show(folder, console)
        case "json":
            print(export.as_json(result))
        case "csv":
            print(export.as_csv(run, result), end="")
    if arguments.html:
        write_file(arguments.html, render_page(run, result, records))
    return 0
