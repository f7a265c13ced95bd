"""The accounts of the soak test."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from exporters.records.journal import RelayJournal
from exporters.requestlog.writer import encode_line
from exporters.sidecar.ingest.ledger import RequestLedger
from exporters.vocabulary.signals import Endpoint
from tests.faults.soak_accounts import Accounts, Balance, LogFollower, identity_errors
from tests.support.sample_records import finished

BALANCE = Balance(
    begun=10,
    open=0,
    lines=10,
    dropped_lines=0,
    dropped_records=0,
    lost=0,
    ended=10,
    unread=0,
    turned_away=0,
    rejected=0,
)


def line(request_id: str) -> str:
    return json.dumps({"request_id": request_id, "outcome": "ok", "record": "relay-0-a:1"}) + "\n"


def samples(**values: int) -> dict[str, float]:
    """The series of an exporter, by short names."""
    names = {
        "begun": "llm_sidecar_begun_requests_total{chat_completions}",
        "dropped_lines": "llm_sidecar_dropped_log_lines_total{no_space,chat_completions}",
        "dropped_records": "llm_sidecar_dropped_records_total{chat_completions}",
        "lost": "llm_sidecar_lost_requests_total{relay_crashed,chat_completions}",
        "rejected": "llm_sidecar_rejected_connections_total{relay-0}",
        "counted": "llm_requests_total{all,tiny,ok,chat_completions,false,other}",
    }
    return {names[name]: float(value) for name, value in values.items()}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "requests.jsonl"


def test_the_follower_reads_each_line_once_over_renamed_files_and_lines_that_are_being_written(log: Path) -> None:
    follower = LogFollower(log)
    log.write_text(line("a") + line("b")[:20])
    follower.read()
    with log.open("a") as file:
        file.write(line("b")[20:] + line("c"))
    log.rename(log.with_name("requests.jsonl.1"))
    log.write_text(line("d"))
    follower.read()
    log.unlink()
    os.mkfifo(log)
    follower.read()
    assert sorted(follower.lines) == [(name, "ok") for name in "abcd"]


@pytest.mark.parametrize(
    "values, balanced",
    [
        pytest.param({}, False, id="ten requests have no line and no count"),
        pytest.param({"dropped_lines": 5, "dropped_records": 3, "lost": 2}, True, id="each is counted once"),
        pytest.param({"dropped_lines": 5, "dropped_records": 3, "lost": 3}, False, id="one is counted twice"),
        pytest.param({"lost": 10, "begun": 11}, False, id="a begun request that no client has sent"),
        pytest.param({"lost": 10, "rejected": 1}, False, id="a rejected connection that no client saw"),
    ],
)
def test_begun_requests_that_are_not_open_are_logged_or_counted(
    log: Path, values: dict[str, int], balanced: bool
) -> None:
    counters = samples(**{"begun": 12} | values)
    assert Accounts(LogFollower(log)).balance(counters, 2, ended=10, turned_away=0).even is balanced


def test_the_accounts_go_on_over_a_killed_sidecar(log: Path) -> None:
    """It had begun four requests: one has a line, one was dropped by the relay, and two are left to the next run."""
    log.write_bytes(encode_line(finished(), "relay-0-a:1", None))
    accounts, journals = Accounts(LogFollower(log)), log.with_name(f"{log.name}.journal")
    relay = RelayJournal(journals / "1", "relay-0-a")
    for _ in range(4):
        relay.begun(Endpoint.CHAT_COMPLETIONS)
        relay.write_begun()
    relay.dropped(Endpoint.CHAT_COMPLETIONS)
    ledger = RequestLedger(journals / "1")
    ledger.expect_lines("relay-0-a", 1, [finished()])
    ledger.release()
    relay.close()
    accounts.close_relay(samples(rejected=8), "relay-0")
    accounts.close_sidecar({})
    balance = accounts.balance(samples(begun=3, lost=2, rejected=128), 1, ended=4, turned_away=136)
    assert balance.even
    assert (balance.begun, balance.missing, balance.rejected) == (2 + 3, 1 + 2, 136)


def test_the_accounts_go_on_over_a_sidecar_that_has_left_nothing(log: Path) -> None:
    log.write_text(line("a"))
    accounts = Accounts(LogFollower(log))
    accounts.close_sidecar(samples(begun=9, dropped_lines=2))
    assert accounts.balance(samples(begun=1), 1, ended=3, turned_away=0).even
    assert accounts.reasons(samples(dropped_lines=1, lost=4)) == {"no_space": 3, "relay_crashed": 4}


@pytest.mark.parametrize(
    "exporter, counted, errors",
    [
        pytest.param(1, 14, [], id="exact within a run of the exporter"),
        pytest.param(1, 13, ["llm_requests_total increased by 3 for 4 requests"], id="one was not counted"),
        pytest.param(2, 3, [], id="a new exporter has counted some of them"),
        pytest.param(2, 5, ["llm_requests_total of a new exporter is 5 for 4 requests"], id="one was counted twice"),
    ],
)
def test_the_series_of_requests_counts_those_with_a_record(
    log: Path, exporter: int, counted: int, errors: list[str]
) -> None:
    accounts = Accounts(LogFollower(log))
    assert accounts.count_errors(samples(counted=10), BALANCE, 1) == []
    balance = replace(BALANCE, begun=20, lines=13, dropped_lines=1, dropped_records=4, lost=2)
    assert accounts.count_errors(samples(counted=counted), balance, exporter) == errors


def test_the_log_has_each_offered_request_at_most_once_and_the_missing_ones_are_counted() -> None:
    offered = {name: {"ok"} for name in "abcd"}
    lines = [("a", "ok"), ("b", "ok"), ("b", "ok"), ("x", "ok"), ("c", "truncated")]
    balance = replace(BALANCE, begun=4, lines=3, lost=1)
    assert identity_errors(offered, lines, balance) == ["b: 2 lines", "x: never offered", "c: truncated, not ok"]
    assert identity_errors(offered, [("a", "ok")], balance) == [
        "3 requests have no line, but 1 are counted: b, c, d",
    ]
