"""`vllm-slo compare` on logs from known distributions, on the command line."""

import gzip
import re
from pathlib import Path
from typing import Any

import pytest

from exporters.analysis.compare.request_log_source import RequestLogSource
from exporters.analysis.estimates.significance import Finding, compare
from exporters.analysis.estimates.windows import Window
from exporters.vocabulary.signals import Outcome
from tests.exporters.analysis.compare.sample_logs import (
    CHANGE,
    SETTLE,
    SPEC,
    WINDOW,
    Truth,
    around_change,
    request,
    seeded,
    traffic,
    write,
)
from tests.support.command_line import CommandLine

CALM = Truth()


def compared(cli: CommandLine, log: Path, *words: str) -> Any:
    return cli.json("compare", "--around", "last", "--request-log", log, *words)


def verdicts(report: dict[str, Any], name: str = "siso") -> dict[str, str]:
    """The verdicts of one class."""
    return {row["figure"]: row["verdict"] for row in report["rows"] if row["class"] == name}


def changed_log(folder: Path, before: Truth, after: Truth) -> Path:
    return write(folder / "requests.jsonl", around_change(seeded(1), before, after))


def test_real_differences_are_found_in_their_direction(tmp_path: Path, cli: CommandLine) -> None:
    report = compared(cli, changed_log(tmp_path, CALM, Truth(wait=0.1, tpot=0.06, bad=0.3, hits=0.6)))
    assert verdicts(report) == {
        "offered": "no difference shown",
        "completed": "no difference shown",
        "SLO ttft": "worse",
        "goodput": "worse",
        "TTFT p50": "better",
        "TTFT p95": "better",
        "E2E p50": "no difference shown",
        "E2E p95": "worse",
        "TPOT p50": "worse",
        "TPOT p95": "worse",
        "queue p50": "better",
        "queue p95": "better",
        "client errors": "no difference shown",
        "output tokens": "no difference shown",
        "cache hits": "better",
    }
    assert verdicts(report, "all classes") == {
        "offered": "no difference shown",
        "backlog growth": "no difference shown",
        "completed": "no difference shown",
        "output tokens": "no difference shown",
        "prompt tokens": "lower",
        "cached tokens": "higher",
        "cache hits": "better",
        "TPOT mean": "worse",
    }
    (wait,) = [row for row in report["rows"] if row["figure"] == "TTFT p50"]
    assert wait["before"]["low"] < 0.4 * 0.693 < wait["before"]["high"]
    assert wait["difference"]["low"] < (0.1 - 0.4) * 0.693 < wait["difference"]["high"] < 0


@pytest.mark.parametrize("changes", [pytest.param(3, marks=pytest.mark.slow), pytest.param(30, marks=pytest.mark.long)])
def test_equal_windows_show_a_difference_at_most_at_the_stated_rate(tmp_path: Path, changes: int) -> None:
    """Two classes and changes without an effect: in at most 5 % of them, one or more rows may differ."""
    windows = Window(CHANGE - WINDOW, CHANGE), Window(CHANGE + SETTLE, CHANGE + SETTLE + WINDOW)
    wrong, uncorrected = 0, 0
    for seed in range(changes):
        rng = seeded(seed)
        records = [*around_change(rng, CALM, CALM), *around_change(rng, CALM, CALM, "lilo")]
        log = RequestLogSource([write(tmp_path / f"{seed}.jsonl", records)], SPEC)
        before, after = (log.measurements(window, SETTLE) for window in windows)
        rows = compare(before, after, 50)
        assert len(rows) == 8 + 2 * 15
        wrong += any(row.finding is not Finding.NO_DIFFERENCE for row in rows)
        uncorrected += sum(row.only_uncorrected for row in rows)
    assert wrong / changes <= 0.05
    # Without the correction, some rows differ by chance.
    assert 0 < uncorrected / changes / 38 <= 0.05


def test_a_different_load_is_the_first_note(tmp_path: Path, cli: CommandLine) -> None:
    report = compared(cli, changed_log(tmp_path, CALM, Truth(rate=2.0)))
    assert verdicts(report)["offered"] == "higher"
    (rise,) = re.findall(r"^The load differed \(all classes \+[\d.]+/s, siso \+([\d.]+)/s\)", report["notes"][0])
    assert 0.8 < float(rise) < 1.2


def test_a_class_that_disappears_has_a_lower_offered_rate_and_no_other_verdict(
    tmp_path: Path, cli: CommandLine
) -> None:
    rng = seeded(4)
    lilo = traffic(rng, CHANGE - WINDOW - 60, WINDOW + 60, CALM, "lilo")
    log = write(tmp_path / "requests.jsonl", [*around_change(rng, CALM, CALM), *lilo])
    findings = verdicts(compared(cli, log, "--class", "lilo"), "lilo")
    assert findings.pop("offered") == "lower"
    assert set(findings.values()) == {"not enough events"}


def test_a_window_with_too_few_events_has_no_verdicts(tmp_path: Path, cli: CommandLine) -> None:
    """About 60 requests in each window: enough for all figures except p95, and for none when 200 are required."""
    log = changed_log(tmp_path, Truth(rate=0.1), Truth(rate=0.1))
    few = {name for name, verdict in verdicts(compared(cli, log)).items() if verdict == "not enough events"}
    assert few == {"TTFT p95", "E2E p95", "TPOT p95", "queue p95"}
    none = compared(cli, log, "--min-events", "200")
    assert set(verdicts(none).values()) == {"not enough events"}
    assert none["tests"] == 0


