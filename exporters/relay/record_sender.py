"""Sends records to the exporter in numbered batches, and resends them until they are acknowledged."""

import asyncio
import itertools
from collections import deque
from typing import cast

import msgspec

from exporters.records import Ack, Batch, Frames, Hello, Record, Snapshot, frame

MAX_RECORDS = 50_000
"""Unacknowledged records in memory; above this limit the oldest are dropped and counted."""

BATCH_RECORDS = 500
RECONNECT_SECONDS = 0.1

_decode_ack = msgspec.msgpack.Decoder(Ack).decode


class Outbox:
    """Numbers the records and stores the unacknowledged ones."""

    def __init__(self, limit: int = MAX_RECORDS) -> None:
        self._limit = limit
        self._records: deque[Record] = deque()
        # The numbers of the oldest record and of the next one to send.
        self._first = self._unsent = 1
        self.dropped = 0

    def add(self, record: Record) -> None:
        self._records.append(record)
        if len(self._records) > self._limit:
            self._records.popleft()
            self._first += 1
            self._unsent = max(self._unsent, self._first)
            self.dropped += 1

    def batches(self) -> list[Batch]:
        """The records not yet sent on this connection, which are then considered sent."""
        end = self._first + len(self._records)
        start = self._unsent - self._first
        self._unsent = end
        if start == len(self._records):
            return []
        records = list(itertools.islice(self._records, start, None))
        return [
            Batch(end - len(records) + offset, records[offset : offset + BATCH_RECORDS])
            for offset in range(0, len(records), BATCH_RECORDS)
        ]

    def acknowledged(self, last: int) -> None:
        while self._records and self._first <= last:
            self._records.popleft()
            self._first += 1

    def connection_lost(self) -> None:
        """Mark all unacknowledged records as unsent."""
        self._unsent = self._first

    @property
    def unacknowledged(self) -> int:
        return len(self._records)


class Sender(asyncio.Protocol):
    """Maintains a connection to the exporter's socket and sends the outbox over it."""

    def __init__(self, path: str, hello: Hello, loop: asyncio.AbstractEventLoop) -> None:
        self.outbox = Outbox()
        self._path = path
        self._hello = hello
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._frames = Frames()
        self._closing = False
        self._retry: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._retry = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        while not self._closing:
            try:
                await self._loop.create_unix_connection(lambda: self, self._path)
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
            self.outbox.acknowledged(_decode_ack(payload).last)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.outbox.connection_lost()
        if not self._closing:
            self._retry = self._loop.create_task(self._connect())

    def flush(self) -> None:
        """Send the unsent records."""
        if self._transport is not None:
            for batch in self.outbox.batches():
                self._transport.write(frame(batch))

    def snapshot(self, snapshot: Snapshot) -> None:
        if self._transport is not None:
            self._transport.write(frame(snapshot))

    async def close(self, seconds: float) -> None:
        """Flush and wait up to this many seconds until all records are acknowledged."""
        self.flush()
        until = self._loop.time() + seconds
        while self.outbox.unacknowledged and self._loop.time() < until:
            await asyncio.sleep(0.01)
        self._closing = True
        if self._transport is not None:
            self._transport.close()
