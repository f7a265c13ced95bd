"""`vllm-slo up` as a user runs it: up, healthy, down, and nothing left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from compose.cli import main
from compose.ports import Ports
from compose.run_directory import RunFolder
from compose.services import OURS
from exporters.errors import UsageError
from tests.support.ports import free_lab_ports


def descendants(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def start(*flags: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*OURS, "up", "--ports", "auto", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"{text!r} was never said:\n{seen}{process.stderr.read() if process.stderr else ''}")


@pytest.mark.lab
def test_the_lab_comes_up_serves_a_load_and_goes_down_leaving_no_process(tmp_path: Path) -> None:
    with start("--for", "12s", "--dir", str(tmp_path)) as process:
        said = read_until(process, "load is offered")
        for service in ("webhook", "alertmanager", "prometheus", "simulator", "sidecar"):
            assert re.search(rf"{service} is up at http://127\.0\.0\.1:\d+", said)
        time.sleep(2)
        children = descendants(process.pid)
        assert len(children) >= 7  # the sidecar has two of its own
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert re.search(r"siso \S+/s open \d+ goodput", rest)
    assert f"logs and data are in {tmp_path}" in rest
    assert not [child for child in children if child.is_running()]
    requests = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    assert {request["class"] for request in requests} >= {"siso", "liso"}
    assert (tmp_path / "load" / "summary.json").exists()


@pytest.mark.lab
def test_a_service_that_dies_is_named_with_the_end_of_its_log_and_all_others_stop(tmp_path: Path) -> None:
    with start("--no-load", "--dir", str(tmp_path)) as process:
        read_until(process, "sidecar is up")
        time.sleep(0.5)
        children = descendants(process.pid)
        victim = next(child for child in children if "simulate" in child.cmdline())
        victim.send_signal(signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.startswith(f"vllm-slo: simulator was killed by SIGKILL; the end of {tmp_path}/logs/simulator.log:\n")
    assert "a SIMULATED vLLM serves" in errors
    assert not [child for child in children if child.is_running()]


@pytest.mark.lab
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_the_runner_no_child_outlives_it(tmp_path: Path, number: signal.Signals) -> None:
    with start("--no-load", "--dir", str(tmp_path)) as process:
        read_until(process, "sidecar is up")
        children = descendants(process.pid)
        process.send_signal(number)
        said, errors = process.communicate(timeout=60)
    if number is not signal.SIGKILL:
        assert process.returncode == 0, errors
        assert f"{number.name}: everything has been stopped" in said
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive


def test_a_busy_port_is_said_before_anything_is_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import socket  # noqa: PLC0415 - for this one test

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        free = free_lab_ports()
        chosen = ",".join(
            f"{name}={port if name == 'sidecar' else getattr(free, name)}" for name in Ports.__dataclass_fields__
        )
        assert main(["up", "--ports", chosen, "--dir", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.startswith(f"vllm-slo: port {port}, wanted for sidecar, is busy on 127.0.0.1\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words, message",
    [
        pytest.param(
            ["--engine", "simulater"],
            "vllm-slo: --engine: 'simulater' is no engine; did you mean 'simulator'?, or write a URL\n",
            id="misspelt engine",
        ),
        pytest.param(
            ["--for", "5"],
            "vllm-slo: --for: '5' is no duration; write a number with a unit, such as 30s or 5m\n",
            id="no unit",
        ),
    ],
)
def test_a_wrong_flag_is_refused_in_words(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", *words]) == 2
    assert capsys.readouterr().err == message


def test_two_labs_never_share_a_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with folder.claimed(), pytest.raises(UsageError) as caught, folder.claimed():
        pass
    assert str(caught.value) == f"--dir {tmp_path}: another lab runs there; stop it, or give another --dir"


def test_a_new_run_removes_an_earlier_runs_files_and_no_others(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    folder.load.mkdir()
    (folder.load / "requests.jsonl").write_text("{}")
    folder.request_log.write_text("{}")
    with folder.claimed():
        assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "notes.txt"]


def test_our_own_commands_start_with_this_interpreter() -> None:
    assert OURS[0] == sys.executable
