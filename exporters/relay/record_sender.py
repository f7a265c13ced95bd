"""Sends records to the exporter in numbered batches, and resends them until they are acknowledged."""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterator
from typing import cast

import msgspec

from exporters.records.messages import Ack, Batch, Frames, FromExporter, Hello, Record, Snapshot, frame

MAX_RECORDS = 50_000
"""Unacknowledged records in memory; above this limit the oldest are dropped and counted."""

BATCH_RECORDS = 500
RECONNECT_SECONDS = 0.1

_decode = msgspec.msgpack.Decoder(FromExporter).decode

_logger = logging.getLogger("vllm_slo.relay")


class Outbox:
    """Numbers the records and stores the unacknowledged ones.

    Above the limit the oldest unsent record is dropped. A record that was sent is not dropped, because the exporter may
    have it already.
    """

    def __init__(self, limit: int = MAX_RECORDS) -> None:
        self._limit = limit
        self._records: deque[Record] = deque()
        """Records that were never sent; the first one has the number `_first`."""
        self._first = 1
        self._sent: deque[Batch] = deque()
        """Unacknowledged batches; the first `_sent_here` of them were sent on this connection."""
        self._sent_here = 0
        self._sent_records = 0
        self._counted: set[int] = set()
        """Numbers of unacknowledged records that are in the counts of the exporter."""
        self.dropped = 0
        self.on_drop: Callable[[Record], None] = lambda _record: None

    def add(self, record: Record) -> None:
        self._records.append(record)
        if self._sent_records + len(self._records) > self._limit:
            self._first += 1
            self.dropped += 1
            self.on_drop(self._records.popleft())

    def batches(self) -> Iterator[Batch]:
        """The records not yet sent on this connection; a batch is considered sent when it is taken."""
        while True:
            if self._sent_here == len(self._sent):
                if not self._records:
                    return
                self._add_batch()
            batch = self._sent[self._sent_here]
            self._sent_here += 1
            yield batch

    def _add_batch(self) -> None:
        count = min(BATCH_RECORDS, len(self._records))
        self._sent.append(Batch(self._first, [self._records.popleft() for _ in range(count)]))
        self._first += count
        self._sent_records += count

    def acknowledged(self, last: int) -> None:
        while self._sent and self._sent[0].first <= last:
            batch = self._sent[0]
            count = min(len(batch.records), last - batch.first + 1)
            self._sent_records -= count
            if self._counted:
                self._counted.difference_update(range(batch.first, batch.first + count))
            if count < len(batch.records):
                del batch.records[:count]
                batch.first += count
            else:
                self._sent.popleft()
                self._sent_here = max(0, self._sent_here - 1)

    def counted(self, numbers: list[int]) -> None:
        """The exporter has counted these records; if it exits before it acknowledges them, its successor must not."""
        self._counted.update(numbers)

    def connection_lost(self) -> None:
        """Mark all unacknowledged records as unsent on the next connection."""
        self._sent_here = 0
        for batch in self._sent:
            numbers = range(batch.first, batch.first + len(batch.records))
            batch.counted = [number for number in numbers if number in self._counted]

    @property
    def unacknowledged(self) -> int:
        return self._sent_records + len(self._records)


class Sender(asyncio.Protocol):
    """Maintains a connection to the exporter and sends the outbox over it; `connect` opens one or raises OSError."""

    def __init__(self, connect: Callable[[], socket.socket], hello: Hello, loop: asyncio.AbstractEventLoop) -> None:
        self.outbox = Outbox()
        self._open = connect
        self._hello = hello
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._frames = Frames()
        self._paused = False
        self._closing = False
        self._retry: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._retry = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        while not self._closing:
            try:
                await self._loop.create_unix_connection(lambda: self, sock=self._open())
            except OSError:
                await asyncio.sleep(RECONNECT_SECONDS)
            else:
                return

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._frames = Frames()
        self._transport.write(frame(self._hello))
        self.flush()

    def data_received(self, data: bytes) -> None:
        for payload in self._frames.feed(data):
            message = _decode(payload)
            if isinstance(message, Ack):
                self.outbox.acknowledged(message.last)
            else:
                self.outbox.counted(message.numbers)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._paused = False
        self.outbox.connection_lost()
        if not self._closing:
            self._retry = self._loop.create_task(self._connect())

    def pause_writing(self) -> None:
        """The exporter reads too slowly; records wait in the outbox, where they are bounded and counted."""
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.flush()

    def flush(self) -> None:
        """Send the unsent records, as far as the exporter reads them."""
        if self._transport is None or self._paused:
            return
        for batch in self.outbox.batches():
            self._transport.write(frame(batch))
            if self._paused:  # by this write
                return

    def snapshot(self, snapshot: Snapshot) -> None:
        """Send a snapshot; it is skipped if the exporter does not read, because the next one replaces it."""
        if self._transport is not None and not self._paused:
            self._transport.write(frame(snapshot))

    async def close(self, seconds: float) -> None:
        """Flush and wait up to this many seconds until all records are acknowledged."""
        self.flush()
        until = self._loop.time() + seconds
        while self.outbox.unacknowledged and self._loop.time() < until:
            await asyncio.sleep(0.01)
        if left := self.outbox.unacknowledged:
            _logger.error("the exporter has not acknowledged %d records within %g s", left, seconds)
        self._closing = True
        if self._transport is not None:
            self._transport.close()
