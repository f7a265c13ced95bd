"""`vllm-slo compare` on logs whose truth is known, as a person runs it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from compose.cli import main
from exporters.comparison.comparison_windows import Window
from exporters.comparison.request_log_source import RequestLogSource
from exporters.comparison.significance import Finding, compare
from exporters.signals import Outcome
from tests.exporters.comparison.sample_logs import (
    CHANGE,
    SETTLE,
    SPEC,
    WINDOW,
    Truth,
    around_change,
    request,
    seeded,
    stretch,
    write,
)

CALM = Truth()


def compared(capsys: pytest.CaptureFixture[str], log: Path, *words: str) -> dict[str, Any]:
    assert main(["compare", "--around", "last", "--request-log", str(log), "--format", "json", *words]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    return {row["figure"]: row["verdict"] for row in report["rows"]}


def changed_log(folder: Path, before: Truth, after: Truth, seed: int = 1) -> Path:
    return write(folder / "requests.jsonl", around_change(seeded(seed), before, after))


def test_true_differences_are_found_each_in_its_direction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = compared(capsys, changed_log(tmp_path, CALM, Truth(wait=0.1, tpot=0.06, bad=0.3, hits=0.6)))
    assert verdicts(report) == {
        "offered": "no difference shown",
        "SLO ttft": "worse",
        "goodput": "worse",
        "TTFT p50": "better",
        "TTFT p95": "better",
        "TPOT p50": "worse",
        "TPOT p95": "worse",
        "queue p50": "better",
        "queue p95": "better",
        "client errors": "no difference shown",
        "tokens": "no difference shown",
        "cache hits": "better",
    }
    (wait,) = [row for row in report["rows"] if row["figure"] == "TTFT p50"]
    assert wait["before"]["low"] < 0.4 * 0.693 < wait["before"]["high"]
    assert wait["difference"]["low"] < (0.1 - 0.4) * 0.693 < wait["difference"]["high"] < 0


def test_equal_sides_show_a_difference_as_seldom_as_promised(tmp_path: Path) -> None:
    """Two classes over 30 changes that changed nothing: in 5 % of them may even one of all rows differ."""
    windows = Window(CHANGE - WINDOW, CHANGE), Window(CHANGE + SETTLE, CHANGE + SETTLE + WINDOW)
    changes, wrong, uncorrected = 30, 0, 0
    for seed in range(changes):
        rng = seeded(seed)
        records = [*around_change(rng, CALM, CALM), *around_change(rng, CALM, CALM, "lilo")]
        log = RequestLogSource([write(tmp_path / f"{seed}.jsonl", records)], SPEC)
        before, after = (log.measurements(window, SETTLE) for window in windows)
        rows = compare(before, after, 50)
        assert len(rows) == 24
        wrong += any(row.finding is not Finding.NO_DIFFERENCE for row in rows)
        uncorrected += sum(row.only_uncorrected for row in rows)
    assert wrong / changes <= 0.05
    assert (
        0 < uncorrected / changes / 24 <= 0.05
    )  # as single rows they differ by chance, which is what the correction is for


def test_unequal_load_is_said_before_anything_is_blamed_on_the_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = compared(capsys, changed_log(tmp_path, CALM, Truth(rate=2.0)))
    assert verdicts(report)["offered"] == "higher"
    (rise,) = re.findall(r"^The load was not the same \(siso \+([\d.]+)/s\)", report["notes"][0])
    assert 0.8 < float(rise) < 1.2


def test_a_class_that_vanishes_is_lower_and_nothing_else_is_claimed_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = seeded(4)
    lilo = stretch(rng, CHANGE - WINDOW - 60, WINDOW + 60, CALM, "lilo")
    log = write(tmp_path / "requests.jsonl", [*around_change(rng, CALM, CALM), *lilo])
    findings = verdicts(compared(capsys, log, "--class", "lilo"))
    assert findings.pop("offered") == "lower"
    assert set(findings.values()) == {"not enough events"}


def test_a_window_with_too_few_events_has_no_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """About 60 requests a side: enough for all but the p95, or for nothing when 200 are asked for."""
    log = changed_log(tmp_path, Truth(rate=0.1), Truth(rate=0.1))
    few = {name for name, verdict in verdicts(compared(capsys, log)).items() if verdict == "not enough events"}
    assert few == {"TTFT p95", "TPOT p95", "queue p95"}
    none = compared(capsys, log, "--min-events", "200")
    assert set(verdicts(none).values()) == {"not enough events"}
    assert none["tests"] == 0


def test_the_restart_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For 100 s nothing answers; the new revision is seen with the first answer after it."""
    rng = seeded(2)
    log = write(
        tmp_path / "requests.jsonl",
        [
            *stretch(rng, CHANGE - 800, 700, CALM),
            *(
                request(time=CHANGE - 99 + second, e2e=0.01, outcome=Outcome.UPSTREAM_UNREACHABLE)
                for second in range(98)
            ),
            *stretch(rng, CHANGE, 700, CALM),
        ],
        CHANGE,
    )
    report = compared(capsys, log)
    assert CHANGE - 99 <= report["restart"]["start"] < CHANGE - 98
    assert report["before"]["end"] == pytest.approx(report["restart"]["start"])
    assert verdicts(report)["goodput"] == "no difference shown"


