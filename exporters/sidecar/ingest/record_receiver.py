"""Takes batches of records from the relays: into the log first, then into the series, then acknowledged.

A record may have to wait for the engine's span of its request. Lines of the log and acknowledgements keep the order of
the numbers, so they wait behind it; the series of what comes after it do not.
"""

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, cast

import msgspec

from exporters.records import Ack, Batch, Finished, Frames, FromRelay, Hello, Record, Snapshot, frame
from exporters.requestlog.writer import RequestLog
from exporters.sidecar.ingest.prompt_repeats import Prompts
from exporters.sidecar.ingest.request_metrics import RequestMetrics

if TYPE_CHECKING:  # it needs the messages of OTLP, which a sidecar without --engine-spans does not load
    from exporters.sidecar.tracing.span_join import SpanJoin

_decode = msgspec.msgpack.Decoder(FromRelay).decode


RETRY_SECONDS = 1.0
"""A batch that the log could not take is asked for again after this."""

HELD_RECORDS = 20_000
"""Records of one relay's life that are held back; the relay itself keeps more than twice as many."""


@dataclass(slots=True)
class _Held:
    number: int
    record: Record
    revision: str | None
    waiting: bool = True
    counted: bool = False


@dataclass(slots=True)
class _Life:
    """One life of a relay: the last number taken, the last one acknowledged, and the records in between."""

    taken: int = 0
    done: int = 0
    held: deque[_Held] = field(default_factory=deque)
    acknowledge: Callable[[int], None] | None = None


