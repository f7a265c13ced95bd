"""`vllm-slo up` starts, serves and stops with all its processes."""

import contextlib
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from compose.cli import main
from compose.lab.ports import Ports
from compose.lab.run_directory import RunDirectory
from compose.lab.services import OURS
from exporters.text.errors import UsageError
from loadgen.results.record import read_run
from tests.compose.golden_texts import assert_golden
from tests.support.ports import busy_port, free_lab_ports
from tests.support.waiting import HANG, wait_until


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


def read_until(process: subprocess.Popen[str], *patterns: str) -> str:
    """The output up to the line after which every pattern has occurred."""
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if all(re.search(pattern, output) for pattern in patterns):
            return output
    raise AssertionError(f"not in the output: {patterns}:\n{output}{process.stderr.read() if process.stderr else ''}")


def is_up(*services: str) -> tuple[str, ...]:
    return tuple(rf"{service} is up at http://127\.0\.0\.1:\d+" for service in services)


def has_started(load: Path) -> bool:
    """Whether the load runs, after its first requests, which find out about the engine."""
    with contextlib.suppress(UsageError):  # the file is missing
        return bool(read_run(load).start)
    return False


@pytest.mark.slow
def test_the_lab_starts_serves_a_load_and_stops_with_all_its_processes(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"

    def classes() -> set[str]:
        lines = log.read_text().splitlines(keepends=True) if log.exists() else []
        return {json.loads(line)["class"] for line in lines if line.endswith("\n")}

    with start("--out", str(tmp_path), "--status-interval", "1s") as process:
        read_until(process, *is_up("webhook", "alertmanager", "prometheus", "simulator", "sidecar"), "load started")
        children = descendants(process.pid)
        assert len(children) >= 7  # the sidecar has two of its own
        read_until(process, r"siso \S+/s open \d+ goodput")
        assert wait_until(lambda: has_started(tmp_path / "load") and "siso" in classes())
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=HANG)
    assert process.returncode == 0, errors
    assert "SIGTERM: all processes have been stopped" in output
    assert f"logs and data are in {tmp_path}" in output
    assert not [child for child in children if child.is_running()]
    assert (tmp_path / "load" / "summary.json").exists()


@pytest.mark.slow
def test_the_lab_stops_after_the_given_time(tmp_path: Path) -> None:
    with start("--no-load", "--duration", "100ms", "--out", str(tmp_path)) as process:
        output, errors = process.communicate(timeout=HANG)
    assert process.returncode == 0, errors
    assert re.search(r"prometheus.* from (PATH|the release archive|Debian packages).*: /", output)
    assert f"logs and data are in {tmp_path}" in output


@pytest.mark.slow
def test_a_failed_service_is_reported_with_the_last_lines_of_its_log_and_all_others_stop(tmp_path: Path) -> None:
    with start("--no-load", "--out", str(tmp_path)) as process:
        read_until(process, *is_up("simulator", "sidecar"))
        children = descendants(process.pid)
        victim = next(child for child in children if "simulate" in child.cmdline())
        victim.send_signal(signal.SIGKILL)
        _, errors = process.communicate(timeout=HANG)
    assert process.returncode == 1
    log = tmp_path / "logs" / "simulator.log"
    assert errors.startswith(f"vllm-slo: simulator was killed by SIGKILL; last lines of {log}:\n")
    assert "serving a SIMULATED vLLM" in errors
    assert not [child for child in children if child.is_running()]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_child_outlives_the_runner(tmp_path: Path, number: signal.Signals) -> None:
    with start("--no-load", "--out", str(tmp_path)) as process:
        read_until(process, *is_up("sidecar"))
        children = descendants(process.pid)
        process.send_signal(number)
        output, errors = process.communicate(timeout=HANG)
    if number is not signal.SIGKILL:
        assert process.returncode == 0, errors
        assert f"{number.name}: all processes have been stopped" in output
    _, alive = psutil.wait_procs(children, timeout=HANG)
    assert not alive


def test_a_busy_port_is_reported_before_anything_is_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with busy_port() as port:
        free = free_lab_ports()
        specification = ",".join(
            f"{name}={port if name == 'sidecar' else getattr(free, name)}" for name in Ports.__dataclass_fields__
        )
        assert main(["up", "--ports", specification, "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.startswith(f"vllm-slo: port {port} for sidecar is already in use on 127.0.0.1\n")
    assert not (tmp_path / "run").exists()


def test_a_wrong_flag_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for flags in ("--engine simulater", "--duration 5"):
        assert main(["up", *flags.split()]) == 2
        found[flags] = capsys.readouterr().err.strip()
    assert_golden(__file__, "refusals of up", found)


def test_two_labs_never_share_a_directory(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    with directory.lock(), pytest.raises(UsageError) as caught, directory.lock():
        pass
    assert str(caught.value) == f"--out {tmp_path}: already used by a running lab; stop it, or choose another --out"


def test_a_run_deletes_only_the_files_of_the_previous_run(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    directory.load.mkdir()
    (directory.load / "requests.jsonl").write_text("{}")
    directory.request_log.write_text("{}")
    with directory.lock():
        assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "notes.txt"]
