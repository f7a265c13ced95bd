"""The three sentences before the table: what changed, what is not known and why, what to do next."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from exporters.analysis.compare.backlog import ChangeFailures
from exporters.records.messages import Finished
from tests.exporters.analysis.compare.sample_logs import CHANGE, Queue, Truth, around_change, queued, seeded, write
from tests.support.command_line import CommandLine

CALM = Truth()
BEFORE, AFTER = Queue(offered=6.0, capacity=3.0), Queue(offered=6.0, capacity=4.5, hits=0.92, tpot=0.021)
OF_THE_CHANGE = "532 of the 576 requests in flight at the change failed, and 84 that arrived between the windows."
OFFER_LESS = (
    "Next: to compare waits, offer the same schedule before and after at less than 3 requests/s, which is what the "
    "engine served while the backlog grew (`vllm-slo load run`, `vllm-slo load compare`)."
)
LONGER = "Next: to find smaller differences, use longer windows; --window 10m halves the intervals."
NOTHING = "No figure changed by more than chance explains."
WITHIN_CAPACITY = Queue(offered=6.0, capacity=20.0)


def report(folder: Path, cli: CommandLine, records: Iterable[Finished], *words: str) -> Any:
    log = write(folder / "requests.jsonl", records)
    return cli.json("compare", "--around", "last", "--window", "150s", "--request-log", log, *words)


def overload(before: Queue, after: Queue) -> Iterable[Finished]:
    """Each configuration begins empty; what is open at the change fails."""
    rng = seeded(3)
    yield from queued(rng, CHANGE - 200, CHANGE, before, killed_at=CHANGE)
    yield from queued(rng, CHANGE + 20, CHANGE + 400, after)


def test_an_overload_before_and_after_is_not_called_no_difference(tmp_path: Path, cli: CommandLine) -> None:
    """Prefix caching made the engine half as fast again, and the load was still above what it serves."""
    found = report(tmp_path, cli, overload(BEFORE, AFTER))
    assert found["conclusion"] == [
        (
            "Changed: backlog growth +3.21 to +1.65 /s, completed 48.3 to 73.1 %, output tokens 589 to 895 /s "
            "(+52%), prompt tokens 1668 to 202 /s (-88%), cached tokens 0 to 2295 /s, cache hits 0 to 91.9 %, "
            f"TPOT mean 15 to 21 ms (+40%); {OF_THE_CHANGE}"
        ),
        (
            "Not known: by how much SLOs, goodput, TTFT, E2E and TPOT changed, because the backlog grew in both "
            "windows (85 to 566 waiting requests before, 32 to 279 after): more was offered than the engine "
            "served, so a wait depends on how long that has lasted; whether 3 rows changed at all (their "
            "intervals include 0)."
        ),
        OFFER_LESS,
    ]
    assert found["failed"] == {"between_windows": 616, "in_flight_at_change": 576, "in_flight_failed": 532}
    assert found["backlog"] == {
        "before": {"trend": "grew", "waiting_at_start": 85, "waiting_at_end": 566, "served_per_second": 3},
        "after": {"trend": "grew", "waiting_at_start": 32, "waiting_at_end": 279, "served_per_second": 4.5},
    }
    verdicts = {(row["class"], row["figure"]): (row["verdict"], row["test"]) for row in found["rows"]}
    means = "block means (10 blocks per window, Welch's t-test)"
    assert verdicts["all classes", "output tokens"] == ("higher", means)
    assert verdicts["all classes", "completed"] == ("better", means)
    assert verdicts["siso", "TTFT p50"] == verdicts["siso", "goodput"] == ("not tested", None)
    (wait,) = [row for row in found["rows"] if row["figure"] == "TTFT p50"]
    assert wait["before"]["low"] is wait["before"]["high"] is wait["difference"] is wait["p"] is None


@pytest.mark.parametrize(
    "records, words, reasons, action, sentences",
    [
        pytest.param(
            overload(BEFORE, WITHIN_CAPACITY),
            (),
            ["backlog", "no_difference_shown"],
            {"action": "offer_less", "requests_per_second": 3.0},
            [
                (
                    "Changed: backlog growth +3.21 to -0.007 /s, completed 48.3 to 99.9 %, output tokens 589 "
                    f"to 1209 /s (+105%), prompt tokens 1668 to 3420 /s (+105%); {OF_THE_CHANGE}"
                ),
                (
                    "Not known: by how much SLOs, goodput, TTFT, E2E and TPOT changed, because the backlog grew before "
                    "the change (85 to 566 waiting requests), so a wait depends on when the request arrived; whether 7 "
                    "rows changed at all (their intervals include 0)."
                ),
                OFFER_LESS,
            ],
            id="the change ended the overload",
        ),
        pytest.param(
            around_change(seeded(1), CALM, CALM),
            (),
            ["no_difference_shown"],
            {"action": "longer_window", "window_seconds": 600.0},
            [
                NOTHING,
                "Not known: whether 23 rows changed at all (their intervals include 0).",
                LONGER,
            ],
            id="nothing changed",
        ),
        pytest.param(
            around_change(seeded(1), CALM, Truth(wait=0.1, bad=0.3)),
            (),
            ["no_difference_shown"],
            {"action": "longer_window", "window_seconds": 600.0},
            [
                (
                    "Changed: better: TTFT p50 (siso), E2E p50 (siso), queue p50 (siso); worse: SLO ttft "
                    "(siso), goodput "
                    "(siso)."
                ),
                "Not known: whether 18 rows changed at all (their intervals include 0).",
                LONGER,
            ],
            id="better and worse",
        ),
        pytest.param(
            around_change(seeded(1), CALM, Truth(rate=2.5)),
            (),
            ["load_differs", "no_difference_shown"],
            {"action": "same_schedule"},
            [
                "Changed: output tokens 22.5 to 56 /s (+149%), prompt tokens 593 to 1503 /s (+154%).",
                (
                    "Not known: whether the config change or the different load (all classes +1.6/s) caused these "
                    "changes; whether 18 rows changed at all (their intervals include 0)."
                ),
                (
                    "Next: offer the same schedule with both configurations (`vllm-slo load run`), and compare the two "
                    "runs request by request (`vllm-slo load compare`)."
                ),
            ],
            id="another load",
        ),
        pytest.param(
            around_change(seeded(1), CALM, CALM),
            ("--min-events", "400"),
            ["too_few_events"],
            {"action": "longer_window", "window_seconds": 420.0},
            [
                NOTHING,
                "Not known: how 23 rows changed (too few events).",
                "Next: compare windows of 7m or more (--window 7m), so that all rows have enough events.",
            ],
            id="too few events",
        ),
    ],
)
def test_the_conclusion(
    records: Iterable[Finished],
    words: tuple[str, ...],
    reasons: list[str],
    action: dict[str, str | float],
    sentences: list[str],
    tmp_path: Path,
    cli: CommandLine,
) -> None:
    found = report(tmp_path, cli, records, *words)
    assert found["conclusion"] == sentences
    assert ([each["reason"] for each in found["not_known"]], found["next"]) == (reasons, action)
    changed = [(each["class"], each["figure"], each["verdict"]) for each in found["changed"]]
    unknown = {(row["class"], row["figure"]) for each in found["not_known"] for row in each["rows"]}
    rows = [(row["class"], row["figure"], row["verdict"]) for row in found["rows"]]
    significant = [row for row in rows if row[2] in {"better", "worse", "higher", "lower"}]
    assert changed == [row for row in significant if row[1] != "offered"]
    assert unknown | {row[:2] for row in significant} == {row[:2] for row in rows}


@pytest.mark.parametrize(
    "failures, text",
    [
        (ChangeFailures(5, 9, 5), "5 of the 9 requests in flight at the change failed"),
        (ChangeFailures(7, 9, None), "7 requests failed between the windows (9 were in flight at the change)"),
    ],
)
def test_the_requests_that_the_change_failed(failures: ChangeFailures, text: str) -> None:
    assert failures.text == text
