"""Batches from the relays are logged, then counted, then acknowledged; if the log fails, only their lines wait."""

import asyncio
import contextlib
import errno
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from exporters.records.messages import (
    Ack,
    Batch,
    Finished,
    Frames,
    FromExporter,
    Hello,
    Judged,
    Record,
    Refused,
    Snapshot,
    frame,
)
from exporters.relay.record_sender import Outbox
from exporters.requestlog.writer import RequestLog
from exporters.sidecar.ingest import receiver as receiver_module
from exporters.sidecar.ingest.receiver import RecordReceiver, RelayConnection
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.vocabulary.signals import Verdict
from tests.support.sample_records import SLOS, finished
from tests.support.waiting import HANG, until


@dataclass
class EventLog:
    """The writes and counts, in order."""

    events: list[str] = field(default_factory=list)
    full: bool = False
    error: int = errno.ENOSPC


class RecordingMetrics(RequestMetrics):
    """Request metrics that record their calls."""

    def __init__(self, history: EventLog) -> None:
        super().__init__(SLOS)
        self.history = history

    def record(self, record: Record, *, traced: bool = False) -> None:
        name = record.request_id if isinstance(record, Finished) else type(record).__name__.lower()
        self.history.events.append(f"counted {name}")
        super().record(record, traced=traced)


class RecordingLog(RequestLog):
    """A request log that records its writes and can fail."""

    def __init__(self, path: Path, history: EventLog) -> None:
        super().__init__(path)
        self.history = history

    def write(self, run_id: str, numbered: list[tuple[int, Finished]], revision: str | None) -> None:
        if self.history.full:
            raise OSError(self.history.error, os.strerror(self.history.error))
        super().write(run_id, numbered, revision)
        self.history.events.append("logged " + " ".join(record.request_id for _, record in numbered))


@pytest.fixture
def history() -> EventLog:
    return EventLog()


@pytest.fixture
def log(tmp_path: Path, history: EventLog) -> Iterator[RecordingLog]:
    log = RecordingLog(tmp_path / "log", history)
    yield log
    log.close()


def receiver_of(history: EventLog, log: RequestLog | None) -> RecordReceiver:
    return RecordReceiver(RecordingMetrics(history), log, lambda: "revision-1")


def batch(first: int, count: int = 1) -> Batch:
    return Batch(first, [finished(request_id=f"r-{number}") for number in range(first, first + count)])


def logged(tmp_path: Path) -> list[str]:
    return [json.loads(text)["request_id"] for text in (tmp_path / "log").read_text().splitlines()]


def test_a_batch_is_logged_then_counted_then_acknowledged(history: EventLog, log: RecordingLog) -> None:
    assert receiver_of(history, log).receive("run", batch(1, 2)) == 2
    assert history.events == ["logged r-1 r-2", "counted r-1", "counted r-2"]


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(Judged("tiny", "short", "team-a", {"ttft": Verdict.BAD}, goodput_lost=True), id="early verdicts"),
        pytest.param(Refused(431, "head_too_large"), id="a refusal without a head"),
    ],
)
def test_a_record_without_a_line_is_counted_and_acknowledged_but_not_logged(
    history: EventLog, log: RecordingLog, tmp_path: Path, record: Record
) -> None:
    assert receiver_of(history, log).receive("run", Batch(1, [record, finished(request_id="r-2")])) == 2
    assert history.events == ["logged r-2", f"counted {type(record).__name__.lower()}", "counted r-2"]
    assert logged(tmp_path) == ["r-2"]


def test_repeated_records_are_ignored_and_acknowledged_again(
    history: EventLog, log: RecordingLog, tmp_path: Path
) -> None:
    receiver = receiver_of(history, log)
    receiver.receive("run", batch(1, 2))
    history.events.clear()
    assert receiver.receive("run", batch(1, 3)) == 3
    assert history.events == ["logged r-3", "counted r-3"]
    assert receiver.receive("run", batch(1, 2)) == 2
    assert logged(tmp_path) == ["r-1", "r-2", "r-3"]


def test_the_numbers_of_another_run_of_the_relay_start_at_one(history: EventLog, log: RecordingLog) -> None:
    receiver = receiver_of(history, log)
    receiver.receive("run", batch(1))
    receiver.receive("next run", batch(1))
    assert history.events == ["logged r-1", "counted r-1"] * 2


