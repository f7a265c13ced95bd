"""One run, from its settings to its report; Locust only receives an event for each request."""

import gc
import logging
import resource
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, islice
from time import monotonic

import gevent
from rich.console import Console

from exporters.errors import UsageError
from loadgen import preflight, report, warm_up
from loadgen.completion_response import CompletionResponse
from loadgen.dispatcher import DispatchConfig, Dispatcher
from loadgen.failure_notice import FailureNotice
from loadgen.http_client import HttpClient, UnreachableError
from loadgen.live_figures import LiveFigures
from loadgen.load_metrics import LoadCollector
from loadgen.progress import TICK, Progress
from loadgen.request_plan import PlannedRequest, schedule_hash
from loadgen.request_record import ClientOutcome, Record
from loadgen.result_store import ResultStore
from loadgen.run_settings import RunSettings
from loadgen.saturation import SaturationWatch
from loadgen.stall_watch import StallWatch

_log = logging.getLogger(__name__)


class FailedRequestError(Exception):
    """Reported to Locust for a failed request; contains the outcome only, to keep Locust's table short."""


class LoadRun:
    """One run of a scenario."""

    def __init__(
        self,
        settings: RunSettings,
        series: LoadCollector,
        fire: Callable[..., None],
        console: Console | None = None,
    ) -> None:
        """Check the target and create the output folder before the load starts; the report goes to `console`.

        Raises:
            UsageError: the target does not respond, or the folder cannot be used.
        """
        self._settings = settings
        self._series = series
        self._fire = fire
        self._console = console or Console()
        try:
            client = HttpClient(settings.target)
        except UnreachableError as error:
            raise UsageError(f"--target {settings.target}: {error}") from error
        model = preflight.find_model(settings, client) if settings.check else settings.model or ""
        self._schedule = settings.plan.schedule
        self._store = ResultStore(settings, model, schedule_hash(self._schedule))
        for warning in report.unjudged(self._store.slos):
            _log.warning("%s", warning)
        raise_file_limit(settings.max_open)
        config = dispatch_config(settings, model)
        self._saturation = SaturationWatch(settings.phases)
        self._stopped_as_saturated = False
        self.valid = self.complete = False
        self.faults: tuple[str, ...] = ()
        self.dispatcher = Dispatcher(config, client, series, self._record)
        self._make_dispatcher = partial(Dispatcher, config, client, LoadCollector(settings.slos))
        self._warm_up: Dispatcher | None = None
        self.dispatcher.figures = LiveFigures(settings.plan.shares)
        self._failures = FailureNotice()

    @property
    def records(self) -> Sequence[Record]:
        """The requests that have ended, in this order."""
        return self._store.records

    def run(self) -> None:
        """Send all requests, wait for the open ones, and report; a stopped run waits for the grace period only.

        Sets `valid`: whether the load generator sent what was planned, and `complete`: whether all files were written.
        """
        dispatcher, settings = self.dispatcher, self._settings
        if settings.warm_up:
            warm_up.run(settings.warm_up, self._send_at_once, settings.out, lambda: dispatcher.stopped)
        groups = dispatcher.encode(self._schedule)
        first = list(islice(groups, 1))  # before the start, so that requests at 0 s are not late
        free_from_collection()
        dispatcher.begin()
        self._store.start(dispatcher.start_unix)
        self._series.start_run(settings.plan.name, dispatcher.start_unix)
        stalls = StallWatch()
        progress = Progress(dispatcher, settings, stalls)
        ticker = gevent.spawn(self._tick, progress)
        watch = gevent.spawn(stalls.run)
        ending = "killed"
        try:
            dispatcher.offer(chain(first, groups), self._schedule, settings.phases)
            dispatcher.drain(settings.plan.timeout + 1)
            ending = "stopped" if dispatcher.stopped else "completed"
            if dispatcher.stopped:
                ending = "saturated" if self._stopped_as_saturated else ending
                dispatcher.wait_after_stop(settings.grace)
        finally:
            dispatcher.cut()
            self._series.end_run()
            ticker.kill()
            watch.kill()
            progress.close()
            run, result = self._store.end(ending, monotonic() - dispatcher.start, stalls, self._saturation.found)
            self.faults = result.health.faults
            self.valid = not self.faults
            report.show(run, result, self._console)
            warm_up.show(settings.out, self._console)
            self.complete = not self._store.failures
            for failure in self._store.failures:
                _log.error("%s", failure)

    def stop(self) -> None:
        """Stop sending and end the run after the grace period; a second call ends the run immediately."""
        if self.dispatcher.stopped:
            self.dispatcher.cut()
            return
        self.dispatcher.stop()
        if self._warm_up is not None:
            self._warm_up.stop()
        _log.info(
            "stopping: %d open requests have up to %g s to finish; ctrl-c again ends the run now",
            self.dispatcher.open,
            self._settings.grace,
        )

    def _send_at_once(self, requests: Sequence[PlannedRequest]) -> list[Record]:
        """Send the requests of a wave of the warm-up; they have a dispatcher and series of their own."""
        records: list[Record] = []
        self._warm_up = dispatcher = self._make_dispatcher(lambda record, _: records.append(record))
        (group,) = dispatcher.encode(requests)
        dispatcher.begin()
        dispatcher.offer([group], self._schedule, ())
        dispatcher.drain(self._settings.plan.timeout + 1)
        dispatcher.cut()
        self._warm_up = None
        return records

    def _record(self, record: Record, response: CompletionResponse) -> None:
        self._store.add(record, response.choice_gaps)
        if (notice := self._failures.add(record)) is not None:
            _log.warning("%s", notice)
        report_to_locust(self._fire, record, response.size)

    def _tick(self, progress: Progress) -> None:
        while True:
            gevent.sleep(TICK)
            self._store.flush()
            if self._store.failures and not self.dispatcher.stopped:
                _log.error("%s; the run stops", self._store.failures[0])
                self.dispatcher.stop()
            self._watch_saturation()
            progress.saturation = self._saturation.found
            progress.tick()

    def _watch_saturation(self) -> None:
        dispatcher = self.dispatcher
        now, total = monotonic() - dispatcher.start, dispatcher.figures.total
        if found := self._saturation.sample(now, total.offered, total.ended, dispatcher.oldest_due):
            stops = self._settings.stop_when_saturated and not dispatcher.stopped
            _log.warning(
                "the server has been saturated since about %.0f s: %.3g requests/s are offered, %.3g end%s",
                found.since,
                found.offered,
                found.completed,
                "; the run stops" if stops else "",
            )
            if stops:
                self._stopped_as_saturated = True
                dispatcher.stop()


def dispatch_config(settings: RunSettings, model: str) -> DispatchConfig:
    return DispatchConfig(
        target=settings.target,
        model=model,
        slos=settings.slos,
        timeout=settings.plan.timeout,
        max_open=settings.max_open,
        max_concurrency=settings.max_concurrency,
        save_detailed=settings.save_detailed,
    )


def report_to_locust(fire: Callable[..., None], record: Record, size: int) -> None:
    """For display only: Locust rounds its percentiles to two digits and has no TTFT."""
    fire(
        request_type="STREAM" if record.stream else "POST",
        name=record.request_class,
        response_time=(record.e2e or 0.0) * 1000,
        response_length=size,
        exception=None if record.outcome is ClientOutcome.OK else FailedRequestError(record.outcome.value),
        context={"phase": record.phase},
    )


def free_from_collection() -> None:
    """Let the garbage collector leave out what Locust has imported, so that it stops the event loop for less time."""
    gc.collect()
    gc.freeze()


def raise_file_limit(max_open: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max_open + 256
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
