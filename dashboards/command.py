"""`vllm-slo dashboards`: writes dashboards, runs their queries on a live Prometheus, and previews them."""

import argparse
import time
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table

from alerts.links import add_link_flags, read_links
from alerts.source_flags import add_source_flags, with_source
from dashboards.boards.registry import BOARDS_OF
from dashboards.grafana.configmap import FOLDER, config_map, parse_placement
from dashboards.grafana.log_lines import parse_selector
from dashboards.live.audit import Finding, audit, read_checks
from dashboards.live.reader import TimeRange
from exporters.analysis.label_collisions import COST, collisions
from exporters.analysis.prometheus_api import Prometheus, QueryError
from exporters.text.addresses import parse_url
from exporters.text.command_flags import add_since_and_until, moment
from exporters.text.errors import UsageError, parse_flag
from exporters.text.output_files import write_file
from exporters.text.units import parse_duration
from exporters.vocabulary import slo_file

MOST_PROBLEMS = 15
"""Problems that the audit prints without --verbose, so that they fit a screen."""

RANGE = 900.0
"""Seconds before --until that are read without --since."""

GENERATED = Path(__file__).parent / "generated"


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="ACTION", required=True)
    render = commands.add_parser("render", help="write the dashboards", description="Write the Grafana dashboards.")
    slo_file.add_flag(render)
    render.add_argument(
        "--out",
        default="-",
        metavar="DIR",
        help="output folder (default: -, standard output, only for ConfigMaps)",
    )
    render.add_argument(
        "--format",
        choices=("plain", "configmap"),
        default="plain",
        help="JSON for Grafana's provisioning, or ConfigMaps for its sidecar in Kubernetes (default: %(default)s)",
    )
    add_link_flags(render)
    render.add_argument(
        "--loki",
        metavar="SELECTOR",
        help='selector of the request log in Loki, such as {app="vllm-sidecar"}: show log lines of bad requests '
        "(default: none)",
    )
    render.add_argument("--namespace", metavar="NAME", help="namespace of the ConfigMaps (default: kubectl's)")
    render.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="label of the ConfigMaps, in addition to grafana_dashboard=1 (repeatable)",
    )
    render.add_argument("--folder", metavar="NAME", help=f"Grafana folder of the dashboards (default: {FOLDER})")
    add_source_flags(render)
    render.set_defaults(run=_render)
    audit_parser = commands.add_parser(
        "audit",
        help="run every query on a live Prometheus",
        description="Run every query on a live Prometheus. Exit code 1 if a query is empty or fails.",
    )
    _add_live_flags(audit_parser)
    audit_parser.add_argument("--slow", default="1s", metavar="TIME", help="flag slower queries (default: %(default)s)")
    audit_parser.add_argument(
        "--strict", action="store_true", help="also fail on slow queries, and on empty ones of panels that may be empty"
    )
    audit_parser.add_argument("--verbose", action="store_true", help="print every query, not only the problems")
    audit_parser.set_defaults(run=_audit)
    preview = commands.add_parser(
        "preview",
        help="draw the dashboards without Grafana",
        description="Draw the dashboards without Grafana: as self-contained HTML pages, or over HTTP.",
    )
    _add_live_flags(preview)
    preview.add_argument(
        "--var", action="append", default=[], metavar="NAME=VALUE", help="value of a variable (repeatable)"
    )
    preview.add_argument(
        "--out", type=Path, default=Path("preview"), metavar="DIR", help="output folder (default: %(default)s)"
    )
    preview.add_argument("--png", action="store_true", help="also write a screenshot of each page; needs Chromium")
    preview.add_argument(
        "--theme", choices=("dark", "light"), default="dark", help="theme of the screenshots (default: %(default)s)"
    )
    preview.add_argument(
        "--width",
        type=int,
        default=1440,
        metavar="PIXELS",
        help="width of the screenshots, 320 to 7680; below 769, panels are below each other (default: %(default)s)",
    )
    preview.add_argument(
        "--serve",
        nargs="?",
        const="127.0.0.1:3001",
        metavar="HOST:PORT",
        help="serve pages with live data instead of writing files (default address: %(const)s)",
    )
    preview.add_argument(
        "--refresh", default="10s", metavar="TIME", help="interval with --serve (default: %(default)s)"
    )
    preview.set_defaults(run=_preview)


def _add_live_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prometheus", required=True, metavar="URL", help="base URL, such as http://127.0.0.1:9090")
    parser.add_argument(
        "--dashboards", type=Path, default=GENERATED, metavar="DIR", help="input folder (default: shipped)"
    )
    add_since_and_until(parser, "samples", "15m before --until")
    parser.add_argument(
        "--scrape-interval", default="15s", metavar="TIME", help="interval of the targets (default: %(default)s)"
    )