def test_a_restarted_exporter_counts_from_zero_and_logs_nothing_twice(
    history: EventLog, log: RecordingLog, tmp_path: Path
) -> None:
    receiver_of(history, log).receive("run", batch(1, 2))
    history.events.clear()
    reopened = RequestLog(tmp_path / "log")
    assert receiver_of(history, reopened).receive("run", batch(1, 3)) == 3
    assert history.events == ["counted r-1", "counted r-2", "counted r-3"]
    assert logged(tmp_path) == ["r-1", "r-2", "r-3"]
    reopened.close()


@dataclass
class Clock:
    """A clock that tests set."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def test_after_a_failed_write_records_are_counted_but_not_acknowledged_until_their_lines_are_written(
    history: EventLog, log: RecordingLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, acknowledged = Clock(), list[int]()
    receiver = RecordReceiver(RecordingMetrics(history), log, lambda: "revision-1", now=clock)
    receiver.hello(Hello("relay-0", "run"), acknowledged.append)
    history.full = True
    assert receiver.receive("run", batch(1)) == 0
    assert receiver.receive("run", batch(2)) == 0
    assert (receiver.log_errors, history.events) == (1, ["counted r-1", "counted r-2"])
    assert caplog.messages == ["request log: [Errno 28] No space left on device"]
    clock.now += receiver_module.RETRY_SECONDS
    receiver.check_timeouts()
    assert (receiver.log_errors, acknowledged, len(caplog.messages)) == (2, [], 1)
    history.full = False
    receiver.check_timeouts()
    assert acknowledged == []
    clock.now += receiver_module.RETRY_SECONDS
    receiver.check_timeouts()
    assert (acknowledged, receiver.receive("run", batch(1, 3))) == ([2], 3)
    assert history.events == ["counted r-1", "counted r-2", "logged r-1 r-2", "logged r-3", "counted r-3"]
    assert logged(tmp_path) == ["r-1", "r-2", "r-3"]


@pytest.mark.parametrize(
    "error, reason",
    [
        pytest.param(errno.ENOSPC, "no_space", id="disk full"),
        pytest.param(errno.EDQUOT, "no_space", id="quota exceeded"),
        pytest.param(errno.EFBIG, "no_space", id="file too large"),
        pytest.param(errno.EIO, "write_failed", id="input/output error"),
    ],
)
def test_lines_over_the_limit_are_dropped_counted_by_reason_and_acknowledged(
    history: EventLog, log: RecordingLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, reason: str
) -> None:
    monkeypatch.setattr(receiver_module, "MAX_PENDING_RECORDS", 3)
    judged = Judged("tiny", "short", "team-a", {"ttft": Verdict.BAD}, goodput_lost=True)
    clock = Clock()
    receiver = RecordReceiver(RecordingMetrics(history), log, lambda: "revision-1", now=clock)
    history.full, history.error = True, error
    assert receiver.receive("run", Batch(1, [judged, finished(request_id="r-2"), finished(request_id="r-3")])) == 1
    assert receiver.receive("run", batch(4, 2)) == 3 - 1
    assert receiver.receive("run", batch(6, 2)) == 4
    assert {name for name, count in receiver.ledger.dropped_lines().items() if count} == {reason}
    assert sum(receiver.ledger.dropped_lines().values()) == 3
    assert [event for event in history.events if event != "counted judged"] == [f"counted r-{n}" for n in range(2, 8)]
    history.full = False
    clock.now += receiver_module.RETRY_SECONDS
    assert receiver.receive("run", batch(8)) == 8
    assert logged(tmp_path) == ["r-5", "r-6", "r-7", "r-8"]


def test_lines_that_are_not_written_at_the_end_are_reported(
    history: EventLog, log: RecordingLog, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = receiver_of(history, log)
    history.full = True
    receiver.receive("run", batch(1, 2))
    receiver.close()
    assert caplog.messages[-1] == "request log: 2 lines were not written: [Errno 28] No space left on device"


def test_an_exporter_killed_while_the_log_fails_counts_and_logs_each_record_once_over_both_runs(
    history: EventLog, log: RecordingLog, tmp_path: Path
) -> None:
    outbox = Outbox()
    for number in range(1, 102):
        outbox.add(finished(request_id=f"r-{number}"))
    history.full = True
    for _ in range(2):  # the second receiver is the next run of the exporter
        receiver = receiver_of(history, log)
        receiver.hello(Hello("relay-0", "run"), outbox.acknowledged, outbox.counted)
        for sent in outbox.batches():
            outbox.acknowledged(receiver.receive("run", sent))
        history.full = False
        outbox.connection_lost()
    assert outbox.unacknowledged == 0
    assert [event for event in history.events if event.startswith("counted")] == [
        f"counted r-{n}" for n in range(1, 102)
    ]
    assert logged(tmp_path) == [f"r-{n}" for n in range(1, 102)]


def test_a_report_of_counted_records_is_repeated_after_a_reconnect(history: EventLog, log: RecordingLog) -> None:
    receiver, counted = receiver_of(history, log), list[int]()
    history.full = True
    receiver.receive("run", batch(1, 2))
    receiver.hello(Hello("relay-0", "run"), None, counted.extend)
    assert counted == [1, 2]


def test_without_a_log_a_batch_is_counted_and_acknowledged(history: EventLog) -> None:
    assert receiver_of(history, None).receive("run", batch(1)) == 1
    assert history.events == ["counted r-1"]


def test_only_the_last_runs_of_a_relay_are_remembered(history: EventLog, log: RecordingLog, tmp_path: Path) -> None:
    receiver = receiver_of(history, log)
    runs = [f"relay-0-{number:x}" for number in range(1000)]
    for restarts, run in enumerate(runs):
        receiver.hello(Hello("relay-0", run, restarts))
        receiver.receive(run, batch(1, 2))
    kept = runs[-receiver_module.KEPT_RUNS :]
    assert list(receiver._runs) == list(log.last_numbers) == kept
    assert receiver.receive(kept[0], batch(1, 2)) == 2  # on its way while the next relay started
    assert logged(tmp_path) == ["r-1", "r-2"] * 1000
    assert receiver.restarts == {"relay-0": 999}


def test_a_run_with_unwritten_lines_is_remembered_until_they_are_written(
    history: EventLog, log: RecordingLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_module, "RETRY_SECONDS", 0.0)
    receiver = receiver_of(history, log)
    runs = [f"relay-0-{number:x}" for number in range(2 * receiver_module.KEPT_RUNS)]
    history.full = True
    for run in runs:
        receiver.hello(Hello("relay-0", run))
        receiver.receive(run, batch(1))
    assert list(receiver._runs) == runs
    history.full = False
    receiver.check_timeouts()
    assert logged(tmp_path) == ["r-1"] * len(runs)
    receiver.hello(Hello("relay-0", "next"))
    assert list(receiver._runs) == [*runs[1 - receiver_module.KEPT_RUNS :], "next"]


def test_the_last_run_of_a_relay_is_the_one_that_was_restarted_most_often() -> None:
    """The connection of a killed run may arrive after a new exporter has started, and after that of its successor."""
    receiver = RecordReceiver(RequestMetrics(SLOS), None, lambda: None, restarts={"relay-0": 2, "relay-1": 0})
    killed, last = Hello("relay-0", "a", 1), Hello("relay-0", "b", 2)
    for hello in (killed, last, killed, last):
        receiver.hello(hello)
    assert receiver.restarts == {"relay-0": 2, "relay-1": 0}
    assert [receiver.is_last_run(hello) for hello in (killed, last)] == [False, True]
    receiver.hello(Hello("relay-0", "c", 3))
    assert receiver.restarts == {"relay-0": 3, "relay-1": 0}


@dataclass
class Relay:
    """The socket of a relay."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    frames: Frames = field(default_factory=Frames)

    def send(self, *messages: Hello | Batch | Snapshot) -> None:
        self.writer.write(b"".join(frame(message) for message in messages))

    async def acks(self, count: int) -> list[int]:
        numbers: list[int] = []
        async with asyncio.timeout(HANG):
            while len(numbers) < count:
                data = await self.reader.read(65536)
                assert data, "the exporter has closed the connection"
                messages = [msgspec.msgpack.decode(payload, type=FromExporter) for payload in self.frames.feed(data)]
                numbers += [message.last for message in messages if isinstance(message, Ack)]
        return numbers

    async def read_to_end(self) -> bytes:
        async with asyncio.timeout(HANG):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read()
        return b""


