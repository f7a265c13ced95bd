"""`vllm-slo dashboards`: writes the dashboards' files and tries their queries on a live Prometheus."""

import argparse
import time
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from dashboards.audit import Finding, Span, audit, read_dashboards
from dashboards.boards.every import BOARDS
from dashboards.live import Prometheus
from exporters.slos import SHIPPED, load
from exporters.usage import UsageError, system_reason
from exporters.yamlfile import duration

GENERATED = Path(__file__).parent / "generated"


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="ACTION", required=True)
    render = commands.add_parser("render", help="write the dashboards' files", description="Write Grafana dashboards.")
    render.add_argument(
        "--slos", type=Path, default=SHIPPED, metavar="FILE", help="SLO file (default: the one shipped)"
    )
    render.add_argument(
        "--out", type=Path, default=Path("dashboards/generated"), metavar="DIR", help="default: %(default)s"
    )
    render.set_defaults(run=_render)
    check = commands.add_parser(
        "audit",
        help="run every query on a live Prometheus",
        description="Run every query on a live Prometheus. Exit code 1 when one is empty or fails.",
    )
    check.add_argument("--prometheus", required=True, metavar="URL", help="such as http://127.0.0.1:9090")
    check.add_argument("--dashboards", type=Path, default=GENERATED, metavar="DIR", help="default: the ones shipped")
    check.add_argument("--range", default="15m", metavar="TIME", help="how far to look back (default: %(default)s)")
    check.add_argument("--from", dest="start", metavar="TIME", help="instead of --range: unix seconds or ISO 8601")
    check.add_argument("--to", dest="end", metavar="TIME", help="end of the time looked at (default: now)")
    check.add_argument(
        "--scrape-interval", default="15s", metavar="TIME", help="of the targets, for rates (default: %(default)s)"
    )
    check.add_argument("--strict", action="store_true", help="also fail on a query that may rightly be empty")
    check.set_defaults(run=_audit)


def _render(arguments: argparse.Namespace) -> int:
    spec = load(arguments.slos)
    for board in BOARDS:
        path = arguments.out / board.file_name
        text = board.render(spec)
        try:
            arguments.out.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {system_reason(error)}") from error
        print(path)
    return 0


def _audit(arguments: argparse.Namespace) -> int:
    if urlsplit(arguments.prometheus).scheme not in {"http", "https"}:
        raise UsageError(
            f"--prometheus: {arguments.prometheus!r} is no web address; write one such as http://127.0.0.1:9090"
        )
    findings = audit(read_dashboards(arguments.dashboards), Prometheus(arguments.prometheus), _span(arguments))
    failed = sum(finding.fails(strict=arguments.strict) for finding in findings)
    console = Console()
    console.print(_table(findings, strict=arguments.strict))
    console.print(f"{len(findings)} queries, {failed} empty or failing", highlight=False)
    return 1 if failed else 0


def _table(findings: list[Finding], *, strict: bool) -> Table:
    table = Table("dashboard", "panel", "ref")
    for number in ("series", "samples", "ms"):
        table.add_column(number, justify="right")
    table.add_column("verdict", overflow="fold")
    for finding in findings:
        check, answer = finding.check, finding.answer
        table.add_row(
            check.dashboard,
            check.panel,
            check.ref,
            str(answer.series),
            str(answer.samples),
            f"{answer.seconds * 1000:.0f}",
            finding.verdict,
            style="red" if finding.fails(strict=strict) else None,
        )
    return table


def _span(arguments: argparse.Namespace) -> Span:
    end = time.time() if arguments.end is None else _moment("--to", arguments.end)
    start = (
        end - _seconds("--range", arguments.range) if arguments.start is None else _moment("--from", arguments.start)
    )
    if start >= end:
        raise UsageError("--from: is not before --to; give the earlier time to --from")
    return Span(start, end, _seconds("--scrape-interval", arguments.scrape_interval))


def _seconds(flag: str, text: str) -> float:
    seconds = duration(text)
    if not seconds:
        raise UsageError(f"{flag}: {text!r} is no duration; write one such as 15m")
    return seconds


def _moment(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as error:
        raise UsageError(
            f"{flag}: {text!r} is no time; write unix seconds or ISO 8601, such as 2026-01-31T12:00:00+00:00"
        ) from error
