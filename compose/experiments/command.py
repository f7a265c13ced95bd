"""`vllm-slo experiment`: measures engine configurations under the same requests."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from rich.console import Console

from compose.experiments.cells import cell_run, measurement, search_run, simulated_engine
from compose.experiments.cells.cell_run import CellPlan
from compose.experiments.cells.engine_program import SIMULATOR, check_command
from compose.experiments.grades import error_windows, grade_command, score
from compose.experiments.report import experiment_report
from compose.experiments.report.groups import read_groups
from compose.experiments.report.tables import print_grid
from compose.experiments.setup import experiment_file
from compose.experiments.setup.cell_store import SLOS, CellStatus, Scoring, read_experiment
from compose.experiments.setup.experiment_file import Experiment
from compose.processes import interrupt
from compose.vllm_cpu import launch
from exporters.text.addresses import Address, parse_address
from exporters.text.command_flags import Option, add_fields
from exporters.text.errors import UsageError, parse_flag
from exporters.text.units import parse_duration, spell_duration
from exporters.text.yaml_reader import nearest
from exporters.vocabulary import slo_file
from loadgen.results.record import read_records, read_run


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _rates(text: str) -> list[str]:
    """The values as the report spells them: 2.0 is 2."""
    return [f"{float(word):g}" if re.fullmatch(r"\d+(\.\d+)?", word) else word for word in _words(text)]


_ADDRESS = Option("HOST:PORT", partial(parse_address, example="127.0.0.1:9465"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFlags:
    """The flags of a run."""

    out: Annotated[Path, Option("DIR", Path)]
    """output folder of the experiment"""
    virtual: bool = False
    """run the scheduler of the simulator in virtual time: no processes, the same result each time"""
    engine: Annotated[str, Option("ENGINE")] = SIMULATOR
    """simulator, vllm-cpu, or a command that contains {port}; the flags of the configuration are appended (default:
    %(default)s)"""
    configurations: Annotated[list[str] | None, Option("NAME[,NAME...]", _words)] = None
    """measure only these configurations in this run (default: all)"""
    rates: Annotated[list[str] | None, Option("RATE[,RATE...]", _rates)] = None
    """measure only these rates of the file in this run (default: all)"""
    concurrencies: Annotated[list[str] | None, Option("USERS[,USERS...]", _words)] = None
    """measure only these numbers of users of the file in this run (default: all)"""
    requests: Annotated[int | None, Option("N", int)] = None
    """requests of each rate, instead of those of the file"""
    metrics: Annotated[Address | None, _ADDRESS] = None
    """serve /metrics of the load generator of each cell here"""
    sidecar_metrics: Annotated[Address | None, _ADDRESS] = None
    """serve /metrics of the sidecar of each cell here"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsFlags:
    """The flags of `windows`."""

    slo: Annotated[str | None, Option("NAME")] = None
    """SLO of the burn rates (default: the first on availability)"""
    rolling: Annotated[str, Option("TIME")] = spell_duration(error_windows.ROLLING)
    """length of the rolling window (default: %(default)s)"""
    every: Annotated[str, Option("TIME")] = spell_duration(error_windows.EVERY)
    """time between the rows (default: %(default)s)"""
    skip: Annotated[str, Option("TIME")] = "0s"
    """time of the first row (default: %(default)s)"""


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        found: argparse.ArgumentParser = actions.add_parser(name, help=text, description=f"{text.capitalize()}.")
        return found

    run = action("run", "measure every configuration of an experiment, and continue an interrupted one")
    run.add_argument("experiment", metavar="EXPERIMENT", help="a file, or a built-in experiment (see list)")
    add_fields(run, RunFlags)
    run.set_defaults(run=_run)
    experiment_report.configure(action("report", "print the results of an experiment by class and configuration"))
    scored = action("score", "score the cells of an experiment by the criteria in its file, such as those of seed-002")
    scored.add_argument("folder", type=Path, metavar="DIR", help="output folder of the experiment")
    text = "throughput that has all points (default: that of the experiment file)"
    scored.add_argument("--reference", type=float, metavar="N", help=text)
    scored.set_defaults(run=_score)
    grade_command.configure(action("grade", "grade the criteria of seed 003 by what experiments have measured"))
    text = "print the error rate of a rolling window beside the burn rates of a page, over the time of each cell"
    windows = action("windows", text)
    windows.add_argument("folder", type=Path, metavar="DIR", help="output folder of the experiment")
    add_fields(windows, WindowsFlags)
    windows.set_defaults(run=_windows)
    action("list", "list the built-in experiments").set_defaults(run=_list)


def _score(arguments: argparse.Namespace) -> int:
    reference = arguments.reference
    if reference is not None and not reference > 0:
        raise UsageError(f"--reference: {reference:g} is not a throughput; write a number above 0")
    experiment = read_groups(arguments.folder, None)
    criteria = [
        msgspec.structs.replace(each, value=reference) if reference and each.by is Scoring.PROPORTION else each
        for each in experiment.record.score
    ]
    if not criteria:
        raise UsageError(f"{arguments.folder}: {experiment.record.name} has no score; add the key to its file")
    print_grid(score.table(experiment, criteria), Console())
    print(score.legend(criteria))
    return 0


