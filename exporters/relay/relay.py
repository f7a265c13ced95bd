"""The state of a relay process: engine connections, open requests, records and timeouts."""

import asyncio
import logging
import select
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from math import inf
from operator import itemgetter

from exporters.configuration.origin import origin
from exporters.configuration.sidecar import LogContent, SidecarConfig
from exporters.exposition.histogram_bounds import gap_bounds
from exporters.processes.child import TaskErrors
from exporters.processes.usage import footprint
from exporters.records.journal import RelayJournal
from exporters.records.messages import Finished, OpenRequests, Record, Refused, Snapshot, Waits
from exporters.relay.bodies import request_body
from exporters.relay.bodies.hashing_thread import HashingThread
from exporters.relay.bodies.memory import BodyMemory
from exporters.relay.connections.client import ClientConnection
from exporters.relay.connections.exchange import Exchange
from exporters.relay.connections.upstream import UpstreamPool
from exporters.relay.connections.write_batch import WriteBatch
from exporters.relay.engine_waits import EngineWaits
from exporters.relay.metering.measurement import Measurement, MeasurementContext
from exporters.relay.record_sender import Sender
from exporters.text.errors import type_and_place
from exporters.vocabulary.signals import Endpoint, Outcome, Phase
from exporters.vocabulary.slo_file import SloFile

FLUSH_SECONDS = 0.05
SNAPSHOT_SECONDS = 0.25
WAITS_SECONDS = 1.0
"""Interval at which the open requests are read for the state of the engine, which takes 0.5 us for each."""
# Client timeouts are far longer.
TIMEOUT_CHECK_SECONDS = 1.0

STALLED_UPLOAD_SECONDS = 30.0
"""An upload of which no byte has moved for this long gives way if others wait for memory."""

MAX_CONTENTS = 1_000
"""Records that wait for the exporter above which further ones lose prompt and completion, to bound their memory."""

WARM_UP_BYTES = 1024 * 1024
"""The size of a prompt that a relay parses at its start."""

_DISCONNECTED = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
"""Outside Linux only a reset is found: there is no event for the end of the peer's bytes before they are read."""

# Enum member access takes 0.1 us in CPython 3.11, and each snapshot asks for the phase of each open request.
_STREAMING = Phase.STREAMING

_logger = logging.getLogger("vllm_slo.relay")


