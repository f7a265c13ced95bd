"""The master of a distributed run: starts the workers at one time, merges their records, and reports."""

import logging
from collections import Counter
from collections.abc import Mapping
from time import monotonic, time

import msgspec

from exporters.text.errors import UsageError
from loadgen.client.completion import CompletionResponse
from loadgen.client.grading import make_record
from loadgen.distributed.common_settings import common_settings, differences
from loadgen.distributed.messages import Batch, Prepare, Ready, Start, Stop
from loadgen.distributed.worker_pool import MOST_SKEW, READY_WITHIN, WorkerPool
from loadgen.results.record import ClientOutcome, WorkerUsage
from loadgen.run import preflight, warm_up
from loadgen.run.load_metrics import LoadCollector
from loadgen.run.load_run import WaveSender, raise_file_limit
from loadgen.run.monitor import RunMonitor
from loadgen.run.progress import TICK
from loadgen.run.settings import RunSettings
from loadgen.run.stalls import StallWatch
from loadgen.schedule.share import Share

START_DELAY = 1.0
"""Seconds from the message to the workers to time 0, so that it reaches all of them before."""

_log = logging.getLogger(__name__)


class MasterRun:
    """One run of a scenario by several workers; a lost worker's requests without a record count as not sent."""

    def __init__(self, settings: RunSettings, series: LoadCollector, pool: WorkerPool) -> None:
        """Check the target, let the workers build the schedule, and create the output folder.

        Raises:
            UsageError: the target does not respond, the folder cannot be used, or a worker cannot send its share.
        """
        self._settings = settings
        self._series = series
        self._pool = pool
        client, model = preflight.connect(settings)
        common = common_settings(settings)
        self._workers = range(pool.begin())
        self._prepare(model, common)
        self.monitor = RunMonitor(settings, series, model, common["schedule"])
        raise_file_limit(settings.max_open)
        self._waves = WaveSender(settings, model, client)
        self._stalls = StallWatch()  # the worst worker's
        self._usage = [WorkerUsage() for _ in self._workers]
        self._active = set(self._workers)
        self._lost: dict[int, float] = {}
        self._open: list[Counter[str]] = [Counter() for _ in self._workers]
        self._oldest: dict[int, float] = {}
        self._recorded: set[tuple[str, int]] = set()
        self._stopped = False

    def _prepare(self, model: str, common: Mapping[str, str]) -> None:
        for index in self._workers:
            prepare = Prepare(self._pool.run, index, len(self._workers), str(self._settings.target), model)
            self._pool.send(index, prepare)
        refusals: dict[int, str | None] = {}
        until = monotonic() + READY_WITHIN
        while len(refusals) < len(self._workers):
            for index, message in self._pool.messages(TICK):
                if isinstance(message, Ready):
                    refusals[index] = self._refusal(index, message, common)
                    if len(refusals) == len(self._workers):
                        break
            for index in self._workers:
                if index not in refusals and (monotonic() > until or self._pool.is_lost(index)):
                    refusals[index] = "was lost before the run"
        found = {index: refusal for index, refusal in refusals.items() if refusal is not None}
        if len(found) == len(self._workers) and len(set(found.values())) == 1:
            raise UsageError(found[0])  # the same for all
        if found:
            raise UsageError(
                "\n".join(f"{self._pool.name(index)}: {refusal}" for index, refusal in sorted(found.items()))
            )

    def _refusal(self, index: int, message: Ready, common: Mapping[str, str]) -> str | None:
        """Why a worker cannot take part."""
        if message.error is not None:
            return message.error
        if different := differences(message.settings, common):
            return (
                f"has other settings than the master: {different}; start all with the same version, files and "
                "VLLM_SLO_* variables"
            )
        if abs(skew := self._pool.skew(index, message)) > MOST_SKEW:
            side = "ahead of" if skew > 0 else "behind"
            return f"its clock is {abs(skew):.1f} s {side} the master's; synchronise both, for example by NTP"
        return None

    def run(self) -> None:
        """Start the workers, wait for all of them, and report; a stopped run waits for the grace period only."""
        settings = self._settings
        if settings.warm_up:
            warm_up.run(settings.warm_up, self._waves.send, settings.out, lambda: self._stopped)
        start, begin = time() + START_DELAY, monotonic() + START_DELAY
        self.monitor.start(start, begin, self._stalls)
        for index in self._workers:
            self._pool.send(index, Start(start))
        ending = "killed"
        try:
            while self._active:
                for index, message in self._pool.messages(TICK):
                    if isinstance(message, Batch) and index in self._active:
                        self._take(index, message)
                    if not self._active:
                        break
                self._find_lost()
                if self.monitor.tick(min(self._oldest.values(), default=None), stopped=self._stopped):
                    self._stop_workers()
            ending = "stopped" if self._stopped else "completed"
        finally:
            self._count_lost(self.monitor.now)
            self.monitor.end(ending, StallWatch(), self._usage)

    def stop(self) -> None:
        """Stop sending and end the run after the grace period; a second call ends the run immediately."""
        if not self._stopped:
            self._waves.stop()
            self.monitor.log_stop()
        self._stop_workers()

    def _stop_workers(self) -> None:
        self._stopped = True
        for index in self._active:
            self._pool.send(index, Stop())

    def _take(self, index: int, batch: Batch) -> None:
        monitor, figures = self.monitor, self.monitor.figures
        for name, number in batch.offered.items():
            self._open[index][name] += number
            figures.offer(name, number)
        for name, lag, at in batch.dispatched:
            figures.dispatch(name, lag, at)
        for record in batch.records:
            monitor.store.add_record(record)
            self._open[index][record.request_class] -= 1
            figures.end(record)
            monitor.notice(record)
            if not record.turn:
                self._recorded.add((record.phase, record.number))
        monitor.store.chunks.merge(batch.chunks)
        self._series.merge(batch.counts)
        self._usage[index] = batch.usage
        self._stalls.count = sum(usage.stalls for usage in self._usage)
        self._stalls.seconds = max(usage.stalled for usage in self._usage)
        self._oldest.pop(index, None)
        if batch.oldest_due is not None:
            self._oldest[index] = batch.oldest_due
        if batch.ended:
            self._active.discard(index)

    def _find_lost(self) -> None:
        for index in sorted(self._active):
            if self._pool.is_lost(index):
                _log.error("%s was lost: its requests without a record count as not sent", self._pool.name(index))
                self._lost[index] = self.monitor.now
                self._usage[index] = msgspec.structs.replace(self._usage[index], lost=self._lost[index])
                self._active.discard(index)
                self._oldest.pop(index, None)
                for _ in range(2):  # in case it is only out of reach for a while
                    self._pool.send(index, Stop())

    def _count_lost(self, seconds: float) -> None:
        """Record the rest of the lost shares, or only what was due if the run was stopped."""
        shares = [(index, Share(index, len(self._workers))) for index in sorted(self._lost)]
        for request in self._settings.plan.schedule if shares else ():
            for index, share in shares:
                if not share.has(request) or (request.phase, request.number) in self._recorded:
                    continue
                if self._stopped and request.due > seconds:
                    return
                name = request.request_class
                if self._open[index][name] > 0:  # offered by the worker before it was lost
                    self._open[index][name] -= 1
                else:
                    self.monitor.figures.offer(name)
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
                    error=f"{self._pool.name(index)} was lost",
                )
                self.monitor.figures.end(record)
                self.monitor.store.add_record(record)
