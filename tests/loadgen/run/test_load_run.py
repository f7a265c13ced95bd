"""Real Locust against a scripted server, each in a process of its own."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from loadgen.results.record import ClientOutcome, Record, read_records, read_run
from loadgen.results.summary import summarise_class
from loadgen.schedule import scenario
from loadgen.schedule.requests import Workload, schedule_hash
from tests.loadgen.load_process import (
    ROOT,
    hold,
    load,
    received,
    release,
    run_load,
    running_load,
    scripted_server,
    starting_load,
    write_scenario,
)
from tests.support.sidecar_process import OUTPUT_SLOS
from tests.support.waiting import HANG, wait_until

pytestmark = pytest.mark.slow


def _held_run(path: Path, out: Path, count: int, *flags: str, held: float = 0.0) -> tuple[str, list[dict[str, str]]]:
    """Run against a server that responds only when it has `count` requests, `held` seconds after the start or later.

    Returns what was printed, and the headers of all requests.
    """
    with scripted_server("--hold") as target, running_load(path, target, out, *flags) as process:
        assert wait_until(lambda: len(received(target)) == count)
        assert wait_until(lambda: time.time() > read_run(out).start + held)
        release(target)
        shown, errors = process.communicate(timeout=HANG)
        requests = received(target)
    assert (process.returncode, errors) == (0, "")
    return shown, requests


def test_no_request_waits_for_another_and_every_latency_shows_the_queue(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "siso", rate=60, duration="500ms"), tmp_path / "out"
    chosen = scenario.load(path)
    planned = list(Workload(chosen, chosen.phases, 3))
    shown, requests = _held_run(path, out, len(planned))  # before any response: the load is open-loop
    run, records = read_run(out), read_records(out)
    assert run.schedule == schedule_hash(planned)

    # the schedule, the records and the server's requests are the same, with the same due times
    assert sorted(record.due for record in records) == [round(arrival.due, 6) for arrival in planned]
    assert {record.request_id for record in records} == {request["x-request-id"] for request in requests}
    assert len(requests) == len(planned) > 20
    starts = {request["x-request-id"]: float(request["x-request-start"].removeprefix("t=")) for request in requests}
    assert all(abs(starts[record.request_id] - run.start - record.due) < 1e-5 for record in records)
    assert {record.outcome for record in records} == {ClientOutcome.OK}

    # each latency counts from the due time, and no response came before the last request was sent
    assert all(record.e2e is not None and record.send_lag is not None for record in records)
    last_sent = max(record.sent or 0 for record in records)
    assert all(record.closed > last_sent for record in records)
    assert all(record.e2e == pytest.approx(record.closed - record.due, abs=1e-5) for record in records)
    streamed = [record for record in records if record.ttft is not None]
    assert all(record.ttft == pytest.approx((record.first or 0) - record.due, abs=1e-5) for record in streamed)
    assert all((record.first or 0) > last_sent for record in streamed)

    # the summary agrees with the records, and `load report` prints the same report
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    assert summary["total"]["offered"] == len(planned)
    assert summary["classes"][0]["ttft"]["p50"] == summarise_class("siso", records).ttft.p50
    assert run.ended == "completed"
    page = tmp_path / "page.html"
    assert load("report", str(out), "--html", str(page)).stdout == shown
    assert page.read_text() == (out / "report.html").read_text()


def test_users_of_a_closed_loop_wait_for_their_responses(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "siso", rate=1, duration="400ms"), tmp_path / "out"
    path.write_text(path.read_text().replace("rate: 1", "users: 3"))
    shown, _ = _held_run(path, out, 3)
    records = sorted(read_records(out), key=lambda record: record.due)
    assert len(records) > 3
    # at most three requests are open at any time, and each starts when another one has ended
    for index, record in enumerate(records):
        assert sum(earlier.closed > record.due for earlier in records[:index]) < 3
    assert all((record.send_lag or 0) < 0.4 for record in records)
    assert "one is a closed loop of 3 users" in shown


def test_requests_at_once_share_a_due_time(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "siso", rate=1, duration="300ms"), tmp_path / "out"
    path.write_text(path.read_text().replace("rate: 1", "requests: 40"))
    _held_run(path, out, 40)
    assert [record.due for record in read_records(out)] == [0.0] * 40


def test_the_turns_of_a_conversation_follow_each_other_until_one_fails(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "siso", "tear", rate=20, duration="1s"), tmp_path / "out"
    talk = ", conversation: {turns: {min: 3, max: 3}, think_time: {min: 10ms, max: 50ms}}}"
    path.write_text(path.read_text().replace("{min: 5, max: 20}}", "{min: 5, max: 20}" + talk) + "stream_share: 0.5\n")
    with scripted_server() as target:
        process = run_load(path, target, out)
        requests = received(target)
    assert (process.returncode, process.stderr) == (0, "")
    records = read_records(out)
    assert len(records) == len(requests)
    talks: dict[tuple[str, int], list[Record]] = {}
    for record in sorted(records, key=lambda each: each.turn):
        talks.setdefault((record.request_class, record.number), []).append(record)
    whole = [talk for talk in talks.values() if len(talk) == 3]
    assert whole
    for talk_ in whole:
        assert [record.turn for record in talk_] == [0, 1, 2]
        for earlier, later in pairwise(talk_):
            assert 0.01 <= later.due - earlier.closed <= 0.06
            # the prompt before, its answer and the new one, by the plan and as the server counts them
            assert later.asked_prompt_tokens > earlier.asked_prompt_tokens + (earlier.completion_tokens or 0)
            assert earlier.prompt_tokens is not None
            assert (later.prompt_tokens or 0) > earlier.prompt_tokens
    torn = [record for record in records if record.outcome is ClientOutcome.TRUNCATED]
    assert torn
    assert {(record.turn, record.turns_lost) for record in torn} == {(0, 2)}
    assert f"{2 * len(torn)} turns were not sent, because" in process.stdout


def test_a_limit_of_concurrency_makes_requests_wait(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "siso", rate=60, duration="500ms"), tmp_path / "out"
    shown, _ = _held_run(path, out, 4, "--max-concurrency", "4", held=0.5)  # until all requests are due
    records = read_records(out)
    assert len(records) > 8
    for record in records:
        assert record.sent is not None
        assert sum((other.sent or 0) <= record.sent < other.closed for other in records) <= 4
    waits = [(record.sent or 0) - (record.dispatched or 0) for record in records]
    assert sum(wait > 0.001 for wait in waits) >= len(records) - 4
    assert "wait for a slot p99" in shown


def test_a_run_whose_requests_were_not_sent_is_invalid(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "hang", rate=60, duration="300ms", timeout="400ms"), tmp_path / "out"
    with scripted_server() as target:
        process = load("run", "--scenario", str(path), "--target", target, "--out", str(out), "--max-open", "2")
    assert process.returncode == 1
    lines = process.stdout.splitlines()
    assert any(line.startswith("INVALID: ") and "requests were not sent" in line for line in lines)
    titles = [line for line in lines if line.startswith(("whole run", "latencies", "goodput by", "arrivals, as"))]
    assert len(titles) == 4
    assert all(title.rstrip().endswith("(INVALID)") for title in titles)


def test_every_kind_of_failure_is_counted_and_none_is_fatal(tmp_path: Path) -> None:
    names = ("siso", "refuse", "fail", "tear", "drop")
    path, out = write_scenario(tmp_path, *names, rate=60, duration="800ms"), tmp_path / "out"
    with scripted_server() as target:
        process = run_load(path, target, out)
    assert (process.returncode, process.stderr) == (0, "")
    records = read_records(out)
    assert {(record.request_class, record.outcome) for record in records if record.stream} == {
        ("siso", ClientOutcome.OK),
        ("refuse", ClientOutcome.REJECTED),
        ("fail", ClientOutcome.UPSTREAM_ERROR),
        ("tear", ClientOutcome.TRUNCATED),
        ("drop", ClientOutcome.UPSTREAM_UNREACHABLE),
    }
    usual = next(record for record in records if record.outcome is ClientOutcome.OK and record.stream)
    assert (usual.prompt_tokens, usual.cached_tokens, usual.queue) == (usual.asked_prompt_tokens - 1, 16, 0.0015)
    assert usual.completion_tokens == usual.max_tokens == usual.chunks
    times = (usual.due, usual.dispatched, usual.sent, usual.first_byte, usual.first, usual.last, usual.closed)
    assert list(times) == sorted(time for time in times if time is not None)
    assert {record.error for record in records if record.request_class == "refuse"} == {"too many"}


def test_a_request_without_a_response_times_out_from_its_due_time(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, "hang", rate=60, duration="200ms", timeout="300ms")
    with scripted_server() as target:
        process = run_load(path, target, tmp_path / "out")
    assert process.returncode == 0
    (notice,) = process.stderr.splitlines()
    assert notice.partition(" ")[2] == "WARNING load: the first 5 requests all failed: timeout; ctrl-c stops the run"
    records = read_records(tmp_path / "out")
    assert {record.outcome for record in records} == {ClientOutcome.TIMEOUT}
    assert all((record.e2e or 0) >= 0.3 for record in records)


@pytest.mark.parametrize(
    "of_scenario, of_class, least",
    [
        pytest.param("1h", "300ms", 0.3, id="shorter than the scenario's"),
        pytest.param("200ms", "900ms", 0.9, id="longer than the scenario's"),
    ],
)
def test_the_timeout_of_a_class_replaces_that_of_the_scenario(
    tmp_path: Path, of_scenario: str, of_class: str, least: float
) -> None:
    path, out = write_scenario(tmp_path, "hang", "siso", rate=60, duration="200ms", timeout=of_scenario), tmp_path / "o"
    text = (
        path.read_text().replace("hang: {", f"hang: {{timeout: {of_class}, ").replace("siso: {", "siso: {timeout: 1h, ")
    )
    path.write_text(text)
    with scripted_server() as target:
        process = run_load(path, target, out)
    assert process.returncode == 0
    ended = {name: [r for r in read_records(out) if r.request_class == name] for name in ("hang", "siso")}
    assert {record.outcome for record in ended["hang"]} == {ClientOutcome.TIMEOUT}
    assert min(record.e2e or 0 for record in ended["hang"]) >= least
    assert {record.outcome for record in ended["siso"]} == {ClientOutcome.OK}
    assert read_run(out).timeouts == {"hang": least, "siso": 3600.0}


def test_a_stopped_run_records_open_requests_and_those_not_sent(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "hang", rate=40, duration="1h"), tmp_path / "out"
    flags = ("--grace", "200ms", "--max-open", "10")
    with scripted_server() as target, running_load(path, target, out, *flags) as process:
        # open requests are recorded later, so these records are of requests that were not sent
        assert wait_until(lambda: len(received(target)) == 10 and (out / "requests.jsonl").stat().st_size > 0)
        process.send_signal(signal.SIGTERM)
        shown, errors = process.communicate(timeout=HANG)
        requests = received(target)
    assert (process.returncode, errors) == (0, "")
    assert read_run(out).ended == "stopped"
    outcomes = Counter(record.outcome for record in read_records(out))
    assert outcomes[ClientOutcome.CUT] == len(requests) == 10
    assert outcomes[ClientOutcome.NOT_SENT] > 0
    assert f"cut 10, not_sent {outcomes[ClientOutcome.NOT_SENT]}" in shown
    assert "were not sent" in shown


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.long)])
def test_a_run_stops_when_the_server_is_saturated(tmp_path: Path, workers: str) -> None:
    """The server answers at once, then not at all; the run samples its queue every 20 ms instead of every second."""
    path, out = write_scenario(tmp_path, "siso", rate=100, duration="5m"), tmp_path / "out"
    before = (
        "import locust; from loadgen.distributed import master_run, worker_load; "
        "from loadgen.results import saturation; from loadgen.run import load_run; "
        "load_run.TICK = master_run.TICK = worker_load.INTERVAL = saturation.INTERVAL = 0.02"
    )
    with scripted_server() as target:
        flags = ("--target", target, "--out", str(out), "--stop-when-saturated", "--grace", "0s", "--allow-invalid")
        with starting_load("run", "--scenario", str(path), *flags, "--workers", workers, before=before) as process:
            assert wait_until(lambda: len(received(target)) > 50)
            hold(target)
            shown, errors = process.communicate(timeout=HANG)
    assert process.returncode == 0
    run = read_run(out)
    assert run.ended == "saturated"
    assert run.saturated is not None
    assert (run.saturated.phase, run.saturated.completed < run.saturated.offered) == ("one", True)
    assert 0 <= run.saturated.since < run.saturated.detected
    (line,) = [line for line in errors.splitlines() if "saturated since about" in line]
    assert line.endswith("end; the run stops")
    assert ": saturated after " in shown
    assert "! one: the server was saturated from about " in shown


def test_a_target_that_does_not_respond_is_refused_before_any_load(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = run_load("mixed", "http://127.0.0.1:1", out)
    assert (process.returncode, process.stdout, out.exists()) == (3, "", False)
    assert process.stderr == (
        "vllm-slo: --target http://127.0.0.1:1: cannot connect to http://127.0.0.1:1: connection refused; "
        "start it, or set --no-check and --model\n"
    )


def test_the_api_key_is_sent_and_shown_nowhere(tmp_path: Path) -> None:
    path, out, key = write_scenario(tmp_path, "siso", "deny", rate=40, duration="500ms"), tmp_path / "out", "sk-hidden"
    (tmp_path / "key").write_text(key)
    with scripted_server() as target:
        process = run_load(path, target, out, "--api-key-file", str(tmp_path / "key"), "--log-level", "debug")
        requests = received(target)
    assert process.returncode == 0
    assert {request["authorization"] for request in requests} == {f"bearer {key}"}  # the server lower-cases headers
    assert {record.error for record in read_records(out) if record.outcome is ClientOutcome.CLIENT_ERROR} == {
        "wrong key: bearer <API key>"
    }
    texts = [process.stdout, process.stderr, *(file.read_text() for file in out.iterdir())]
    assert not any(key in text for text in texts)


def test_the_tenant_of_a_request_is_in_its_header_and_record(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "siso", "liso", rate=60, duration="500ms"), tmp_path / "out"
    path.write_text(path.read_text().replace("siso: {", "siso: {tenant: {team-a: 1, team-b: 1}, ", 1))
    with scripted_server() as target:
        run_load(path, target, out)
        sent = Counter((each["x-request-class"], each.get("x-tenant", "")) for each in received(target))
    assert sent == Counter((record.request_class, record.tenant) for record in read_records(out))
    assert sent.keys() == {("siso", "team-a"), ("siso", "team-b"), ("liso", "")}


def test_an_slo_on_valid_output_is_a_warning_before_the_load(tmp_path: Path) -> None:
    path, slos = write_scenario(tmp_path, "siso", rate=20, duration="100ms"), tmp_path / "slos.yaml"
    slos.write_text(OUTPUT_SLOS)
    with scripted_server() as target:
        process = run_load(path, target, tmp_path / "out", "--slos", str(slos))
    (line,) = process.stderr.splitlines()
    warning = (
        "the SLO 'json' is not judged: its signal is valid_output, and the requests of a scenario neither ask for JSON "
        "nor offer tools"
    )
    assert line.partition(" ")[2] == f"WARNING load: {warning}"
    assert f"! {warning}" in process.stdout.splitlines()


def test_only_a_run_imports_gevent_and_locust() -> None:
    code = "import sys, loadgen.command; sys.exit('gevent' in sys.modules or 'locust' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
