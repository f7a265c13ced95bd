"""Batches from the relays: into the log first, then into the series, then acknowledged."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from exporters.records import Ack, Batch, Finished, Frames, Hello, Judged, Snapshot, frame
from exporters.requestlog.writer import RequestLog
from exporters.sidecar.ingest import record_receiver as inbox_module
from exporters.sidecar.ingest.record_receiver import RecordReceiver, RelayConnection
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.signals import Verdict
from tests.support.sample_records import SLOS, finished
from tests.support.waiting import HANG, until


@dataclass
class Story:
    """What happened, in order."""

    events: list[str] = field(default_factory=list)
    full: bool = False


class ToldSeries(RequestMetrics):
    """Series that write down when they count."""

    def __init__(self, story: Story) -> None:
        super().__init__(SLOS)
        self.story = story

    def record(self, record: Finished | Judged, *, traced: bool = False) -> None:
        self.story.events.append(f"counted {record.request_id if isinstance(record, Finished) else 'judged'}")
        super().record(record, traced=traced)


class ToldLog(RequestLog):
    """A log that writes down when it writes, and whose disk can be full."""

    def __init__(self, path: Path, story: Story) -> None:
        super().__init__(path)
        self.story = story

    def write(self, life: str, numbered: list[tuple[int, Finished]], revision: str | None) -> None:
        if self.story.full:
            raise OSError(28, "No space left on device")
        super().write(life, numbered, revision)
        self.story.events.append("logged " + " ".join(record.request_id for _, record in numbered))


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def log(tmp_path: Path, story: Story) -> Iterator[ToldLog]:
    log = ToldLog(tmp_path / "log", story)
    yield log
    log.close()


def inbox_of(story: Story, log: RequestLog | None) -> RecordReceiver:
    return RecordReceiver(ToldSeries(story), log, lambda: "revision-1")


def batch(first: int, count: int = 1) -> Batch:
    return Batch(first, [finished(request_id=f"r-{number}") for number in range(first, first + count)])


def logged(tmp_path: Path) -> list[str]:
    return [json.loads(text)["request_id"] for text in (tmp_path / "log").read_text().splitlines()]


def test_a_batch_is_logged_then_counted_then_acknowledged(story: Story, log: ToldLog) -> None:
    assert inbox_of(story, log).take("life", batch(1, 2)) == 2
    assert story.events == ["logged r-1 r-2", "counted r-1", "counted r-2"]


def test_early_verdicts_are_counted_and_acknowledged_but_not_logged(story: Story, log: ToldLog, tmp_path: Path) -> None:
    judged = Judged("tiny", "short", "team-a", {"ttft": Verdict.BAD}, goodput_lost=True)
    assert inbox_of(story, log).take("life", Batch(1, [judged, finished(request_id="r-2")])) == 2
    assert story.events == ["logged r-2", "counted judged", "counted r-2"]
    assert logged(tmp_path) == ["r-2"]


def test_numbers_that_were_taken_are_ignored_and_acknowledged_again(story: Story, log: ToldLog, tmp_path: Path) -> None:
    inbox = inbox_of(story, log)
    inbox.take("life", batch(1, 2))
    story.events.clear()
    assert inbox.take("life", batch(1, 3)) == 3
    assert story.events == ["logged r-3", "counted r-3"]
    assert inbox.take("life", batch(1, 2)) == 2
    assert logged(tmp_path) == ["r-1", "r-2", "r-3"]


def test_another_life_of_the_relay_begins_its_numbers_anew(story: Story, log: ToldLog) -> None:
    inbox = inbox_of(story, log)
    inbox.take("life", batch(1))
    inbox.take("next life", batch(1))
    assert story.events == ["logged r-1", "counted r-1"] * 2


def test_a_restarted_exporter_counts_from_zero_and_logs_nothing_twice(
    story: Story, log: ToldLog, tmp_path: Path
) -> None:
    inbox_of(story, log).take("life", batch(1, 2))
    story.events.clear()
    reopened = RequestLog(tmp_path / "log")
    assert inbox_of(story, reopened).take("life", batch(1, 3)) == 3
    assert story.events == ["counted r-1", "counted r-2", "counted r-3"]
    assert logged(tmp_path) == ["r-1", "r-2", "r-3"]
    reopened.close()


def test_a_log_that_cannot_be_written_gives_no_acknowledgement_and_counts_nothing(
    story: Story, log: ToldLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inbox = inbox_of(story, log)
    story.full = True
    assert inbox.take("life", batch(1)) is None
    assert (inbox.log_errors, story.events) == (1, [])
    assert capsys.readouterr().err == "exporter: request log: [Errno 28] No space left on device\n"
    story.full = False
    assert inbox.take("life", batch(1, 2)) == 2
    assert logged(tmp_path) == ["r-1", "r-2"]


def test_without_a_log_a_batch_is_counted_and_acknowledged(story: Story) -> None:
    assert inbox_of(story, None).take("life", batch(1)) == 1
    assert story.events == ["counted r-1"]


def test_a_relay_that_comes_back_with_another_life_is_a_restart(story: Story) -> None:
    inbox = inbox_of(story, None)
    inbox.hello(Hello("relay-0", "a"))
    inbox.gone("relay-0")
    inbox.hello(Hello("relay-0", "a"))
    inbox.hello(Hello("relay-1", "b"))
    assert inbox.restarts == {}
    inbox.hello(Hello("relay-0", "c"))
    assert inbox.restarts == {"relay-0": 1}


@dataclass
class Relay:
    """A relay's end of the socket."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    frames: Frames = field(default_factory=Frames)

    def send(self, *messages: Hello | Batch | Snapshot) -> None:
        self.writer.write(b"".join(frame(message) for message in messages))

    async def acks(self, count: int) -> list[int]:
        found: list[int] = []
        async with asyncio.timeout(HANG):
            while len(found) < count:
                data = await self.reader.read(65536)
                assert data, "the exporter hung up"
                found += [msgspec.msgpack.decode(payload, type=Ack).last for payload in self.frames.feed(data)]
        return found

    async def hung_up_on(self) -> bytes:
        async with asyncio.timeout(HANG):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read()
        return b""


