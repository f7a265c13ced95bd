"""Ctrl-c ends a run at any time with a report, or with a message if nothing was sent."""

import signal
import socket
from pathlib import Path

import pytest

from loadgen.results.record import ClientOutcome, read_records, read_run
from tests.loadgen.load_process import load, received, running_load, scripted_server, write_scenario
from tests.loadgen.load_series import SLOS
from tests.support.ports import free_port
from tests.support.waiting import HANG, wait_until

pytestmark = pytest.mark.slow


def test_ctrl_c_before_the_target_has_responded_sends_nothing(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "siso", rate=1, duration="1h"), tmp_path / "out"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with running_load(path, target, out) as process:
            connection, _ = silent.accept()
            with connection:
                connection.recv(1)  # the request is on its way
                process.send_signal(signal.SIGINT)
                shown, errors = process.communicate(timeout=HANG)
    assert (process.returncode, shown, out.exists()) == (130, "", False)
    assert errors == "vllm-slo load: interrupted before the first request; nothing was sent\n"


def test_ctrl_c_before_the_first_request_gives_an_empty_report(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "siso", rate=1, duration="1h"), tmp_path / "out"
    slos = tmp_path / "slos.yaml"
    slos.write_text(SLOS)  # of a short scrape interval, as the run waits for a last scrape

    def has_handlers() -> bool:
        """SIGTERM is caught; ctrl-c always is, by Python."""
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        return bool(caught >> (signal.SIGTERM - 1) & 1)

    flags = ("--slos", str(slos), "--metrics", f"127.0.0.1:{free_port()}", "--metrics-wait", "1h")
    with scripted_server() as target, running_load(path, target, out, *flags) as process:
        assert wait_until(has_handlers)
        process.send_signal(signal.SIGINT)
        shown, errors = process.communicate(timeout=HANG)
    assert (process.returncode, errors) == (0, "")
    assert read_run(out).ended == "stopped"
    assert "sent 0 of 0" in shown


def test_a_second_ctrl_c_ends_open_requests_at_once_with_the_whole_report(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "hang", rate=60, duration="200ms"), tmp_path / "out"
    flags = ("--grace", "1h", "--log-level", "info")
    with scripted_server() as target, running_load(path, target, out, *flags) as process:
        assert wait_until(lambda: len(received(target)) > 4)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        stopping = next(line for line in process.stderr if " stopping: " in line)
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=HANG)
        requests = received(target)
    assert stopping.partition(" INFO load: ")[2] == (
        f"stopping: {len(requests)} open requests have up to 3600 s to finish; ctrl-c again ends the run now\n"
    )
    assert process.returncode == 0
    assert read_run(out).ended == "stopped"
    records = read_records(out)
    assert len(records) == len(requests)
    assert {record.outcome for record in records} == {ClientOutcome.CUT}
    assert load("report", str(out)).stdout == shown
