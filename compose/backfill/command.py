"""`vllm-slo backfill`: makes blocks of Prometheus from request logs, so that dashboards show the past."""

import argparse
import contextlib
import math
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from alerts.plan import Plan
from alerts.promql.expression import quote
from compose.backfill.block_files import SHORTEST, BlockMaker, block_length
from compose.backfill.record_store import RecordStore
from compose.backfill.recorded_series import RuleRunner, Span
from compose.backfill.replay import Schedule, Scrape, scrapes
from compose.backfill.rule_order import passes
from exporters.analysis.estimates.windows import Window
from exporters.configuration.sidecar import MAX_MODELS
from exporters.requestlog.files import find_logs
from exporters.requestlog.reader import LogReader
from exporters.sidecar.ingest.logged_records import record_of
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.text.command_flags import add_request_logs, add_since_and_until, moment
from exporters.text.errors import UsageError, parse_flag, system_reason
from exporters.text.units import parse_duration, spell_duration
from exporters.vocabulary import slo_file
from exporters.vocabulary.signals import Label
from exporters.vocabulary.slo_file import SIDECAR_JOB, SloFile, Source

DEFAULT_LABELS = {Label.JOB: SIDECAR_JOB, Label.INSTANCE: "backfill"}

LONGEST_STEP = 120.0
"""Seconds; an instant selector of Prometheus finds samples of the last 5 minutes, so a lost one leaves no gap."""

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_SERIES_LABELS = {*Label, "le"} - {*DEFAULT_LABELS}


