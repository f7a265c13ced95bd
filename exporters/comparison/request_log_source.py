"""The request log as a source: every request with its times and verdicts."""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import groupby, pairwise
from pathlib import Path

from exporters.comparison.comparison_windows import Change, Reach, Window
from exporters.comparison.measures import TTFT, Measures
from exporters.comparison.request_measures import measured
from exporters.errors import UsageError
from exporters.requestlog.reader import read
from exporters.signals import Outcome
from exporters.slos import SloFile

_NO_ENGINE = frozenset({Outcome.TRUNCATED, Outcome.UPSTREAM_ERROR, Outcome.UPSTREAM_UNREACHABLE})
_ENGINE_THERE = frozenset({Outcome.OK, Outcome.TIMEOUT_FIRST_TOKEN, Outcome.TIMEOUT_IDLE})


class RequestLog:
    """All lines of some files, in the order in which the requests ended."""

    def __init__(self, paths: Sequence[Path], spec: SloFile) -> None:
        """Read them.

        Raises:
            UsageError: a file cannot be read, or there is no line of a request log in them.
        """
        self.name = ", ".join(map(str, paths))
        self._spec = spec
        self._lines, self._broken = read(paths)
        self._lines.sort(key=lambda line: line.ended)
        if not self._lines:
            raise UsageError(
                f"--request-log: {self.name}: no line of a request log in {sum(self._broken.values())} lines; "
                "give what `vllm-slo sidecar --request-log FILE` has written"
            )

    @cached_property
    def reach(self) -> Reach:
        """Requests that are still open are in no log, so its last seconds lack the long ones."""
        arrived = sorted(line.arrived for line in self._lines)
        lives = sorted(line.e2e_ms / 1000 for line in self._lines)
        long = lives[int(len(lives) * 0.95)]
        return Reach(arrived[0], min(arrived[-1], self._lines[-1].ended - long), "the log")

    @cached_property
    def changes(self) -> Sequence[Change]:
        return [change for _, change in self._changes]

    @property
    def looked_at(self) -> str:
        """Where no change was found."""
        revision = next((line.config_revision for line in self._lines if line.config_revision), None)
        said = f"all of config revision {revision}" if revision else "none of which names a config revision"
        return f"{len(self._lines)} requests, {said}"

    @cached_property
    def _changes(self) -> list[tuple[str, Change]]:
        """With the new revision. It was noticed at a look at the engine, up to one scrape after it came."""
        known = [line for line in self._lines if line.config_revision]
        return [
            (
                new.config_revision,
                Change(
                    old.ended - self._spec.scrape_interval,
                    new.ended,
                    f"config revision {old.config_revision} -> {new.config_revision}",
                ),
            )
            for old, new in pairwise(known)
            if new.config_revision and old.config_revision != new.config_revision
        ]

    def changed_to(self, revision: str) -> Change:
        """The newest change to a revision that begins so.

        Raises:
            UsageError: there is none, or several revisions begin so.
        """
        meant = sorted({name for name, _ in self._changes if name.startswith(revision)})
        if len(meant) > 1:
            raise UsageError(f"--around: {revision!r} begins several revisions: {', '.join(meant)}; write more of it")
        if not meant:
            counts = Counter(line.config_revision or "none" for line in self._lines)
            there = ", ".join(f"{name} ({count} requests)" for name, count in counts.items())
            raise UsageError(
                f"--around: nothing changed to a revision {revision!r} in {self.name}, which holds {there}; "
                "write `last`, a time, or a revision that it changed to"
            )
        return next(change for name, change in reversed(self._changes) if name == meant[0])

    def outages(self, near: Window) -> list[Window]:
        """Stretches in which requests ended, none by the engine's doing, and one could not reach it at all."""
        found = []
        for there, stretch in groupby(self._lines, lambda line: line.outcome in _ENGINE_THERE):
            if not there:
                gone = [line for line in stretch if line.outcome in _NO_ENGINE]
                if any(line.outcome is Outcome.UPSTREAM_UNREACHABLE for line in gone):
                    found.append(Window(gone[0].ended, gone[-1].ended))
        return found

    def measures(self, window: Window, lead: float) -> Measures:
        names = {line.request_class for line in self._lines}
        order = [name for name in self._spec.class_names if name in names]
        found = {}
        for name in [*order, *sorted(names - set(order))]:
            these = [line for line in self._lines if line.request_class == name]
            figures = measured(these, window, lead, self._spec)
            # Without any first token in the log, a failed stream tells nothing of how long one takes.
            found[name] = {each: got for each, got in figures.items() if self._has_ttft or each not in TTFT}
        return found

    @cached_property
    def _has_ttft(self) -> bool:
        return any(line.ttft_ms is not None for line in self._lines)

    def notes(self, before: Window, after: Window) -> list[str]:
        """What to know of these figures."""
        still_open = [
            sum(window.holds(line.arrived) and line.ended >= window.end for line in self._lines)
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
        compared = [line for line in self._lines if before.holds(line.arrived) or after.holds(line.arrived)]
        queued = sum(line.queue_ms is not None for line in compared)
        if 0 < queued < len(compared):
            notes.append(
                f"Queue times are the engine's own, known of {queued / len(compared):.0%} of the requests: "
                "it tells none of those that did not finish."
            )
        absent = [
            name
            for name, known in (
                ("TTFT", self._has_ttft),
                ("TPOT", any(line.tpot_ms is not None for line in compared)),
                ("queue", queued > 0),
                ("cache hit ratio", any(line.cached_tokens is not None for line in compared)),
                ("attainment and goodput", any(line.slo for line in compared)),
            )
            if not known
        ]
        if absent:
            notes.append(f"Absent because no line has it: {', '.join(absent)}.")
        notes += [
            f"{path}: lines passed over because they hold no request: {count}."
            for path, count in self._broken.items()
            if count
        ]
        return notes
