"""A worker of a distributed run: sends its share of the schedule, and its records to the master."""

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, islice
from time import monotonic, process_time
from typing import Any

import gevent

from exporters.errors import UsageError
from loadgen.chunk_totals import ChunkTotals
from loadgen.completion_response import CompletionResponse
from loadgen.dispatcher import Dispatcher, EncodedGroup
from loadgen.gap_histogram import GapHistogram
from loadgen.http_client import HttpClient, UnreachableError
from loadgen.load_metrics import LoadCollector
from loadgen.load_run import dispatch_config, free_from_collection, raise_file_limit, report_to_locust
from loadgen.request_plan import schedule_hash
from loadgen.request_record import ClientOutcome, Record, WorkerUsage
from loadgen.run_settings import RunSettings
from loadgen.schedule_share import Share, SharedSchedule
from loadgen.stall_watch import StallWatch
from loadgen.worker_messages import Batch, Ended, Hello, Message, Prepare, Ready, Start, Stop, listen, send

INTERVAL = 0.5
"""Seconds between two batches; an empty one shows that the worker is alive."""


class WorkerLoad:
    """Runs each share that the master asks for."""

    def __init__(self, runner: Any, settings: Callable[[], RunSettings]) -> None:
        """Announce this worker to the master."""
        self._runner = runner
        self._settings = settings
        self._share: _ShareRun | None = None
        listen(runner, self._receive)
        send(runner, Hello(os.getpid()))

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
        try:
            self._share = _ShareRun(self._runner, self._settings(), message)
        except UsageError as error:
            send(self._runner, Ready(error=str(error)))
        else:
            send(self._runner, Ready(self._share.schedule))


class _ShareRun:
    """The share of one run."""

    def __init__(self, runner: Any, settings: RunSettings, message: Prepare) -> None:
        """Encode the first requests.

        Raises:
            UsageError: the target has no address, or a limit is below the number of workers.
        """
        self._runner = runner
        self._settings = settings
        whole, share = settings.plan.schedule, Share(message.index, message.workers)
        self.schedule = schedule_hash(whole)
        config = dispatch_config(settings, message.model)
        concurrency = config.max_concurrency
        config = replace(
            config,
            max_open=share.limit("--max-open", config.max_open),
            max_concurrency=None if concurrency is None else share.limit("--max-concurrency", concurrency),
        )
        raise_file_limit(config.max_open)
        try:
            client = HttpClient(settings.target)
        except UnreachableError as error:
            raise UsageError(f"--target {settings.target}: {error}") from error
        self._series = LoadCollector(settings.slos)
        self._dispatcher = Dispatcher(config, client, self._series, self._record)
        self._schedule = SharedSchedule(whole, share)
        self._phases = share.phases(settings.phases)
        groups = self._dispatcher.encode(self._schedule)
        self._groups: chain[EncodedGroup] = chain(list(islice(groups, 1)), groups)
        self._stalls = StallWatch()
        self._new_batch()
        free_from_collection()

    def run(self, at: float) -> None:
        """Send the requests of the share, then wait for the open ones, as `LoadRun.run`."""
        dispatcher, settings = self._dispatcher, self._settings
        dispatcher.begin(at)
        cpu = process_time()
        greenlets = [gevent.spawn(self._stalls.run), gevent.spawn(self._tick)]
        try:
            dispatcher.offer(self._groups, self._schedule, self._phases)
            dispatcher.drain(settings.plan.timeout + 1)
            if dispatcher.stopped:
                dispatcher.wait_after_stop(settings.grace)
        finally:
            dispatcher.cut()
            gevent.killall(greenlets)
            self._send_batch()
            usage = WorkerUsage(
                cpu_seconds=round(process_time() - cpu, 3),
                stalls=self._stalls.count,
                stalled=round(self._stalls.seconds, 3),
                worst_stall=round(self._stalls.worst, 3),
            )
            send(self._runner, Ended(usage))

    def stop(self) -> None:
        if self._dispatcher.stopped:
            self._dispatcher.cut()
        self._dispatcher.stop()

    def _tick(self) -> None:
        next_batch = monotonic()
        while True:
            next_batch += INTERVAL
            gevent.sleep(max(0.0, next_batch - monotonic()))
            self._send_batch()

    def _record(self, record: Record, response: CompletionResponse) -> None:
        self._records.append(record)
        if record.outcome is ClientOutcome.OK:
            if record.first_choice is not None:
                self._chunks.add(record.first_choice, response.choice_gaps)
            self._ttft.add([] if record.ttft is None else [record.ttft])
            self._e2e.add([] if record.e2e is None else [record.e2e])
        report_to_locust(self._runner.environment.events.request.fire, record, response.size)

    def _new_batch(self) -> None:
        self._records: list[Record] = []
        self._chunks, self._ttft, self._e2e = ChunkTotals(), GapHistogram(), GapHistogram()

    def _send_batch(self) -> None:
        batch = Batch(self._records, self._series.take(), self._chunks, self._ttft, self._e2e)
        self._new_batch()
        send(self._runner, batch)
