"""`vllm-slo doctor`: declares and reads the flags, runs the checks, and prints the findings."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from compose.doctor import check_list
from compose.doctor.check_list import Settings
from compose.doctor.engine_reading import SEND
from compose.doctor.finding import Place, State
from compose.doctor.findings_report import as_json, counts, print_report
from compose.lab.ports import SERVICES, Ports, parse_ports
from compose.lab.rewrite_config import COMPOSE_DIRECTORY
from exporters.engines.bearer_token import EngineToken
from exporters.sidecar.supervision.system_limits import CLIENTS
from exporters.text.addresses import parse_url
from exporters.text.command_flags import add_format
from exporters.text.errors import UsageError, parse_flag
from exporters.text.units import parse_size
from exporters.vocabulary import slo_file

_SHIPPED = (("the shipped SLO file", slo_file.SHIPPED), ("the SLO file of the lab", COMPOSE_DIRECTORY / "slos.yaml"))


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags; those of the sidecar have its names, so that its environment variables set them."""
    servers = parser.add_argument_group("servers", "without the flag, a server that does not respond is not a failure")
    servers.add_argument("--upstream", metavar="URL", help="URL of the engine (default: http://127.0.0.1:8000)")
    servers.add_argument(
        "--engine-token-file", metavar="FILE", help="file with the bearer token of the engine (default: no token)"
    )
    servers.add_argument(
        SEND,
        action="store_true",
        help="send one chat completion of one token to the engine, whose response shows two of its flags",
    )
    servers.add_argument(
        "--sidecar", metavar="URL", help="URL of the sidecar's metrics port (default: http://127.0.0.1:9464)"
    )
    servers.add_argument("--prometheus", metavar="URL", help="URL of Prometheus (default: http://127.0.0.1:9090)")

    files = parser.add_argument_group("files")
    files.add_argument(
        "--slos",
        type=Path,
        metavar="FILE",
        help="SLO file (default: the shipped one or the lab's, whichever gives the rules in Prometheus)",
    )
    files.add_argument("--rules", type=Path, metavar="FILE", help="rule file to compare with the SLO file")
    files.add_argument("--request-log", metavar="FILE", help="request log of the sidecar")
    files.add_argument(
        "--request-log-total",
        default="8GiB",
        metavar="SIZE",
        help="maximum size of the request log, or 'never' (default %(default)s)",
    )
    files.add_argument("--trace-file", metavar="FILE", help="SQLite file of `vllm-slo traces`")
    files.add_argument(
        "--trace-max-size",
        default="256MiB",
        metavar="SIZE",
        help="maximum size of this file (default %(default)s)",
    )

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
