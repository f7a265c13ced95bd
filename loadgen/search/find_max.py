"""Runs a search for the largest rate: each probe is a run whose records are looked at while it sends."""

import logging
import signal
from dataclasses import replace
from itertools import islice
from math import inf
from time import monotonic

import gevent
from rich.console import Console

from exporters.text.errors import UsageError
from loadgen.client.engine_idle import LIMIT, unreachable, wait_until_idle
from loadgen.client.http_client import HttpClient
from loadgen.report.tables import WIDE
from loadgen.results.record import ClientOutcome
from loadgen.run.load_metrics import LoadCollector
from loadgen.run.load_run import LoadRun
from loadgen.search import report
from loadgen.search.attainment import Attainment, Verdicts
from loadgen.search.probes import Look, ProbePlan
from loadgen.search.rate_search import Finding, search
from loadgen.search.results import Probe, SearchStore, open_store
from loadgen.search.settings import FindMaxSettings

_log = logging.getLogger(__name__)

_TICK = 0.5
_LOST_AFTER = 20
"""Requests one after the other without a connection after which the target counts as lost."""


class ProbeFailedError(Exception):
    """A probe that says nothing about the server; the message is the reason."""


def run(settings: FindMaxSettings) -> int:
    """Search and report; returns 1 if the answer is undecided or a probe was invalid.

    Raises:
        UsageError: the target does not respond before the first probe, or the folder cannot be used.
    """
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, WIDE)
    store = open_store(settings.run.out, settings.described(), settings.limits)
    found = MaxRateSearch(settings, store, console)
    console.print(report.expected(settings), highlight=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, found.stop)
    try:
        answer = search(found.probe, settings.limits)
    except ProbeFailedError as error:
        store.stop(str(error))
        answer = None
    else:
        store.save()
    report.show(store.search, settings.timing.confidence, console)
    return 1 if answer is None or answer.finding is Finding.UNDECIDED else 0


class MaxRateSearch:
    """The probes of one search."""

    def __init__(self, settings: FindMaxSettings, store: SearchStore, console: Console) -> None:
        self._settings = settings
        self._store = store
        self._console = console
        self._series = LoadCollector(settings.run.slos)
        self._load: LoadRun | None = None
        self._stopped = False
        self._count = 0

    def stop(self) -> None:
        """End the search; a second call ends the open requests immediately."""
        self._stopped = True
        if self._load is not None:
            self._load.stop()

    def probe(self, rate: float) -> Verdicts:
        """Offer a rate until it is decided, or take the result of an earlier run.

        Raises:
            ProbeFailedError: the load generator was too slow, the target is lost, or the search was stopped.
            UsageError: the target does not respond before the first probe, or the folder cannot be written.
        """
        self._count += 1
        if (kept := self._store.find(rate)) is not None:
            self._console.print(report.line(self._count, kept, kept=True), highlight=False, markup=False)
            return kept.verdicts
        number, folder = self._store.new_folder()
        plan = self._settings.plan(rate, number)
        try:
            settings = self._settings.of_probe(plan, folder)
            load = LoadRun(settings, self._series, lambda **_: None, Console(quiet=True))
        except UsageError as error:
            if self._count == 1:
                raise
            raise ProbeFailedError(f"before the probe at {rate:g} requests/s: {error}") from error
        look, verdicts = self._decide(plan, load)
        if self._stopped:
            raise ProbeFailedError(f"interrupted in the probe at {rate:g} requests/s")
        if not load.monitor.complete:
            raise ProbeFailedError(f"the results of the probe at {rate:g} requests/s could not be written")
        if load.monitor.faults:
            raise ProbeFailedError(f"the probe at {rate:g} requests/s is INVALID: {'; '.join(load.monitor.faults)}")
        client = HttpClient(self._settings.run.target)
        if (reason := unreachable(client)) is not None:
            raise ProbeFailedError(f"the target was lost in the probe at {rate:g} requests/s: {reason}")
        emptied = wait_until_idle(client, self._settings.cool_down)
        if emptied is False:
            _log.warning("the target still has requests %.0f s after the probe", LIMIT)
        done = Probe(
            folder=folder.name,
            rate=rate,
            seed=plan.seed,
            seconds=round(look.at, 3),
            attainment=verdicts.attainment,
            tallies=list(verdicts.tallies),
            emptied=emptied,
            saturated=verdicts.saturated,
        )
        self._store.add(done)
        self._console.print(report.line(self._count, done), highlight=False, markup=False)
        return verdicts

    def _decide(self, plan: ProbePlan, load: LoadRun) -> tuple[Look, Verdicts]:
        """Send the requests of a probe until a look decides it."""
        watch = ProbeWatch(plan, load, HttpClient(self._settings.run.target), self._settings)
        self._load = load
        if self._stopped:  # between two probes
            load.stop()
        watcher = gevent.spawn(watch.run)
        try:
            load.run()
        finally:
            watcher.kill()
            self._load = None
        if watch.lost is not None:
            raise ProbeFailedError(f"the target was lost in the probe at {plan.rate:g} requests/s: {watch.lost}")
        return watch.decided or (plan.looks[-1], plan.judge(plan.looks[-1], load.monitor.records))


class ProbeWatch:
    """Looks at the records of a probe while it sends, and stops it when it is decided or the target is lost."""

    def __init__(self, plan: ProbePlan, load: LoadRun, client: HttpClient, settings: FindMaxSettings) -> None:
        self._plan = plan
        self._load = load
        self._client = client
        self._saturation_misses = settings.saturation_misses
        self.decided: tuple[Look, Verdicts] | None = None
        self.lost: str | None = None

    def run(self) -> None:
        """Watch until the probe is decided or the greenlet is killed."""
        for look, end in zip(self._plan.looks, [*(look.at for look in self._plan.looks[1:]), inf], strict=True):
            while self._now() < look.at:
                self._pause()
            # A miss is certain whatever the open requests will be; for a met SLO, all of them must have ended.
            if self._judge(replace(look, early=True)):
                return
            while not look.early and self._now() < end:
                oldest = self._load.dispatcher.oldest_due
                if oldest is None or oldest > look.at:
                    if end < inf and self._judge(look):
                        return
                    break
                self._pause()

    def _now(self) -> float:
        return monotonic() - self._load.dispatcher.start

    def _pause(self) -> None:
        gevent.sleep(_TICK)
        if self._saturation_misses and (found := self._load.monitor.saturated) is not None:
            look = replace(self._plan.looks[0], at=found.detected, early=True)
            self.decided = look, replace(self._plan.judge(look, self._load.monitor.records), saturated=found)
            self._load.dispatcher.stop()
            raise gevent.GreenletExit
        last = list(islice(reversed(self._load.monitor.records), _LOST_AFTER))
        if len(last) == _LOST_AFTER and all(record.outcome is ClientOutcome.UPSTREAM_UNREACHABLE for record in last):
            self.lost = unreachable(self._client)
            if self.lost is not None:
                self._load.dispatcher.stop()

    def _judge(self, look: Look) -> bool:
        verdicts = self._plan.judge(look, self._load.monitor.records)
        if verdicts.attainment is Attainment.UNDECIDED:
            return False
        self.decided = look, verdicts
        self._load.dispatcher.stop()
        return True
