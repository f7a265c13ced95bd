"""One run, from its settings to its report; Locust only receives an event for each request."""

import gc
import resource
import signal
from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import Protocol

import gevent
from rich.console import Console

from loadgen.client.completion import CompletionResponse
from loadgen.client.http_client import HttpClient
from loadgen.results.record import ClientOutcome, Record
from loadgen.run import preflight, warm_up
from loadgen.run.dispatcher import Dispatcher
from loadgen.run.live_figures import LiveFigures
from loadgen.run.load_metrics import LoadCollector
from loadgen.run.metrics_endpoint import MetricsEndpoint
from loadgen.run.monitor import RunMonitor
from loadgen.run.progress import TICK
from loadgen.run.settings import RunSettings
from loadgen.run.stalls import StallWatch
from loadgen.schedule.requests import PlannedRequest, schedule_hash


class Load(Protocol):
    """A run by this process, or by workers."""

    monitor: RunMonitor

    def run(self) -> None: ...

    def stop(self) -> None: ...


def run(settings: RunSettings) -> int:
    """Run the load and report; returns 1 if the run is invalid, unless settings allow it, or its files are incomplete.

    Raises:
        UsageError: the target does not respond, or the folder or the metrics address cannot be used.
    """
    return run_with(settings, lambda series: LoadRun(settings, series, lambda **_: None))


def run_with(settings: RunSettings, new_load: Callable[[LoadCollector], Load]) -> int:
    gevent.get_hub().NOT_ERROR += (KeyboardInterrupt,)  # ctrl-c before the load: gevent would print it
    series = LoadCollector(settings.slos, settings.experiment, settings.configuration)
    endpoint = MetricsEndpoint(series, settings.metrics)
    load = new_load(series)  # last, so that a signal closes its files

    def stop() -> None:
        load.stop()
        endpoint.stop_waiting()

    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, stop)
    two_scrapes = 2 * settings.slos.scrape_interval  # one may fail
    # Prometheus computes increases from the counters at 0 and at their last values, so both must be scraped.
    endpoint.wait_for_scrape(settings.metrics_wait + two_scrapes)
    load.run()
    endpoint.mark_unread()
    endpoint.wait_for_scrape(two_scrapes)
    endpoint.close()
    return load.monitor.exit_status


class FailedRequestError(Exception):
    """Reported to Locust for a failed request; contains the outcome only, to keep Locust's table short."""


class WaveSender:
    """Sends the waves of a warm-up, before a run and outside its series and figures, by a dispatcher for each."""

    def __init__(self, settings: RunSettings, model: str, client: HttpClient) -> None:
        self._settings = settings
        self._model = model
        self._client = client
        self._dispatcher: Dispatcher | None = None

    def send(self, requests: Sequence[PlannedRequest]) -> list[Record]:
        """The records of a wave, after the end of all its requests."""
        records: list[Record] = []
        series = LoadCollector(self._settings.slos)
        self._dispatcher = dispatcher = Dispatcher(
            self._settings,
            self._model,
            self._client,
            series,
            lambda record, _: records.append(record),
            LiveFigures(),
        )
        (group,) = dispatcher.encode(requests)
        dispatcher.begin()
        dispatcher.offer([group], self._settings.plan.schedule, ())
        dispatcher.drain(self._settings.plan.timeout + 1)
        dispatcher.cut()
        self._dispatcher = None
        return records

    def stop(self) -> None:
        """End the wave that is being sent."""
        if self._dispatcher is not None:
            self._dispatcher.stop()


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
        self._fire = fire
        client, model = preflight.connect(settings)
        self._schedule = settings.plan.schedule
        self.monitor = RunMonitor(settings, series, model, schedule_hash(self._schedule), console)
        raise_file_limit(settings.max_open)
        self.dispatcher = Dispatcher(settings, model, client, series, self._record, self.monitor.figures)
        self._waves = WaveSender(settings, model, client)

    def run(self) -> None:
        """Send all requests, wait for the open ones, and report; a stopped run waits for the grace period only."""
        dispatcher, settings = self.dispatcher, self._settings
        if settings.warm_up:
            warm_up.run(settings.warm_up, self._waves.send, settings.out, lambda: dispatcher.stopped)
        groups = dispatcher.encode(self._schedule)
        first = list(islice(groups, 1))  # before the start, so that requests at 0 s are not late
        free_from_collection()
        dispatcher.begin()
        stalls = StallWatch()
        self.monitor.start(dispatcher.start_unix, dispatcher.start, stalls)
        greenlets = [gevent.spawn(self._tick), gevent.spawn(stalls.run)]
        ending = "killed"
        try:
            dispatcher.offer(chain(first, groups), self._schedule, settings.phases)
            dispatcher.drain(settings.plan.longest_timeout + 1)
            ending = "stopped" if dispatcher.stopped else "completed"
            if dispatcher.stopped:
                dispatcher.wait_after_stop(settings.grace)
        finally:
            dispatcher.cut()
            gevent.killall(greenlets)
            self.monitor.end(ending, stalls)

    def stop(self) -> None:
        """Stop sending and end the run after the grace period; a second call ends the run immediately."""
        if self.dispatcher.stopped:
            self.dispatcher.cut()
            return
        self.dispatcher.stop()
        self._waves.stop()
        self.monitor.log_stop()

    def _record(self, record: Record, response: CompletionResponse) -> None:
        self.monitor.figures.end(record)
        self.monitor.store.add(record, response)
        self.monitor.notice(record)
        report_to_locust(self._fire, record, response.size)

    def _tick(self) -> None:
        while True:
            gevent.sleep(TICK)
            if self.monitor.tick(self.dispatcher.oldest_due, stopped=self.dispatcher.stopped):
                self.dispatcher.stop()


def report_to_locust(fire: Callable[..., None], record: Record, size: int) -> None:
    """Reports a request to Locust's page only: Locust rounds percentiles to two digits and has no TTFT."""
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
