"""The master of a distributed run: starts the workers at one time, merges their records, and reports."""

import logging
from collections.abc import Callable, Iterator
from time import monotonic, time
from typing import Any

import gevent
from gevent.queue import Empty, Queue
from rich.console import Console

from exporters.errors import UsageError
from loadgen import preflight, report
from loadgen.completion_response import CompletionResponse
from loadgen.gap_histogram import GapHistogram
from loadgen.grading import make_record
from loadgen.http_client import HttpClient, UnreachableError
from loadgen.load_metrics import LoadCollector
from loadgen.progress import LOG_INTERVAL, TICK
from loadgen.report import format_seconds
from loadgen.request_plan import schedule_hash
from loadgen.request_record import ClientOutcome, WorkerUsage
from loadgen.result_store import ResultStore
from loadgen.run_settings import RunSettings
from loadgen.schedule_share import Share
from loadgen.stall_watch import StallWatch
from loadgen.worker_messages import Batch, Ended, Hello, Message, Prepare, Ready, Start, Stop, listen, send

START_DELAY = 1.0
"""Seconds from the message to the workers to time 0, so that it reaches all of them before."""
LOST_AFTER = 15.0
"""Seconds without a message after which a worker counts as lost; the master notices at once if a local process ends."""
READY_WITHIN = 120.0
"""Seconds that workers may take to connect and to build the schedule."""

_log = logging.getLogger(__name__)


class WorkerPool:
    """The connected workers, by their index, and their messages."""

    def __init__(self, runner: Any, has_ended: Callable[[int], bool] = lambda _: False) -> None:
        """`has_ended`: whether a process id is that of a worker on this machine that has ended."""
        self._runner = runner
        self._has_ended = has_ended
        self._workers: dict[str, Hello] = {}
        self._seen: dict[str, float] = {}
        self._inbox: Queue[tuple[str, Message]] = Queue()
        listen(runner, self._receive)

    def __len__(self) -> int:
        return len(self._workers)

    def connected(self, count: int) -> None:
        """Wait for this many workers.

        Raises:
            UsageError: they did not connect.
        """
        until = monotonic() + READY_WITHIN
        while len(self) < count:
            if monotonic() > until:
                raise UsageError(f"only {len(self)} of {count} workers have connected")
            gevent.sleep(0.01)

    def forget_missing(self) -> None:
        """Leave out the workers whose heartbeat Locust misses."""
        present = {worker.id for worker in self._runner.clients.all} - {
            worker.id for worker in self._runner.clients.missing
        }
        self._workers = {worker: hello for worker, hello in self._workers.items() if worker in present}

    def send(self, index: int, message: Message) -> None:
        worker = list(self._workers)[index]
        self._seen[worker] = monotonic()  # it sends nothing between two runs
        send(self._runner, message, worker)

    def messages(self, seconds: float) -> Iterator[tuple[int, Message]]:
        """The messages that have arrived, or do so in the next `seconds`, each with the index of its worker."""
        until = monotonic() + seconds
        while True:
            try:
                worker, message = self._inbox.get(timeout=max(0.0, until - monotonic()))
            except Empty:
                return
            yield list(self._workers).index(worker), message

    def has_ended(self, index: int) -> bool:
        return self._has_ended(list(self._workers.values())[index].pid)

    def is_silent(self, index: int) -> bool:
        return monotonic() - self._seen[list(self._workers)[index]] > LOST_AFTER

    def _receive(self, worker: str, message: Message) -> None:
        self._seen[worker] = monotonic()
        if isinstance(message, Hello):
            self._workers[worker] = message
        elif worker in self._workers:
            self._inbox.put((worker, message))


