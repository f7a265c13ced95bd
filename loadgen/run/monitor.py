"""What a run does besides sending: keeps the records, watches failures and saturation, shows progress, and reports."""

import logging
from collections.abc import Sequence
from time import monotonic

from rich.console import Console

from loadgen.report import tables
from loadgen.results.record import ClientOutcome, Record, WorkerUsage
from loadgen.results.saturation import Saturation, SaturationWatch
from loadgen.run import warm_up
from loadgen.run.live_figures import LiveFigures
from loadgen.run.load_metrics import LoadCollector
from loadgen.run.progress import Progress
from loadgen.run.settings import RunSettings
from loadgen.run.stalls import StallWatch
from loadgen.run.store import ResultStore

_log = logging.getLogger(__name__)

FIRST = 5
"""Failures before the first success that give a notice."""
LATER = 20
"""Failures in a row after a success that give one."""


class RunMonitor:
    """The state and the output of one run, whether this process sends the requests or workers do."""

    def __init__(
        self, settings: RunSettings, series: LoadCollector, model: str, schedule: str, console: Console | None = None
    ) -> None:
        """Create the output folder; the report goes to `console`.

        Raises:
            UsageError: the folder cannot be used.
        """
        self._settings = settings
        self._series = series
        self._console = console or Console()
        self.store = ResultStore(settings, model, schedule)
        for warning in tables.unjudged(self.store.slos):
            _log.warning("%s", warning)
        self.figures = LiveFigures(settings.plan.shares)
        self._failures = FailureNotice()
        self._saturation = SaturationWatch(settings.phases)
        self._ended_as_saturated = False
        self._progress: Progress | None = None
        self._start = monotonic()
        self.complete = False
        self.faults: tuple[str, ...] = ()

    @property
    def records(self) -> Sequence[Record]:
        """The requests that have ended, in this order."""
        return self.store.records

    @property
    def saturated(self) -> Saturation | None:
        """The first over-saturation so far."""
        return self._saturation.found

    @property
    def exit_status(self) -> int:
        """1 if the run was invalid, unless the settings allow it, or its files are incomplete."""
        return 0 if self.complete and (not self.faults or self._settings.allow_invalid) else 1

    @property
    def now(self) -> float:
        """Seconds since the start of the run."""
        return monotonic() - self._start

    def start(self, start_unix: float, start: float, stalls: StallWatch) -> None:
        """Begin at `start_unix` in unix seconds, which is `start` of the monotonic clock."""
        self._start = start
        self.store.start(start_unix)
        self._series.start_run(self._settings.plan.name, start_unix)
        self._progress = Progress(self.figures, start, self._settings, stalls)

    def notice(self, record: Record) -> None:
        """Warn if requests fail one after the other."""
        if (notice := self._failures.add(record)) is not None:
            _log.warning("%s", notice)

    def tick(self, oldest_due: float | None, *, stopped: bool) -> bool:
        """Write and show what has happened; returns whether a run that is not `stopped` must stop."""
        self.store.flush()
        stops = bool(self.store.failures) and not stopped
        if stops:
            _log.error("%s; the run stops", self.store.failures[0])
        if found := self._saturation.sample(self.now, self.figures.total.offered, self.figures.total.ended, oldest_due):
            self._ended_as_saturated = self._settings.stop_when_saturated and not stopped and not stops
            _log.warning(
                "the server has been saturated since about %.0f s: %.3g requests/s are offered, %.3g end%s",
                found.since,
                found.offered,
                found.completed,
                "; the run stops" if self._ended_as_saturated else "",
            )
            stops = stops or self._ended_as_saturated
        if self._progress is not None:
            self._progress.saturation = self._saturation.found
            self._progress.tick()
        return stops

    def log_stop(self) -> None:
        _log.info(
            "stopping: %d open requests have up to %g s to finish; ctrl-c again ends the run now",
            self.figures.total.open,
            self._settings.grace,
        )

    def end(self, ending: str, stalls: StallWatch, workers: Sequence[WorkerUsage] = ()) -> None:
        """Write all files and print the report; `ending` is completed, stopped or killed.

        Sets `faults`: what makes the run invalid, and `complete`: whether all files were written.
        """
        self._series.end_run()
        if self._progress is not None:
            self._progress.close()
        if ending == "stopped" and self._ended_as_saturated:
            ending = "saturated"
        run, result = self.store.end(ending, self.now, stalls, self._saturation.found, workers)
        self.faults = result.health.faults
        tables.show(run, result, self._console)
        warm_up.show(self._settings.out, self._console)
        self.complete = not self.store.failures
        for failure in self.store.failures:
            _log.error("%s", failure)


class FailureNotice:
    """Notices that requests fail one after the other in the same way, before the run has ended.

    Each kind of failure gives one notice at most.
    """

    def __init__(self) -> None:
        self._kind: tuple[ClientOutcome, int | None] | None = None
        self._count = 0
        self._limit = FIRST
        self._noticed: set[tuple[ClientOutcome, int | None]] = set()

    def add(self, record: Record) -> str | None:
        """The text of a notice that this record completes."""
        match record.outcome:
            case ClientOutcome.OK:
                self._kind, self._limit = None, LATER
                return None
            case ClientOutcome.CUT | ClientOutcome.NOT_SENT:  # not by the target
                return None
        kind = record.outcome, record.status
        self._count = self._count + 1 if kind == self._kind else 1
        self._kind = kind
        if self._count < self._limit or kind in self._noticed:
            return None
        self._noticed.add(kind)
        which = "first" if self._limit == FIRST else "last"
        status = "" if record.status is None else f", status {record.status}"
        reason = "" if record.error is None else f": {record.error}"
        return f"the {which} {self._count} requests all failed: {record.outcome}{status}{reason}; ctrl-c stops the run"
