"""Where the kernel does not signal the end of a parent, the script stays as the program's parent and does it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from compose.processes.child_processes import PARENT_DEATH_SIGNAL
from tests.support.waiting import HANG

pytestmark = pytest.mark.slow

# Runs the script as on a system without `prctl`.
WITHOUT_PRCTL = (
    *(sys.executable, "-c"),
    "import runpy, sys; sys.platform = 'darwin'; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')",
    str(PARENT_DEATH_SIGNAL),
)
REPORT_SIGTERM = (
    "import signal, sys\n"
    "def stop(*_):\n"
    "    print('stopped', flush=True)\n"
    "    sys.exit(5)\n"
    "signal.signal(signal.SIGTERM, stop); print('ready', flush=True)\n"
    "while True: signal.pause()"
)
RUNNER = (
    "import os, subprocess, sys\n"
    "program = sys.argv.index('PARENT'); sys.argv[program] = str(os.getpid())\n"
    "sys.exit(subprocess.call(sys.argv[1:]))"
)


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has printed `ready`."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


@pytest.mark.parametrize(
    "code, expected",
    [
        pytest.param("raise SystemExit(7)", 7, id="exit status"),
        pytest.param("import os; os.kill(os.getpid(), 9)", -9, id="SIGKILL"),
        pytest.param("import os; os.kill(os.getpid(), 15)", -15, id="SIGTERM"),
    ],
)
def test_it_ends_as_the_program_ends(code: str, expected: int) -> None:
    command = (*WITHOUT_PRCTL, str(os.getpid()), sys.executable, "-c", code)
    assert subprocess.run(command, check=False, timeout=HANG).returncode == expected


def test_a_program_that_cannot_be_started_is_reported() -> None:
    command = (*WITHOUT_PRCTL, str(os.getpid()), "/nonexistent/program")
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG)
    assert process.returncode == 1
    assert process.stderr == "/nonexistent/program: cannot be started: no such file or directory\n"


def test_a_sigterm_reaches_the_program() -> None:
    with running(*WITHOUT_PRCTL, str(os.getpid()), sys.executable, "-c", REPORT_SIGTERM) as process:
        process.terminate()
        assert process.communicate(timeout=HANG)[0] == "stopped\n"
        assert process.returncode == 5


def test_the_program_gets_sigterm_when_the_runner_is_killed() -> None:
    program = (*WITHOUT_PRCTL, "PARENT", sys.executable, "-c", REPORT_SIGTERM)
    with running(sys.executable, "-c", RUNNER, *program) as runner:
        runner.kill()
        # Ends when the program, which has inherited it, has ended too.
        assert runner.communicate(timeout=HANG)[0] == "stopped\n"


def test_nothing_is_started_for_a_runner_that_has_ended() -> None:
    command = (*WITHOUT_PRCTL, "1", sys.executable, "-c", "print('started')")
    process = subprocess.run(command, stdout=subprocess.PIPE, check=False, timeout=HANG)
    assert (process.returncode, process.stdout) == (143, b"")
