"""The accounts of requests balance, whichever process is killed, at any moment of a batch."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporters.processes.child import TaskErrors
from exporters.records.journal import ENDPOINTS, JournalFile, Recorded, RelayJournal, no_counts
from exporters.records.messages import Finished, Judged, Record
from exporters.requestlog.writer import DROP_REASONS
from exporters.sidecar.ingest.ledger import RELAY_CRASHED, SIDECAR_STOPPED, RequestLedger, Totals
from exporters.vocabulary.signals import Endpoint
from tests.support.sample_records import finished

CHAT, RESPONSES = Endpoint.CHAT_COMPLETIONS, Endpoint.RESPONSES
VERDICT = Judged("tiny", "short", "team-a", {}, goodput_lost=False)


def by_endpoint(counts: list[int]) -> Counter[Endpoint]:
    return +Counter[Endpoint](dict(zip(ENDPOINTS, counts, strict=True)))


def all_reasons(counts: dict[str, list[int]]) -> Counter[Endpoint]:
    return sum(map(by_endpoint, counts.values()), Counter())


class Relay:
    """A run of a relay, its open requests and its unacknowledged records."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.run_id = run_id
        self.journal: RelayJournal | None = RelayJournal(folder, run_id)
        self.open: list[Endpoint] = []
        self.records: list[tuple[int, Record]] = []
        self.last = self.sent = 0

    def close(self) -> None:
        """Release the lock of its journal, as the end of its process does."""
        if self.journal is not None:
            self.journal.close()
            self.journal = None

    def begin(self, endpoint: Endpoint) -> None:
        assert self.journal is not None
        self.journal.begun(endpoint)
        self.journal.write_begun()
        self.open.append(endpoint)

    def drop(self, endpoint: Endpoint) -> None:
        assert self.journal is not None
        self.journal.dropped(endpoint)

    def add(self, record: Record) -> None:
        self.last += 1
        self.records.append((self.last, record))


