"""The relay's outbox, and its sender over a real socket."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from functools import partial

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from exporters.records.connection import RelayListener, connect
from exporters.records.messages import Ack, Batch, Finished, Frames, FromRelay, Hello, Record, Snapshot, frame
from exporters.relay import record_sender as sender_module
from exporters.relay.record_sender import BATCH_RECORDS, Outbox, Sender
from tests.support.exporter_listener import accepting, no_exporter
from tests.support.sample_records import finished
from tests.support.waiting import HANG, until

LIMIT = 7


def name(record: Record) -> str:
    assert isinstance(record, Finished)
    return record.request_id


class DeliveryMachine(RuleBasedStateMachine):
    """An outbox, a connection that can break at any point, and a receiver that ignores numbers it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox(limit=LIMIT)
        self.added = 0
        self.wire: list[Batch] = []
        self.acks: list[int] = []
        self.last_received = 0
        self.received: list[str] = []

    @rule(count=st.integers(1, 5))
    def requests_end(self, count: int) -> None:
        for _ in range(count):
            self.added += 1
            self.outbox.add(finished(request_id=f"r-{self.added}"))

    @rule()
    def relay_flushes(self) -> None:
        self.wire.extend(self.outbox.batches())

    @rule(count=st.integers(1, 3))
    def relay_flushes_until_its_buffer_is_full(self, count: int) -> None:
        self.wire.extend(itertools.islice(self.outbox.batches(), count))

    @rule(count=st.integers(1, 3))
    def receiver_reads(self, count: int) -> None:
        for _ in range(min(count, len(self.wire))):
            batch = self.wire.pop(0)
            for number, record in enumerate(batch.records, batch.first):
                if number > self.last_received:
                    self.received.append(name(record))
            last = batch.first + len(batch.records) - 1
            self.last_received = max(self.last_received, last)
            self.acks.append(last)

    @rule()
    def acknowledgement_arrives(self) -> None:
        if self.acks:
            self.outbox.acknowledged(self.acks.pop(0))

    @rule()
    def connection_breaks(self) -> None:
        self.wire.clear()
        self.acks.clear()
        self.outbox.connection_lost()

    @invariant()
    def nothing_is_received_twice_or_out_of_order(self) -> None:
        numbers = [int(text.removeprefix("r-")) for text in self.received]
        assert numbers == sorted(set(numbers))

    @invariant()
    def memory_is_bounded(self) -> None:
        assert self.outbox.unacknowledged <= LIMIT

    @invariant()
    def every_record_is_received_buffered_or_counted_as_dropped(self) -> None:
        assert self.added - len(self.received) <= self.outbox.unacknowledged + self.outbox.dropped

    @invariant()
    def no_record_is_received_and_counted_as_dropped(self) -> None:
        assert len(self.received) + self.outbox.dropped <= self.added

    def teardown(self) -> None:
        self.connection_breaks()
        self.relay_flushes()
        self.receiver_reads(10_000)
        while self.acks:
            self.acknowledgement_arrives()
        assert self.outbox.unacknowledged == 0
        assert self.added - len(self.received) == self.outbox.dropped
        if self.outbox.dropped == 0:
            assert self.received == [f"r-{n}" for n in range(1, self.added + 1)]


TestDelivery = DeliveryMachine.TestCase
TestDelivery.settings = settings(max_examples=25, stateful_step_count=30)


def numbers(batches: Iterable[Batch]) -> list[int]:
    return [number for batch in batches for number in range(batch.first, batch.first + len(batch.records))]


def filled(count: int, limit: int = 10_000) -> Outbox:
    outbox = Outbox(limit)
    for n in range(1, count + 1):
        outbox.add(finished(request_id=f"r-{n}"))
    return outbox


def test_a_long_backlog_is_sent_in_batches() -> None:
    batches = list(filled(2 * BATCH_RECORDS + 1).batches())
    assert [len(batch.records) for batch in batches] == [BATCH_RECORDS, BATCH_RECORDS, 1]
    assert numbers(batches) == list(range(1, 2 * BATCH_RECORDS + 2))


def test_after_a_lost_connection_only_unacknowledged_records_are_resent_with_their_numbers() -> None:
    outbox = filled(5)
    assert numbers(outbox.batches()) == [1, 2, 3, 4, 5]
    outbox.acknowledged(2)
    outbox.connection_lost()
    assert numbers(outbox.batches()) == [3, 4, 5]


def test_the_oldest_records_over_the_limit_are_dropped_and_counted() -> None:
    outbox = filled(10, limit=4)
    assert (outbox.dropped, outbox.unacknowledged) == (6, 4)
    assert numbers(outbox.batches()) == [7, 8, 9, 10]


def test_a_record_that_has_been_sent_is_not_dropped() -> None:
    outbox = filled(3, limit=4)
    assert numbers(outbox.batches()) == [1, 2, 3]
    for n in range(4, 8):
        outbox.add(finished(request_id=f"r-{n}"))
    assert (outbox.dropped, outbox.unacknowledged) == (3, 4)
    assert numbers(outbox.batches()) == [7]
    outbox.connection_lost()
    assert numbers(outbox.batches()) == [1, 2, 3, 7]