@contextlib.asynccontextmanager
async def serving(inbox: RecordReceiver, path: Path) -> AsyncIterator[Callable[[], "asyncio.Future[Relay]"]]:
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: RelayConnection(inbox), path)
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
        await asyncio.sleep(0.01)  # the transports close in the loop's next turns


async def test_over_the_socket_each_batch_is_acknowledged_by_its_last_number(story: Story, tmp_path: Path) -> None:
    inbox = inbox_of(story, None)
    async with serving(inbox, tmp_path / "s") as connect:
        relay = await connect()
        relay.send(Hello("relay-0", "a"), batch(1, 3), batch(4))
        assert await relay.acks(2) == [3, 4]
        assert inbox.connected == {"relay-0"}


async def test_a_relay_that_has_gone_leaves_no_open_requests_behind(story: Story, tmp_path: Path) -> None:
    series = ToldSeries(story)
    inbox = RecordReceiver(series, None, lambda: None)
    async with serving(inbox, tmp_path / "s") as connect:
        relay = await connect()
        relay.send(Hello("relay-0", "a"), Snapshot([], 0.0, 5, 0, draining=False))
        await until(lambda: "relay-0" in series.snapshots())
        relay.writer.close()
        await until(lambda: series.snapshots() == {})
        assert inbox.connected == set()


async def test_a_connection_that_does_not_say_who_it_is_is_closed(story: Story, tmp_path: Path) -> None:
    async with serving(inbox_of(story, None), tmp_path / "s") as connect:
        relay = await connect()
        relay.send(batch(1))
        assert await relay.hung_up_on() == b""
        assert story.events == []


async def test_what_follows_a_batch_that_the_log_refused_waits_for_it(
    story: Story, log: ToldLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An acknowledgement of the second batch would make the relay forget the first."""
    monkeypatch.setattr(inbox_module, "RETRY_SECONDS", 0.05)
    inbox = inbox_of(story, log)
    async with serving(inbox, tmp_path / "s") as connect:
        relay = await connect()
        story.full = True
        relay.send(Hello("relay-0", "a"), batch(1))
        await until(lambda: inbox.log_errors == 1)
        story.full = False
        relay.send(batch(2))
        assert await relay.hung_up_on() == b""
        relay = await connect()
        relay.send(Hello("relay-0", "a"), batch(1), batch(2))
        assert await relay.acks(2) == [1, 2]
    assert logged(tmp_path) == ["r-1", "r-2"]