@contextlib.asynccontextmanager
async def serving(receiver: RecordReceiver, path: Path) -> AsyncIterator[Callable[[], "asyncio.Future[Relay]"]]:
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: RelayConnection(receiver), path)
    relays: list[Relay] = []

    async def connect() -> Relay:
        relays.append(Relay(*await asyncio.open_unix_connection(path)))
        return relays[-1]

    try:
        yield lambda: asyncio.ensure_future(connect())
    finally:
        for relay in relays:
            relay.writer.transport.abort()
        server.close()
        await asyncio.sleep(0.01)  # the transports close in the next iterations of the loop


async def test_over_the_socket_each_batch_is_acknowledged_by_its_last_number(history: EventLog, tmp_path: Path) -> None:
    receiver = receiver_of(history, None)
    async with serving(receiver, tmp_path / "s") as connect:
        relay = await connect()
        relay.send(Hello("relay-0", "a"), batch(1, 3), batch(4))
        assert await relay.acks(2) == [3, 4]
        assert receiver.connected == {"relay-0"}


async def test_the_snapshot_of_a_disconnected_relay_is_removed(history: EventLog, tmp_path: Path) -> None:
    series = RecordingMetrics(history)
    receiver = RecordReceiver(series, None, lambda: None)
    async with serving(receiver, tmp_path / "s") as connect:
        relay = await connect()
        relay.send(Hello("relay-0", "a"), Snapshot([], 0.0, 5, draining=False))
        await until(lambda: "relay-0" in series.snapshots())
        relay.writer.close()
        await until(lambda: series.snapshots() == {})
        assert receiver.connected == set()


