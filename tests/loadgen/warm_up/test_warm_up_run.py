"""A warm-up sends passes until one is not faster, reports TTFT cold and warm, and a warm engine to the sidecar."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from compose.cli import main
from exporters.text.errors import UsageError
from loadgen.results.record import ClientOutcome, Record
from loadgen.schedule.requests import CHAT, PlannedRequest
from loadgen.warm_up.ramp import Length, Ramp
from loadgen.warm_up.settings import Sidecar
from loadgen.warm_up.warm_up_run import WarmUpRun
from tests.loadgen.canned_server import canned_server, http
from tests.loadgen.load_process import load, received, scripted_server, write_scenario
from tests.loadgen.load_records import record
from tests.support.ports import free_port
from tests.support.sidecar_process import run_command, sidecar
from tests.support.simulator import simulator
from tests.support.waiting import until


class Engine:
    """Answers the requests of a pass with its TTFT; from `fails` on, each wave has a failure."""

    def __init__(self, *ttft: float | None, waves: int, fails: int | None = None) -> None:
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
def test_the_command_sends_the_class() -> None:
    with scripted_server() as target:
        process = load("warm-up", "--target", target, "--largest", "4")
        requests = received(target)
    assert (process.returncode, process.stderr) == (0, "")
    assert {request["x-request-class"] for request in requests} == {"warm-up"}
    assert len(requests) % 8 == 0  # passes of 1 + 1 + 2 + 4 requests


def test_a_response_without_a_token_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert warm_up(Engine(None, waves=2)) == 1
    assert "1 of 1 requests at once failed: a response without a token; " in capsys.readouterr().err


@pytest.mark.slow
async def test_a_warm_up_makes_the_engine_ready_and_is_in_no_slo_also_before_a_run(tmp_path: Path, token: str) -> None:
    report = ("--ready", "--admin-token-file", token)
    async with simulator() as engine, sidecar(tmp_path, engine, "--ready-when-warm", *report[1:]) as running:

        async def is_ready() -> bool:
            return (await running.fetch("/engine/readyz"))[0] == 200

        async def is_cold() -> bool:
            status, text = await running.fetch("/engine/readyz")
            return status == 503 and " is serving " in text and " is not warm: " in text

        await until(is_cold)
        words = ("warm-up", "--target", running.url, "--largest", "2", "--max-passes", "9")
        status, out, err = await run_command(*words, *report, "--sidecar", running.pages, subcommand="load")
        assert (status, err) == (0, "")
        assert out.splitlines()[-1] == f"reported to {running.pages}"
        await until(is_ready)
        sent = sum(int(line.split()[2]) for line in out.splitlines() if line.startswith("pass "))

        async def counted() -> tuple[float, float]:
            counts = await running.samples()
            return total(counts, "llm_warm_up_requests_total"), total(counts, "llm_goodput_events_total")

        async def is_counted() -> bool:
            return await counted() == (sent, 0)

        await until(is_counted)
        assert total(await running.samples(), "llm_slo_events_total") == 0

        path, results = write_scenario(tmp_path, "siso", rate=20, duration="500ms"), tmp_path / "out"
        run = ("run", "--scenario", str(path), "--out", str(results), "--warm-up", "4", "--allow-invalid")
        assert (await run_command(*run, "--target", running.url, subcommand="load"))[0] == 0
        offered: int = json.loads((results / "summary.json").read_text())["total"]["offered"]

        async def all_are_counted() -> bool:
            return await counted() == (sent + 14, offered)  # 1 + 2 + 4, twice

        await until(all_are_counted)


def total(samples: dict[str, float], name: str) -> float:
    return sum(value for series, value in samples.items() if series.startswith(f"{name}{{"))


@pytest.fixture
def token(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text("t0ken-of-the-admin\n")
    path.chmod(0o600)
    return str(path)


def test_the_report_has_the_token(token: str) -> None:
    with canned_server(http("200 OK", '{"engines":["gpu-0:8000"]}')) as (url, heads):
        Sidecar.parse(url, token).report_warm()
    assert heads[0].startswith("POST /admin/warm HTTP/1.1\r\n")
    assert "authorization: Bearer t0ken-of-the-admin" in heads[0]


@pytest.mark.parametrize(
    "status, message",
    [
        (
            "401 Unauthorized",
            "--admin-token-file: the sidecar rejected the token; use the file of its --admin-token-file",
        ),
        ("404 Not Found", "--sidecar: URL has no /admin/warm; start the sidecar with --admin-token-file FILE"),
        ("500 Error", "--sidecar: URL is not a sidecar: it responded 500 with ''"),
    ],
)
def test_a_report_that_is_not_accepted_is_refused(status: str, message: str, token: str) -> None:
    with canned_server(http(status, "")) as (url, _), pytest.raises(UsageError) as refusal:
        Sidecar.parse(url, token).report_warm()
    assert str(refusal.value) == message.replace("URL", url)


def test_a_sidecar_that_does_not_respond_is_named(token: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(UsageError) as refusal:
        Sidecar.parse(url, token).report_warm()
    assert (refusal.value.exit_status, str(refusal.value)) == (
        3,
        f"--sidecar: {url}: request failed: [Errno 111] Connection refused",
    )


def test_the_token_is_checked_before_the_warm_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load", "warm-up", "--target", "http://127.0.0.1:1", "--ready"]) == 2
    assert capsys.readouterr().err == (
        "vllm-slo: --ready: needs the admin token of the sidecar; add --admin-token-file FILE\n"
    )