class Relay:
    """The state of a relay process, and its timer, which sends records and snapshots and enforces timeouts."""

    def __init__(
        self,
        config: SidecarConfig,
        slos: SloFile,
        sender: Sender,
        loop: asyncio.AbstractEventLoop,
        *,
        salt: bytes,
        new_request_id: Callable[[], str],
        client_limit: int = sys.maxsize,
        journal: RelayJournal | None = None,
    ) -> None:
        self.config = config
        self.loop = loop
        self.salt = None if config.log_content is LogContent.OFF else salt
        """The salt of all hashes; None if nothing is hashed."""
        self.writes = WriteBatch(loop, self.exchange_failed)
        self.pool = UpstreamPool(origin(config.upstream, config.trust), config.connect_timeout, loop, self.writes)
        self.bodies = BodyMemory(config.buffer_size // config.workers, self._update_reading)
        self.hashing: Executor = HashingThread(self.bodies, loop)
        self.client_limit = client_limit
        self.connections: set[ClientConnection] = set()
        self.unread: set[ClientConnection] = set()
        self.rejecting: set[ClientConnection] = set()
        self.rejected_connections = 0
        self.task_errors = TaskErrors()
        self.draining = False
        self.accepting = True
        self._cut_requests = 0
        self._judged: set[Measurement] = set()
        self._new_request_id = new_request_id
        self.use(slos)
        self._next_deadline = inf
        """The earliest deadline of an open request, in monotonic seconds."""
        self._sender = sender
        sender.outbox.on_drop = self._dropped
        self._journal = journal
        self._begun = False
        """Whether a request has begun that is not written to the journal yet."""
        self._open: set[Exchange] = set()
        self._engine_waits = EngineWaits()
        self._last_waits = Waits()
        self._unhashed: deque[tuple[Measurement, Finished]] = deque()
        """Records of requests with a long prompt, until it is hashed."""
        self._to_fold: list[Measurement] = []
        self._lag = 0.0
        self._logged: set[str] = set()
        self._ticks = 0
        self._next_tick = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def use(self, slos: SloFile) -> None:
        """Judge requests that arrive from now on by this file; open requests keep the file they arrived under."""
        self.measuring = MeasurementContext(
            slos=slos,
            gap_bounds=gap_bounds(slos),
            wants_spans=self.config.wants_spans,
            joins_engine_spans=bool(self.config.engine_spans),
            good_share=1.0 if self.config.otlp is None else self.config.otlp.good_share,
            new_request_id=self._new_request_id,
            wall_time=_wall_time,
            on_verdicts=self._judged.add,
            on_deadline=self._add_deadline,
            on_failure=self.metering_failed,
        )

    def start(self) -> None:
        # The first long prompt of a process takes 1 ms longer than others, for new memory and the start of the thread.
        request_body.parse(b'{"prompt":"%s"}' % (b"x" * WARM_UP_BYTES), self.salt, self.hashing)
        self._next_tick = self.loop.time() + FLUSH_SECONDS
        self._timer = self.loop.call_at(self._next_tick, self._tick)

    @property
    def open_requests(self) -> int:
        """Requests whose response is not complete, also those that are still being received."""
        return sum(connection.busy for connection in self.connections)

    def client(self) -> ClientConnection:
        return ClientConnection(self)

    def begun(self, endpoint: Endpoint) -> None:
        """A request head has arrived whose request will have a record.

        One write for all requests of an iteration of the event loop, before those of the batch are sent to the engine.
        """
        if self._journal is not None:
            if not self._begun:
                self.writes.add(self._write_begun)
            self._begun = True
            self._journal.begun(endpoint)

    def _write_begun(self) -> None:
        self._begun = False
        if self._journal is not None:
            self._attempt("writing the journal", self._journal.write_begun)

    def _dropped(self, record: Record) -> None:
        if not isinstance(record, Finished):
            self.task_errors.add("sending an early verdict or a refusal", OverflowError())
        elif self._journal is not None:
            self._attempt("writing the journal", self._journal.dropped, record.api)

    def opened(self, exchange: Exchange) -> None:
        self._open.add(exchange)

    def ended(self, exchange: Exchange, record: Finished | None) -> None:
        self._open.discard(exchange)
        self._judged.discard(exchange.measurement)
        if record is None:
            return
        self._engine_waits.ended(record)
        if exchange.measurement.is_long:
            self._unhashed.append((exchange.measurement, record))
            self._queue_hashed()
        else:
            self._queue(record)

    def _queue(self, record: Finished) -> None:
        if record.content_cut is not None and self._sender.outbox.unacknowledged >= MAX_CONTENTS:
            record.prompt = record.completion = record.content_cut = None
        self._sender.outbox.add(record)

    def _queue_hashed(self) -> None:
        while self._unhashed and self._unhashed[0][0].is_hashed:
            self._queue_next()

    def _queue_next(self) -> None:
        measurement, record = self._unhashed.popleft()
        self._attempt("add_hashes", measurement.add_hashes, record)
        self._queue(record)

    def refused(self, status: int, reason: str) -> None:
        self._sender.outbox.add(Refused(status, reason))

    def metering_failed(self, error: Exception) -> None:
        self._log_once("metering failed; the request is forwarded unmetered", error)

    def exchange_failed(self, error: Exception) -> None:
        self._log_once("a request failed because of an internal error", error)

    def _log_once(self, message: str, error: Exception) -> None:
        """Log only the first error of each kind; the series count all."""
        if message not in self._logged:
            self._logged.add(message)
            _logger.error("%s: %s", message, type_and_place(error))

    def announce_drain(self) -> None:
        """Accept further requests, but ask each client to close its connection."""
        self.draining = True

    def drain(self) -> None:
        """Accept no further requests; open requests continue."""
        self.draining, self.accepting = True, False
        for connection in list(self.connections):
            connection.drain()
        self._send_records()
        self._send_snapshot()

    def close(self) -> None:
        """Stop the timer and cut the open requests, each with a record."""
        if self._timer is not None:
            self._timer.cancel()
        now = time.monotonic()
        self._cut_requests = sum(connection.shut_down(now) for connection in list(self.connections))
        if self._cut_requests:
            _logger.warning("%d open requests were cut", self._cut_requests)
            self._send_snapshot()
        while self._unhashed:
            self._queue_next()
        self.pool.close()

    def _tick(self) -> None:
        now = self.loop.time()
        self._lag = max(self._lag, now - self._next_tick)
        self._ticks += 1
        tasks = [
            self._check_deadlines,
            self._check_unread,
            self._queue_verdicts,
            self._queue_hashed,
            self._sender.flush,
        ]
        if self._ticks % round(WAITS_SECONDS / FLUSH_SECONDS) == 0:
            tasks.append(self._note_waits)
        if self._ticks % round(SNAPSHOT_SECONDS / FLUSH_SECONDS) == 0:
            tasks += [self._cut_timed_out, self._send_snapshot, self.pool.close_idle]
        if self._ticks % round(TIMEOUT_CHECK_SECONDS / FLUSH_SECONDS) == 0:
            tasks += [self._check_clients, self._collect_folds]
        tasks.append(self._fold_gaps)
        for task in tasks:
            self._attempt(task.__name__, task)
        self._next_tick = max(self._next_tick + FLUSH_SECONDS, now)
        self._timer = self.loop.call_at(self._next_tick, self._tick)

    def _attempt(self, name: str, task: Callable[..., None], *arguments: object) -> None:
        """Run a part of the timer; an exception is counted, and the other parts run."""
        try:
            task(*arguments)
        except Exception as error:  # noqa: BLE001 - a timer that ends would stop all records without notice
            self.task_errors.add(name.lstrip("_"), error)

    def _check_unread(self) -> None:
        """Find the clients that have disconnected, if their bytes fit into the socket's buffer, which is not read."""
        if self.unread:
            connections = {each.descriptor: each for each in self.unread if each.descriptor >= 0}
            poll = select.poll()
            for descriptor in connections:
                poll.register(descriptor, _DISCONNECTED)
            for descriptor, _ in poll.poll(0):
                connections[descriptor].disconnected()

    def _check_clients(self) -> None:
        now = time.monotonic()
        for connection in list(self.connections):
            self._attempt("check_timeouts", connection.check_timeouts, now)
        self.reject_stalled_uploads(now)

    def reject_stalled_uploads(self, now: float) -> None:
        """Reject the uploads that have stalled the longest, while others wait for memory."""
        uploads = [upload for each in self.connections if (upload := each.stalled_upload(now)) is not None]
        if not self.bodies.uploads_wait:
            return
        for since, exchange in sorted(uploads, key=itemgetter(0)):
            if now - since < STALLED_UPLOAD_SECONDS or not self.bodies.uploads_wait:
                break
            message = (
                f"the buffer for request bodies is full, and none of this body has moved for {now - since:.0f} s; "
                "send it again"
            )
            self._attempt("refuse", exchange.refuse, 503, message, "upload_stalled", now)

    def _update_reading(self) -> None:
        for connection in list(self.connections):
            connection.update_reading()

    def _collect_folds(self) -> None:
        self._to_fold = [exchange.measurement for exchange in self._open]

    def _fold_gaps(self) -> None:
        """Fold the gaps of one request per tick, as each fold takes up to 2 ms."""
        while self._to_fold and not self._to_fold[-1].fold_gaps():
            self._to_fold.pop()

    def _add_deadline(self, deadline: float) -> None:
        self._next_deadline = min(self._next_deadline, deadline)

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        if now > self._next_deadline:
            self._next_deadline = inf
            for exchange in self._open:
                measurement = exchange.measurement
                if now > measurement.deadline:
                    self._attempt("check_deadline", measurement.check_deadline, now)
                else:
                    self._add_deadline(measurement.deadline)

    def _send_records(self) -> None:
        self._queue_verdicts()
        self._sender.flush()

    def _queue_verdicts(self) -> None:
        """Queue a record for each open request with new verdicts."""
        while self._judged:
            if (judged := self._judged.pop().early_verdicts()) is not None:
                self._sender.outbox.add(judged)

    def _cut_timed_out(self) -> None:
        self.cut_timed_out(time.monotonic())

    def cut_timed_out(self, now: float) -> None:
        """End the requests that are late at `now`, in monotonic seconds."""
        first, idle = self.config.cut_first_token, self.config.cut_idle
        for exchange in list(self._open):
            measurement = exchange.measurement
            if now > measurement.cut_at:
                message = f"not complete within {measurement.cut_at - measurement.zero:g} s (cut_after of its class)"
                self._attempt("cut", exchange.cut, Outcome.TIMEOUT_TOTAL, message, now)
            elif first is not None and measurement.phase is Phase.WAITING and now - measurement.zero > first:
                message = f"no first token within {first:g} s"
                self._attempt("cut", exchange.cut, Outcome.TIMEOUT_FIRST_TOKEN, message, now)
            elif idle is not None and exchange.is_silent(now, idle):
                message = f"the engine sent no data for {idle:g} s"
                self._attempt("cut", exchange.cut, Outcome.TIMEOUT_IDLE, message, now)

    def waits(self, now: float) -> Waits:
        """The requests that wait for the engine at `now`, in monotonic seconds."""
        return self._engine_waits.snapshot(self._open, now)

    def _note_waits(self) -> None:
        self._last_waits = self.waits(time.monotonic())

    def _send_snapshot(self) -> None:
        rows: dict[tuple[str, str], OpenRequests] = {}
        for exchange in self._open:
            measurement = exchange.measurement
            if not measurement.metered:
                continue
            kind = measurement.model, measurement.request_class
            row = rows.get(kind)
            if row is None:
                row = rows[kind] = OpenRequests(*kind, waiting=0, streaming=0, oldest_zero=None)
            if measurement.phase is _STREAMING:
                row.streaming += 1
                continue
            row.waiting += 1
            if measurement.awaits_first_token:
                zero = measurement.zero
                row.oldest_zero = zero if row.oldest_zero is None else min(row.oldest_zero, zero)
        self._sender.snapshot(
            Snapshot(
                open=list(rows.values()),
                loop_lag=self._lag,
                connections=len(self.connections),
                draining=not self.accepting,
                footprint=footprint(),
                client_limit=self.client_limit,
                rejected_connections=self.rejected_connections,
                buffered=self.bodies.held,
                buffered_limit=self.bodies.limit,
                task_errors=self.task_errors.count,
                cut_requests=self._cut_requests,
                upstream=self.pool.origin.authority,
                connect_failures=self.pool.failures,
                waits=self._last_waits,
            )
        )
        self._lag = 0.0


def _wall_time(at: float) -> float:
    """The Unix time at a time of the monotonic clock."""
    return time.time() - (time.monotonic() - at)