async def test_the_late_end_of_a_killed_relays_connection_does_not_disconnect_its_successor(
    history: EventLog, tmp_path: Path
) -> None:
    """Both connect while no exporter runs if the relay is killed, too."""
    series = RecordingMetrics(history)
    receiver = RecordReceiver(series, None, lambda: None)
    async with serving(receiver, tmp_path / "s") as connect:
        killed, other = await connect(), await connect()
        killed.send(Hello("relay-0", "a"))
        other.send(Hello("relay-1", "b"))
        await until(lambda: receiver.connected == {"relay-0", "relay-1"})
        successor = await connect()
        successor.send(Hello("relay-0", "c"), Snapshot([], 0.0, 5, draining=False))
        await until(lambda: "relay-0" in series.snapshots())
        killed.writer.close()
        other.writer.close()
        await until(lambda: "relay-1" not in receiver.connected)
        assert receiver.connected == {"relay-0"}
        assert "relay-0" in series.snapshots()


async def test_a_connection_without_hello_is_closed(history: EventLog, tmp_path: Path) -> None:
    async with serving(receiver_of(history, None), tmp_path / "s") as connect:
        relay = await connect()
        relay.send(batch(1))
        assert await relay.read_to_end() == b""
        assert history.events == []


async def test_while_the_log_fails_snapshots_apply_and_the_connection_remains(
    history: EventLog, log: RecordingLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_module, "RETRY_SECONDS", 0.0)
    series = RecordingMetrics(history)
    receiver = RecordReceiver(series, log, lambda: None)
    async with serving(receiver, tmp_path / "s") as connect:
        relay = await connect()
        history.full = True
        relay.send(Hello("relay-0", "a"), batch(1), Snapshot([], 0.0, 5, draining=False))
        await until(lambda: "relay-0" in series.snapshots())
        assert (receiver.log_errors, history.events) == (1, ["counted r-1"])
        history.full = False
        relay.send(batch(2))
        assert (await relay.acks(2))[-1] == 2
    assert logged(tmp_path) == ["r-1", "r-2"]


class FailingMetrics(RecordingMetrics):
    """Request metrics that fail for one request."""

    def record(self, record: Record, *, traced: bool = False) -> None:
        if isinstance(record, Finished) and record.request_id == "r-2":
            raise IndexError("a fault")
        super().record(record, traced=traced)


