"""A run against a scripted server, each in a process of its own."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from loadgen.results.record import ClientOutcome, Record, read_records, read_run
from loadgen.results.summary import summarise_class
from loadgen.schedule import scenario
from loadgen.schedule.requests import Workload, schedule_hash
from tests.loadgen.canned_server import canned_server, http
from tests.loadgen.load_process import (
    ROOT,
    FinishedLoad,
    finished_load,
    hold,
    load,
    received,
    release,
    run_load,
    running_load,
    scripted_server,
    started_server,
    starting_load,
    write_scenario,
)
from tests.support.ports import free_port
from tests.support.sidecar_process import OUTPUT_SLOS
from tests.support.waiting import HANG, wait_until

pytestmark = pytest.mark.slow


def _held_run(path: Path, count: int, *flags: str, held: float = 0.0) -> FinishedLoad:
    """Run against a server that responds only when it has `count` requests, `held` seconds after the start or later."""
    out = path.parent / "out"
    with scripted_server("--hold") as target, running_load(path, target, out, *flags) as process:
        assert wait_until(lambda: len(received(target)) == count)
        assert wait_until(lambda: time.time() > read_run(out).start + held)
        release(target)
        shown, errors = process.communicate(timeout=HANG)
        assert (process.returncode, errors) == (0, "")
        return FinishedLoad(0, shown, errors, out, received(target))


def test_no_request_waits_for_another_and_every_latency_shows_the_queue(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, "siso", rate=60, duration="500ms")
    chosen = scenario.load(path)
    planned = list(Workload(chosen, chosen.phases, 3))
    done = _held_run(path, len(planned))  # before any response: the load is open-loop
    run, records, requests = done.run, done.records, done.requests
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
    summary: dict[str, Any] = json.loads((done.out / "summary.json").read_text())
    assert summary["total"]["offered"] == len(planned)
    assert summary["classes"][0]["ttft"]["p50"] == summarise_class("siso", records).ttft.p50
    assert run.ended == "completed"
    page = tmp_path / "page.html"
    assert load("report", str(done.out), "--html", str(page)).stdout == done.shown
    assert page.read_text() == (done.out / "report.html").read_text()


def test_users_of_a_closed_loop_wait_for_their_responses(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, "siso", rate=1, duration="400ms")
    path.write_text(path.read_text().replace("rate: 1", "users: 3"))
    done = _held_run(path, 3)
    records = sorted(done.records, key=lambda record: record.due)
    assert len(records) > 3
    # at most three requests are open at any time, and each starts when another one has ended
    for index, record in enumerate(records):
        assert sum(earlier.closed > record.due for earlier in records[:index]) < 3
    assert all((record.send_lag or 0) < 0.4 for record in records)
    assert "one is a closed loop of 3 users" in done.shown


def test_the_turns_of_a_conversation_follow_each_other_until_one_fails(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, "siso", "tear", rate=20, duration="1s")
    talk = ", conversation: {turns: {min: 3, max: 3}, think_time: {min: 10ms, max: 50ms}}}"
    path.write_text(path.read_text().replace("{min: 5, max: 20}}", "{min: 5, max: 20}" + talk) + "stream_share: 0.5\n")
    done = finished_load(path)
    assert (done.status, done.errors) == (0, "")
    records = done.records
    assert len(records) == len(done.requests)
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
    assert f"{2 * len(torn)} turns were not sent, because" in done.shown


def test_a_limit_of_concurrency_makes_requests_wait(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, "siso", rate=60, duration="500ms")
    done = _held_run(path, 4, "--max-concurrency", "4", held=0.5)  # until all requests are due
    records = done.records
    assert len(records) > 8
    for record in records:
        assert record.sent is not None
        assert sum((other.sent or 0) <= record.sent < other.closed for other in records) <= 4
    waits = [(record.sent or 0) - (record.dispatched or 0) for record in records]
    assert sum(wait > 0.001 for wait in waits) >= len(records) - 4
    assert "wait for a slot p99" in done.shown


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
    done = finished_load(write_scenario(tmp_path, *names, rate=60, duration="800ms"))
    assert (done.status, done.errors) == (0, "")
    records = done.records
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
    done = finished_load(path)
    assert done.status == 0
    (notice,) = done.errors.splitlines()
    assert notice.partition(" ")[2] == "WARNING load: the first 5 requests all failed: timeout; ctrl-c stops the run"
    assert {record.outcome for record in done.records} == {ClientOutcome.TIMEOUT}
    assert all((record.e2e or 0) >= 0.3 for record in done.records)


def test_the_timeout_of_a_class_replaces_that_of_the_scenario(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, "hang", "siso", rate=60, duration="200ms", timeout="200ms")
    text = path.read_text().replace("hang: {", "hang: {timeout: 900ms, ").replace("siso: {", "siso: {timeout: 1h, ")
    path.write_text(text)
    done = finished_load(path)
    assert done.status == 0
    ended = {name: [r for r in done.records if r.request_class == name] for name in ("hang", "siso")}
    assert {record.outcome for record in ended["hang"]} == {ClientOutcome.TIMEOUT}
    assert min(record.e2e or 0 for record in ended["hang"]) >= 0.9
    assert {record.outcome for record in ended["siso"]} == {ClientOutcome.OK}
    assert done.run.timeouts == {"hang": 0.9, "siso": 3600.0}


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
            assert wait_until(lambda: len(received(target)) > 150)  # then a slow machine has enough samples, too
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
    path, key = write_scenario(tmp_path, "siso", "deny", rate=40, duration="500ms"), "sk-hidden"
    (tmp_path / "key").write_text(key)
    done = finished_load(path, "--api-key-file", str(tmp_path / "key"), "--log-level", "debug")
    assert done.status == 0
    # the server lower-cases headers
    assert {request["authorization"] for request in done.requests} == {f"bearer {key}"}
    errors = {record.error for record in done.records if record.outcome is ClientOutcome.CLIENT_ERROR}
    assert errors == {"wrong key: bearer <API key>"}
    texts = [done.shown, done.errors, *(file.read_text() for file in done.out.iterdir())]
    assert not any(key in text for text in texts)


def test_the_tenant_of_a_request_is_in_its_header_and_record(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, "siso", "liso", rate=60, duration="500ms")
    path.write_text(path.read_text().replace("siso: {", "siso: {tenant: {team-a: 1, team-b: 1}, ", 1))
    done = finished_load(path)
    sent = Counter((each["x-request-class"], each.get("x-tenant", "")) for each in done.requests)
    assert sent == Counter((record.request_class, record.tenant) for record in done.records)
    assert sent.keys() == {("siso", "team-a"), ("siso", "team-b"), ("liso", "")}


def test_an_slo_on_valid_output_is_a_warning_before_the_load(tmp_path: Path) -> None:
    path, slos = write_scenario(tmp_path, "siso", rate=20, duration="100ms"), tmp_path / "slos.yaml"
    slos.write_text(OUTPUT_SLOS)
    done = finished_load(path, "--slos", str(slos))
    (line,) = done.errors.splitlines()
    warning = (
        "the SLO 'json' is not judged: its signal is valid_output, and the requests of a scenario neither ask for JSON "
        "nor offer tools"
    )
    assert line.partition(" ")[2] == f"WARNING load: {warning}"
    assert f"! {warning}" in done.shown.splitlines()


def test_only_a_run_imports_gevent_and_only_one_with_workers_locust() -> None:
    code = (
        "import sys, loadgen.command; assert 'gevent' not in sys.modules; "
        "from loadgen.run import load_run; assert 'locust' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("detailed", [False, True], ids=["usual", "detailed"])
def test_the_gaps_of_all_chunks_are_in_the_result(tmp_path: Path, detailed: bool) -> None:
    path = write_scenario(tmp_path, "siso", "refuse", rate=60, duration="500ms")
    path.write_text(path.read_text() + "chat_share: 1\nstream_share: 1\n")
    done = finished_load(path, *(["--save-detailed"] if detailed else []))
    assert (done.status, done.errors) == (0, "")
    records = sorted(done.records, key=lambda record: record.due)
    ended = [record for record in records if record.outcome is ClientOutcome.OK]
    result = json.loads((done.out / "bench.json").read_text())
    assert (result["completed"], result["failed"]) == (len(ended), len(records) - len(ended))
    histogram = result["vllm_slo"]["itl_histogram"]
    # a chunk with the role, and one for each token
    assert histogram["zeros"] + sum(histogram["counts"].values()) == sum(record.chunks for record in ended)
    between = sum((record.last_choice or 0) - (record.first_choice or 0) for record in ended)
    assert histogram["sum"] == pytest.approx(between, abs=1e-3)
    assert ("itls" in result) == detailed
    if detailed:
        assert [len(gaps) for gaps in result["itls"]] == [record.chunks for record in records]
        assert [text.count(" the") for text in result["generated_texts"]] == [record.chunks for record in records]
        assert result["errors"] == ["" if record in ended else "too many" for record in records]


def test_a_target_that_answers_with_html_fails_every_request_with_the_reason(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "siso", rate=40, duration="500ms"), tmp_path / "out"
    with canned_server(http("200 OK", "<html>welcome</html>", "content-type: text/html")) as (target, _):
        process = run_load(path, target, out, "--no-check", "--model", "m")
    assert process.returncode == 0
    (notice,) = process.stderr.splitlines()
    reason = "the body is not a completion: JSON is malformed: invalid character (byte 0)"
    assert notice.partition(" ")[2] == (
        f"WARNING load: the first 5 requests all failed: upstream_error, status 200: {reason}; ctrl-c stops the run"
    )
    assert {(record.outcome, record.error) for record in read_records(out)} == {(ClientOutcome.UPSTREAM_ERROR, reason)}


def test_requests_fail_while_the_target_is_down_and_succeed_again(tmp_path: Path) -> None:
    path, out, port = write_scenario(tmp_path, "siso", rate=40, duration="1h"), tmp_path / "out", str(free_port())

    def written() -> list[Record]:
        return read_records(out) if (out / "requests.jsonl").exists() else []

    def count(outcome: ClientOutcome) -> int:
        return sum(record.outcome is outcome for record in written())

    with ExitStack() as stack:
        server, target = stack.enter_context(started_server("--port", port))
        process = stack.enter_context(running_load(path, target, out))
        assert wait_until(lambda: count(ClientOutcome.OK) > 0)
        server.kill()
        assert wait_until(lambda: count(ClientOutcome.UPSTREAM_UNREACHABLE) > 20)
        stack.enter_context(started_server("--port", port))
        assert wait_until(lambda: len(received(target)) > 5)
        process.terminate()
        shown, errors = process.communicate(timeout=HANG)
    assert process.returncode == 0
    (notice,) = errors.splitlines()
    text = notice.partition(" ")[2]  # the reason is "connection refused", or "no response" if many were open
    assert text.startswith("WARNING load: the last 20 requests all failed: upstream_unreachable: ")
    assert read_run(out).ended == "stopped"
    outcomes = [record.outcome for record in written()]
    down = outcomes.index(ClientOutcome.UPSTREAM_UNREACHABLE)
    assert ClientOutcome.OK in outcomes[:down]
    assert ClientOutcome.OK in outcomes[down:]
    assert "upstream_unreachable" in shown
