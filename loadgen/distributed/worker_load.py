"""A worker of a distributed run: sends its share of the schedule, and its records to the master."""

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, islice
from time import monotonic, process_time, time
from typing import Any

import gevent

from exporters.text.errors import UsageError
from loadgen.client.chunk_totals import ChunkTotals
from loadgen.client.completion import CompletionResponse
from loadgen.distributed.common_settings import common_settings
from loadgen.distributed.messages import Batch, Hello, Message, Prepare, Ready, Start, Stop, listen, send
from loadgen.results.record import Record, WorkerUsage
from loadgen.run import preflight
from loadgen.run.dispatcher import Dispatcher, EncodedGroup
from loadgen.run.load_metrics import LoadCollector
from loadgen.run.load_run import free_from_collection, raise_file_limit, report_to_locust
from loadgen.run.settings import RunSettings
from loadgen.run.stalls import StallWatch
from loadgen.schedule.share import Share, SharedSchedule

INTERVAL = 0.5
"""Seconds between two batches; an empty one shows that the worker is alive."""


class WorkerLoad:
    """Runs each share that the master asks for."""

    def __init__(self, runner: Any, settings: Callable[[str], RunSettings]) -> None:
        """Announce this worker to the master, which sends the target of `settings`."""
        self._runner = runner
        self._settings = settings
        self._share: _ShareRun | None = None
        listen(runner, self._receive)
        send(runner, Hello(socket.gethostname(), os.getpid()))

    def _receive(self, _: str, message: Message) -> None:
        # In another greenlet, because this one answers Locust's other messages.
        match message:
            case Prepare():
                gevent.spawn(self._prepare, message)
            case Start() if self._share is not None:
                gevent.spawn(self._share.run, message.at)
            case Stop() if self._share is not None:
                gevent.spawn(self._share.stop)

    def _prepare(self, message: Prepare) -> None:
        if self._share is not None:  # the master took this worker for lost and starts the next run
            self._share.cut()
        try:
            self._share = _ShareRun(self._runner, self._settings(message.target), message)
        except UsageError as error:
            send(self._runner, Ready(message.run, time(), error=str(error)))
        else:
            send(self._runner, Ready(message.run, time(), dict(self._share.settings)))


class _ShareRun:
    """The share of one run."""

    def __init__(self, runner: Any, settings: RunSettings, message: Prepare) -> None:
        """Check the target and encode the first requests.

        Raises:
            UsageError: the target does not respond to this worker, or a limit is below the number of workers.
        """
        self._runner = runner
        self._number = message.run
        self.settings = common_settings(settings)
        self._timeout, self._grace = settings.plan.longest_timeout, settings.grace
        share = Share(message.index, message.workers)
        concurrency = settings.max_concurrency
        settings = replace(
            settings,
            model=message.model,
            max_open=share.limit("--max-open", settings.max_open),
            max_concurrency=None if concurrency is None else share.limit("--max-concurrency", concurrency),
        )
        raise_file_limit(settings.max_open)
        client, model = preflight.connect(settings)
        self._series = LoadCollector(settings.slos)
        self._counts = _Counts()
        self._dispatcher = Dispatcher(settings, model, client, self._series, self._record, self._counts)
        self._schedule = SharedSchedule(settings.plan.schedule, share)
        self._phases = share.phases(settings.phases)
        groups = self._dispatcher.encode(self._schedule)
        self._groups: chain[EncodedGroup] = chain(list(islice(groups, 1)), groups)
        self._stalls = StallWatch()
        self._cpu = process_time()
        self._records: list[Record] = []
        self._chunks = ChunkTotals()
        free_from_collection()

    def run(self, at: float) -> None:
        """Send the requests of the share, then wait for the open ones, as `LoadRun.run`."""
        dispatcher = self._dispatcher
        dispatcher.begin(at)
        self._cpu = process_time()
        greenlets = [gevent.spawn(self._stalls.run), gevent.spawn(self._tick)]
        try:
            dispatcher.offer(self._groups, self._schedule, self._phases)
            dispatcher.drain(self._timeout + 1)
            if dispatcher.stopped:
                dispatcher.wait_after_stop(self._grace)
        finally:
            dispatcher.cut()
            gevent.killall(greenlets)
            self._send_batch(ended=True)

    def stop(self) -> None:
        if self._dispatcher.stopped:
            self._dispatcher.cut()
        self._dispatcher.stop()

    def cut(self) -> None:
        """End all open requests."""
        self._dispatcher.cut()

    def _tick(self) -> None:
        next_batch = monotonic()
        while True:
            next_batch += INTERVAL
            gevent.sleep(max(0.0, next_batch - monotonic()))
            self._send_batch()

    def _record(self, record: Record, response: CompletionResponse) -> None:
        self._records.append(record)
        self._chunks.add_response(record, response)
        report_to_locust(self._runner.environment.events.request.fire, record, response.size)

    def _send_batch(self, *, ended: bool = False) -> None:
        usage = WorkerUsage(
            cpu_seconds=round(process_time() - self._cpu, 3),
            stalls=self._stalls.count,
            stalled=round(self._stalls.seconds, 3),
            worst_stall=round(self._stalls.worst, 3),
        )
        batch = Batch(
            run=self._number,
            records=self._records,
            counts=self._series.take(),
            chunks=self._chunks,
            offered=self._counts.offered,
            dispatched=self._counts.dispatched,
            oldest_due=self._dispatcher.oldest_due,
            usage=usage,
            ended=ended,
        )
        self._records, self._chunks = [], ChunkTotals()
        self._counts.clear()
        send(self._runner, batch)


class _Counts:
    """Collects for the master's figures what the records do not contain."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.offered: dict[str, int] = {}
        self.dispatched: list[tuple[str, float, float]] = []

    def offer(self, request_class: str) -> None:
        self.offered[request_class] = self.offered.get(request_class, 0) + 1

    def dispatch(self, request_class: str, lag: float, at: float) -> None:
        self.dispatched.append((request_class, lag, at))
