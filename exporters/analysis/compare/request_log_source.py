"""Request logs as a source: every request with its times and verdicts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import groupby, pairwise
from pathlib import Path

from exporters.analysis.compare.backlog import Backlog, ChangeFailures
from exporters.analysis.compare.engine_work import backlog, measure_work
from exporters.analysis.compare.request import from_entry
from exporters.analysis.compare.request_figures import measure, offered
from exporters.analysis.estimates.figures import (
    ALL_CLASSES,
    BACKLOG_GROWTH,
    OFFERED,
    TTFT,
    Figure,
    Measurement,
    Measurements,
)
from exporters.analysis.estimates.windows import Change, Coverage, Window
from exporters.requestlog.reader import LogReader
from exporters.text.errors import UsageError
from exporters.vocabulary.signals import WARM_UP, Outcome
from exporters.vocabulary.slo_file import SloFile
from exporters.vocabulary.verdicts import SERVER_FAULT

_ENGINE_AWAY = frozenset({Outcome.TRUNCATED, Outcome.UPSTREAM_ERROR, Outcome.UPSTREAM_UNREACHABLE})
_ENGINE_PRESENT = frozenset({Outcome.OK, Outcome.TIMEOUT_FIRST_TOKEN, Outcome.TIMEOUT_IDLE, Outcome.TIMEOUT_TOTAL})


class RequestLogSource:
    """All requests of some files."""

    def __init__(self, paths: Sequence[Path], spec: SloFile) -> None:
        """Read the logs with their rotated files.

        Raises:
            UsageError: a file cannot be read, or no line is a request.
        """
        self.name = ", ".join(map(str, paths))
        self._spec = spec
        self._log = LogReader(paths)
        try:
            traffic = (from_entry(entry) for entry in self._log if entry.request_class != WARM_UP)
            self._requests = sorted(traffic, key=lambda request: request.ended)
        except UsageError as error:
            raise UsageError(f"--request-log: {error}") from error
        if not self._requests:
            bad_lines = [bad for bad in self._log.bad_lines.values() if bad.count]
            first = "".join(f" ({bad.first})" for bad in bad_lines[:1])
            raise UsageError(
                f"--request-log: {self.name}: no request in {sum(bad.count for bad in bad_lines)} lines{first}; give "
                "files that `vllm-slo sidecar --request-log FILE` has written"
            )

    @cached_property
    def coverage(self) -> Coverage:
        """Requests in flight are not in the log, so long requests are missing in its last seconds."""
        arrived = sorted(request.arrived for request in self._requests)
        durations = sorted(request.ended - request.arrived for request in self._requests)
        long = durations[int(len(durations) * 0.95)]
        return Coverage(arrived[0], min(arrived[-1], self._requests[-1].ended - long), "the log")

    @property
    def search_scope(self) -> str:
        """The records in which changes are searched for."""
        counts = Counter(request.config_revision or "unknown" for request in self._requests)
        return f"{self.name} (requests by config revision: {', '.join(f'{name} {n}' for name, n in counts.items())})"

    @property
    def changes(self) -> Sequence[Change]:
        return [change for _, change in self._changes]

    @property
    def changes_by_revision(self) -> Mapping[str, Change]:
        """The latest change to each revision."""
        return dict(self._changes)

    @cached_property
    def _changes(self) -> list[tuple[str, Change]]:
        """The changes with their new revisions; the sidecar detects one up to a scrape interval after it happened."""
        with_revision = [request for request in self._requests if request.config_revision]
        return [
            (
                new.config_revision,
                Change(
                    old.ended - self._spec.scrape_interval,
                    new.ended,
                    f"config revision {old.config_revision} -> {new.config_revision}",
                ),
            )
            for old, new in pairwise(with_revision)
            if new.config_revision and old.config_revision != new.config_revision
        ]

    def outages(self, near: Window) -> Sequence[Window]:
        """Periods without a response of the engine in which at least one request could not reach it."""
        outages = []
        for present, consecutive in groupby(self._requests, lambda request: request.outcome in _ENGINE_PRESENT):
            if not present:
                failed = [request for request in consecutive if request.outcome in _ENGINE_AWAY]
                if any(request.outcome is Outcome.UPSTREAM_UNREACHABLE for request in failed):
                    outages.append(Window(failed[0].ended, failed[-1].ended))
        return outages

    def measurements(self, window: Window, lead: float) -> Measurements:
        by_class: dict[str, Mapping[Figure, Measurement]] = {
            ALL_CLASSES: {
                OFFERED: offered(self._requests, window),
                BACKLOG_GROWTH: self.backlog(window).measurement,
                **measure_work(self._requests, window),
            }
        }
        for name in self._spec.in_order({request.request_class for request in self._requests}):
            requests = [request for request in self._requests if request.request_class == name]
            figures = measure(requests, window, lead, self._spec)
            # Some logs have no TTFT at all; a failed stream then does not mean an infinite TTFT.
            by_class[name] = {
                figure: measurement for figure, measurement in figures.items() if self._has_ttft or figure not in TTFT
            }
        return by_class

    def backlog(self, window: Window) -> Backlog:
        return backlog(self._requests, window)

    def failures(self, change: Window) -> ChangeFailures:
        """The requests that failed between the two windows, by the server's fault."""
        in_flight = [request for request in self._requests if request.arrived < change.start <= request.ended]
        return ChangeFailures(
            sum(change.contains(each.ended) and each.outcome in SERVER_FAULT for each in self._requests),
            len(in_flight),
            sum(change.contains(each.ended) and each.outcome in SERVER_FAULT for each in in_flight),
        )

    @cached_property
    def _has_ttft(self) -> bool:
        return any(request.ttft is not None for request in self._requests)

    def notes(self, before: Window, after: Window) -> list[str]:
        """Remarks on how the figures are counted, and on missing data."""
        in_flight = [
            sum(window.contains(request.arrived) and request.ended >= window.end for request in self._requests)
            for window in (before, after)
        ]
        notes = [
            (
                "The offered rate counts requests that arrived in a window; latencies and SLOs count requests that "
                "ended in it and arrived at most one settling time before it. In flight at the end of a window: "
                f"{in_flight[0]} before the change, {in_flight[1]} after it."
            ),
            (
                "Throughput counts the work in a window, also for requests that began before it, ended after it or "
                "failed: the output tokens of a request evenly from its first token to its end, its prompt tokens at "
                "its first token. Prompt tokens exclude cached tokens. Completed: requests that ended ok over requests "
                "that arrived."
            ),
            (
                "A verdict counts at the time when it was certain, such as the missed deadline, and TTFT at the first "
                "token. A stream that ended without a first token, also if its client aborted it, is slower than any "
                "other; so is the E2E of a request that did not complete."
            ),
        ]
        compared = [
            request for request in self._requests if before.contains(request.arrived) or after.contains(request.arrived)
        ]
        queued = sum(request.queue is not None for request in compared)
        if 0 < queued < len(compared):
            notes.append(
                f"Queue times are measured by the engine, which reported them for {queued / len(compared):.0%} of the "
                "requests: for none that did not finish."
            )
        absent = [
            name
            for name, present in (
                ("TTFT", self._has_ttft),
                ("TPOT", any(request.tpot is not None for request in compared)),
                ("queue", queued > 0),
                ("cache hit ratio", any(request.cached_tokens is not None for request in compared)),
                ("attainment and goodput", any(request.slo for request in compared)),
            )
            if not present
        ]
        if absent:
            notes.append(f"Omitted, because no line has them: {', '.join(absent)}.")
        return [*notes, *self._log.notes()]