def _windows(arguments: argparse.Namespace) -> int:
    rolling, every = (
        parse_flag(f"--{name}", getattr(arguments, name), parse_duration) for name in ("rolling", "every")
    )
    skip = parse_flag("--skip", arguments.skip, partial(parse_duration, allow_zero=True))
    _, cells = read_experiment(arguments.folder)
    file = slo_file.load(arguments.folder / SLOS)
    slo = error_windows.chosen(file, arguments.slo)
    pages, console = error_windows.page_tiers(file, slo), Console(highlight=False)
    for stored in cells:
        if stored.cell.status is CellStatus.DONE:
            times = error_windows.times(skip, every, read_run(stored.folder).seconds)
            found = error_windows.moments(read_records(stored.folder), slo, pages, rolling=rolling, times=times)
            title = f"{stored.cell.configuration}, repeat {stored.cell.repeat}: {slo.name}"
            print_grid(error_windows.table(title, found, pages, rolling), console)
    return 0


def _list(_: argparse.Namespace) -> int:
    for name in experiment_file.names():
        experiment = experiment_file.load(experiment_file.find(name))
        print(f"{name}: {experiment.description} ({experiment.source})")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    """Exit status 1 when a cell is invalid or failed."""
    experiment = experiment_file.load(experiment_file.find(arguments.experiment))
    if arguments.requests is not None:
        experiment = _with_requests(experiment, arguments.requests)
    if arguments.virtual and arguments.engine != SIMULATOR:
        raise UsageError(f"--virtual: runs the simulator only; remove --engine {arguments.engine}")
    if arguments.virtual and (arguments.metrics or arguments.sidecar_metrics):
        raise UsageError(
            "--virtual: serves no metrics, because it has no processes; remove --metrics, --sidecar-metrics"
        )
    if arguments.virtual and any(shape.asks_for_json for shape in experiment.load.scenario.shapes.values()):
        raise UsageError(
            f"--virtual: {experiment.name}: no body is sent in virtual time, and so no answer is JSON; remove --virtual"
        )
    if arguments.engine == SIMULATOR:
        simulated_engine.check(experiment)
    elif arguments.engine != launch.NAME:
        check_command(arguments.engine)
    record = cell_run.described(experiment, virtual=arguments.virtual, engine=arguments.engine)
    every = _chosen(experiment, cell_run.plans(experiment, arguments.out), arguments)
    limits, report = experiment.limits, partial(print, flush=True)
    if limits is not None:
        search_run.check(experiment)
    report(_expectation(experiment, every, virtual=arguments.virtual))
    if arguments.virtual:
        measure = measurement.in_virtual_time(experiment)
    else:
        measure = measurement.in_real_time(
            experiment,
            arguments.engine,
            arguments.out,
            metrics=arguments.metrics,
            sidecar_metrics=arguments.sidecar_metrics,
        )
    try:
        if limits is None:
            cells = cell_run.run(every, record, experiment.slos, arguments.out, measure, report)
        else:
            cells = search_run.run(experiment, limits, every, record, arguments.out, measure, report)
    except interrupt.InterruptedBySignalError as stopped:
        print(f"{stopped}: all processes have been stopped; the same command continues the experiment")
        return stopped.exit_code
    return 0 if all(cell.status is CellStatus.DONE for cell in cells) else 1


def _with_requests(experiment: Experiment, requests: int) -> Experiment:
    if requests < 1:
        raise UsageError(f"--requests: {requests} is not a number of requests; write 1 or more")
    if not experiment.rates and experiment.find_max is None:
        raise UsageError(f"--requests: {experiment.name} has no rates, and its phases set the number of requests")
    return replace(experiment, requests=requests)


def _chosen(experiment: Experiment, every: list[CellPlan], arguments: argparse.Namespace) -> list[CellPlan]:
    """The cells of `--configurations`, `--rates` and `--concurrencies`."""
    names, rates, concurrencies = arguments.configurations, arguments.rates, arguments.concurrencies
    for flag, given, present in (
        ("rates", rates, experiment.rates),
        ("concurrencies", concurrencies, experiment.concurrencies),
    ):
        if given is not None and not present:
            reason = f"has no {flag}" if experiment.find_max is None else "searches its rates (find_max)"
            raise UsageError(f"--{flag}: {experiment.name} {reason}; remove the flag")
    mistakes = [
        f"{flag}: {name!r} is not in {experiment.name}; {nearest(name, choices)}"
        for flag, given, choices in (
            ("--configurations", names, list(experiment.configurations)),
            ("--rates", rates, [f"{rate:g}" for rate in experiment.rates]),
            ("--concurrencies", concurrencies, [str(users) for users in experiment.concurrencies]),
        )
        for name in given or ()
        if name not in choices
    ]
    if mistakes:
        raise UsageError("\n".join(mistakes))
    return [
        plan
        for plan in every
        if (names is None or plan.configuration in names)
        and (rates is None or f"{plan.level.rate:g}" in rates)
        and (concurrencies is None or str(plan.level.concurrency) in concurrencies)
    ]


def _expectation(experiment: Experiment, every: Sequence[CellPlan], *, virtual: bool) -> str:
    if (limits := experiment.limits) is not None:
        searches = f"{len(every)} search{'es' if len(every) > 1 else ''}"
        return (
            f"{experiment.name}: {searches} from {limits.floor:g} to {limits.cap:g} requests/s, with about "
            f"{limits.bisections + 2} probes of {experiment.requests} requests each"
        )
    load = sum(plan.seconds for plan in every)
    cells = f"{experiment.name}: {len(every)} cells with {spell_duration(round(load))} of load"
    if virtual:
        return f"{cells}, in virtual time"
    most = load + sum(plan.scenario.timeout + experiment.cool_down for plan in every)
    return f"{cells}; with the requests that are open at the end up to {spell_duration(round(most))}, and engine starts"
