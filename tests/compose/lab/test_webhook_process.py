"""The webhook as a process, of the container lab and of `vllm-slo webhook`."""

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.ports import busy_port, free_lab_ports
from tests.support.waiting import HANG, wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
DELIVERY = {
    "version": "4",
    "receiver": "page",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "LLMEngineDown", "severity": "page"},
            "annotations": {"summary": "the engine is down"},
            "startsAt": "2026-01-31T12:00:00Z",
        }
    ],
}


def command(listen: str, *flags: str) -> list[str]:
    return [sys.executable, "-m", "compose.lab.webhook_process", "--listen", listen, *flags]


def received(process_command: list[str], url: str) -> str:
    """Start a webhook, send it a page and stop it; its log."""
    with subprocess.Popen(process_command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert wait_until(lambda: is_up(url + "/healthz"))
            request = urllib.request.Request(url + "/page", data=json.dumps(DELIVERY).encode())
            with urllib.request.urlopen(request, timeout=HANG) as response:
                assert response.status == 200
        finally:
            process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=HANG)
    assert process.returncode == 0
    return log


def is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except OSError:
        return False


def test_a_page_is_a_line_of_the_log_and_a_line_of_the_file(tmp_path: Path) -> None:
    ports, file = free_lab_ports(), tmp_path / "pages.jsonl"
    log = received(command(ports.address("webhook"), "--out", str(file)), ports.url("webhook"))
    assert " INFO webhook: page firing " in log
    assert log.endswith("LLMEngineDown - the engine is down\n")
    (line,) = file.read_text().splitlines()
    assert json.loads(line)["labels"] == {"alertname": "LLMEngineDown", "severity": "page"}


def test_the_command_needs_no_file() -> None:
    ports = free_lab_ports()
    program = [sys.executable, "-c", "from compose.cli import main; raise SystemExit(main())"]
    log = received([*program, "webhook", "--listen", ports.address("webhook")], ports.url("webhook"))
    assert f" INFO webhook: waiting for notifications at {ports.url('webhook')}\n" in log
    assert log.endswith("LLMEngineDown - the engine is down\n")


def refusal(*flags: str) -> str:
    run = subprocess.run(command(*flags), cwd=ROOT, capture_output=True, text=True, check=False, timeout=HANG)
    assert run.returncode == 2
    return run.stderr


def test_a_wrong_address_a_busy_port_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    wrong = "webhook: --listen: 'here' is not a valid address; write HOST:PORT, such as 127.0.0.1:8001\n"
    assert refusal("here") == wrong
    file = tmp_path / "missing" / "pages.jsonl"
    assert refusal("127.0.0.1:0", "--out", str(file)) == f"webhook: --out {file}: no such file or directory\n"
    with busy_port() as port:
        busy = f"webhook: --listen: cannot listen on 127.0.0.1:{port}: address already in use\n"
        assert refusal(f"127.0.0.1:{port}") == busy
