"""Starts the load generator and the scripted server, each in a process of its own."""

import atexit
import functools
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadgen.results.record import Record, Run, read_records, read_run
from tests.support.waiting import HANG

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SHAPE = "{share: 1, prompt_tokens: {min: 10, max: 20}, output_tokens: {min: 5, max: 20}}"
_QUIET = ("--log-level", "warning")  # without the progress lines, which depend on the machine's speed
_VALID = ("--allow-invalid",)  # the load generator may be slow on a busy machine


def load(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """`vllm-slo load` with these arguments, after this code."""
    command = _command(arguments, before)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG, check=False)


@contextmanager
def starting_load(*arguments: str, before: str = "") -> Iterator[subprocess.Popen[str]]:
    """The same as a process that is killed at the end."""
    command = _command(arguments, before)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _command(arguments: tuple[str, ...], before: str) -> list[str]:
    code = f"import sys\n{before}\nfrom compose.cli import main\nsys.exit(main())"
    return [sys.executable, "-W", "error", "-c", code, "load", *arguments]


def run_load(scenario: Path | str, target: str, out: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """`vllm-slo load run`, to its end."""
    return load(*_run(scenario, target, out), *flags)


@contextmanager
def running_load(scenario: Path, target: str, out: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """`vllm-slo load run`, killed at the end."""
    with starting_load(*_run(scenario, target, out), *flags) as process:
        yield process


def _run(scenario: Path | str, target: str, out: Path) -> tuple[str, ...]:
    return ("run", "--scenario", str(scenario), "--target", target, "--out", str(out), *_QUIET, *_VALID)


@dataclass(frozen=True, slots=True)
class FinishedLoad:
    """A run against the scripted server, and the headers of the requests that the server has received."""

    status: int
    shown: str
    errors: str
    out: Path
    requests: list[dict[str, str]]

    @property
    def run(self) -> Run:
        return read_run(self.out)

    @property
    def records(self) -> list[Record]:
        return read_records(self.out)


def finished_load(scenario: Path, *flags: str) -> FinishedLoad:
    """Run to the end against the scripted server, with the results beside the scenario."""
    out = scenario.parent / "out"
    with scripted_server() as target:
        process = run_load(scenario, target, out, *flags)
        return FinishedLoad(process.returncode, process.stdout, process.stderr, out, received(target))


@contextmanager
def scripted_server(*flags: str) -> Iterator[str]:
    """The URL of a scripted server, which the tests of a process share unless it has flags other than --hold."""
    if flags in {(), ("--hold",)}:
        target = _shared_server()
        _ask(target, "reset")
        if flags:
            hold(target)
        yield target
        return
    with started_server(*flags) as (_, target):
        yield target


@contextmanager
def started_server(*flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A scripted server and its URL."""
    command = [sys.executable, str(HERE / "scripted_server.py"), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server, f"http://127.0.0.1:{server.stdout.readline().strip()}"
        finally:
            server.terminate()


@functools.cache
def _shared_server() -> str:
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(started_server())[1]


def _ask(target: str, path: str) -> Any:
    with urllib.request.urlopen(f"{target}/{path}", timeout=HANG) as response:
        return json.load(response)


def received(target: str) -> list[dict[str, str]]:
    """The headers of each completion request that the scripted server has received."""
    requests: list[dict[str, str]] = _ask(target, "received")
    return requests


def release(target: str) -> None:
    """Let a scripted server with `--hold` respond."""
    _ask(target, "release")


def hold(target: str) -> None:
    """Let a scripted server accept requests without a response."""
    _ask(target, "hold")


def write_scenario(folder: Path, *classes: str, rate: float, duration: str, timeout: str = "1h") -> Path:
    """A scenario of one phase with these classes."""
    path = folder / "scenario.yaml"
    shapes = "".join(f"  {name}: {SHAPE}\n" for name in classes)
    phases = f"[{{name: one, duration: {duration}, rate: {rate}}}]"
    path.write_text(f"name: small\nseed: 3\ntimeout: {timeout}\nclasses:\n{shapes}phases: {phases}\n")
    return path