class MasterRun:
    """One run of a scenario by several workers; a lost worker's requests without a record count as not sent."""

    def __init__(self, settings: RunSettings, series: LoadCollector, pool: WorkerPool) -> None:
        """Check the target, create the output folder, and let the workers build the schedule.

        Raises:
            UsageError: the target does not respond, the folder cannot be used, or a worker cannot send its share.
        """
        self._settings = settings
        self._series = series
        self._pool = pool
        try:
            client = HttpClient(settings.target)
        except UnreachableError as error:
            raise UsageError(f"--target {settings.target}: {error}") from error
        model = preflight.find_model(settings, client) if settings.check else settings.model or ""
        schedule = schedule_hash(settings.plan.schedule)
        self._prepare(model, schedule)
        self._store = ResultStore(settings, model, schedule)
        for warning in report.unjudged(self._store.slos):
            _log.warning("%s", warning)
        self._ttft, self._e2e = GapHistogram(), GapHistogram()
        self._usage: dict[int, WorkerUsage] = {}
        self._lost: dict[int, float] = {}
        self._recorded: set[tuple[str, int]] = set()
        self._stopped = False
        self.valid = self.complete = False

    def _prepare(self, model: str, schedule: str) -> None:
        self._pool.forget_missing()
        if not (workers := len(self._pool)):
            raise UsageError("no worker is connected")
        for index in range(workers):
            self._pool.send(index, Prepare(index, workers, model))
        waiting, until = set(range(workers)), monotonic() + READY_WITHIN
        while waiting:
            for index, message in self._pool.messages(TICK):
                if not isinstance(message, Ready):
                    continue
                if message.error is not None:
                    raise UsageError(message.error)
                if message.schedule != schedule:
                    raise UsageError(
                        f"worker {index} has another schedule than the master: start all with the same version, "
                        "scenario, seed and flags"
                    )
                waiting.discard(index)
                if not waiting:
                    return
            late = (
                sorted(waiting) if monotonic() > until else [index for index in waiting if self._pool.has_ended(index)]
            )
            if late:
                raise UsageError(f"worker {late[0]} was lost before the run")

    def run(self) -> None:
        """Start the workers, wait for all of them, and report.

        Sets `valid`: whether the load generator sent what was planned, and `complete`: whether all files were written.
        """
        workers = range(len(self._pool))
        start, begin = time() + START_DELAY, monotonic() + START_DELAY
        self._store.start(start)
        self._series.start_run(self._settings.plan.name, start)
        for index in workers:
            self._pool.send(index, Start(start))
        log_at, ending = LOG_INTERVAL, "killed"
        try:
            while len(self._usage) + len(self._lost) < len(workers):
                for index, message in self._pool.messages(TICK):
                    self._take(index, message)
                    if len(self._usage) + len(self._lost) == len(workers):
                        break
                now = monotonic() - begin
                for index in workers:
                    if index in self._usage or index in self._lost:
                        continue
                    if self._pool.has_ended(index) or self._pool.is_silent(index):
                        _log.error("worker %d was lost: its requests without a record count as not sent", index)
                        self._lost[index] = now
                self._store.flush()
                if self._store.failures and not self._stopped:
                    _log.error("%s; the run stops", self._store.failures[0])
                    self.stop()
                if now >= log_at:
                    log_at += LOG_INTERVAL
                    _log.info("%s", self.line(now))
            ending = "stopped" if self._stopped else "completed"
        finally:
            seconds = monotonic() - begin
            self._count_lost(seconds)
            self._series.end_run()
            usage = [self._usage.get(index, WorkerUsage(lost=self._lost.get(index))) for index in workers]
            run, result = self._store.end(ending, seconds, StallWatch(), workers=usage)
            self.valid = not result.health.faults
            report.show(run, result, Console())
            self.complete = not self._store.failures
            for failure in self._store.failures:
                _log.error("%s", failure)

    def stop(self) -> None:
        """Stop sending and end the run after the grace period; a second call ends the run immediately."""
        self._stopped = True
        for index in range(len(self._pool)):
            self._pool.send(index, Stop())

    def line(self, now: float) -> str:
        """The state of the run; percentiles are from the merged histograms of the workers, within 1 %."""
        return (
            f"{now:5.0f} s {len(self._pool) - len(self._lost)} workers  ended {len(self._store.records)}  of those ok: "
            f"TTFT p50 {_percentile(self._ttft, 50)}, p99 {_percentile(self._ttft, 99)}, "
            f"E2E p50 {_percentile(self._e2e, 50)}, p99 {_percentile(self._e2e, 99)}"
        )

    def _take(self, index: int, message: Message) -> None:
        if index in self._lost:  # its requests are counted already
            return
        if isinstance(message, Ended):
            self._usage[index] = message.usage
        if isinstance(message, Batch):
            for record in message.records:
                self._store.add_record(record)
                if not record.turn:
                    self._recorded.add((record.phase, record.number))
            self._store.chunks.merge(message.chunks)
            self._series.merge(message.counts)
            self._ttft.merge(message.ttft)
            self._e2e.merge(message.e2e)

    def _count_lost(self, seconds: float) -> None:
        shares = [(index, Share(index, len(self._pool))) for index in sorted(self._lost)]
        for request in self._settings.plan.schedule if shares else ():
            for index, share in shares:
                if not share.has(request) or (request.phase, request.number) in self._recorded:
                    continue
                if self._stopped and request.due > seconds:
                    return
                self._series.count_scheduled(request)
                self._series.count_ended(request, ClientOutcome.NOT_SENT)
                record = make_record(
                    request,
                    CompletionResponse(),
                    self._settings.slos,
                    request_id="",
                    start=0.0,
                    dispatched=None,
                    sent=None,
                    closed=max(request.due, self._lost[index]),
                    outcome=ClientOutcome.NOT_SENT,
                    error=f"worker {index} was lost",
                )
                self._store.add_record(record)


def _percentile(histogram: GapHistogram, percent: float) -> str:
    return format_seconds(histogram.percentile(percent) if histogram.count else None)
