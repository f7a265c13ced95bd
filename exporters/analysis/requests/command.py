"""`vllm-slo requests`: prints the requests of request logs that fulfil all conditions."""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

from exporters.analysis.requests import filters, overlap
from exporters.analysis.requests.conditions import Condition
from exporters.analysis.requests.log_fields import FIELDS, SORTABLE, check_field
from exporters.analysis.requests.mooncake import mooncake_lines
from exporters.analysis.requests.scan import Scan
from exporters.analysis.requests.selection import MOST_SORTED, Selection
from exporters.analysis.requests.table import Rows, csv_lines, json_lines, load_table, table
from exporters.requestlog.files import STANDARD_INPUT, find_logs
from exporters.requestlog.reader import BadLineError, parse_line
from exporters.text.command_flags import add_format, add_request_logs
from exporters.text.errors import UsageError, parse_flag
from exporters.text.units import parse_count

TABLE_ROWS = 50

PIPE_WIDTH = 1000
"""Columns of a table that is not printed to a terminal."""


def configure(parser: argparse.ArgumentParser) -> None:
    add_request_logs(parser, required=True)
    filters.add_flags(parser)
    parser.add_argument(
        "--around",
        metavar="ID",
        help="the requests that overlap in time with this one, which is named by its request_id or record",
    )
    parser.add_argument(
        "--sort", metavar="FIELD", help="largest numbers, latest times or first texts first (default: as in the log)"
    )
    parser.add_argument("--ascending", action="store_true", help="smallest numbers and earliest times first")
    parser.add_argument(
        "--limit",
        metavar="N",
        help="print the first N requests with --sort, else the last N of the log "
        f"(default: {TABLE_ROWS} in a table, else {MOST_SORTED:,} with --sort and all without)",
    )
    parser.add_argument(
        "--columns", metavar="FIELD,...", help="fields to print (default: all, or those that fit a table)"
    )
    add_format(parser, "csv", "mooncake")
    parser.add_argument(
        "--strict", action="store_true", help="check all fields of all lines; exit with 1 if a line is not a request"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the requests; the exit status is 1 if --strict found a bad line."""
    columns = [check_field("--columns", name, FIELDS) for name in (arguments.columns or "").split(",") if name]
    if arguments.format == "mooncake" and (columns or arguments.sort or arguments.around):
        raise UsageError(
            "--format mooncake has fixed fields in order of arrival: remove --columns, --sort and --around"
        )
    output = Output(arguments.format, columns or None, _limit(arguments.limit, arguments.format))
    conditions = [*filters.wanted(arguments, time.time())]
    paths = find_logs(arguments.request_log)
    if arguments.around:
        if arguments.sort:
            raise UsageError("--around prints the requests in order of arrival, so --sort cannot be used with it")
        if any(path == STANDARD_INPUT or (path.exists() and not path.is_file()) for path in paths):
            raise UsageError("--around reads the log twice, so it needs files; standard input and pipes are read once")
        scan = _around(arguments.around, paths, conditions, output, strict=arguments.strict)
    else:
        sort = arguments.sort and check_field("--sort", arguments.sort, SORTABLE)
        scan = Scan(paths, conditions, [sort] if sort else (), strict=arguments.strict)
        _select(scan, conditions, Selection(sort, arguments.ascending, output.limit), output)
    sys.stdout.flush()
    return _report(scan, strict=arguments.strict)


def _limit(text: str | None, form: str) -> int | None:
    if text is None:
        return TABLE_ROWS if form == "text" else None
    return parse_flag("--limit", text, partial(parse_count, what="requests"))


@dataclass(frozen=True, slots=True)
class Output:
    """How requests are printed; None is all columns, and no limit."""

    form: str
    columns: Sequence[str] | None
    limit: int | None

    def write(self, lines: Iterable[bytes], important: Sequence[str] = (), marked: bytes | None = None) -> int:
        """Returns the number of printed lines if they are a table."""
        match self.form:
            case "json":
                json_lines(lines, self.columns, sys.stdout.buffer)
            case "mooncake":
                if left_out := mooncake_lines(lines, sys.stdout.buffer):
                    _warn(
                        f"{left_out:,} requests are not in the trace: they have no token counts, or no prefix_hashes "
                        "(sidecar --log-prefix-hashes)"
                    )
            case "csv":
                csv_lines(lines, self.columns, sys.stdout)
            case _:
                rows = Rows([*lines], important, marked)
                if rows.lines:
                    table(rows, self.columns, _console())
                return len(rows.lines)
        return 0

    def note(self, text: str) -> None:
        """A remark on a table; other formats have none."""
        if self.form == "text":
            _console().print(Text(text))


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_WIDTH
    return console


def _select(scan: Scan, conditions: Iterable[Condition], selection: Selection, output: Output) -> None:
    important = [selection.sort] if selection.sort else []
    important += ["request_id", "time", *(name for each in conditions for name in each.fields)]
    printed = output.write(selection.lines(scan), important)
    which = "" if selection.sort or printed == selection.found else "the last "
    output.note(f"{which}{printed:,} of {selection.found:,} matching requests; {scan.lines:,} lines read")
    if selection.sort and output.limit is None and selection.found > MOST_SORTED:
        _warn(f"printed the first {MOST_SORTED:,} of {selection.found:,} requests; --limit N keeps more in memory")
    if not selection.found:
        with contextlib.suppress(BadLineError):
            last = parse_line(scan.last_line).time
            _warn(f"no request matches; the last request in the log arrived at {last.isoformat()}")


def _around(name: str, paths: Sequence[Path], conditions: Iterable[Condition], output: Output, *, strict: bool) -> Scan:
    row, line = overlap.only_one(Scan(paths, [overlap.named(name)], overlap.FIELDS), name)
    request = overlap.span(row)
    scan = Scan(paths, [overlap.overlaps(request), *conditions], strict=strict)
    around = overlap.surroundings(request, line, scan, output.limit or MOST_SORTED)
    output.write(around.lines, ("request_id", "time"), marked=line)
    if output.form == "text":
        load_table(around.loads, _console())
    output.note(
        f"{around.others:,} other requests overlap with it; printed: {len(around.lines) - 1:,}, the longest overlaps"
    )
    return scan


def _report(scan: Scan, *, strict: bool) -> int:
    bad_lines = {name: bad for name, bad in scan.bad_lines.items() if bad.count}
    for name, bad in bad_lines.items():
        _warn(f"{name}: lines that are not requests: {bad.count}; the first is {bad.first}")
    if bad_lines and sum(bad.count for bad in bad_lines.values()) >= scan.lines:
        raise UsageError("no line is a request; give files that `vllm-slo sidecar --request-log FILE` has written")
    return 1 if strict and bad_lines else 0


def _warn(text: str) -> None:
    print(f"vllm-slo requests: {text}", file=sys.stderr)
