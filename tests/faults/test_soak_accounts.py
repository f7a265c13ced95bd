"""The accounts of the soak test."""

import json
import os
from pathlib import Path

import pytest

from tests.faults.soak_accounts import Accounts, Balance, LogFollower, identity_errors


def line(request_id: str) -> str:
    return json.dumps({"request_id": request_id, "outcome": "ok", "record": "relay-0-a:1"}) + "\n"


def samples(**values: int) -> dict[str, float]:
    """The series of an exporter, by short names."""
    names = {
        "dropped_lines": "llm_sidecar_dropped_log_lines_total{no_space}",
        "dropped_records": "llm_sidecar_dropped_records_total{relay-0}",
        "lost": "llm_sidecar_lost_requests_total{relay-0}",
        "rejected": "llm_sidecar_rejected_connections_total{relay-0}",
        "counted": "llm_requests_total{all,chat_completions,tiny,ok,false,other}",
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
        pytest.param({}, False, id="ten requests are missing"),
        pytest.param({"dropped_lines": 5, "dropped_records": 3, "lost": 2}, True, id="each is counted once"),
        pytest.param({"dropped_lines": 5, "dropped_records": 3, "lost": 3}, False, id="one is counted twice"),
        pytest.param({"lost": 10, "rejected": 1}, False, id="a rejected connection that no client saw"),
    ],
)
def test_requests_that_have_ended_are_logged_or_counted(log: Path, values: dict[str, int], balanced: bool) -> None:
    assert Accounts(LogFollower(log)).balance(samples(**values), ended=10, turned_away=0).even is balanced


def test_counters_add_up_over_killed_processes(log: Path) -> None:
    accounts = Accounts(LogFollower(log))
    before = samples(dropped_lines=1, lost=2, dropped_records=4, rejected=8)
    accounts.close_exporter(before)
    # Its relay reports to the next exporter what it has dropped and rejected.
    after_exporter = samples(dropped_lines=16, lost=0, dropped_records=4, rejected=8)
    accounts.close_relay(after_exporter, "relay-0")
    balance = accounts.balance(samples(dropped_lines=16, lost=32, dropped_records=64, rejected=128), 0, 0)
    assert balance == Balance(0, 0, 1 + 16, 4 + 64, 2 + 32, 0, 8 + 128)


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
    assert accounts.count_errors(samples(counted=10), Balance(10, 10, 0, 0, 0, 0, 0), 1) == []
    balance = Balance(ended=20, lines=13, dropped_lines=1, dropped_records=4, lost=2, turned_away=0, rejected=0)
    assert accounts.count_errors(samples(counted=counted), balance, exporter) == errors


def test_the_log_has_each_offered_request_at_most_once_and_the_missing_ones_are_counted() -> None:
    offered = {name: {"ok"} for name in "abcd"}
    lines = [("a", "ok"), ("b", "ok"), ("b", "ok"), ("x", "ok"), ("c", "truncated")]
    balance = Balance(4, 3, 0, 0, 1, 0, 0)
    assert identity_errors(offered, lines, balance) == ["b: 2 lines", "x: never offered", "c: truncated, not ok"]
    assert identity_errors(offered, [("a", "ok")], balance) == [
        "3 requests have no line, but 1 are counted: b, c, d",
    ]
