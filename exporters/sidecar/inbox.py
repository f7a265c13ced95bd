"""Takes batches of records from the relays: into the log first, then into the series, then acknowledged."""

import asyncio
import sys
from collections.abc import Callable
from typing import cast

import msgspec

from exporters.records import Ack, Batch, Finished, Frames, FromRelay, Hello, Snapshot, frame
from exporters.sidecar.request_log import RequestLog
from exporters.sidecar.requests import RequestSeries

_decode = msgspec.msgpack.Decoder(FromRelay).decode


RETRY_SECONDS = 1.0
"""A batch that the log could not take is asked for again after this."""


class Inbox:
    """What is known of each relay's life: the last number taken."""

    def __init__(
        self,
        series: RequestSeries,
        log: RequestLog | None,
        revision: Callable[[], str | None],
        trace: Callable[[Finished], None] | None = None,
    ) -> None:
        self._series = series
        self._log = log
        self._revision = revision
        self._trace = trace
        self._taken: dict[str, int] = {}
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
        taken = self._taken.get(life, 0)
        numbered = [(n, record) for n, record in enumerate(batch.records, batch.first) if n > taken]
        if self._log is not None:
            try:
                finished = [(n, record) for n, record in numbered if isinstance(record, Finished)]
                self._log.write(life, finished, self._revision())
            except OSError as error:
                # Unacknowledged, so the relay keeps it and sends it again when it connects anew.
                self.log_errors += 1
                print(f"exporter: request log: {error}", file=sys.stderr, flush=True)
                return None
        for _, record in numbered:
            self._series.record(record)
            if self._trace is not None and isinstance(record, Finished):
                self._trace(record)
        last = batch.first + len(batch.records) - 1
        self._taken[life] = max(taken, last)
        return last

    def hello(self, hello: Hello) -> None:
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

    def __init__(self, inbox: Inbox) -> None:
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
                self._inbox.hello(message)
            elif self._hello is None:
                self._transport.abort()
                return
            elif isinstance(message, Snapshot):
                self._inbox.snapshot(self._hello.process, message)
            elif (last := self._inbox.take(self._hello.life, message)) is not None:
                self._transport.write(frame(Ack(last)))
            else:
                self._refused = True
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._transport.abort)
                return

    def connection_lost(self, exc: Exception | None) -> None:
        if self._hello is not None:
            self._inbox.gone(self._hello.process)