class RecordReceiver:
    """What is known of each relay's life."""

    def __init__(
        self,
        series: RequestMetrics,
        log: RequestLog | None,
        revision: Callable[[], str | None],
        trace: Callable[[Finished], bool] | None = None,
        join: "SpanJoin | None" = None,
        now: Callable[[], float] = time.monotonic,
        answered: Callable[[str, float], None] = lambda _fingerprint, _at: None,
    ) -> None:
        self._series = series
        self._log = log
        self._revision = revision
        self._trace = trace
        self._prompts = Prompts()
        self._join = join
        self._now = now
        self._answered = answered
        self._records: dict[str, _Life] = {}
        self._retry_at = 0.0
        self.log_errors = 0
        self.connected: set[str] = set()
        self._lives: dict[str, str] = {}
        self.restarts: dict[str, int] = {}
        """Relays that have come back with another life, since this exporter started."""
        self._left_open: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        """Requests that were open in relays which came back with another life."""

    def take(self, life: str, batch: Batch) -> int | None:
        """Keep what is new of a batch; the number to acknowledge, or None when the log could not take it."""
        state = self._records.setdefault(life, _Life())
        if len(state.held) + len(batch.records) > HELD_RECORDS:
            if self._join is not None:
                self._join.give_up()
            if not self._write(life, state):  # full of what the log does not take
                return None
        new = [(n, record) for n, record in enumerate(batch.records, batch.first) if n > state.taken]
        for _, record in new:
            if isinstance(record, Finished):
                self._know(record)
        revision = self._revision()  # as these answers tell it and as it is now: a flip may come while a record waits
        for number, record in new:
            state.taken = number
            self._take(state, _Held(number, record, revision))
        if not self._write(life, state):
            return None
        return min(state.done, batch.first + len(batch.records) - 1)

    def clock(self) -> None:
        """Time has passed: log and acknowledge what waits no longer."""
        if self._join is None:
            return
        now = self._now()
        self._join.clock(now, draining=any(snapshot.draining for snapshot in self._series.snapshots().values()))
        if now < self._retry_at:
            return
        for life, state in self._records.items():
            done = state.done
            if not self._write(life, state):
                self._retry_at = now + RETRY_SECONDS
            elif state.done > done and state.acknowledge is not None:
                state.acknowledge(state.done)

    def close(self) -> None:
        """Nothing more will come: what still waits goes into the log as it is."""
        if self._join is not None:
            self._join.give_up()
        for life, state in self._records.items():
            self._write(life, state)

    def _take(self, state: _Life, held: _Held) -> None:
        state.held.append(held)
        if self._join is not None and isinstance(held.record, Finished):
            self._join.request(held.record, self._now(), partial(self._settled, state, held))
        else:
            self._settled(state, held)

    def _know(self, record: Finished) -> None:
        if record.prompt_sha256 is not None:
            record.prompt_repeat = self._prompts.repeats(record.prompt_sha256)
        if record.system_fingerprint is not None:
            self._answered(record.system_fingerprint, record.time + record.e2e)

    def _settled(self, state: _Life, held: _Held) -> None:
        held.waiting = False
        if state.held[0].waiting:  # only its line has to wait for that one
            self._count(held)

    def _write(self, life: str, state: _Life) -> bool:
        """Log and count what waits for nothing before it; False when the log could not take it."""
        ready = []
        for held in state.held:
            if held.waiting:
                break
            ready.append(held)
        if not ready:
            return True
        if self._log is not None:
            try:
                for revision, group in groupby(ready, attrgetter("revision")):
                    finished = [(held.number, held.record) for held in group if isinstance(held.record, Finished)]
                    self._log.write(life, finished, revision)
            except OSError as error:
                # Unacknowledged, so the relay keeps it and sends it again when it connects anew.
                self.log_errors += 1
                print(f"exporter: request log: {error}", file=sys.stderr, flush=True)
                return False
        for held in ready:
            state.held.popleft()
            self._count(held)
        state.done = ready[-1].number
        return True

    def _count(self, held: _Held) -> None:
        if held.counted:
            return
        held.counted = True
        kept = self._trace is not None and isinstance(held.record, Finished) and self._trace(held.record)
        self._series.record(held.record, traced=kept)
        if self._join is not None and isinstance(held.record, Finished):
            self._join.decided(held.record, kept=kept)

    def hello(self, hello: Hello, acknowledge: Callable[[int], None] | None = None) -> None:
        """A relay says who it is, and can be reached with what is acknowledged later than its batch."""
        self._records.setdefault(hello.life, _Life()).acknowledge = acknowledge
        self.connected.add(hello.process)
        left_open = self._left_open.pop(hello.process, 0)
        if self._lives.setdefault(hello.process, hello.life) != hello.life:
            self._lives[hello.process] = hello.life
            self.restarts[hello.process] = self.restarts.get(hello.process, 0) + 1
            self.lost[hello.process] = self.lost.get(hello.process, 0) + left_open

    def snapshot(self, process: str, snapshot: Snapshot) -> None:
        self._series.snapshot(process, snapshot)

    def gone(self, process: str) -> None:
        """The connection has ended; only the relay's next hello tells whether the relay has, too."""
        self.connected.discard(process)
        snapshot = self._series.forget(process)
        if snapshot is not None and not snapshot.draining:  # one that drains sends a record of each request
            self._left_open[process] = sum(row.waiting + row.streaming for row in snapshot.open)


class RelayConnection(asyncio.Protocol):
    """One relay's connection to the inbox."""

    def __init__(self, inbox: RecordReceiver) -> None:
        self._inbox = inbox
        self._frames = Frames()
        self._hello: Hello | None = None
        self._refused = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._refused:  # an acknowledgement of what comes after a refused batch would count for that batch too
            return
        for payload in self._frames.feed(data):
            message = _decode(payload)
            if isinstance(message, Hello):
                self._hello = message
                self._inbox.hello(message, self._acknowledge)
            elif self._hello is None:
                self._transport.abort()
                return
            elif isinstance(message, Snapshot):
                self._inbox.snapshot(self._hello.process, message)
            elif (last := self._inbox.take(self._hello.life, message)) is not None:
                self._acknowledge(last)
            else:
                self._refused = True
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._transport.abort)
                return

    def connection_lost(self, exc: Exception | None) -> None:
        if self._hello is not None:
            self._inbox.gone(self._hello.process)

    def _acknowledge(self, last: int) -> None:
        if not self._refused and not self._transport.is_closing():
            self._transport.write(frame(Ack(last)))
