"""A target that dies during a run and comes back: every request has an outcome, and the run goes on."""

import subprocess
import sys
from pathlib import Path

import pytest

from loadgen.results.record import ClientOutcome, Record, read_records, read_run
from tests.loadgen.canned_server import canned_server, http
from tests.loadgen.load_process import HERE, received, run_load, running_load, write_scenario
from tests.support.ports import free_port
from tests.support.waiting import HANG, wait_until

pytestmark = pytest.mark.slow


def _start(port: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "scripted_server.py"), "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    server.stdout.readline()  # it listens
    return server


def test_requests_fail_while_the_target_is_down_and_succeed_again(tmp_path: Path) -> None:
    path, out, port = write_scenario(tmp_path, "siso", rate=40, duration="1h"), tmp_path / "out", free_port()
    target = f"http://127.0.0.1:{port}"

    def written() -> list[Record]:
        return read_records(out) if (out / "requests.jsonl").exists() else []

    server = _start(port)
    try:
        with running_load(path, target, out) as process:
            assert wait_until(lambda: any(record.outcome is ClientOutcome.OK for record in written()))
            server.kill()
            server.communicate()
            assert wait_until(
                lambda: sum(record.outcome is ClientOutcome.UPSTREAM_UNREACHABLE for record in written()) > 20
            )
            server = _start(port)
            assert wait_until(lambda: len(received(target)) > 5)
            process.terminate()
            shown, errors = process.communicate(timeout=HANG)
    finally:
        server.kill()
        server.communicate()
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
