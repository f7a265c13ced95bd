"""Request logs as a source of evidence: every request with its times, tokens and outcome."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from exporters.analysis.diagnose.concurrency import Interval, concurrency
from exporters.analysis.diagnose.evidence import ClassEvidence, EngineEvidence, Fact
from exporters.analysis.diagnose.logged_class import LoggedClass
from exporters.analysis.diagnose.prefix_reuse import PrefixReuse
from exporters.requestlog.entry import LogEntry
from exporters.requestlog.reader import LogReader
from exporters.text.errors import UsageError
from exporters.vocabulary.signals import WARM_UP
from exporters.vocabulary.slo_file import SloFile


class RequestLogEvidence:
    """The requests of some logs that arrived from `since` up to `until`; about 1 KB of memory per request."""

    def __init__(
        self, paths: Sequence[Path], spec: SloFile, since: datetime | None = None, until: datetime | None = None
    ) -> None:
        """Read the logs with their rotated files.

        Raises:
            UsageError: a file cannot be read, or has no request of that time.
        """
        self.name = ", ".join(map(str, paths))
        self._spec = spec
        self._classes: dict[str, LoggedClass] = {}
        self._running: list[Interval] = []
        self._waiting: list[Interval] = []
        self.start, self.end = float("inf"), float("-inf")
        reuse, reader, lines = PrefixReuse(), LogReader(paths), 0
        try:
            for entry in reader:
                lines += 1
                if (since is None or entry.time >= since) and (until is None or entry.time < until):
                    self._add(entry, reuse.tokens(entry))
        except UsageError as error:
            raise UsageError(f"--request-log: {error}") from error
        self._bad_lines = {path: bad for path, bad in reader.bad_lines.items() if bad.count}
        if not self._classes:
            bad = sum(each.count for each in self._bad_lines.values())
            raise UsageError(
                f"--request-log: {self.name}: no request between --since and --until; {lines} requests at other times"
                if lines
                else f"--request-log: {self.name}: no request in {bad} lines; give files that `vllm-slo sidecar "
                "--request-log FILE` has written"
            )

    def _add(self, entry: LogEntry, shareable: float | None) -> None:
        name = entry.request_class
        if name == WARM_UP:
            return
        if name not in self._classes:
            self._classes[name] = LoggedClass(name, self._spec.slos_of(name), self._spec.first_token_timeout)
        self._classes[name].add(entry, shareable)
        self.start, self.end = min(self.start, entry.arrived), max(self.end, entry.ended)
        if entry.queue_ms is not None:
            scheduled = min(entry.arrived + entry.queue_ms / 1000, entry.ended)
            self._waiting.append((entry.arrived, scheduled))
            self._running.append((scheduled, entry.ended))
        elif entry.wait_ms_at_least is not None:
            self._waiting.append((entry.arrived, entry.arrived + entry.wait_ms_at_least / 1000))

    def classes(self) -> list[ClassEvidence]:
        """Evidence of each class, in the order of the SLO file."""
        order = [name for name in self._spec.class_names if name in self._classes]
        medians = {name: each.prompt_p50 for name, each in self._classes.items()}
        return [
            self._classes[name].evidence(
                {other: tokens for other, tokens in medians.items() if other != name and tokens}
            )
            for name in [*order, *sorted(self._classes.keys() - set(order))]
        ]

    def engine(self) -> EngineEvidence:
        """What the log shows of the engine: its queue and batch if it reports queue times, and its hit ratios."""
        running, waiting = concurrency(self._running), concurrency(self._waiting)
        facts: dict[str, Fact] = {}
        if running:
            origin = f"e2e_ms - queue_ms of {len(self._running):,} requests"
            waited = f"queue_ms or wait_ms_at_least of {len(self._waiting):,} requests"
            facts = {
                "running": Fact(running.p95, origin),
                "running_p50": Fact(running.p50, origin),
                "waiting": Fact(waiting.mean if waiting else 0.0, waited),
            }
        for name, part, whole, origin in (
            ("possible_hits", "shareable", "hashed", "prefix_hashes of all classes, unlimited cache"),
            ("cache_hits", "cached", "looked_up", "cached_tokens of all classes"),
        ):
            if total := self._total(whole):
                facts[name] = Fact(self._total(part) / total, origin)
        return EngineEvidence(settings={}, **facts)

    def _total(self, name: str) -> float:
        return sum(each.total(name) for each in self._classes.values())

    def notes(self) -> Iterator[str]:
        revisions: Counter[str] = Counter()
        for each in self._classes.values():
            revisions.update(each.revisions)
        if len(revisions) > 1:
            counts = ", ".join(f"{name} {count:,}" for name, count in revisions.most_common())
            yield (
                f"The figures mix several config revisions (requests: {counts}): choose one with --since and --until, "
                "or compare them with vllm-slo compare."
            )
        for path, bad in self._bad_lines.items():
            yield f"{path}: skipped lines that are not requests: {bad.count}; the first is {bad.first}."
