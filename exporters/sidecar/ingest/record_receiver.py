"""Receives batches of records from the relays: writes the request log, updates the series, then acknowledges.

A record may wait for the engine span of its request. Log lines and acknowledgements are in order of the record numbers,
so later ones wait, too; the series of later records are updated immediately.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Protocol, cast

import msgspec

from exporters.records import Ack, Batch, Finished, Frames, FromRelay, Hello, Record, Snapshot, frame
from exporters.requestlog.writer import RequestLog
from exporters.sidecar.ingest.prompt_repeats import Prompts
from exporters.sidecar.ingest.request_metrics import RequestMetrics

RETRY_SECONDS = 1.0
"""Time until the relay sends a batch again if writing it to the request log failed."""

MAX_PENDING_RECORDS = 20_000
"""Limit of pending records of a relay run; the relay keeps more than twice as many."""

_decode = msgspec.msgpack.Decoder(FromRelay).decode

logger = logging.getLogger("vllm_slo.exporter")


class EngineTimes(Protocol):
    """Adds the engine's times to records, which may wait for them."""

    def add_request(self, record: Finished, now: float, on_ready: Callable[[], None]) -> None:
        """A request has ended; `on_ready` is called when its record has the times, or when the wait ends without."""

    def record_decision(self, record: Finished, *, kept: bool) -> None:
        """The request has been counted; `kept`: its own span was kept."""

    def check_timeouts(self, now: float, *, draining: bool) -> None:
        """End the waits that have timed out."""

    def release_requests(self) -> None:
        """End all waits."""


@dataclass(slots=True)
class _Pending:
    """A record that is not in the request log yet."""

    number: int
    record: Record
    revision: str | None
    waiting: bool = True
    counted: bool = False


@dataclass(slots=True)
class _RelayRun:
    """The numbers of the last received and the last written record, and the records between them."""

    last_received: int = 0
    last_written: int = 0
    pending: deque[_Pending] = field(default_factory=deque)
    acknowledge: Callable[[int], None] | None = None


