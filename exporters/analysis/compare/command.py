"""`vllm-slo compare`: compares the figures of each class before and after a config change."""

import argparse
import re
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from exporters.analysis.compare.conclusion import conclude
from exporters.analysis.compare.prometheus_source import PrometheusSource
from exporters.analysis.compare.report import Comparison, as_json, markdown, table
from exporters.analysis.compare.request_log_source import RequestLogSource
from exporters.analysis.estimates.figures import ALL_CLASSES, PREEMPTIONS, Measurements
from exporters.analysis.estimates.significance import compare
from exporters.analysis.estimates.windows import Change, Window, plan
from exporters.text.addresses import parse_url
from exporters.text.command_flags import add_classes, add_format, add_request_logs, check_classes
from exporters.text.errors import UsageError, parse_flag
from exporters.text.units import parse_count, parse_duration, parse_time
from exporters.text.yaml_reader import nearest
from exporters.vocabulary import slo_file
from exporters.vocabulary.slo_file import SloFile

Source = RequestLogSource | PrometheusSource

LOOK_BACK = 86400.0
"""Seconds before now in which a change is searched for in Prometheus."""

NO_PREEMPTIONS = "Preemptions are not in a request log: add --prometheus URL."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--around",
        required=True,
        metavar="last|TIME|ID",
        help="the config change: the last one, a time (RFC 3339 or unix seconds), or the first characters of the "
        "config revision after it",
    )
    parser.add_argument(
        "--window", default="10m", metavar="TIME", help="length of each of the two windows (default: %(default)s)"
    )
    parser.add_argument(
        "--settle",
        default="30s",
        metavar="TIME",
        help="settling time, excluded after the change (default: %(default)s)",
    )
    add_request_logs(parser)
    parser.add_argument(
        "--prometheus", metavar="URL", help="read Prometheus instead of a log; with a log: only the preemptions"
    )
    slo_file.add_flag(parser)
    add_format(parser, "markdown")
    add_classes(parser, "classes to compare (default: all)")
    parser.add_argument(
        "--min-events",
        metavar="N",
        help="events that a verdict needs in each window (default: alerting.min_events.page of the SLO file)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compare and print."""
    spec = slo_file.load(arguments.slos)
    window, settle = _seconds("--window", arguments.window), _seconds("--settle", arguments.settle, allow_zero=True)
    min_events = _count("--min-events", arguments.min_events, spec.alerting.min_events.page)
    source = _source(arguments, spec, window, settle)
    change = _change(arguments.around, source)
    outages = source.outages(Window(change.start - window, change.end + window))
    windows = plan(
        change, others=source.changes, outages=outages, window=window, settle=settle, coverage=source.coverage
    )
    before, after = (
        _measurements(source, spec, each, settle, arguments.prometheus) for each in (windows.before, windows.after)
    )
    names = vars(arguments)["class"] or [*before]
    backlogs = source.backlog(windows.before), source.backlog(windows.after)
    stationary = all(each.trend is None for each in backlogs)
    rows = compare(_only(names, before), _only(names, after), min_events, stationary=stationary)
    failures = source.failures(Window(windows.before.end, windows.after.start))
    comparison = Comparison(
        conclude(rows, windows, min_events, backlogs, failures),
        source.name,
        windows,
        rows,
        min_events,
        settle,
        (
            *spec.class_notes(names),
            *source.notes(windows.before, windows.after),
            *([] if arguments.prometheus else [NO_PREEMPTIONS]),
        ),
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
    if not arguments.request_log and not arguments.prometheus:
        raise UsageError("give --request-log FILE, --prometheus URL, or both")
    if arguments.prometheus:
        parse_url("--prometheus", arguments.prometheus, "one such as http://127.0.0.1:9090")
    if arguments.request_log:
        return RequestLogSource([Path(name) for name in arguments.request_log], spec)
    now = time.time()
    at = _moment(arguments.around)
    start = now - LOOK_BACK if at is None else at - 2 * (window + settle)
    end = now if at is None else min(now, at + 2 * (window + settle))
    return PrometheusSource(arguments.prometheus, spec, Window(start, max(end, start + 1)))


def _measurements(source: Source, spec: SloFile, window: Window, settle: float, prometheus: str | None) -> Measurements:
    measured = source.measurements(window, settle)
    if prometheus is None or isinstance(source, PrometheusSource):
        return measured
    preemptions = PrometheusSource(prometheus, spec, window).preemptions(window)
    return {**measured, ALL_CLASSES: {**measured[ALL_CLASSES], PREEMPTIONS: preemptions}}


def _change(around: str, source: Source) -> Change:
    at = _moment(around)
    if at is not None:
        return Change(at, at, f"{around} (as given)")
    if not source.changes:
        raise UsageError(
            f"--around: no config change found in {source.search_scope}; give the time of the change (RFC 3339 or unix "
            "seconds)"
        )
    if around == "last":
        return source.changes[-1]
    revisions = source.changes_by_revision
    matches = sorted(name for name in revisions if name.startswith(around))
    if len(matches) > 1:
        raise UsageError(f"--around: {around!r} matches several revisions: {', '.join(matches)}; write more characters")
    if not matches:
        raise UsageError(
            f"--around: no config change to revision {around!r} found in {source.search_scope}; "
            f"{nearest(around, revisions)}"
        )
    return revisions[matches[0]]


def _moment(text: str) -> float | None:
    """Unix seconds; None for `last` and for a revision, which has no `-` but may be all digits."""
    if "-" in text or re.fullmatch(r"\d{9,11}(\.\d*)?", text):
        return parse_flag("--around", text, parse_time)
    return None


def _only(names: Sequence[str], measures: Measurements) -> Measurements:
    check_classes(names, measures)
    return {name: measures[name] for name in dict.fromkeys([ALL_CLASSES, *names])}


def _seconds(flag: str, text: str, *, allow_zero: bool = False) -> float:
    return parse_flag(flag, text, partial(parse_duration, examples="10m", allow_zero=allow_zero))


def _count(flag: str, text: str | None, default: int) -> int:
    return default if text is None else parse_flag(flag, text, partial(parse_count, what="events"))
