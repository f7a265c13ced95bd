"""Child processes: started, monitored, and always stopped."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from compose.processes.child_processes import (
    PARENT_DEATH_SIGNAL,
    ChildProcesses,
    Service,
    ServiceFailedError,
    describe_exit,
    tail,
)
from tests.support.ports import free_lab_ports
from tests.support.waiting import HANG, wait_until

pytestmark = pytest.mark.slow


def python(name: str, code: str, **other: object) -> Service:
    return Service(name=name, command=(sys.executable, "-c", code), **other)  # type: ignore[arg-type]


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[ChildProcesses]:
    found = ChildProcesses(tmp_path)
    yield found
    await found.stop()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    "code, text",
    [
        pytest.param(3, "exited with status 3", id="status"),
        pytest.param(-9, "was killed by SIGKILL", id="signal"),
        pytest.param(-99, "was killed by signal 99", id="unnamed signal"),
    ],
)
def test_an_exit_is_described(code: int, text: str) -> None:
    assert describe_exit(code) == text


def test_the_end_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {n}\n" for n in range(100)))
    assert tail(log) == "\n".join(f"    line {n}" for n in range(85, 100))
    assert tail(tmp_path / "none.log") == "    (empty)"


async def test_a_child_that_exits_is_reported_with_the_last_lines_of_its_log(
    processes: ChildProcesses, tmp_path: Path
) -> None:
    await processes.start(python("steady", "import time; time.sleep(3600)"))
    await processes.start(python("frail", "import sys; print('about to fail'); sys.exit(7)"))
    error = await asyncio.wait_for(processes.wait_for_failure(), HANG)
    assert str(error) == (f"frail exited with status 7; last lines of {tmp_path / 'frail.log'}:\n    about to fail")


async def test_a_missing_program_is_reported_as_a_failed_child(processes: ChildProcesses) -> None:
    await processes.start(Service(name="ghost", command=("/nonexistent/ghost",)))
    error = await asyncio.wait_for(processes.wait_for_failure(), HANG)
    assert str(error).endswith("/nonexistent/ghost: cannot be started: no such file or directory")


async def test_a_completed_load_is_not_a_failure(processes: ChildProcesses) -> None:
    child = await processes.start(python("load", "pass", may_exit=True))
    assert await child.wait_for_failure() is None


@pytest.mark.parametrize(
    "code, within, message",
    [
        pytest.param(
            "raise SystemExit('no such flag')",
            HANG,
            r"frail exited with status 1; last lines of .*\n    no such flag",
            id="exits",
        ),
        pytest.param(
            "import time; time.sleep(3600)",
            0.2,
            r"frail was not ready within 0.2 s: http://127.0.0.1:",
            id="never responds",
        ),
    ],
)
async def test_a_child_that_does_not_become_ready_has_failed(
    processes: ChildProcesses, code: str, within: float, message: str
) -> None:
    child = await processes.start(python("frail", code, ready_url=free_lab_ports().url("relay")))
    async with aiohttp.ClientSession() as http:
        with pytest.raises(ServiceFailedError, match=message):
            await child.wait_until_ready(http, within)
        assert not await child.is_healthy(http, 0.2)


async def test_a_child_that_ignores_sigterm_is_killed_with_its_group(processes: ChildProcesses) -> None:
    code = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); child = os.fork()\n"
        "if child: print(child, flush=True)\n"
        "time.sleep(3600)"
    )
    child = await processes.start(python("stubborn", code, grace=0.1))
    while not (text := child.log.read_text()):
        await asyncio.sleep(0.02)
    await processes.stop()
    assert not child.alive
    assert wait_until(lambda: not is_alive(int(text)))


async def test_children_stop_in_reverse_start_order(processes: ChildProcesses, tmp_path: Path) -> None:
    order = tmp_path / "order"
    code = (
        "import pathlib, signal, sys\n"
        "def stop(*_):\n"
        "    with open({order!r}, 'a') as file: file.write('{name} ')\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, stop); print('up', flush=True)\n"
        "while True: signal.pause()"
    )
    for name in ("engine", "sidecar", "load"):
        child = await processes.start(python(name, code.format(order=str(order), name=name)))
        while not child.log.read_text():
            await asyncio.sleep(0.02)
    await processes.stop()
    assert order.read_text() == "load sidecar engine "


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the death of a parent")
def test_no_child_outlives_a_runner_that_is_killed() -> None:
    code = (
        "import os, subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, {str(PARENT_DEATH_SIGNAL)!r}, str(os.getpid()), 'sleep', '3600'])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        child = int(runner.stdout.readline())
        assert wait_until(lambda: b"sleep" in Path(f"/proc/{child}/cmdline").read_bytes())
        os.kill(runner.pid, signal.SIGKILL)
    assert wait_until(lambda: not is_alive(child))
