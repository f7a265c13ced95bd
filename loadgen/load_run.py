"""One run from its settings to its report, apart from Locust, to which each request is only told."""

import resource
from collections.abc import Callable
from time import monotonic

import gevent
from rich.console import Console

from exporters.errors import UsageError
from loadgen import preflight, report
from loadgen.arrivals import arrivals
from loadgen.dispatcher import Offering, Terms
from loadgen.http_client import Client, UnreachableError
from loadgen.load_metrics import LoadSeries
from loadgen.progress import EVERY, Status
from loadgen.request_plan import Workload
from loadgen.request_record import Fate, Record
from loadgen.result_store import Journal
from loadgen.run_settings import Settings


class FailedRequestError(Exception):
    """What Locust shows for a request that was not ok: the outcome, so that its table of failures stays short."""


class Load:
    """One run from its settings to its summary."""

    def __init__(self, settings: Settings, series: LoadSeries, fire: Callable[..., None]) -> None:
        """Look at the target and make the folder, before any load.

        Raises:
            UsageError: the target does not answer, or the folder cannot be used.
        """
        self._settings = settings
        self._series = series
        self._fire = fire
        try:
            client = Client(settings.target)
        except UnreachableError as error:
            raise UsageError(f"--target {settings.target}: {error}") from error
        model = preflight.model(settings, client) if settings.check else settings.model or ""
        self._journal = Journal(settings, model)
        _raise_file_limit(settings.most_open)
        terms = Terms(
            target=settings.target,
            model=model,
            slos=settings.slos,
            timeout=settings.scenario.timeout,
            most_open=settings.most_open,
        )
        self._plan = Workload(settings.scenario, settings.seed).plan(arrivals(settings.phases, settings.seed))
        self.offering = Offering(terms, client, series, self._ended)

    def play(self) -> None:
        """Offer, wait for what is open, and report; when killed or stopped, what is open gets a grace and is cut."""
        offering, settings = self.offering, self._settings
        offering.begin()
        self._journal.begin(offering.start_unix)
        self._series.begin(settings.scenario.name, offering.start_unix)
        status = Status(offering, settings.phases, self._journal.records)
        watch = gevent.spawn(self._watch, status)
        how = "killed"
        try:
            offering.offer(self._plan, settings.length)
            offering.drain(settings.scenario.timeout + 1)
            how = "stopped" if offering.stopped else "completed"
            if offering.stopped:
                offering.grace(settings.grace)
        finally:
            offering.cut()
            self._series.end()
            watch.kill()
            status.close()
            run, result = self._journal.end(how, monotonic() - offering.start)
            report.show(run, result, Console())

    def stop(self) -> None:
        """Offer nothing more and end; asked a second time, without the grace."""
        if self.offering.stopped:
            self.offering.cut()
        self.offering.stop()

    def _ended(self, record: Record, size: int) -> None:
        self._journal.keep(record)
        # Locust counts and shows it too, but rounds its percentiles to two digits and knows no first token: the
        # figures of record are ours.
        self._fire(
            request_type="STREAM" if record.stream else "POST",
            name=record.request_class,
            response_time=(record.e2e or 0.0) * 1000,
            response_length=size,
            exception=None if record.outcome is Fate.OK else FailedRequestError(record.outcome.value),
            context={"phase": record.phase},
        )

    def _watch(self, status: Status) -> None:
        while True:
            gevent.sleep(EVERY)
            self._journal.flush()
            status.tick()


def _raise_file_limit(most_open: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most_open + 256
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
