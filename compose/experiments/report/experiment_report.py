"""`vllm-slo experiment report`: the results of an experiment by class and configuration."""

import argparse
from pathlib import Path

from rich.console import Console

from compose.experiments.report.contents import report
from compose.experiments.report.frontier import STYLE, pareto_plots
from compose.experiments.report.groups import Experiment, read_groups
from compose.experiments.report.json_export import as_json
from compose.experiments.report.tables import markdown, page, show
from exporters.text.command_flags import add_format
from exporters.text.output_files import write_file


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="output folder of the experiment")
    add_format(parser, "markdown")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the report to this file, with plots")
    parser.add_argument("--slos", type=Path, metavar="FILE", help="judge the stored requests again by this SLO file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Read and print; cells that are invalid, failed or missing are shown as such."""
    experiment = read_groups(Path(arguments.folder), arguments.slos)
    match arguments.format:
        case "text":
            show(report(experiment), Console(highlight=False))
        case "markdown":
            print(markdown(report(experiment)), end="")
        case "json":
            print(as_json(experiment))
    if arguments.html:
        write_file(arguments.html, html(experiment))
    return 0


def html(experiment: Experiment) -> str:
    return page(report(experiment), pareto_plots(experiment), STYLE)