def configure(parser: argparse.ArgumentParser) -> None:
    add_request_logs(parser, required=True)
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for the blocks; new or empty")
    slo_file.add_flag(parser)
    parser.add_argument(
        "--labels",
        metavar="NAME=VALUE,...",
        help="labels of all series that a scrape would add "
        f"(default: {','.join(f'{name}={value}' for name, value in DEFAULT_LABELS.items())})",
    )
    parser.add_argument(
        "--step", metavar="TIME", help="time between samples (default: scrape_interval of the SLO file)"
    )
    add_since_and_until(parser, "requests that ended")
    parser.add_argument(
        "--max-block-duration",
        default="2h",
        metavar="TIME",
        help="longest block; needs disk space and memory for its samples (default: %(default)s)",
    )
    parser.add_argument("--no-rules", action="store_true", help="leave out the series of the recording rules")
    parser.add_argument("--promtool", metavar="PATH", help="promtool (default: from PATH)")
    parser.add_argument(
        "--prometheus-program",
        metavar="PATH",
        help="the program that evaluates the recording rules (default: from PATH; without it, they are left out)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Make the blocks, and print what they contain and what to do with them."""
    now = time.time()
    # The log is that of a sidecar, whichever counters the rules of the file read.
    spec = replace(slo_file.load(arguments.slos), source=Source.SIDECAR)
    spec = replace(spec, scrape_interval=_step(arguments.step, spec, with_rules=not arguments.no_rules))
    target = ",".join(f"{name}={quote(value)}" for name, value in sorted(_labels(arguments.labels, spec).items()))
    length = parse_flag("--max-block-duration", arguments.max_block_duration, partial(parse_duration, examples="24h"))
    if length < SHORTEST:
        raise UsageError(f"--max-block-duration: {arguments.max_block_duration} is too short; use 2h or more")
    ended = Window(
        moment("--since", arguments.since, now).timestamp() if arguments.since else -math.inf,
        moment("--until", arguments.until, now).timestamp() if arguments.until else math.inf,
    )
    promtool = _program("promtool", "--promtool", arguments.promtool)
    if promtool is None:
        raise UsageError("promtool is not on PATH; install Prometheus, or name it: --promtool PATH")
    maker = BlockMaker(promtool, block_length(length))
    prometheus = (
        None if arguments.no_rules else _program("prometheus", "--prometheus-program", arguments.prometheus_program)
    )
    reader = LogReader(find_logs(arguments.request_log))
    out = Path(arguments.out)
    with temporary_folder(out) as scratch:
        backfill = Backfill(spec, maker, scratch)
        backfill.read(reader, ended)
        _report_bad_lines(reader)
        backfill.write_series(target)
        if prometheus is not None:
            backfill.write_recorded_series(prometheus, ended)
        blocks = backfill.move_blocks(out)
    _summary(backfill, blocks, out, now)
    if prometheus is None and not arguments.no_rules:
        _report(
            "prometheus is not on PATH, so the series of the recording rules are left out; add "
            "--prometheus-program PATH"
        )
    return 0


@dataclass(slots=True)
class Backfill:
    """One run of the command, with a folder for temporary files."""

    spec: SloFile
    maker: BlockMaker
    scratch: Path
    store: RecordStore = field(init=False)
    schedule: Schedule = field(init=False)
    spans: list[Span] = field(default_factory=list)
    """The times with samples, without the pauses."""
    samples: int = 0

    def __post_init__(self) -> None:
        step = round(self.spec.scrape_interval * 1000)
        # A step of the rules, with its offset of a scrape, then has samples at both ends, before and after any request.
        margin = Plan.of(self.spec).step * 1000 + 2 * step
        self.schedule = Schedule(step, margin=int(-(-margin // step) * step))
        for name in ("records", "blocks", "rules"):
            (self.scratch / name).mkdir()
        self.store = RecordStore(self.scratch / "records")

    @property
    def blocks(self) -> Path:
        return self.scratch / "blocks"

    def read(self, reader: LogReader, ended: Window) -> None:
        """Read all requests that ended in this time.

        Raises:
            UsageError: a file cannot be read, or there is no request.
        """
        for entry in reader:
            if ended.contains(entry.ended):
                self.store.add(self.schedule.due(entry.ended), entry.record, record_of(entry))
        if not self.store.count:
            _report_bad_lines(reader)
            raise UsageError(
                "no request of this time; give files that `vllm-slo sidecar --request-log FILE` has written"
            )
        _report(f"{self.store.count:,} requests read")

    def write_series(self, target: str) -> None:
        store = self.store
        metrics = RequestMetrics(self.spec, hashes_prompts=store.has_prompt_hashes)
        for model, _ in store.served.most_common(MAX_MODELS):
            metrics.add_model(model)
        replayed = scrapes(metrics, store, self.schedule, target)
        self.maker.write(self._noting_spans(replayed), self.blocks, self._wrote)
        if store.repeated:
            _report(f"{store.repeated:,} lines were in several files and are counted once")

    def _noting_spans(self, replayed: Iterable[Scrape]) -> Iterator[Scrape]:
        for scrape in replayed:
            first, last = self.spans.pop() if self.spans else (scrape.at, scrape.at)
            if scrape.at - last > self.schedule.step:
                self.spans.append((first, last))
                first = scrape.at
            self.spans.append((first, scrape.at))
            yield scrape

    def _wrote(self, at: int, samples: int) -> None:
        self.samples += samples
        _report(f"series until {_time(at)}: {self.samples:,} samples")

    def write_recorded_series(self, prometheus: Path, ended: Window) -> None:
        """Evaluate the rules, for up to a dozen of steps after the samples, as sums of dozens need them."""
        plan = Plan.of(self.spec)
        after = round((plan.dozen + plan.step) * 1000)
        limit = math.inf if math.isinf(ended.end) else round(ended.end * 1000) - 1
        spans: list[Span] = []
        for first, last in self.spans:
            end = int(max(last, min(last + after, limit)))
            if spans and first <= spans[-1][1]:
                first = spans.pop()[0]  # noqa: PLW2901 - the spans are one
            spans.append((first, end))
        ordered = passes(self.spec)

        def evaluated(number: int, samples: int) -> None:
            self.samples += samples
            _report(f"recording rules: pass {number} of {len(ordered)}: {self.samples:,} samples")

        RuleRunner(prometheus, self.maker, self.scratch / "rules").run(ordered, self.blocks, spans, evaluated)

    def move_blocks(self, out: Path) -> int:
        """Move the blocks to their folder; returns their number."""
        blocks = sorted(self.blocks.iterdir())
        for block in blocks:
            block.rename(out / block.name)
        return len(blocks)


@contextlib.contextmanager
def temporary_folder(out: Path) -> Iterator[Path]:
    """A folder for temporary files below a folder that is new or empty.

    Raises:
        UsageError: the folder has files or cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise UsageError(f"--out: {out} is not empty; give a new or empty folder")
        folder = tempfile.TemporaryDirectory(prefix=".temporary-", dir=out)
    except OSError as error:
        raise UsageError(f"--out: {out} cannot be written: {system_reason(error)}") from error
    with folder as name:
        yield Path(name)


def _step(text: str | None, spec: SloFile, *, with_rules: bool) -> float:
    if text is None:
        return spec.scrape_interval
    step = parse_flag("--step", text, partial(parse_duration, examples="15s"))
    if step > LONGEST_STEP:
        raise UsageError(
            f"--step: {text} is too long; use 2m or less, as Prometheus reads samples of the last 5 minutes"
        )
    shortest = Plan.of(spec).step
    if with_rules and 4 * step > shortest:
        raise UsageError(
            f"--step: {text} is too long for the recording rules: their shortest window, {spell_duration(shortest)}, "
            f"needs four samples; use {spell_duration(shortest / 4)} or less, or --no-rules"
        )
    return step


def _labels(text: str | None, spec: SloFile) -> Mapping[str, str]:
    labels = {str(name): value for name, value in {**DEFAULT_LABELS, Label.JOB: spec.scrape_job[0]}.items()}
    for part in text.split(",") if text else ():
        name, equals, value = part.partition("=")
        if not equals or not value or not _LABEL.fullmatch(name):
            raise UsageError(
                f"--labels: {part!r} is not NAME=VALUE; write for example job=vllm-slo-sidecar,instance=a:9464"
            )
        if name in _SERIES_LABELS or name.startswith("__"):
            raise UsageError(f"--labels: series have a label {name!r} of their own; choose another name")
        labels[name] = value
    return labels


def _program(name: str, flag: str, path: str | None) -> Path | None:
    found = shutil.which(path or name)
    if path and not found:
        raise UsageError(f"{flag}: {path} is not a program")
    return Path(found).absolute() if found else None


def _report_bad_lines(reader: LogReader) -> None:
    for name, bad in reader.bad_lines.items():
        if bad.count:
            _report(f"{name}: lines that are not requests: {bad.count}; the first is {bad.first}")


def _summary(backfill: Backfill, blocks: int, out: Path, now: float) -> None:
    first, last = backfill.spans[0][0], backfill.spans[-1][1]
    days = max(1, math.ceil((now - first / 1000) / 86400))
    print(
        f"{out}: {blocks} blocks, {backfill.samples:,} samples of {backfill.store.count - backfill.store.repeated:,} "
        f"requests, from {_time(first)} to {_time(last)}\n"
        f"list them:     promtool tsdb list {out}\n"
        f"install them:  cp -r {out}/* DATA/, where DATA is the folder of --storage.tsdb.path; Prometheus loads them "
        "within two minutes\n"
        f"retention:     --storage.tsdb.retention.time must be at least {days}d; Prometheus "
        "deletes older blocks"
    )


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _report(text: str) -> None:
    print(f"vllm-slo backfill: {text}", file=sys.stderr, flush=True)
