"""Receives batches of records from the relays: writes the request log, updates the series, then acknowledges.

A record may wait for the engine span of its request. Log lines and acknowledgements are in order of the record numbers,
so later ones wait, too; the series of later records are updated immediately. If the log cannot be written, only the
lines wait. Above a limit the oldest lines are dropped and counted. A record is acknowledged when its line is written or
dropped. Until then its relay remembers that it is counted, for the next run of the exporter. The accounts of all
requests (`request_ledger`) are written before the acknowledgement.

A record that cannot be decoded, counted or logged is counted as an error; the others of its batch are not affected.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice, repeat
from math import inf
from operator import attrgetter
from types import MappingProxyType
from typing import Protocol, cast

import msgspec

from exporters.processes.child import TaskErrors
from exporters.records.messages import (
    Ack,
    Batch,
    Counted,
    Finished,
    Frames,
    FromRelay,
    Hello,
    Record,
    Snapshot,
    batch_without_bad_records,
    frame,
)
from exporters.requestlog.writer import WRITE_FAILED, drop_reason
from exporters.sidecar.ingest.ledger import RequestLedger
from exporters.sidecar.ingest.prompt_repeats import Prompts
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.sidecar.ingest.shared_prefixes import SharedPrefixes

RETRY_SECONDS = 1.0
"""Time until the next write if writing to the request log failed."""

LOGGED_AT_ONCE = 500
"""Records in one attempt to write, so that each failed attempt takes little time, and a journal has their endpoints."""

ACCOUNTS_SECONDS = 1.0
"""Interval of the checks for relay runs that are over."""

MAX_PENDING_RECORDS = 20_000
"""Limit of pending records of a relay run; the relay keeps more than twice as many."""

KEPT_RUNS = 10
"""Last runs of each relay that are remembered when all their records are stored; a relay may exit at each start."""

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


class LineLog(Protocol):
    """A request log; `last_numbers` has the number of the last record that it has, by run of a relay."""

    last_numbers: dict[str, int]

    def write(self, run_id: str, numbered: list[tuple[int, Finished]], revision: str | None) -> None:
        """Write the records that it does not have; raises OSError if it cannot write all of them."""

    def flush(self) -> None:
        """Write the rest of an incomplete line; raises OSError if it cannot."""


class _Pending(msgspec.Struct, eq=False):
    """A record that is not stored yet: its line is neither in the request log nor dropped."""

    number: int
    record: Record
    revision: str | None
    waiting: bool = True
    counted: bool = False
    unwritable: bool = False  # its line cannot be encoded; it is dropped


@dataclass(slots=True)
class _RelayRun:
    """The numbers of the last received and the last stored record, and the records between them."""

    run_id: str
    last_received: int = 0
    last_stored: int = 0
    pending: deque[_Pending] = field(default_factory=deque)
    acknowledge: Callable[[int], None] | None = None
    report_counted: Callable[[list[int]], None] | None = None


class RecordReceiver:
    """Receives the records of all relays, by run of a relay."""

    def __init__(
        self,
        request_metrics: RequestMetrics,
        request_log: LineLog | None,
        config_revision: Callable[[], str | None],
        export_span: Callable[[Finished, str | None], bool] | None = None,
        engine_times: EngineTimes | None = None,
        now: Callable[[], float] = time.monotonic,
        on_response: Callable[[Finished], None] = lambda _record: None,
        task_errors: TaskErrors | None = None,
        ledger: RequestLedger | None = None,
        restarts: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`restarts` are those of each process before this exporter started, by name."""
        self._request_metrics = request_metrics
        self._request_log = request_log
        self._config_revision = config_revision
        self._export_span = export_span
        self._prompts = Prompts()
        self._bodies = Prompts()
        self._prefixes: SharedPrefixes | None = None  # until a record has hashes
        self._engine_times = engine_times
        self._now = now
        self._on_response = on_response
        self.task_errors = task_errors or TaskErrors()
        self.ledger = ledger or RequestLedger()
        self._ledger_checked_at = -inf
        self._runs: dict[str, _RelayRun] = {}
        self._runs_by_relay: dict[str, list[str]] = {}
        self._ready: list[tuple[_RelayRun, _Pending]] = []
        """Records that no longer wait, and may not be counted yet."""
        self._receiving = False
        self._log_error: OSError | None = None
        """The failure of the last write, if it has failed; a slow reader is not a failure."""
        self._unwritten_because: OSError | None = None
        self._retry_at = -inf
        self.log_errors = 0
        self.connected: set[str] = set()
        self._run_ids: dict[str, str] = {}
        """The last run of each relay."""
        self.restarts = dict(restarts)
        """Restarts by process; those of a relay are known when its last run has connected."""
        self.cut_requests = 0
        """Requests that relays have cut before they exited."""

    def receive(self, run_id: str, batch: Batch) -> int:
        """Accept and count the new records of a batch; returns the number to acknowledge."""
        run = self._run(run_id)
        new = [(n, record) for n, record in enumerate(batch.records, batch.first) if n > run.last_received]
        self._receiving = True
        try:
            self._accept(run, new, set(batch.counted))
        finally:
            self._receiving = False
        self.ledger.save()
        return min(run.last_stored, batch.first + len(batch.records) - 1)

    def _accept(self, run: _RelayRun, new: list[tuple[int, Record]], counted: set[int]) -> None:
        if len(run.pending) + len(new) > MAX_PENDING_RECORDS:
            if self._engine_times is not None:
                self._engine_times.release_requests()
            self._store(run)
            self._count_ready()
            self._drop_lines(run, len(run.pending) + len(new) - MAX_PENDING_RECORDS)
        for _, record in new:
            if isinstance(record, Finished):
                self._note_prompt_and_response(record)
        # The revision after the fingerprints of these responses; it may change while a record waits.
        revision = self._config_revision()
        added = [_Pending(number, record, revision, counted=number in counted) for number, record in new]
        run.last_received = added[-1].number if added else run.last_received
        run.pending.extend(added)
        if self._engine_times is None:
            for pending in added:
                pending.waiting = False
            self._ready += zip(repeat(run), added)
        else:
            for pending in added:
                self._join(self._engine_times, run, pending)
        self._store(run)
        self._count_ready()

    def check_timeouts(self) -> None:
        """End the waits that have timed out, then write and acknowledge the records that they delayed."""
        if self._engine_times is not None:
            draining = any(snapshot.draining for snapshot in self._request_metrics.snapshots().values())
            self._engine_times.check_timeouts(self._now(), draining=draining)
        self._flush()
        for run in self._runs.values():
            last_stored = run.last_stored
            self._store(run)
            if run.last_stored > last_stored and run.acknowledge is not None:
                self.ledger.save()
                run.acknowledge(run.last_stored)
        self._count_ready()
        if self._now() - self._ledger_checked_at >= ACCOUNTS_SECONDS:
            self._ledger_checked_at = self._now()
            self.ledger.check(self._in_use)

    def _in_use(self, run_id: str) -> bool:
        run = self._runs.get(run_id)
        return run is not None and (bool(run.pending) or run_id in map(self._run_ids.get, self.connected))

    def close(self) -> None:
        """Write the pending records to the log without further waiting."""
        if self._engine_times is not None:
            self._engine_times.release_requests()
        self._retry_at = -inf
        for run in self._runs.values():
            self._store(run)
        self._flush()
        self._count_ready()
        self.ledger.save()
        unwritten = sum(isinstance(pending.record, Finished) for run in self._runs.values() for pending in run.pending)
        if unwritten:
            logger.error("request log: %d lines were not written: %s", unwritten, self._unwritten_because)

    def _run(self, run_id: str) -> _RelayRun:
        return self._runs.setdefault(run_id, _RelayRun(run_id))

    def _join(self, engine_times: EngineTimes, run: _RelayRun, pending: _Pending) -> None:
        # A record that is already counted did not wait any longer in the previous run of the exporter.
        if isinstance(pending.record, Finished) and not pending.counted:
            try:
                engine_times.add_request(pending.record, self._now(), partial(self._on_ready, run, pending))
            except Exception as error:  # noqa: BLE001 - one bad record must not stop the others
                self.task_errors.add("joining a request with its span", error)
                if pending.waiting:
                    self._on_ready(run, pending)
        else:
            self._on_ready(run, pending)

    def _note_prompt_and_response(self, record: Finished) -> None:
        try:
            if record.prompt_sha256 is not None:
                record.prompt_repeat = self._prompts.repeats(record.prompt_sha256)
            if record.body_sha256 is not None:
                record.body_repeat = self._bodies.repeats(record.body_sha256)
            if record.prefix_hashes is not None and record.status == 200:  # else the engine may have computed nothing
                self._note_prefix(record, record.prefix_hashes)
            self._on_response(record)
        except Exception as error:  # noqa: BLE001 - as in _add
            self.task_errors.add("reading the prompt and the fingerprint of a record", error)

    def _note_prefix(self, record: Finished, hashes: list[int]) -> None:
        if self._prefixes is None:
            self._prefixes = SharedPrefixes()
        share = self._prefixes.share(hashes, record.prefix_characters or 0, self._now())
        if record.prompt_tokens is not None:
            record.shareable_tokens = round(share * record.prompt_tokens)

    def _on_ready(self, run: _RelayRun, pending: _Pending) -> None:
        pending.waiting = False
        self._ready.append((run, pending))
        if not self._receiving and run.pending[0].waiting:  # only its log line has to wait
            self._count_ready()

    def _store(self, run: _RelayRun) -> None:
        """Log and count the records before the first one that waits, as far as the log accepts them."""
        if self._request_log is None:
            self._pop_stored(run, inf)
            return
        while ready := _ready_in_order(islice(run.pending, LOGGED_AT_ONCE)):
            self.ledger.expect_lines(run.run_id, ready[0].number, [each.record for each in ready])
            failed = not self._log(run, ready)
            self._pop_stored(run, self._request_log.last_numbers.get(run.run_id, 0))
            if failed:
                return

    def _log(self, run: _RelayRun, records: list[_Pending]) -> bool:
        """Write the lines of these records; False if it failed, or if it failed a short time ago."""
        if self._request_log is None or not any(isinstance(each.record, Finished) for each in records):
            return True
        if self._log_error is not None and self._now() < self._retry_at:
            return False
        try:
            for _, group in groupby(records, attrgetter("revision")):
                self._write(self._request_log, run.run_id, list(group))
        except OSError as error:
            self._log_failed(error)
            return False
        self._log_succeeded()
        return True

    def _write(self, log: LineLog, run_id: str, records: list[_Pending]) -> None:
        """Write the lines of these records, which have one revision, without those that cannot be encoded."""
        lines = [
            (each.number, each.record) for each in records if isinstance(each.record, Finished) and not each.unwritable
        ]
        try:
            log.write(run_id, lines, records[0].revision)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - as in _add
            if len(records) == 1:
                records[0].unwritable = True
                self.task_errors.add("writing a log line", error)
                return
            for each in records:
                self._write(log, run_id, [each])

    def _flush(self) -> None:
        if self._request_log is not None:
            with contextlib.suppress(OSError):  # the next write fails, too
                self._request_log.flush()

    def _pop_stored(self, run: _RelayRun, logged: float) -> None:
        """Remove the records up to the number `logged`, and verdicts, which have no line, behind them."""
        queue = run.pending
        stored: list[_Pending] = []
        while queue and not (pending := queue[0]).waiting:
            if pending.number > logged and isinstance(pending.record, Finished) and not pending.unwritable:
                break
            stored.append(queue.popleft())
        if not stored:
            return
        run.last_stored = stored[-1].number
        self.ledger.settle(
            run.run_id, [(each.number, each.record, WRITE_FAILED if each.unwritable else None) for each in stored]
        )
        for pending in stored:
            self._count(pending)

    def _log_failed(self, error: OSError) -> None:
        self._unwritten_because = error
        if isinstance(error, BlockingIOError):  # try again at once: a reader that keeps up empties a pipe quickly
            return
        self.log_errors += 1
        self._retry_at = self._now() + RETRY_SECONDS
        if self._log_error is None:
            logger.error("request log: %s", error)
        self._log_error = error

    def _log_succeeded(self) -> None:
        if self._log_error is not None:
            dropped = sum(self.ledger.dropped_lines().values())
            logger.info("request log: it can be written again; lines dropped since the start: %d", dropped)
            self._log_error = None

    def _drop_lines(self, run: _RelayRun, count: int) -> None:
        """Drop the oldest `count` records, which are counted, and count those that have a line."""
        because = self._unwritten_because
        reason = WRITE_FAILED if because is None else drop_reason(because)
        for _ in range(min(count, len(run.pending))):
            pending = run.pending.popleft()
            run.last_stored = pending.number
            self.ledger.settle(run.run_id, [(pending.number, pending.record, reason)])

    def _count_ready(self) -> None:
        """Count the records that no longer wait, and report those that are not stored yet to their relays."""
        ready, self._ready = self._ready, []
        unstored: dict[str, list[int]] = {}
        for run, pending in ready:
            if not pending.counted:
                self._count(pending)
            if pending.number > run.last_stored:
                unstored.setdefault(run.run_id, []).append(pending.number)
        for run_id, numbers in unstored.items():
            if (report := self._runs[run_id].report_counted) is not None:
                report(numbers)

    def _count(self, pending: _Pending) -> None:
        if pending.counted:
            return
        pending.counted = True
        record = pending.record
        kept = False
        try:
            if self._export_span is not None and isinstance(record, Finished):
                kept = self._export_span(record, pending.revision)
        except Exception as error:  # noqa: BLE001 - as in _add
            self.task_errors.add("exporting a span", error)
        try:
            self._request_metrics.record(record, traced=kept)
            if self._engine_times is not None and isinstance(record, Finished):
                self._engine_times.record_decision(record, kept=kept)
        except Exception as error:  # noqa: BLE001 - as in _add
            self.task_errors.add("counting a record", error)

    def hello(
        self,
        hello: Hello,
        acknowledge: Callable[[int], None] | None = None,
        report_counted: Callable[[list[int]], None] | None = None,
    ) -> None:
        """A relay has connected; `acknowledge` sends acknowledgements of records that had to wait.

        `report_counted` sends the numbers of records that are counted before they are acknowledged.
        """
        run = self._run(hello.run_id)
        run.acknowledge, run.report_counted = acknowledge, report_counted
        counted = [pending.number for pending in run.pending if pending.counted]
        if counted and report_counted is not None:  # a report may have been lost with the previous connection
            report_counted(counted)
        self._forget_old_runs(hello)
        self.connected.add(hello.process)
        # The connection of a killed run may arrive after a new exporter has started.
        if hello.restarts >= self.restarts.get(hello.process, 0):
            self.restarts[hello.process] = hello.restarts
            self._run_ids[hello.process] = hello.run_id

    def _forget_old_runs(self, hello: Hello) -> None:
        run_ids = self._runs_by_relay.setdefault(hello.process, [])
        if hello.run_id not in run_ids:
            run_ids.append(hello.run_id)
        for run_id in run_ids[:-KEPT_RUNS]:
            if not self._runs[run_id].pending:
                run_ids.remove(run_id)
                del self._runs[run_id]
                if self._request_log is not None:
                    self._request_log.last_numbers.pop(run_id, None)

    def is_last_run(self, hello: Hello) -> bool:
        """Whether no later run of this relay has connected: both may wait for an exporter that starts."""
        return self._run_ids.get(hello.process) == hello.run_id

    def snapshot(self, process: str, snapshot: Snapshot) -> None:
        self._request_metrics.snapshot(process, snapshot)

    def disconnected(self, process: str) -> None:
        """The connection was lost."""
        self.connected.discard(process)
        snapshot = self._request_metrics.forget(process)
        self.cut_requests += 0 if snapshot is None else snapshot.cut_requests