class RecordReceiver:
    """Receives the records of all relays, by run of a relay."""

    def __init__(
        self,
        request_metrics: RequestMetrics,
        request_log: RequestLog | None,
        config_revision: Callable[[], str | None],
        export_span: Callable[[Finished], bool] | None = None,
        engine_times: EngineTimes | None = None,
        now: Callable[[], float] = time.monotonic,
        on_fingerprint: Callable[[str, float], None] = lambda _fingerprint, _at: None,
    ) -> None:
        self._request_metrics = request_metrics
        self._request_log = request_log
        self._config_revision = config_revision
        self._export_span = export_span
        self._prompts = Prompts()
        self._engine_times = engine_times
        self._now = now
        self._on_fingerprint = on_fingerprint
        self._runs: dict[str, _RelayRun] = {}
        self._retry_at = 0.0
        self.log_errors = 0
        self.connected: set[str] = set()
        self._run_ids: dict[str, str] = {}
        self.restarts: dict[str, int] = {}
        """Restarts by relay since this exporter started: reconnections with a new run id."""
        self._open_at_disconnect: dict[str, int] = {}
        self.lost_requests: dict[str, int] = {}
        """Requests that were open, by relay, when it reconnected with a new run id."""

    def receive(self, run_id: str, batch: Batch) -> int | None:
        """Accept the new records of a batch; returns the number to acknowledge, or None if writing the log failed."""
        run = self._runs.setdefault(run_id, _RelayRun())
        if len(run.pending) + len(batch.records) > MAX_PENDING_RECORDS:
            if self._engine_times is not None:
                self._engine_times.release_requests()
            if not self._write(run_id, run):  # full, and writing to the log still fails
                return None
        numbered = [(n, record) for n, record in enumerate(batch.records, batch.first) if n > run.last_received]
        for _, record in numbered:
            if isinstance(record, Finished):
                self._note_prompt_and_fingerprint(record)
        # The revision after the fingerprints of these responses; it may change while a record waits.
        revision = self._config_revision()
        for number, record in numbered:
            run.last_received = number
            self._add(run, _Pending(number, record, revision))
        if not self._write(run_id, run):
            return None
        return min(run.last_written, batch.first + len(batch.records) - 1)

    def check_timeouts(self) -> None:
        """End the waits that have timed out, then write and acknowledge the records that they delayed."""
        if self._engine_times is None:
            return
        now = self._now()
        draining = any(snapshot.draining for snapshot in self._request_metrics.snapshots().values())
        self._engine_times.check_timeouts(now, draining=draining)
        if now < self._retry_at:
            return
        for run_id, run in self._runs.items():
            last_written = run.last_written
            if not self._write(run_id, run):
                self._retry_at = now + RETRY_SECONDS
            elif run.last_written > last_written and run.acknowledge is not None:
                run.acknowledge(run.last_written)

    def close(self) -> None:
        """Write the pending records to the log without further waiting."""
        if self._engine_times is not None:
            self._engine_times.release_requests()
        for run_id, run in self._runs.items():
            self._write(run_id, run)

    def _add(self, run: _RelayRun, pending: _Pending) -> None:
        run.pending.append(pending)
        if self._engine_times is not None and isinstance(pending.record, Finished):
            self._engine_times.add_request(pending.record, self._now(), partial(self._on_ready, run, pending))
        else:
            self._on_ready(run, pending)

    def _note_prompt_and_fingerprint(self, record: Finished) -> None:
        if record.prompt_sha256 is not None:
            record.prompt_repeat = self._prompts.repeats(record.prompt_sha256)
        if record.system_fingerprint is not None:
            self._on_fingerprint(record.system_fingerprint, record.time + record.e2e)

    def _on_ready(self, run: _RelayRun, pending: _Pending) -> None:
        pending.waiting = False
        if run.pending[0].waiting:  # only its log line has to wait
            self._count(pending)

    def _write(self, run_id: str, run: _RelayRun) -> bool:
        """Log and count the records before the first one that waits; False if writing the log failed."""
        ready = []
        for pending in run.pending:
            if pending.waiting:
                break
            ready.append(pending)
        if not ready:
            return True
        if self._request_log is not None:
            try:
                for revision, group in groupby(ready, attrgetter("revision")):
                    finished = [(each.number, each.record) for each in group if isinstance(each.record, Finished)]
                    self._request_log.write(run_id, finished, revision)
            except OSError as error:
                # The batch is not acknowledged, so the relay sends it again when it reconnects.
                self.log_errors += 1
                logger.error("request log: %s", error)  # noqa: TRY400 - the message suffices
                return False
        for pending in ready:
            run.pending.popleft()
            self._count(pending)
        run.last_written = ready[-1].number
        return True

    def _count(self, pending: _Pending) -> None:
        if pending.counted:
            return
        pending.counted = True
        record = pending.record
        kept = self._export_span is not None and isinstance(record, Finished) and self._export_span(record)
        self._request_metrics.record(record, traced=kept)
        if self._engine_times is not None and isinstance(record, Finished):
            self._engine_times.record_decision(record, kept=kept)

    def hello(self, hello: Hello, acknowledge: Callable[[int], None] | None = None) -> None:
        """A relay has connected; `acknowledge` sends acknowledgements of records that had to wait."""
        self._runs.setdefault(hello.run_id, _RelayRun()).acknowledge = acknowledge
        self.connected.add(hello.process)
        open_requests = self._open_at_disconnect.pop(hello.process, 0)
        if self._run_ids.setdefault(hello.process, hello.run_id) != hello.run_id:
            self._run_ids[hello.process] = hello.run_id
            self.restarts[hello.process] = self.restarts.get(hello.process, 0) + 1
            self.lost_requests[hello.process] = self.lost_requests.get(hello.process, 0) + open_requests

    def snapshot(self, process: str, snapshot: Snapshot) -> None:
        self._request_metrics.snapshot(process, snapshot)

    def disconnected(self, process: str) -> None:
        """The connection was lost; whether the relay has crashed is known at its next hello."""
        self.connected.discard(process)
        snapshot = self._request_metrics.forget(process)
        if snapshot is not None and not snapshot.draining:  # a draining relay sends a record for each request
            self._open_at_disconnect[process] = sum(row.waiting + row.streaming for row in snapshot.open)


class RelayConnection(asyncio.Protocol):
    """The connection of one relay."""

    def __init__(self, receiver: RecordReceiver) -> None:
        self._receiver = receiver
        self._frames = Frames()
        self._hello: Hello | None = None
        self._refused = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._refused:  # acknowledging later records would acknowledge the rejected batch, too
            return
        for payload in self._frames.feed(data):
            message = _decode(payload)
            if isinstance(message, Hello):
                self._hello = message
                self._receiver.hello(message, self._acknowledge)
            elif self._hello is None:
                self._transport.abort()
                return
            elif isinstance(message, Snapshot):
                self._receiver.snapshot(self._hello.process, message)
            elif (last := self._receiver.receive(self._hello.run_id, message)) is not None:
                self._acknowledge(last)
            else:
                self._refused = True
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._transport.abort)
                return

    def connection_lost(self, exc: Exception | None) -> None:
        if self._hello is not None:
            self._receiver.disconnected(self._hello.process)

    def _acknowledge(self, last: int) -> None:
        if not self._refused and not self._transport.is_closing():
            self._transport.write(frame(Ack(last)))
