"""Request logs as a source of evidence: every request with its times, tokens and outcome."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from pathlib import Path

from exporters.analysis.diagnose.evidence import ClassEvidence, EngineEvidence, Fact
from exporters.analysis.diagnose.logged_class import LoggedClass
from exporters.records.messages import PREFIX_BLOCK
from exporters.requestlog.entry import LogEntry
from exporters.requestlog.reader import LogReader
from exporters.text.errors import UsageError
from exporters.vocabulary.signals import WARM_UP
from exporters.vocabulary.slo_file import SloFile

Interval = tuple[float, float]
"""Start and end in unix seconds."""


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Requests in a state at once, weighted by time, from the first start to the last end."""

    mean: float
    p50: int
    p95: int


def concurrency(intervals: Iterable[Interval]) -> Concurrency | None:
    """None if no interval has a duration."""
    steps = sorted(step for start, end in intervals if end > start for step in ((start, 1), (end, -1)))
    if not steps:
        return None
    at_level: dict[int, float] = {}
    level, since = 0, steps[0][0]
    for at, change in steps:
        at_level[level] = at_level.get(level, 0.0) + at - since
        level, since = level + change, at
    total = sum(at_level.values())
    levels = sorted(at_level)
    passed = list(accumulate(at_level[each] for each in levels))
    p50, p95 = (levels[bisect_left(passed, share * total)] for share in (0.5, 0.95))
    return Concurrency(sum(each * seconds for each, seconds in at_level.items()) / total, p50, p95)


@dataclass(slots=True)
class PrefixReuse:
    """The hits of a prefix cache of unlimited size: all blocks of all classes, as a class can reuse those of another.

    Which request is the first with a block depends on the order of the log; the sum over all requests does not.
    """

    _seen: set[int] = field(default_factory=set)

    def tokens(self, entry: LogEntry) -> float | None:
        """Add a request; its prompt tokens in blocks that an earlier one began with, estimated from characters.

        The whole prompt counts if it is repeated. None if the log has no hashes or no prompt tokens.
        """
        if entry.prefix_hashes is None or not entry.prompt_tokens:
            return None
        hashes = [int(each, 16) for each in entry.prefix_hashes]
        blocks = next((index for index, each in enumerate(hashes) if each not in self._seen), len(hashes))
        self._seen.update(hashes[blocks:])
        if entry.prompt_repeat:
            return float(entry.prompt_tokens)
        return entry.prompt_tokens * blocks * PREFIX_BLOCK / max(entry.prefix_characters or 0, PREFIX_BLOCK)


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
        self._log, reuse, lines = LogReader(paths), PrefixReuse(), 0
        try:
            for entry in self._log:
                lines += 1
                if (since is None or entry.time >= since) and (until is None or entry.time < until):
                    self._add(entry, reuse.tokens(entry))
        except UsageError as error:
            raise UsageError(f"--request-log: {error}") from error
        if not self._classes:
            bad = sum(each.count for each in self._log.bad_lines.values())
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
        medians = {name: each.prompt_p50 for name, each in self._classes.items()}
        return [
            self._classes[name].evidence(
                {other: tokens for other, tokens in medians.items() if other != name and tokens}
            )
            for name in self._spec.in_order(self._classes)
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
        yield from self._log.notes()
