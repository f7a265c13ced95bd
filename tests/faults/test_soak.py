"""What the soak test compares: its accounts, and the growth of memory and descriptors."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.soak import DESCRIPTORS, MEGABYTES, REQUESTS, THREADS, growth
from tests.faults.soak_accounts import Accounts, Balance, LogFollower, identity_errors

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


@pytest.mark.parametrize(
    "unit,values,grown",
    [
        pytest.param(MEGABYTES, [10, 20, 20, 20], [], id="growth during warm-up"),
        pytest.param(MEGABYTES, [20, 20, 24, 26], [], id="within the tolerance"),
        pytest.param(MEGABYTES, [20, 20, 24, 28], ["20.0 to 28.0 MB"], id="a memory leak"),
        pytest.param(DESCRIPTORS, [400, 400, 410, 420], ["400.0 to 420.0 descriptors"], id="a descriptor leak"),
        pytest.param(THREADS, [2, 2, 2, 4], ["2.0 to 4.0 threads"], id="threads that do not end"),
        pytest.param(REQUESTS, [0, 200, 210, 240], ["200.0 to 240.0 requests"], id="a growing gauge"),
        pytest.param(REQUESTS, [200, 200, 100, 50], [], id="shrinking"),
    ],
)
def test_growth_is_from_the_second_quarter_to_the_last_beyond_a_tolerance(
    unit: str, values: list[float], grown: list[str]
) -> None:
    samples = [{("relay", unit): float(value)} for value in values for _ in range(5)]
    assert growth(samples) == [f"relay has grown from {change}" for change in grown]
