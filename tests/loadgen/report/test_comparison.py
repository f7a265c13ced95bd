"""`vllm-slo load compare`: pairs of requests, and the verdicts on their differences."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from compose.cli import main
from exporters.analysis.estimates.figures import GOODPUT, TPOT, TTFT
from exporters.analysis.estimates.paired_difference import PairedDifference
from exporters.analysis.estimates.significance import Finding, Row
from loadgen.report.comparison import FinishedRun, Pairing, RunComparison, compare_runs
from loadgen.results.record import ClientOutcome, Record
from loadgen.schedule.phases import Steady
from tests.exporters.analysis.compare.sample_logs import seeded
from tests.loadgen.load_records import record, run, write_run

COUNT = 200
PHASES = [Steady("calm", 100, 1), Steady("busy", 100, 1)]


def requests(factor: float = 1.0, *, seed: int = 1, **changes: Any) -> list[Record]:
    """Streams whose times differ by their request, and from run to run by a tenth of that."""
    costs, noise = seeded(0), seeded(seed)
    made = []
    for number in range(COUNT):
        ttft = costs.lognormvariate(0, 1) * noise.lognormvariate(0, 0.1) * factor
        usual: dict[str, Any] = {
            "phase": PHASES[number * 2 // COUNT].name,
            "number": number,
            "due": float(number),
            "closed": number + ttft + 1,
            "ttft": ttft,
            "e2e": ttft + 1,
            "tpot": 0.05,
            "good": ttft < 2,
        }
        made.append(record(**(usual | changes)))
    return made


def finished(records: Sequence[Record], faults: tuple[str, ...] = (), **changes: Any) -> FinishedRun:
    return FinishedRun("out", run(phases=PHASES, seconds=200.0, **changes), records, faults)


def rows(comparison: RunComparison) -> dict[str, Row]:
    return {row.figure.name: row for row in comparison.rows}


def failed(each: Record) -> Record:
    return structs.replace(each, outcome=ClientOutcome.UPSTREAM_ERROR, ttft=None, tpot=None, good=False)


def test_the_same_schedule_is_paired_and_shows_a_difference_that_the_requests_hide() -> None:
    fast, slow = requests(), requests(1.2, seed=2)
    paired = compare_runs(finished(fast), finished(slow), 50)
    assert paired.pairing == Pairing(COUNT, 0, 0, 0, 0)
    assert isinstance(rows(paired)["TTFT p50"].difference, PairedDifference)
    assert rows(paired)["TTFT p50"].finding is Finding.WORSE
    assert rows(paired)["TPOT p50"].finding is Finding.NO_DIFFERENCE
    unpaired = compare_runs(finished(fast), finished(slow, schedule="other"), 50)
    assert unpaired.pairing is None
    assert rows(unpaired)["TTFT p50"].finding is Finding.NO_DIFFERENCE
    assert compare_runs(finished(slow), finished(fast), 50).rows[1].finding is Finding.BETTER


@pytest.mark.slow
def test_the_comparison_is_repeatable_in_any_order_of_the_records() -> None:
    fast, slow = requests(), requests(1.2, seed=2)
    assert (
        compare_runs(finished(fast), finished(slow), 50).rows
        == compare_runs(finished(fast[::-1]), finished(slow[::-1]), 50).rows
    )


@pytest.mark.slow
def test_failures_count_as_infinite_times_and_bad_requests() -> None:
    usual = requests()
    most = [failed(each) if each.number % 5 < 3 else each for each in usual]
    comparison = compare_runs(finished(usual), finished(most), 50)
    assert comparison.pairing == Pairing(COUNT, 0, 0, lost=120, gained=0)
    found = rows(comparison)
    assert found["TTFT p50"].after.estimate is not None
    assert found["TTFT p50"].after.estimate.value == float("inf")
    assert {found[name].finding for name in ("goodput", "TTFT p50", "E2E p50", "TPOT p50")} == {Finding.WORSE}


def test_two_runs_without_a_bad_request_have_an_interval_too() -> None:
    perfect = requests(good=True)
    difference = rows(compare_runs(finished(perfect), finished(perfect), 50))["goodput"].difference
    assert difference is not None
    assert difference.interval(1.96) == pytest.approx((-0.019, 0.019), abs=0.001)


def test_requests_of_one_run_only_are_counted_and_not_compared() -> None:
    usual = requests()
    comparison = compare_runs(finished(usual), finished(usual[:150]), 50)
    assert comparison.pairing == Pairing(150, 50, 0, 0, 0)
    assert {row.before.events for row in comparison.rows} == {150}
    # the first requests of the same run are equal
    assert {row.difference.value for row in comparison.rows if row.difference} == {0}


def test_the_turns_of_a_conversation_are_one_request_of_the_bootstrap() -> None:
    # nine conversations are fewer than the ten blocks of an interval
    talks = [
        structs.replace(each, phase="calm", number=index % 9, turn=index // 9) for index, each in enumerate(requests())
    ]
    comparison = compare_runs(finished(talks), finished(talks), 50)
    assert comparison.pairing == Pairing(COUNT, 0, 0, 0, 0)
    difference = rows(comparison)["TTFT p50"].difference
    assert difference is not None
    assert difference.interval(1.96) == (-float("inf"), float("inf"))


def test_users_with_other_requests_are_not_paired() -> None:
    usual = requests()
    others = [structs.replace(each, max_tokens=each.max_tokens + 1) for each in usual]
    assert compare_runs(finished(usual), finished(others), 50).pairing is None


def test_a_class_of_one_run_only_has_no_difference() -> None:
    usual = requests()
    others = [structs.replace(each, request_class="other") for each in usual]
    comparison = compare_runs(finished(usual), finished(others, classes=["other"], schedule="other"), 50)
    assert {(row.request_class, row.finding) for row in comparison.rows} == {
        ("siso", Finding.TOO_FEW),
        ("other", Finding.TOO_FEW),
    }


def test_nothing_is_compared_without_requests() -> None:
    assert compare_runs(finished([]), finished([]), 50).rows == ()


def write(folder: Path, records: Sequence[Record], **changes: Any) -> str:
    folder.mkdir()
    return write_run(folder, run(phases=PHASES, seconds=200.0, **changes), records)


@pytest.mark.slow
@pytest.mark.parametrize(
    "factor, lag, flags, status",
    [
        pytest.param(1.2, 0.0, [], 0, id="worse"),
        pytest.param(1.2, 0.0, ["--fail-if-worse"], 1, id="worse fails"),
        pytest.param(0.8, 0.0, ["--fail-if-worse"], 0, id="better"),
        pytest.param(1.0, 0.0, ["--fail-if-worse"], 0, id="equal"),
        pytest.param(1.0, 1.0, ["--fail-if-worse"], 1, id="invalid fails"),
    ],
)
def test_the_exit_status_is_1_only_if_asked_for(
    tmp_path: Path, factor: float, lag: float, flags: list[str], status: int
) -> None:
    before, after = write(tmp_path / "a", requests()), write(tmp_path / "b", requests(factor, seed=2, send_lag=lag))
    assert main(["load", "compare", before, after, *flags]) == status


def test_the_table_says_how_runs_were_paired_and_which_is_invalid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    usual = requests()
    late = [*map(failed, usual[:3]), *usual[3:150]]
    before = write(tmp_path / "a", usual)
    after = write(tmp_path / "b", [structs.replace(each, send_lag=1.0) for each in late])
    assert main(["load", "compare", before, after]) == 0
    printed = capsys.readouterr().out
    assert all(len(line) <= 100 for line in printed.splitlines())
    lines = " ".join(printed.split())
    assert "B: " in lines
    assert "INVALID: B: send lag p99 is 1000 ms, above 50 ms" in lines
    assert (
        "paired by the same schedule: 150 requests; ok in A only: 3, in B only: 0; recorded in A only: 50, in B only: "
        "0, which are not compared"
    ) in lines
    (headings,) = [line.split() for line in printed.splitlines() if line.startswith("figure")]
    assert headings == ["figure", "A", "B", "(INVALID)", "difference", "verdict"]
    assert "Differences are paired: their intervals are from a bootstrap" in lines
    assert main(["load", "compare", before, write(tmp_path / "c", late, schedule="other")]) == 0
    lines = " ".join(capsys.readouterr().out.split())
    assert "not paired: the schedules differ" in lines
    assert "those of independent samples: they include the difference between the loads" in lines


def test_json_has_the_same_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = write(tmp_path / "a", requests()), write(tmp_path / "b", requests(1.2, seed=2))
    assert main(["load", "compare", before, after, "--format", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["paired"] == {"requests": 200, "only_before": 0, "only_after": 0, "lost": 0, "gained": 0}
    assert (made["before"]["valid"], made["after"]["requests"], made["min_events"]) == (True, 200, 50)
    figures = [GOODPUT.name, *(figure.name for figure in TTFT), "E2E p50", "E2E p95", *(f.name for f in TPOT)]
    assert [row["figure"] for row in made["rows"]] == figures
    assert made["rows"][1]["verdict"] == "worse"


@pytest.mark.parametrize("flag, text", [("--min-events", "0"), ("--min-events", "x")])
def test_a_wrong_number_of_events_is_refused(flag: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load", "compare", "a", "b", flag, text]) == 2
    assert f"{text!r} is not a number of events; write a whole number of at least 1" in capsys.readouterr().err
