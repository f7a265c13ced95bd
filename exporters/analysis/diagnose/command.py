"""`vllm-slo diagnose`: says of each class what binds it, with the evidence, and the first lever to try."""

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from exporters.analysis.diagnose.evidence import ClassEvidence, EngineEvidence, Fact, Quantity, spell
from exporters.analysis.diagnose.prometheus_evidence import PrometheusEvidence
from exporters.analysis.diagnose.report import Report, as_json, print_report
from exporters.analysis.diagnose.request_log_evidence import RequestLogEvidence
from exporters.analysis.diagnose.rules import diagnose
from exporters.analysis.diagnose.thresholds import CACHED
from exporters.requestlog.files import find_logs
from exporters.text.addresses import parse_url
from exporters.text.command_flags import (
    add_classes,
    add_format,
    add_request_logs,
    add_since_and_until,
    check_classes,
    moment,
)
from exporters.text.errors import UsageError
from exporters.vocabulary import slo_file
from exporters.vocabulary.ceilings import Ceilings, read_ceilings
from exporters.vocabulary.slo_file import SloFile

LOOK_BACK = 3600.0
"""Seconds before the end that are read from Prometheus without --since and without a log."""

PIPE_WIDTH = 160
"""Columns of a table that is not printed to a terminal."""

DRAFTS = 3
"""Draft tokens per request whose cost is estimated, as in the examples of vLLM's documentation."""


def configure(parser: argparse.ArgumentParser) -> None:
    add_request_logs(parser)
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        help="series of the sidecar; together with a log: only its engine and open requests, at the log's times",
    )
    add_since_and_until(parser, "requests")
    add_classes(parser, "classes to report (default: all)")
    parser.add_argument(
        "--roofline", type=Path, metavar="FILE", help="output of vllm-slo roofline --format json: the floor of TPOT"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the engine that Prometheus does not have, such as max_num_seqs=128 (repeatable)",
    )
    slo_file.add_flag(parser)
    add_format(parser)
    parser.add_argument("--verbose", action="store_true", help="also print all figures of the classes and the engine")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Diagnose and print."""
    if not (arguments.request_log or arguments.prometheus):
        raise UsageError("give --request-log FILE, --prometheus URL, or both")
    if arguments.prometheus:
        parse_url("--prometheus", arguments.prometheus, "one such as http://127.0.0.1:9090")
    settings = _settings(arguments.set)
    ceilings = read_ceilings(arguments.roofline) if arguments.roofline else None
    spec, now = slo_file.load(arguments.slos), time.time()
    since, until = (
        moment(flag, text, now) if text else None
        for flag, text in (("--since", arguments.since), ("--until", arguments.until))
    )
    if since and until and since >= until:
        raise UsageError(f"--since: {arguments.since} is not before --until {arguments.until}")
    log = RequestLogEvidence(find_logs(arguments.request_log), spec, since, until) if arguments.request_log else None
    prometheus = _prometheus(arguments.prometheus, spec, log, since, until, now) if arguments.prometheus else None
    sources = [each for each in (log, prometheus) if each is not None]
    engine = _with_settings(_engine(log, prometheus), settings)
    if ceilings:
        engine = _with_floor(engine, ceilings, str(arguments.roofline))
    classes = sources[0].classes()
    if log and prometheus:
        waits: Mapping[str, Mapping[str, Any]] = prometheus.open_requests()
        classes = [replace(of, **waits.get(of.name, {})) for of in classes]
    classes = _only(vars(arguments)["class"], classes)
    report = Report(
        tuple(each.name for each in sources),
        sources[0].start,
        sources[0].end,
        [(of, diagnose(of, engine)) for of in classes],
        engine,
        (
            *spec.class_notes(of.name for of in classes),
            *_length_notes(classes, engine),
            *_cache_notes(classes),
            *sources[0].notes(),
        ),
    )
    if arguments.format == "json":
        print(as_json(report))
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = PIPE_WIDTH
        print_report(report, console, verbose=arguments.verbose)
    return 0


def _prometheus(
    url: str,
    spec: SloFile,
    log: RequestLogEvidence | None,
    since: datetime | None,
    until: datetime | None,
    now: float,
) -> PrometheusEvidence:
    end = until.timestamp() if until else log.end if log else now
    start = since.timestamp() if since else log.start if log else end - LOOK_BACK
    return PrometheusEvidence(url, spec, start, end)


def _engine(log: RequestLogEvidence | None, prometheus: PrometheusEvidence | None) -> EngineEvidence:
    """The figures of Prometheus, and for those that it lacks, the figures of the log."""
    if prometheus is None:
        return log.engine() if log else EngineEvidence()
    engine = prometheus.engine()
    if log is None:
        return engine
    known = {name: fact for name, _, _, fact in log.engine().shown() if fact.value is not None}
    return replace(
        engine,
        settings=engine.settings,
        **{name: each for name, each in known.items() if getattr(engine, name).value is None},
    )


def _length_notes(classes: Iterable[ClassEvidence], engine: EngineEvidence) -> Iterator[str]:
    longest = max(classes, key=lambda of: of.longest.or_zero(), default=None)
    if longest and (tokens := longest.longest.value) and (limit := engine.max_model_len.value):
        share = spell(tokens / limit, Quantity.SHARE)
        yield (
            f"The longest request has {tokens:,.0f} tokens (class {longest.name}): {share} of max_model_len "
            f"{limit:,.0f} ({engine.max_model_len.origin}). A lower max_model_len rejects longer "
            "requests; it does not enlarge the KV cache of vLLM."
        )


def _cache_notes(classes: Iterable[ClassEvidence]) -> Iterator[str]:
    for of in classes:
        if of.cached_answers.reaches(CACHED):
            yield (
                f"Answers look cached (class {of.name}): {of.say('cached_answers')}. A decode takes longer, so "
                "the figures of the class are not those of the engine alone."
            )


def _with_floor(engine: EngineEvidence, ceilings: Ceilings, origin: str) -> EngineEvidence:
    """Add the floors of TPOT by the roofline, if the running batch is known.

    A step gives each request of the batch a token, so it takes batch / tokens per second. With draft tokens it
    computes as many tokens as a batch of `DRAFTS + 1` times as many requests.
    """
    if not engine.running.value:
        return engine
    batch = max(1.0, engine.running.value)
    step = batch / ceilings.decode_of(batch)
    drafted = batch * (DRAFTS + 1)
    return replace(
        engine,
        tpot_floor=Fact(step, f"{origin} at batch {batch:,.0f}"),
        draft_floor=Fact(drafted / ceilings.decode_of(drafted) / step, f"{origin} at batch {drafted:,.0f}"),
    )


def _with_settings(engine: EngineEvidence, given: Mapping[str, str]) -> EngineEvidence:
    """Add the given settings, which win, and the figures among all settings."""
    settings = {**engine.settings, **given}
    named = {each.name for each in fields(EngineEvidence)}
    figures = {
        name: Fact(float(value), "--set" if name in given else "setting of the engine")
        for name, value in settings.items()
        if name in named and value.isdecimal()
    }
    return replace(engine, settings=settings, **figures)


def _settings(texts: Iterable[str]) -> dict[str, str]:
    settings = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name or not value:
            raise UsageError(f"--set: {text!r} has no name and value; write for example max_num_seqs=128")
        settings[name.replace("-", "_")] = value
    return settings


def _only(names: list[str] | None, classes: list[ClassEvidence]) -> list[ClassEvidence]:
    known = {of.name: of for of in classes}
    check_classes(names or (), known)
    return [known[name] for name in names] if names else classes
