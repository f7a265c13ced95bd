"""`vllm-slo doctor`: declares and reads the flags, runs the checks, and prints the findings."""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console

from compose.doctor import check_list
from compose.doctor.check_list import Settings
from compose.doctor.finding import Place, State
from compose.doctor.findings_report import as_json, counts, print_report
from compose.lab.ports import SERVICES, Ports, parse_ports
from compose.lab.rewrite_config import COMPOSE_DIRECTORY
from exporters.engines.bearer_token import EngineToken
from exporters.sidecar.supervision.system_limits import CLIENTS
from exporters.text.addresses import parse_url
from exporters.text.command_flags import Option, add_fields, add_format
from exporters.text.errors import UsageError, parse_flag
from exporters.text.units import parse_size
from exporters.vocabulary import slo_file

_SHIPPED = (("the shipped SLO file", slo_file.SHIPPED), ("the SLO file of the lab", COMPOSE_DIRECTORY / "slos.yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFlags:
    """The flags that name servers; a token is sent to the engine only."""

    upstream: Annotated[str | None, Option("URL")] = None
    """URL of the engine (default: http://127.0.0.1:8000)"""
    engine_token_file: Annotated[str | None, Option("FILE")] = None
    """file with the bearer token of the engine (default: no token)"""
    send_request: bool = False
    """send one chat completion of one token to the engine, whose response shows two of its flags"""
    sidecar: Annotated[str | None, Option("URL")] = None
    """URL of the sidecar's metrics port (default: http://127.0.0.1:9464)"""
    prometheus: Annotated[str | None, Option("URL")] = None
    """URL of Prometheus (default: http://127.0.0.1:9090)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFlags:
    """The flags that name files, and the limits of their sizes."""

    slos: Annotated[Path | None, Option("FILE", Path)] = None
    """SLO file (default: the shipped one or the lab's, whichever gives the rules in Prometheus)"""
    rules: Annotated[Path | None, Option("FILE", Path)] = None
    """rule file to compare with the SLO file"""
    request_log: Annotated[str | None, Option("FILE")] = None
    """request log of the sidecar"""
    request_log_total: Annotated[str, Option("SIZE")] = "8GiB"
    """maximum size of the request log, or 'never' (default %(default)s)"""
    trace_file: Annotated[str | None, Option("FILE")] = None
    """SQLite file of `vllm-slo traces`"""
    trace_max_size: Annotated[str, Option("SIZE")] = "256MiB"
    """maximum size of this file (default %(default)s)"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags; those of the sidecar have its names, so that its environment variables set them."""
    servers = parser.add_argument_group("servers", "without the flag, a server that does not respond is not a failure")
    add_fields(servers, ServerFlags)
    add_fields(parser.add_argument_group("files"), FileFlags)
    parser.add_argument(
        "--clients",
        type=int,
        default=CLIENTS,
        metavar="N",
        help="clients that each relay has to serve at once (default %(default)s)",
    )
    parser.add_argument(
        "--ports",
        default="default",
        metavar="PORTS",
        help=f"ports of the lab, SERVICE=PORT,...; services: {', '.join(SERVICES)}",
    )
    add_format(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit status 1 if a check failed; warnings and checks without evidence do not count."""
    readings = check_list.read(_settings(arguments))
    findings = check_list.run(readings)
    if arguments.format == "json":
        print(as_json(findings))
    else:
        print_report(findings, Console(highlight=False, width=None if sys.stdout.isatty() else 120))
    return 1 if counts(findings)[State.FAILED] else 0


def _settings(arguments: argparse.Namespace) -> Settings:
    if arguments.clients < 1:
        raise UsageError(f"--clients: {arguments.clients} is not a number of clients; use 1 or more")
    ports = Ports() if arguments.ports == "default" else parse_ports(arguments.ports)
    engine = _place("--upstream", arguments.upstream, ports.url("engine"))
    files = _SHIPPED if arguments.slos is None else ((str(arguments.slos), arguments.slos),)
    total = arguments.request_log_total
    return Settings(
        engine=engine,
        sidecar=_place("--sidecar", arguments.sidecar, ports.url("sidecar")),
        prometheus=_place("--prometheus", arguments.prometheus, ports.url("prometheus")),
        engine_headers=_headers(arguments.engine_token_file, engine.url),
        send_request=arguments.send_request,
        ports=ports,
        clients=arguments.clients,
        slos=arguments.slos,
        specs=tuple((name, slo_file.load(path)) for name, path in files),
        rules=arguments.rules,
        request_log=arguments.request_log,
        request_log_total=None if total == "never" else parse_flag("--request-log-total", total, parse_size),
        trace_file=arguments.trace_file,
        trace_size=parse_flag("--trace-max-size", arguments.trace_max_size, parse_size),
    )


def _place(flag: str, url: str | None, default: str) -> Place:
    if url is not None and parse_url(flag, url, f"http://host:port, such as {default}").user is not None:
        raise UsageError(f"{flag}: credentials in the URL would be printed, and are not supported; remove them")
    return Place((url or default).rstrip("/"), flag, url is not None)


def _headers(token_file: str | None, url: str) -> dict[str, str]:
    if token_file is None:
        return {}
    token = EngineToken(token_file)
    token.read()
    return token.headers(url)
