"""The request log as a source: every request with its times and verdicts."""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import groupby, pairwise
from pathlib import Path

from exporters.comparison.comparison_windows import Change, Coverage, Window
from exporters.comparison.figures import TTFT, Measurements
from exporters.comparison.request import from_entry
from exporters.comparison.request_figures import measure
from exporters.errors import UsageError
from exporters.requestlog.reader import LogReader
from exporters.signals import Outcome
from exporters.slos import SloFile

_ENGINE_AWAY = frozenset({Outcome.TRUNCATED, Outcome.UPSTREAM_ERROR, Outcome.UPSTREAM_UNREACHABLE})
_ENGINE_PRESENT = frozenset({Outcome.OK, Outcome.TIMEOUT_FIRST_TOKEN, Outcome.TIMEOUT_IDLE})


class RequestLogSource:
    """All requests of some files, in the order in which they ended."""

    def __init__(self, paths: Sequence[Path], spec: SloFile) -> None:
        """Read the files.

        Raises:
            UsageError: a file cannot be read, or no line in them is a request.
        """
        self.name = ", ".join(map(str, paths))
        self._spec = spec
        reader = LogReader(paths)
        try:
            self._requests = sorted(map(from_entry, reader), key=lambda request: request.ended)
        except UsageError as error:
            raise UsageError(f"--request-log: {error}") from error
        self._bad_lines = {path: bad for path, bad in reader.bad_lines.items() if bad.count}
        if not self._requests:
            first = "".join(f" ({bad.first})" for bad in [*self._bad_lines.values()][:1])
            raise UsageError(
                f"--request-log: {self.name}: no line of a request log in "
                f"{sum(bad.count for bad in self._bad_lines.values())} lines{first}; "
                "give what `vllm-slo sidecar --request-log FILE` has written"
            )

    @cached_property
    def coverage(self) -> Coverage:
        """Requests that are still open are in no log, so its last seconds lack the long ones."""
        arrived = sorted(request.arrived for request in self._requests)
        durations = sorted(request.ended - request.arrived for request in self._requests)
        long = durations[int(len(durations) * 0.95)]
        return Coverage(arrived[0], min(arrived[-1], self._requests[-1].ended - long), "the log")

    @cached_property
    def changes(self) -> Sequence[Change]:
        return [change for _, change in self._changes]

    @property
    def search_scope(self) -> str:
        """Where no change was found."""
        revision = next((request.config_revision for request in self._requests if request.config_revision), None)
        text = f"all of config revision {revision}" if revision else "none of which names a config revision"
        return f"{len(self._requests)} requests, {text}"

    @cached_property
    def _changes(self) -> list[tuple[str, Change]]:
        """With the new revision, which a scrape of the engine showed up to one scrape interval after the change."""
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

    def changed_to(self, revision: str) -> Change:
        """The newest change to a revision that begins so.

        Raises:
            UsageError: there is none, or several revisions begin so.
        """
        matches = sorted({name for name, _ in self._changes if name.startswith(revision)})
        if len(matches) > 1:
            raise UsageError(f"--around: {revision!r} begins several revisions: {', '.join(matches)}; write more of it")
        if not matches:
            counts = Counter(request.config_revision or "none" for request in self._requests)
            content = ", ".join(f"{name} ({count} requests)" for name, count in counts.items())
            raise UsageError(
                f"--around: nothing changed to a revision {revision!r} in {self.name}, which holds {content}; "
                "write `last`, a time, or a revision that it changed to"
            )
        return next(change for name, change in reversed(self._changes) if name == matches[0])

    def outages(self, near: Window) -> list[Window]:
        """Stretches in which no request ended by the engine's doing, and at least one could not reach it."""
        outages = []
        for present, stretch in groupby(self._requests, lambda request: request.outcome in _ENGINE_PRESENT):
            if not present:
                failed = [request for request in stretch if request.outcome in _ENGINE_AWAY]
                if any(request.outcome is Outcome.UPSTREAM_UNREACHABLE for request in failed):
                    outages.append(Window(failed[0].ended, failed[-1].ended))
        return outages

    def measurements(self, window: Window, lead: float) -> Measurements:
        names = {request.request_class for request in self._requests}
        order = [name for name in self._spec.class_names if name in names]
        by_class = {}
        for name in [*order, *sorted(names - set(order))]:
            requests = [request for request in self._requests if request.request_class == name]
            figures = measure(requests, window, lead, self._spec)
            # In a log without any first token a failed stream says nothing about how long one takes.
            by_class[name] = {
                figure: measurement for figure, measurement in figures.items() if self._has_ttft or figure not in TTFT
            }
        return by_class

    @cached_property
    def _has_ttft(self) -> bool:
        return any(request.ttft is not None for request in self._requests)

    def notes(self, before: Window, after: Window) -> list[str]:
        """What to know of these figures."""
        still_open = [
            sum(window.contains(request.arrived) and request.ended >= window.end for request in self._requests)
            for window in (before, after)
        ]
        notes = [
            (
                "The offered rate is of requests that arrived in a window, all else of those that ended in it and had "
                f"not begun before the time to settle; {still_open[0]} were still open at the end of the window "
                f"before, {still_open[1]} of that after. Tokens are prompt and completion."
            ),
            (
                "A verdict counts where it fell (a missed deadline, not the end that may follow much later), TTFT "
                "where the first token came. A stream that the server kept from one is slower than any other; a client "
                "that left before it counts with the time it waited."
            ),
        ]
        compared = [
            request for request in self._requests if before.contains(request.arrived) or after.contains(request.arrived)
        ]
        queued = sum(request.queue is not None for request in compared)
        if 0 < queued < len(compared):
            notes.append(
                f"Queue times are the engine's own, known of {queued / len(compared):.0%} of the requests: "
                "it tells none of those that did not finish."
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
            notes.append(f"Absent because no line has it: {', '.join(absent)}.")
        notes += [
            f"{path}: lines passed over because they hold no request: {bad.count}; the first is {bad.first}."
            for path, bad in self._bad_lines.items()
        ]
        return notes