class World:
    """A sidecar whose processes are killed; it knows what has become of each request."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.starts = self.runs = 0
        self.log: list[tuple[str, int, Endpoint]] = []
        self.begun: Counter[Endpoint] = Counter()
        self.dropped: Counter[Endpoint] = Counter()
        self.lost: Counter[Endpoint] = Counter()
        """Lost requests of earlier runs of the sidecar."""
        self.relays: list[Relay] = []
        self.start()

    @property
    def journals(self) -> Path:
        return self.folder / f"start-{self.starts}"

    def start(self) -> None:
        self.starts += 1
        self.relays = [self.new_relay(), self.new_relay()]
        self.start_exporter()

    def new_relay(self) -> Relay:
        self.runs += 1
        return Relay(self.journals, f"relay-{self.runs}")

    def start_exporter(self) -> None:
        self.ledger = RequestLedger(self.journals, self.last_line)

    def last_line(self, run_id: str) -> int:
        return max((number for run, number, _ in self.log if run == run_id), default=0)

    def begin(self, relay: int, endpoints: Iterable[Endpoint]) -> None:
        for endpoint in endpoints:
            self.relays[relay].begin(endpoint)
            self.begun[endpoint] += 1

    def serve(self, relay: int, endpoints: Iterable[Endpoint]) -> None:
        self.begin(relay, endpoints)
        self.end(relay)

    def end(self, relay: int) -> None:
        for endpoint in self.relays[relay].open:
            self.relays[relay].add(VERDICT)
            self.relays[relay].add(finished(api=endpoint))
        self.relays[relay].open.clear()

    def drop_record(self, relay: int) -> None:
        """The relay drops its oldest record that it has not sent."""
        ours = self.relays[relay]
        unsent = [(number, record) for number, record in ours.records if number > ours.sent]
        if unsent:
            ours.records.remove(unsent[0])
            _, record = unsent[0]
            if isinstance(record, Finished):
                ours.drop(record.api)
                self.dropped[record.api] += 1

    def deliver(self, relay: int, *, dies: str = "", lines: int = 1000, dropped: str = "") -> None:
        """The exporter stores the records of a relay, and dies before, while or after it writes its lines."""
        ours, ledger = self.relays[relay], self.ledger
        new = list(ours.records)
        if not new:
            return
        ours.sent = new[-1][0]
        new = [(number, record) for n, (number, record) in enumerate(new, new[0][0]) if n == number]
        if not dropped:
            ledger.expect_lines(ours.run_id, new[0][0], [record for _, record in new])
        written = self.last_line(ours.run_id)
        for number, record in new[: 0 if dropped or dies == "before" else lines if dies == "while" else len(new)]:
            if isinstance(record, Finished) and number > written:
                self.log.append((ours.run_id, number, record.api))
        if dies in {"before", "while"}:
            self.kill_exporter()
            return
        for number, record in new:
            known = number <= max(written, ledger._account(ours.run_id).state.last)
            ledger.settle(ours.run_id, [(number, record, dropped or None)])
            if dropped and isinstance(record, Finished) and not known:
                self.dropped[record.api] += 1
        ledger.save()
        if dies:
            self.kill_exporter()
        else:
            del ours.records[: len(new)]

    def kill_relay(self, relay: int) -> None:
        self.relays[relay].close()
        self.relays[relay] = self.new_relay()

    def kill_exporter(self) -> None:
        self.ledger.release()
        self.start_exporter()

    def kill_all(self) -> None:
        """Kill all processes; the sidecar is started again."""
        self.lost += all_reasons(self.ledger.counts().lost)
        self.ledger.release()
        self.close_relays()
        self.start()

    def close_relays(self) -> None:
        for relay in self.relays:
            relay.close()

    def check(self) -> None:
        self.ledger.check(lambda run_id: run_id in {relay.run_id for relay in self.relays})

    def settle(self) -> Totals:
        """The counts after all processes were killed and started again."""
        self.kill_all()
        for _ in range(3):
            self.check()
        self.ledger.scraped()
        return self.ledger.counts()


RELAYS = st.integers(0, 1)
MANY = st.lists(st.sampled_from([CHAT, RESPONSES, Endpoint.OTHER]), min_size=1, max_size=4)
DEATHS = st.builds(
    lambda dies, lines: {"dies": dies, "lines": lines},
    st.sampled_from(["before", "while", "while", "after"]),
    st.integers(0, 8),
)
OPTIONS = st.one_of(st.just({}), DEATHS, st.sampled_from([{"dropped": reason} for reason in DROP_REASONS]))
STEPS = st.one_of(
    st.tuples(st.sampled_from(["serve", "begin"]), RELAYS, MANY),
    st.tuples(st.just("deliver"), RELAYS, OPTIONS),
    st.tuples(st.sampled_from(["end", "drop_record", "kill_relay"]), RELAYS),
    st.tuples(st.sampled_from(["kill_exporter", "kill_all", "check"])),
)


@pytest.mark.slow
@settings(max_examples=300)
@example(steps=[("serve", 0, [CHAT]), ("deliver", 0, {"dies": "while"}), ("begin", 0, [CHAT]), ("deliver", 0, {})])
@example(steps=[("serve", 0, [CHAT]), ("deliver", 0, {"dies": "before", "lines": 0}), ("kill_all",), ("kill_all",)])
@given(steps=st.lists(STEPS, max_size=12))
def test_each_request_is_recorded_dropped_or_lost_whatever_is_killed(steps: list[tuple[Any, ...]]) -> None:
    check_accounts(steps)


@pytest.mark.long
@settings(max_examples=1000)
@given(steps=st.lists(STEPS, max_size=12))
def test_in_many_histories_each_request_is_recorded_dropped_or_lost(steps: list[tuple[Any, ...]]) -> None:
    check_accounts(steps)


def check_accounts(steps: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as folder:
        world = World(Path(folder))
        for name, *words in steps:
            options = words.pop() if words and isinstance(words[-1], dict) else {}
            getattr(world, name)(*words, **options)
        totals = world.settle()
        lines = Counter(endpoint for _, _, endpoint in world.log)
        lost = world.lost + all_reasons(totals.lost)
        assert world.begun == lines + world.dropped + lost
        assert by_endpoint(totals.begun) == all_reasons(totals.lost)  # nothing else has happened in the last run
        world.ledger.release()
        world.close_relays()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.ledger.release()
    world.close_relays()


def test_the_counts_of_a_live_relay_are_begun_recorded_and_dropped_by_endpoint(world: World) -> None:
    world.serve(0, [CHAT, CHAT, RESPONSES])
    world.begin(0, [CHAT])
    world.deliver(0)
    totals = world.ledger.counts()
    assert by_endpoint(totals.begun) == {CHAT: 3, RESPONSES: 1}
    assert by_endpoint(totals.recorded) == {CHAT: 2, RESPONSES: 1}
    assert all_reasons(totals.lost) == all_reasons(totals.dropped_lines) == {}


def test_a_response_in_the_background_belongs_to_the_endpoint_that_its_request_began_with(world: World) -> None:
    world.begin(0, [RESPONSES])
    world.relays[0].add(finished(api=Endpoint.RESPONSES_BACKGROUND))
    world.deliver(0)
    totals = world.ledger.counts()
    assert by_endpoint(totals.begun) == by_endpoint(totals.recorded) == {RESPONSES: 1}


def test_the_requests_of_a_dead_relay_are_lost_at_the_second_check_and_its_journal_is_deleted(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.begin(0, [CHAT])
    world.kill_relay(0)
    world.check()
    assert all_reasons(world.ledger.counts().lost) == {}
    world.check()
    assert by_endpoint(world.ledger.counts().lost[RELAY_CRASHED]) == {CHAT: 1}
    assert caplog.messages == ["relay-1: 1 requests are lost, because their relay has crashed"]
    assert not (world.journals / "relay-1").exists()
    world.kill_exporter()
    world.check()
    assert by_endpoint(world.ledger.counts().lost[RELAY_CRASHED]) == {CHAT: 1}


def test_an_exporter_killed_before_it_deletes_the_journal_of_a_dead_relay_counts_its_requests_once(
    world: World,
) -> None:
    world.begin(0, [CHAT])
    world.kill_relay(0)
    journal = world.journals / "relay-1"
    undeleted = journal.read_bytes()
    world.check()
    world.check()
    world.kill_exporter()
    journal.write_bytes(undeleted)
    world.check()
    world.check()
    assert by_endpoint(world.ledger.counts().lost[RELAY_CRASHED]) == {CHAT: 1}


def test_a_run_in_use_is_not_over(world: World) -> None:
    world.begin(0, [CHAT])
    world.relays[0].close()
    for _ in range(3):
        world.check()
    assert all_reasons(world.ledger.counts().lost) == {}


def test_what_the_last_run_has_left_is_counted_after_a_scrape_that_shows_the_counters_without_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.begin(0, [CHAT])
    world.kill_all()
    world.check()
    assert caplog.messages == ["1 requests of the last run of the sidecar are lost"]
    assert all_reasons(world.ledger.counts().lost) == {}
    world.ledger.scraped()
    world.check()
    totals = world.ledger.counts()
    assert by_endpoint(totals.lost[SIDECAR_STOPPED]) == by_endpoint(totals.begun) == {CHAT: 1}
    assert [path.name for path in world.folder.iterdir()] == ["start-2"]


def test_an_exporter_killed_before_the_scrape_leaves_what_the_last_run_has_left_to_the_next(world: World) -> None:
    world.begin(0, [CHAT])
    world.kill_all()
    world.check()
    world.kill_exporter()
    world.check()
    world.ledger.scraped()
    assert by_endpoint(world.ledger.counts().lost[SIDECAR_STOPPED]) == {CHAT: 1}


def test_the_last_run_is_left_alone_while_one_of_its_processes_is_alive(world: World) -> None:
    world.begin(0, [CHAT])
    alive, *_ = world.relays
    world.ledger.release()
    world.starts += 1
    world.start_exporter()
    world.ledger.scraped()
    world.check()
    assert all_reasons(world.ledger.counts().lost) == {}
    alive.close()
    world.relays[1].close()
    world.check()
    assert all_reasons(world.ledger.counts().lost) == {CHAT: 1}


def test_a_stop_with_all_requests_recorded_leaves_no_file(world: World) -> None:
    world.begin(0, [CHAT])
    world.end(0)
    world.deliver(0)
    world.close_relays()
    world.ledger.close()
    assert not world.folder.exists()


def test_a_stop_that_leaves_requests_names_their_number(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.begin(0, [CHAT])
    world.begin(1, [RESPONSES])
    world.ledger.close()
    assert caplog.messages == [
        "2 requests are neither logged nor counted; the next start counts them as lost",
    ]
    assert world.journals.exists()


def test_records_that_a_relay_has_dropped_are_counted_by_endpoint(world: World) -> None:
    world.serve(0, [CHAT])
    world.drop_record(0)
    world.drop_record(0)
    totals = world.ledger.counts()
    assert by_endpoint(totals.dropped_records) == by_endpoint(totals.begun) == {CHAT: 1}


def test_without_a_journal_requests_are_begun_when_they_are_recorded(tmp_path: Path) -> None:
    ledger = RequestLedger()
    ledger.settle("run", [(1, finished(api=CHAT), None)])
    ledger.settle("run", [(1, finished(api=CHAT), None)])
    ledger.check(lambda _run: False)
    assert by_endpoint(ledger.counts().begun) == by_endpoint(ledger.counts().recorded) == {CHAT: 1}


def test_the_journal_of_a_release_with_other_endpoints_is_counted_as_other(world: World) -> None:
    world.begin(0, [CHAT])
    world.serve(1, [RESPONSES])
    world.drop_record(1)
    world.drop_record(1)
    for name in ("relay-1", "relay-2"):
        with (world.journals / name).open("rb+") as journal:
            journal.write(b"\x91\xa3new")
    world.kill_all()
    world.check()
    world.ledger.scraped()
    assert all_reasons(world.ledger.counts().lost) == {Endpoint.OTHER: 1}


def test_a_journal_that_is_truncated_by_another_program_stops_no_process(world: World) -> None:
    world.begin(0, [CHAT])
    world.ledger.counts()
    os.truncate(world.journals / "relay-1", 0)
    world.begin(0, [CHAT])
    world.end(0)
    world.deliver(0)
    assert by_endpoint(world.ledger.counts().begun) == {CHAT: 2}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[JournalFile]:
    """The journal of a run whose relay has died."""
    RelayJournal(tmp_path / "journals" / "start-1", "run").close()
    file = JournalFile(tmp_path / "journals" / "start-1" / "run")
    yield file
    file.close()


def recorded_after_a_crash(journal: JournalFile, last_line: int) -> Counter[Endpoint]:
    ledger = RequestLedger(journal.path.parent, lambda _run_id: last_line)
    recorded = by_endpoint(ledger.counts().recorded)
    ledger.release()
    return recorded


def test_lines_of_a_batch_that_is_sent_again_are_counted_from_the_first_that_is_not_settled(
    journal: JournalFile,
) -> None:
    records = [finished(api=endpoint) for endpoint in (CHAT, RESPONSES, Endpoint.OTHER)]
    ledger = RequestLedger(journal.path.parent)
    ledger.settle("run", [(1, records[0], None)])
    ledger.expect_lines("run", 1, records)
    ledger.release()
    assert recorded_after_a_crash(journal, last_line=1) == {CHAT: 1}
    assert recorded_after_a_crash(journal, last_line=2) == {CHAT: 1, RESPONSES: 1}


def test_of_a_later_batch_only_the_lines_that_were_written_are_counted(journal: JournalFile) -> None:
    records = [finished(api=endpoint) for endpoint in (CHAT, CHAT, RESPONSES, Endpoint.OTHER, CHAT)]
    ledger = RequestLedger(journal.path.parent)
    for number in (1, 2):
        ledger.settle("run", [(number, records[number - 1], None)])
    ledger.expect_lines("run", 3, records[2:])
    ledger.release()
    assert recorded_after_a_crash(journal, last_line=4) == {CHAT: 2, RESPONSES: 1, Endpoint.OTHER: 1}


def test_lost_requests_and_dropped_lines_are_series_by_endpoint_and_reason(world: World) -> None:
    world.begin(0, [CHAT, CHAT])
    world.ledger.settle("relay-2", [(1, finished(api=RESPONSES), DROP_REASONS[0])])
    world.kill_relay(0)
    world.check()
    world.check()
    assert {
        (family.name, *sample.labels.values(), sample.value)
        for family in world.ledger.collect()
        for sample in family.samples
        if sample.value
    } == {
        ("llm_sidecar_begun_requests", CHAT, 2),
        ("llm_sidecar_begun_requests", RESPONSES, 1),
        ("llm_sidecar_dropped_log_lines", DROP_REASONS[0], RESPONSES, 1),
        ("llm_sidecar_lost_requests", RELAY_CRASHED, CHAT, 2),
    }


def test_without_a_folder_that_can_be_made_the_accounts_are_in_memory_and_the_error_is_counted(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    errors = TaskErrors()
    ledger = RequestLedger(tmp_path / "file" / "start-1", task_errors=errors)
    ledger.settle("run", [(1, finished(api=CHAT), None)])
    assert by_endpoint(ledger.counts().recorded) == {CHAT: 1}
    assert errors.count == 3


def test_lines_before_a_batch_are_settled(journal: JournalFile) -> None:
    ledger = RequestLedger(journal.path.parent)
    ledger.expect_lines("run", 5, [finished(api=CHAT)])
    ledger.release()
    again = RequestLedger(journal.path.parent, lambda _run_id: 5)
    again.settle("run", [(5, finished(api=CHAT), None)])
    assert by_endpoint(again.counts().recorded) == {CHAT: 1}
    again.release()


def test_a_line_of_an_endpoint_that_this_release_does_not_know_is_counted_as_other(journal: JournalFile) -> None:
    journal.write(Recorded(0, no_counts(), {}, next_lines=bytes([len(ENDPOINTS)])))
    assert recorded_after_a_crash(journal, last_line=1) == {Endpoint.OTHER: 1}


@pytest.mark.parametrize("name", ["a", "z"])
def test_what_an_earlier_run_has_left_is_found_whatever_the_names_of_the_runs(tmp_path: Path, name: str) -> None:
    relay = RelayJournal(tmp_path / "journals" / "m", "run")
    relay.begun(CHAT)
    relay.write_begun()
    relay.close()
    ledger = RequestLedger(tmp_path / "journals" / name)
    ledger.scraped()
    ledger.check(lambda _run_id: False)
    assert by_endpoint(ledger.counts().lost[SIDECAR_STOPPED]) == {CHAT: 1}
    ledger.release()


def test_only_the_user_of_the_sidecar_reads_and_writes_the_accounts(world: World) -> None:
    assert {path.name: path.stat().st_mode & 0o777 for path in world.journals.iterdir()} == {
        "relay-1": 0o600,
        "relay-2": 0o600,
        "totals": 0o600,
    }


def test_processes_of_another_release_find_each_count_of_a_journal_at_its_place(tmp_path: Path) -> None:
    relay = RelayJournal(tmp_path, "run")
    relay.begun(CHAT)
    relay.write_begun()
    relay.dropped(RESPONSES)
    relay.close()
    exporter = JournalFile(tmp_path / "run")
    exporter.write(Recorded(7, [], {}, b"\x05"))
    exporter.close()
    data = (tmp_path / "run").read_bytes()
    assert len(data) == 4096
    assert {n: byte for n, byte in enumerate(data[512:1536], 512) if byte} == {
        512 + 8 * ENDPOINTS.index(CHAT): 1,
        1024 + 8 * ENDPOINTS.index(RESPONSES): 1,
    }
    assert data[1536:].rstrip(b"\0") == b"\x07\0\0\0\0\0\0\0\x94\x07\x90\x80\xc4\x01\x05"