def test_a_record_that_cannot_be_counted_is_an_error_and_the_others_are_counted_logged_and_acknowledged(
    history: EventLog, log: RecordingLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = RecordReceiver(FailingMetrics(history), log, lambda: "revision-1")
    assert receiver.receive("run", batch(1, 3)) == 3
    assert receiver.receive("run", batch(4)) == 4
    assert [event for event in history.events if "counted" in event] == ["counted r-1", "counted r-3", "counted r-4"]
    assert logged(tmp_path) == ["r-1", "r-2", "r-3", "r-4"]
    assert receiver.task_errors.count == 1
    (message,) = caplog.messages
    assert message.startswith("counting a record failed and continues: IndexError at ")


@pytest.mark.parametrize("time", [1e13, 1e17], ids=["year 318857", "beyond the clock of the system"])
@pytest.mark.parametrize("bad", [1, 2, 3])
def test_a_line_that_cannot_be_encoded_is_dropped_and_the_others_of_its_batch_are_written(
    history: EventLog, log: RecordingLog, tmp_path: Path, bad: int, time: float
) -> None:
    receiver = receiver_of(history, log)
    records = batch(1, 3)
    broken = records.records[bad - 1]
    assert isinstance(broken, Finished)
    broken.time = time
    assert receiver.receive("run", records) == 3
    assert receiver.receive("run", batch(4)) == 4
    assert logged(tmp_path) == [f"r-{n}" for n in range(1, 5) if n != bad]
    assert [event for event in history.events if "counted" in event] == [f"counted r-{n}" for n in range(1, 5)]
    assert (receiver.ledger.dropped_lines()["write_failed"], receiver.log_errors, receiver.task_errors.count) == (
        1,
        0,
        1,
    )


def test_a_fault_in_a_fingerprint_an_engine_span_or_a_span_loses_no_record(
    history: EventLog, log: RecordingLog, tmp_path: Path
) -> None:
    def fail(*_: object) -> Any:
        raise LookupError("a fault")

    class FailingTimes:
        add_request = record_decision = check_timeouts = release_requests = staticmethod(fail)

    receiver = RecordReceiver(
        RecordingMetrics(history),
        log,
        lambda: None,
        fail,
        cast("Any", FailingTimes()),
        on_response=fail,
    )
    assert receiver.receive("run", Batch(1, [finished(request_id="r-1", system_fingerprint="a")])) == 1
    assert history.events == ["logged r-1", "counted r-1"]
    assert receiver.task_errors.count == 4


def test_after_a_batch_that_could_not_be_received_requests_with_a_span_are_counted_at_once(history: EventLog) -> None:
    ready: list[Callable[[], None]] = []

    class Times:
        def add_request(self, _record: Finished, _now: float, on_ready: Callable[[], None]) -> None:
            ready.append(on_ready)

        def record_decision(self, _record: Finished, *, kept: bool) -> None:
            pass

    def revision() -> str:
        if ready:
            raise LookupError("a fault")
        return "revision-1"

    receiver = RecordReceiver(RecordingMetrics(history), None, revision, engine_times=cast("Any", Times()))
    assert receiver.receive("run", batch(1, 2)) == 0
    with pytest.raises(LookupError):
        receiver.receive("run", batch(3))
    ready[1]()  # the span of the first request is still missing
    assert history.events == ["counted r-2"]


def bad_batch(first: int) -> bytes:
    """Three records, of which the second cannot be decoded."""
    records = [msgspec.to_builtins(record) for record in batch(first, 3).records]
    records[1][1] = "not a time"
    payload = msgspec.msgpack.encode(["batch", first, records, []])
    return len(payload).to_bytes(4, "big") + payload


async def test_a_record_that_cannot_be_decoded_is_an_error_and_the_others_of_its_batch_are_counted(
    history: EventLog, log: RecordingLog, tmp_path: Path
) -> None:
    receiver = receiver_of(history, log)
    async with serving(receiver, tmp_path / "s") as connect:
        relay = await connect()
        relay.send(Hello("relay-0", "a"))
        relay.writer.write(bad_batch(1))
        relay.send(batch(4))
        assert await relay.acks(2) == [3, 4]
    assert [event for event in history.events if "counted r" in event] == ["counted r-1", "counted r-3", "counted r-4"]
    assert logged(tmp_path) == ["r-1", "r-3", "r-4"]
    assert receiver.task_errors.count == 1


async def test_a_message_that_cannot_be_decoded_is_an_error_and_the_connection_remains(
    history: EventLog, tmp_path: Path
) -> None:
    receiver = receiver_of(history, None)
    async with serving(receiver, tmp_path / "s") as connect:
        relay = await connect()
        relay.send(Hello("relay-0", "a"))
        for payload in (b"\xc1", msgspec.msgpack.encode(["snapshot", "not a list"])):
            relay.writer.write(len(payload).to_bytes(4, "big") + payload)
        relay.send(batch(1))
        assert await relay.acks(1) == [1]
    assert receiver.task_errors.count == 2