def test_a_time_and_a_revision_find_the_same_change_as_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(changed_log(tmp_path, CALM, CALM))
    windows = []
    for around in ("last", "bbb", "2027-01-15T08:00:00Z", "2027-01-15T09:00:00+01:00", "1800000000"):
        assert main(["compare", "--around", around, "--request-log", log, "--format", "json"]) == 0
        report = json.loads(capsys.readouterr().out)
        windows.append((report["before"], report["after"]))
    assert windows == [windows[0]] * 5


def test_the_table_fits_and_says_how_sure_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    log = changed_log(tmp_path, CALM, Truth(hits=0.6))
    log.write_bytes(log.read_bytes() + b"garbage\n")
    assert main(["compare", "--around", "last", "--request-log", str(log)]) == 0
    printed = capsys.readouterr().out
    table, _, notes = printed.partition("12 rows were tested")
    assert max(map(len, table.splitlines()[4:])) <= 100
    assert re.search(
        r"^cache hits % +0 \(0\.\.0\.\d+\) +\d\d\.\d \([\d.]+\) +\+\d\d\.\d \([\d.]+\) better", table, re.MULTILINE
    )
    assert "of which 30s to settle" in " ".join(table.split())
    notes = " ".join(notes.split())
    assert "of 12 rows without any true difference about 0.6 would leave out 0" in notes
    assert "Verdicts are corrected for that (Holm): at most 5% risk of even one false one." in notes
    assert "requests.jsonl: lines passed over because they hold no request: 1; the first is line " in notes


def test_markdown_holds_the_same_rows_and_no_markup_from_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = seeded(1)
    log = write(tmp_path / "requests.jsonl", around_change(rng, CALM, CALM, "a|b<img>"))
    assert main(["compare", "--around", "last", "--request-log", str(log), "--format", "markdown"]) == 0
    printed = capsys.readouterr().out
    table = [line for line in printed.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 12
    assert all(line.startswith("| a\\|b\\<img\\> | ") for line in table[2:])
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {7}


def test_the_same_log_gives_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = changed_log(tmp_path, CALM, Truth(wait=0.3))
    assert compared(capsys, log) == compared(capsys, log)


@pytest.mark.parametrize(
    "words, text",
    [
        pytest.param(
            ("--around", "last"),
            "--around: no change found in {log}: {count} requests, all of config revision aaaaaaaaaaaa; give the time "
            "of the change (RFC 3339 or unix seconds) to compare around it all the same",
            id="no change in the log",
        ),
        pytest.param(
            ("--around", "aaa"),
            "--around: nothing changed to a revision 'aaa' in {log}, which holds aaaaaaaaaaaa ({count} requests); "
            "write `last`, a time, or a revision that it changed to",
            id="a revision that was there from the start",
        ),
        pytest.param(
            ("--around", "2027-13-01"),
            "--around: '2027-13-01' is no time; write RFC 3339, such as 2026-01-31T12:00:00Z, or unix seconds",
            id="no time",
        ),
        pytest.param(
            ("--around", "1800000000", "--window", "soon"),
            "--window: 'soon' is not a valid duration; write a number with a unit, such as 10m",
            id="no window",
        ),
        pytest.param(
            ("--around", "1800000000", "--settle=-1s"),
            "--settle: '-1s' is not a valid duration; write a number with a unit, such as 10m",
            id="a negative time to settle",
        ),
        pytest.param(
            ("--around", "1800000000", "--min-events", "many"),
            "--min-events: 'many' is no number of events; write a whole number of at least 1",
            id="no number of events",
        ),
        pytest.param(
            ("--around", "1800000000", "--class", "sisso"),
            "--class: no request is of class 'sisso'; did you mean 'siso'?",
            id="a class that nobody is in",
        ),
        pytest.param(
            ("--around", "1800000000", "--prometheus", "http://127.0.0.1:9"),
            "give either --request-log FILE or --prometheus URL: one place to read from",
            id="two sources",
        ),
    ],
)
def test_a_refusal(words: tuple[str, ...], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = list(around_change(seeded(1), CALM, CALM))
    log = write(tmp_path / "requests.jsonl", records, changed_at=None)
    assert main(["compare", "--request-log", str(log), *words]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {text.format(log=log, count=len(records))}\n"


def test_a_revision_must_be_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = changed_log(tmp_path, CALM, CALM)
    older = changed_log(tmp_path / "older", CALM, CALM)
    older.write_bytes(older.read_bytes().replace(b'"' + b"b" * 12, b'"bbc' + b"b" * 9).replace(b"2027-", b"2026-"))
    words = ["--request-log", str(older), str(log)]
    assert main(["compare", "--around", "bb", *words]) == 2
    assert capsys.readouterr().err == (
        "vllm-slo: --around: 'bb' begins several revisions: bbbbbbbbbbbb, bbcbbbbbbbbb; write more of it\n"
    )
