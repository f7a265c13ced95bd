"""A warm-up sends passes until one is not faster, and reports TTFT cold and warm."""

from collections.abc import Sequence
from typing import Any

import pytest

from loadgen.results.record import ClientOutcome, Record
from loadgen.schedule.requests import CHAT, PlannedRequest
from loadgen.warm_up.ramp import Length, Ramp
from loadgen.warm_up.warm_up_run import WarmUpRun
from tests.loadgen.load_process import load, received, scripted_server
from tests.loadgen.load_records import record


class Engine:
    """Answers the requests of a pass with its TTFT; from `fails` on, each wave has a failure."""

    def __init__(self, *ttft: float, waves: int, fails: int | None = None) -> None:
        self._ttft = ttft
        self._waves = waves
        self._fails = fails
        self.sent = 0

    def send(self, requests: Sequence[PlannedRequest]) -> list[Record]:
        ttft = self._ttft[min(self.sent // self._waves, len(self._ttft) - 1)]
        self.sent += 1
        records = [record(ttft=ttft) for _ in requests]
        if self._fails is not None and self.sent >= self._fails:
            records[0] = record(outcome=ClientOutcome.CLIENT_ERROR, error="status 400: no chat template")
        return records

    def stop(self) -> None:
        pass


def warm_up(engine: Any, most_passes: int = 5) -> int:
    return WarmUpRun(Ramp([Length(5, 1, CHAT)], 2, "seed"), engine, most_passes).run()


def test_a_cold_engine_gets_passes_until_it_is_warm(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine(89.0, 0.219, 0.215, waves=2)
    assert warm_up(engine) == 0
    out, err = capsys.readouterr()
    assert (engine.sent, err) == (6, "")
    assert out.splitlines()[0] == "pass 1: 3 requests, median TTFT 89 s to 89 s"
    assert out.splitlines()[-1] == (
        "cold 89 s, warm 215 ms: the first request waited 414.0 times as long for its first token as one does after "
        "3 passes"
    )


def test_an_engine_that_still_gets_faster_is_not_warm(capsys: pytest.CaptureFixture[str]) -> None:
    assert warm_up(Engine(8.0, 4.0, 2.0, waves=2), most_passes=3) == 1
    assert capsys.readouterr().err == (
        "not warm after 3 passes: the last one was still faster than those before; run it again, or set a larger "
        "--max-passes\n"
    )


def test_a_failure_ends_the_warm_up_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine(1.0, waves=2, fails=2)
    assert warm_up(engine) == 1
    assert engine.sent == 2
    assert capsys.readouterr().err == (
        "not warm: 1 of 2 requests at once failed: client_error: status 400: no chat template; correct what it "
        "reports, or set a smaller --largest or a longer --timeout\n"
    )


@pytest.mark.slow
def test_the_command_sends_the_class_and_needs_a_target() -> None:
    with scripted_server() as target:
        process = load("warm-up", "--target", target, "--largest", "4")
        requests = received(target)
    assert (process.returncode, process.stderr) == (0, "")
    assert {request["x-request-class"] for request in requests} == {"warm-up"}
    assert len(requests) % 8 == 0  # passes of 1 + 1 + 2 + 4 requests
    process = load("warm-up", "--target", "http://127.0.0.1:1")
    assert process.returncode == 3
    assert process.stderr.startswith("vllm-slo: --target http://127.0.0.1:1: ")