@dataclass
class Exporter:
    """The other end of the socket, which records all messages and acknowledges if `acknowledges` is set."""

    run_ids: list[str] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    snapshots: int = 0
    acknowledges: bool = True
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def connection(self) -> asyncio.Protocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), self.serve)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        frames = Frames()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                for payload in frames.feed(data):
                    match msgspec.msgpack.decode(payload, type=FromRelay):
                        case Hello(run_id=run_id):
                            self.run_ids.append(run_id)
                        case Batch() as batch:
                            self.batches.append(batch)
                            if self.acknowledges:
                                writer.write(frame(Ack(batch.first + len(batch.records) - 1)))
                        case Snapshot():
                            self.snapshots += 1
        writer.close()

    def disconnect(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()


@contextlib.asynccontextmanager
async def listening(sender: Sender, exporter: Exporter) -> AsyncIterator[None]:
    async with accepting(sender, exporter.connection):
        yield
    exporter.disconnect()
    await asyncio.sleep(0)


@pytest.fixture
async def sender(monkeypatch: pytest.MonkeyPatch) -> Sender:
    monkeypatch.setattr(sender_module, "RECONNECT_SECONDS", 0.01)
    return Sender(no_exporter, Hello("relay-0", "run-1"), asyncio.get_running_loop())


async def test_a_sender_introduces_itself_and_closes_after_all_records_are_acknowledged(sender: Sender) -> None:
    exporter = Exporter()
    async with listening(sender, exporter):
        sender.outbox.add(finished())
        sender.start()
        await until(lambda: sender.outbox.unacknowledged == 0)
        sender.outbox.add(finished())
        await sender.close(HANG)
        assert exporter.run_ids == ["run-1"]
        assert numbers(exporter.batches) == [1, 2]


async def test_a_sender_waits_for_an_exporter_that_does_not_listen_yet(sender: Sender) -> None:
    exporter = Exporter()
    sender.outbox.add(finished())
    sender.start()
    # Some connection attempts fail meanwhile.
    await asyncio.sleep(0.03)
    async with listening(sender, exporter):
        await until(lambda: sender.outbox.unacknowledged == 0)
        assert numbers(exporter.batches) == [1]
        await sender.close(HANG)


async def test_after_a_reconnect_unacknowledged_records_are_resent_with_their_numbers(sender: Sender) -> None:
    exporter = Exporter(acknowledges=False)
    async with listening(sender, exporter):
        sender.start()
        for _ in range(3):
            sender.outbox.add(finished())
        await until(lambda: numbers(exporter.batches) == [1, 2, 3])
        exporter.acknowledges = True
        exporter.disconnect()
        await until(lambda: sender.outbox.unacknowledged == 0)
        assert numbers(exporter.batches) == [1, 2, 3, 1, 2, 3]
        assert exporter.run_ids == ["run-1", "run-1"]
        await sender.close(HANG)


async def test_closing_times_out_without_acknowledgements(sender: Sender) -> None:
    exporter = Exporter(acknowledges=False)
    async with listening(sender, exporter):
        sender.start()
        sender.outbox.add(finished())
        await until(lambda: exporter.batches != [])
        await sender.close(0.03)
        assert sender.outbox.unacknowledged == 1


async def test_a_snapshot_is_sent_at_once_or_not_at_all(sender: Sender) -> None:
    exporter, snapshot = Exporter(), Snapshot([], 0.0, 0, draining=False)
    sender.snapshot(snapshot)
    async with listening(sender, exporter):
        sender.start()
        await until(lambda: exporter.run_ids != [])
        assert exporter.snapshots == 0
        sender.snapshot(snapshot)
        await until(lambda: exporter.snapshots == 1)
        await sender.close(HANG)


KEPT, RECORDS, MAX_BUFFERED = 5_000, 12_000, 1 << 20


@pytest.mark.slow
async def test_records_for_a_stopped_exporter_use_bounded_memory_and_are_either_delivered_or_dropped() -> None:
    """The exporter accepts the connection only after all records were added."""
    loop = asyncio.get_running_loop()
    to_exporter, relays = socket.socketpair()
    sender = Sender(partial(connect, to_exporter), Hello("relay-0", "run-1"), loop)
    sender.outbox = Outbox(KEPT)
    sender.start()
    await until(lambda: sender._transport is not None)
    assert sender._transport is not None
    for n in range(1, RECORDS + 1):
        sender.outbox.add(finished(request_id=f"r-{n}"))
        if n % 1000 == 0:
            sender.flush()
            sender.snapshot(Snapshot([], 0.0, 0, draining=False))
            await asyncio.sleep(0)
            assert sender._transport.get_write_buffer_size() < MAX_BUFFERED
            assert sender.outbox.unacknowledged <= KEPT
    exporter = Exporter()
    listener = RelayListener(relays, exporter.connection, loop)
    await until(lambda: sender.outbox.unacknowledged == 0)
    received = [name(record) for batch in exporter.batches for record in batch.records]
    assert exporter.snapshots < RECORDS // 1000
    assert sender.outbox.dropped >= RECORDS - 2 * KEPT
    assert len(set(received)) == len(received) == RECORDS - sender.outbox.dropped
    await sender.close(HANG)
    listener.close()
    to_exporter.close()
    relays.close()
    exporter.disconnect()
    await asyncio.sleep(0.01)  # the transports close in the next iterations of the loop