def _render(arguments: argparse.Namespace) -> int:
    spec = with_source(slo_file.load(arguments.slos), arguments)
    placement = parse_placement(arguments.namespace, arguments.label, arguments.folder)
    links = read_links(arguments.runbooks, "", arguments.traces_url)
    selector = "" if arguments.loki is None else parse_selector(arguments.loki)
    if selector and spec.source is slo_file.Source.ENGINE:
        raise UsageError("--loki: needs the request log of the sidecar; remove it, or use --source sidecar")
    if arguments.format == "plain":
        if arguments.namespace or arguments.label or arguments.folder:
            raise UsageError("--namespace, --label, --folder: these need --format configmap")
        if arguments.out == "-":
            raise UsageError("--out: plain dashboards are several files; add --out DIR, or --format configmap")
    for board in BOARDS_OF[spec.source]:
        text, name = board.render(spec, links, selector), board.file_name
        if arguments.format == "configmap":
            text, name = config_map(board.uid, name, text, placement), f"{Path(name).stem}.yaml"
        if arguments.out == "-":
            print(text, end="")
        else:
            path = Path(arguments.out) / name
            write_file(path, text)
            print(path)
    return 0


def _audit(arguments: argparse.Namespace) -> int:
    time_range, slow = _time_range(arguments), _seconds("--slow", arguments.slow)
    findings = audit(read_checks(arguments.dashboards), _prometheus(arguments), time_range)
    failed = sum(finding.fails(strict=arguments.strict) for finding in findings)
    late = sum(finding.measurement.seconds > slow for finding in findings)
    console = Console(highlight=False)
    if arguments.verbose:
        console.print(_table(findings, slow, strict=arguments.strict))
        for name, board_findings in groupby(findings, key=lambda finding: finding.check.dashboard):
            seconds = [finding.measurement.seconds for finding in board_findings]
            console.print(f"{name}: {len(seconds)} queries, {sum(seconds):.2f} s", markup=False)
    else:
        for line in _problems(findings, slow, strict=arguments.strict):
            console.print(line, markup=False, soft_wrap=True)
    console.print(f"{len(findings)} queries, {failed} empty or failing, {late} slower than {arguments.slow}")
    collided = _print_collisions(console, _prometheus(arguments), time_range)
    return 1 if failed or collided or (arguments.strict and late) else 0


def _print_collisions(console: Console, prometheus: Prometheus, time_range: TimeRange) -> bool:
    """Print the labels of our series that collide with labels of targets; returns whether there are any."""
    try:
        found = collisions(prometheus, time_range.start, time_range.end)
    except QueryError as error:
        console.print(f"exported_* labels: not checked: {error.reason}", markup=False, soft_wrap=True)
        return False
    for each in found:
        console.print(f"{each.found}; {COST}; {each.fix}", markup=False, soft_wrap=True)
    return bool(found)


def _preview(arguments: argparse.Namespace) -> int:
    from dashboards.preview.command import preview  # noqa: PLC0415 - only this action needs the charting library

    refresh = _seconds("--refresh", arguments.refresh)
    if not 320 <= arguments.width <= 7680:
        raise UsageError(f"--width: {arguments.width} is not between 320 and 7680 pixels")
    return preview(arguments, _prometheus(arguments), lambda: _time_range(arguments), refresh)


def _prometheus(arguments: argparse.Namespace) -> Prometheus:
    parse_url("--prometheus", arguments.prometheus, "one such as http://127.0.0.1:9090")
    return Prometheus(arguments.prometheus)


def _problems(findings: list[Finding], slow: float, *, strict: bool) -> Iterator[str]:
    """A line per query that fails the audit or is slow, up to the limit; failures first."""
    failed = [finding for finding in findings if finding.fails(strict=strict)]
    late = [each for each in findings if each.measurement.seconds > slow and each not in failed]
    problems = [*failed, *late]
    for finding in problems[:MOST_PROBLEMS]:
        check = finding.check
        yield f"{check.dashboard}: {check.panel} ({check.ref}): {_verdict(finding, slow)}"
    if len(problems) > MOST_PROBLEMS:
        yield f"... and {len(problems) - MOST_PROBLEMS} more: --verbose"


def _verdict(finding: Finding, slow: float) -> str:
    return f"{finding.verdict}, slow" if finding.measurement.seconds > slow else finding.verdict


def _table(findings: list[Finding], slow: float, *, strict: bool) -> Table:
    table = Table("dashboard", "panel", "ref")
    for column in ("series", "samples", "seconds"):
        table.add_column(column, justify="right")
    table.add_column("verdict", overflow="fold")
    for finding in findings:
        check, measurement = finding.check, finding.measurement
        late = measurement.seconds > slow
        table.add_row(
            check.dashboard,
            check.panel,
            check.ref,
            str(measurement.series),
            str(measurement.samples),
            f"{measurement.seconds:.3f}",
            _verdict(finding, slow),
            style="red" if finding.fails(strict=strict) else "yellow" if late else None,
        )
    return table


def _time_range(arguments: argparse.Namespace) -> TimeRange:
    now = round(time.time(), 3)  # as a datetime has it, so that the range of --since 1h is an hour
    end = now if arguments.until is None else moment("--until", arguments.until, now).timestamp()
    start = end - RANGE if arguments.since is None else moment("--since", arguments.since, now).timestamp()
    if start >= end:
        raise UsageError("--since: must be before --until")
    return TimeRange(start, end, _seconds("--scrape-interval", arguments.scrape_interval))


def _seconds(flag: str, text: str) -> float:
    return parse_flag(flag, text, partial(parse_duration, examples="15m"))