class RelayConnection(asyncio.Protocol):
    """The connection of one relay."""

    def __init__(self, receiver: RecordReceiver) -> None:
        self._receiver = receiver
        self._frames = Frames()
        self._hello: Hello | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        for payload in self._frames.feed(data):
            message = self._decode(payload)
            if message is None:
                continue
            if isinstance(message, Hello):
                self._hello = message
                self._receiver.hello(message, self._acknowledge, self._report_counted)
            elif self._hello is None:
                self._transport.abort()
                return
            elif isinstance(message, Snapshot):
                self._receiver.snapshot(self._hello.process, message)
            else:
                self._acknowledge(self._receiver.receive(self._hello.run_id, message))

    def _decode(self, payload: bytes) -> FromRelay | None:
        """The message, without records that cannot be decoded; None if none of it can be decoded."""
        try:
            message: FromRelay = _decode(payload)
        except msgspec.DecodeError as error:
            on_bad = partial(self._receiver.task_errors.add, "decoding a record")
            try:
                return batch_without_bad_records(payload, on_bad)
            except msgspec.DecodeError:
                on_bad(error)
                return None
        return message

    def connection_lost(self, exc: Exception | None) -> None:
        if self._hello is not None and self._receiver.is_last_run(self._hello):
            self._receiver.disconnected(self._hello.process)

    def _acknowledge(self, last: int) -> None:
        self._send(Ack(last))

    def _report_counted(self, numbers: list[int]) -> None:
        self._send(Counted(numbers))

    def _send(self, message: Ack | Counted) -> None:
        if not self._transport.is_closing():
            self._transport.write(frame(message))


def _ready_in_order(records: Iterable[_Pending]) -> list[_Pending]:
    """The records before the first that waits, up to a gap in their numbers, which a relay leaves if it drops some."""
    ready: list[_Pending] = []
    for each in records:
        if each.waiting or (ready and each.number != ready[0].number + len(ready)):
            break
        ready.append(each)
    return ready