@pytest.mark.slow
def test_the_restart_is_excluded(tmp_path: Path, cli: CommandLine) -> None:
    """The engine is down for 100 s; the first response after that has the new revision."""
    rng = seeded(2)
    log = write(
        tmp_path / "requests.jsonl",
        [
            *traffic(rng, CHANGE - 800, 700, CALM),
            *(request(time=CHANGE - at, e2e=0.01, outcome=Outcome.UPSTREAM_UNREACHABLE) for at in range(99, 1, -1)),
            *traffic(rng, CHANGE, 700, CALM),
        ],
    )
    report = compared(cli, log)
    assert CHANGE - 99 <= report["restart"]["start"] < CHANGE - 98
    assert report["before"]["end"] == pytest.approx(report["restart"]["start"])
    assert verdicts(report)["goodput"] == "no difference shown"


@pytest.mark.slow
def test_a_time_and_a_revision_find_the_same_change_as_last(tmp_path: Path, cli: CommandLine) -> None:
    log = changed_log(tmp_path, CALM, CALM)
    reports = [compared(cli, log, "--around", around) for around in ("last", "bbb", "2027-01-15T08:00:00Z")]
    windows = [(report["before"], report["after"]) for report in reports]
    assert windows == [windows[0]] * 3


def test_the_table_fits_into_the_terminal_and_explains_its_intervals(
    tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    log = changed_log(tmp_path, CALM, Truth(hits=0.6))
    log.write_bytes(log.read_bytes() + b"garbage\n")
    printed = cli("compare", "--around", "last", "--request-log", log)
    table, _, notes = printed.partition("23 rows were tested")
    assert max(map(len, table.splitlines()[4:])) <= 100
    assert re.search(
        r"^cache hits % +0 \(0\.\.0\.\d+\) +\d\d\.\d \([\d.]+\) +\+\d\d\.\d \([\d.]+\) better", table, re.MULTILINE
    )
    assert "including 30s settling time" in " ".join(table.split())
    notes = " ".join(notes.split())
    assert "without any real difference, about 1.2 of 23 intervals would exclude 0" in notes
    assert "Holm's procedure: the probability of one or more wrong verdicts is at most 5%." in notes
    assert "requests.jsonl: skipped lines that are not requests: 1; the first is line " in notes


def test_markdown_has_the_same_rows_and_no_markup_from_the_log(tmp_path: Path, cli: CommandLine) -> None:
    rng = seeded(1)
    log = write(tmp_path / "requests.jsonl", around_change(rng, CALM, CALM, "a|b<img>"))
    printed = cli("compare", "--around", "last", "--request-log", log, "--format", "markdown")
    table = [line for line in printed.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 8 + 15
    assert all(line.startswith("| all classes | ") for line in table[2:10])
    assert all(line.startswith("| a\\|b\\<img\\> | ") for line in table[10:])
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {7}


def test_rotated_and_compressed_logs_are_compared_as_one(tmp_path: Path, cli: CommandLine) -> None:
    log = changed_log(tmp_path, CALM, Truth(wait=0.3))
    whole = compared(cli, log)
    lines = log.read_bytes().splitlines(keepends=True)
    (tmp_path / "requests.jsonl.20270115T075900.000000Z.gz").write_bytes(gzip.compress(b"".join(lines[:300])))
    (tmp_path / "requests.jsonl.20270115T080100.000000Z").write_bytes(b"".join(lines[300:700]))
    log.write_bytes(b"".join(lines[700:]))
    assert compared(cli, log) == whole


@pytest.mark.parametrize(
    "words, text",
    [
        pytest.param(
            "--around last",
            "--around: no config change found in {log} (requests by config revision: aaaaaaaaaaaa {count}); give the "
            "time of the change (RFC 3339 or unix seconds)",
        ),
        (
            "--around 2027-13-01",
            "--around: '2027-13-01' is not a valid time; write unix seconds or RFC 3339, such as 2026-01-31T12:00:00Z",
        ),
        (
            "--around 1800000000 --window soon",
            "--window: 'soon' is not a valid duration; write a number with a unit, such as 10m",
        ),
        (
            "--around 1800000000 --settle=-1s",
            "--settle: '-1s' is not a valid duration; write a number with a unit, such as 10m",
        ),
        (
            "--around 1800000000 --min-events many",
            "--min-events: 'many' is not a number of events; write a whole number of at least 1",
        ),
        ("--around 1800000000 --class sisso", "--class: no request has class 'sisso'; did you mean 'siso'?"),
    ],
)
def test_a_wrong_flag_is_rejected(words: str, text: str, tmp_path: Path, cli: CommandLine) -> None:
    records = list(around_change(seeded(1), CALM, CALM))
    log = write(tmp_path / "requests.jsonl", records, changed_at=None)
    refused = cli.refusal("compare", "--request-log", log, *words.split())
    assert refused == text.format(log=log, count=len(records))


def test_a_revision_must_match_exactly_one_change(tmp_path: Path, cli: CommandLine) -> None:
    log = changed_log(tmp_path, CALM, CALM)
    older = changed_log(tmp_path / "older", CALM, CALM)
    older.write_bytes(older.read_bytes().replace(b'"' + b"b" * 12, b'"bbc' + b"b" * 9).replace(b"2027-", b"2026-"))
    logs = ["--request-log", str(older), str(log)]
    assert cli.refusal("compare", "--around", "bb", *logs) == (
        "--around: 'bb' matches several revisions: bbbbbbbbbbbb, bbcbbbbbbbbb; write more characters"
    )
    error = cli.refusal("compare", "--around", "aaa", "--request-log", log)
    assert error.startswith(f"--around: no config change to revision 'aaa' found in {log} (requests by config revision")
    assert error.endswith("); known: bbbbbbbbbbbb")
