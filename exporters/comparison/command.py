"""`vllm-slo compare`: before against after a change of the engine's configuration, class by class."""

import argparse
import re
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from exporters.comparison.comparison_windows import Change, Window, plan
from exporters.comparison.measures import Measures
from exporters.comparison.prometheus_source import PrometheusSource
from exporters.comparison.rendering import Comparison, as_json, markdown, table
from exporters.comparison.request_log_source import RequestLog
from exporters.comparison.significance import rows
from exporters.comparison.source import Source
from exporters.errors import UsageError, parse_flag
from exporters.quantities import parse_duration
from exporters.slos import SHIPPED, SloFile, load
from exporters.yaml_reader import nearest

LOOK_BACK = 86400.0
"""How far back Prometheus is searched for a change."""

FORMATS = ("table", "json", "markdown")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--around",
        required=True,
        metavar="last|TIME|ID",
        help="which change: the last one, a time (RFC 3339 or unix seconds), or the beginning of the config revision "
        "that it led to",
    )
    parser.add_argument(
        "--window", default="10m", metavar="TIME", help="length of each of the two windows (default: %(default)s)"
    )
    parser.add_argument(
        "--settle", default="30s", metavar="TIME", help="left out after the change (default: %(default)s)"
    )
    parser.add_argument(
        "--request-log", action="extend", nargs="+", metavar="FILE", help="what the sidecar's --request-log wrote"
    )
    parser.add_argument("--prometheus", metavar="URL", help="instead of a log, such as http://127.0.0.1:9090")
    parser.add_argument(
        "--slos", type=Path, default=SHIPPED, metavar="FILE", help="SLO file (default: the shipped one)"
    )
    parser.add_argument("--format", default="table", choices=FORMATS, help="default: %(default)s")
    parser.add_argument("--class", action="extend", nargs="+", metavar="NAME", help="only these (default: all)")
    parser.add_argument(
        "--min-events", metavar="N", help="no verdict with fewer on a side (default: the SLO file's for pages)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compare and print."""
    spec = load(Path(arguments.slos))
    window, settle = _seconds("--window", arguments.window), _seconds("--settle", arguments.settle, allow_zero=True)
    min_events = _count("--min-events", arguments.min_events, spec.alerting.min_events.page)
    if arguments.format not in FORMATS:  # from the environment, which argparse does not check
        raise UsageError(f"--format: {arguments.format!r} is unknown; {nearest(arguments.format, FORMATS)}")
    source = _source(arguments, spec, window, settle)
    change = _change(arguments.around, source)
    outages = source.outages(Window(change.start - window, change.end + window))
    chosen = plan(change, others=source.changes, outages=outages, window=window, settle=settle, reach=source.reach)
    before, after = (source.measures(each, settle) for each in (chosen.before, chosen.after))
    names = vars(arguments)["class"] or [*before]
    comparison = Comparison(
        source.name,
        chosen,
        rows(_only(names, before), _only(names, after), min_events),
        min_events,
        settle,
        tuple(source.notes(chosen.before, chosen.after)),
    )
    match arguments.format:
        case "json":
            print(as_json(comparison))
        case "markdown":
            print(markdown(comparison), end="")
        case _:
            table(comparison, Console(highlight=False))
    return 0


def _source(arguments: argparse.Namespace, spec: SloFile, window: float, settle: float) -> Source:
    if bool(arguments.request_log) == bool(arguments.prometheus):
        raise UsageError("give either --request-log FILE or --prometheus URL: one place to read from")
    if arguments.request_log:
        return RequestLog([Path(name) for name in arguments.request_log], spec)
    if urlsplit(arguments.prometheus).scheme not in {"http", "https"}:
        raise UsageError(
            f"--prometheus: {arguments.prometheus!r} is no web address; write one such as http://127.0.0.1:9090"
        )
    now = time.time()
    at = _moment(arguments.around)
    start = now - LOOK_BACK if at is None else at - 2 * (window + settle)
    end = now if at is None else min(now, at + 2 * (window + settle))
    return PrometheusSource(arguments.prometheus, spec, Window(start, max(end, start + 1)))


def _change(around: str, source: Source) -> Change:
    at = _moment(around)
    if at is not None:
        return Change(at, at, f"{around} (as given)")
    if around != "last":
        return source.changed_to(around)
    if not source.changes:
        raise UsageError(
            f"--around: no change found in {source.name}: {source.looked_at}; give the time of the change "
            "(RFC 3339 or unix seconds) to compare around it all the same"
        )
    return source.changes[-1]


def _moment(text: str) -> float | None:
    """Unix seconds; None is a word or a revision, which has no `-` and may well be all digits."""
    if re.fullmatch(r"\d{9,11}(\.\d*)?", text):
        return float(text)
    if "-" not in text:
        return None
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"--around: {text!r} is no time; write RFC 3339, such as 2026-01-31T12:00:00Z, or unix seconds"
        ) from error


def _only(names: Sequence[str], measures: Measures) -> Measures:
    for name in names:
        if name not in measures:
            raise UsageError(f"--class: no request is of class {name!r}; {nearest(name, measures)}")
    return {name: measures[name] for name in names}


def _seconds(flag: str, text: str, *, allow_zero: bool = False) -> float:
    return parse_flag(flag, text, partial(parse_duration, examples="10m", allow_zero=allow_zero))


def _count(flag: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{flag}: {text!r} is no number of events; write a whole number of at least 1")
    return int(text)
