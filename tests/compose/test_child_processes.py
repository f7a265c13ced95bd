"""Child processes: started, watched, and never left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from compose.child_processes import LEASH, Family, Service, ServiceFailedError, ending, tail
from tests.support.ports import free_lab_ports


def python(name: str, code: str, **other: object) -> Service:
    return Service(name=name, command=(sys.executable, "-c", code), **other)  # type: ignore[arg-type]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition: Callable[[], bool], within: float = 5.0) -> bool:
    give_up = time.monotonic() + within
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.02)
    return condition()


@pytest.mark.parametrize(
    "code, words",
    [
        pytest.param(3, "exited with 3", id="status"),
        pytest.param(-9, "was killed by SIGKILL", id="signal"),
        pytest.param(-99, "was killed by signal 99", id="unnamed signal"),
    ],
)
def test_an_ending_is_told_in_words(code: int, words: str) -> None:
    assert ending(code) == words


def test_the_end_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {n}\n" for n in range(100)))
    assert tail(log, 2) == "    line 98\n    line 99"
    assert tail(tmp_path / "none.log") == "    (empty)"


async def test_a_child_that_dies_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    family = Family(tmp_path)
    await family.start(python("steady", "import time; time.sleep(60)"))
    await family.start(python("frail", "import sys; print('about to fail'); sys.exit(7)"))
    error = await asyncio.wait_for(family.fallen(), 10)
    await family.stop()
    assert str(error) == (f"frail exited with 7; the end of {tmp_path / 'frail.log'}:\n    about to fail")


async def test_a_program_that_is_not_there_is_a_child_that_died(tmp_path: Path) -> None:
    family = Family(tmp_path)
    await family.start(Service(name="ghost", command=("/nonexistent/ghost",)))
    error = await asyncio.wait_for(family.fallen(), 10)
    assert str(error).endswith("/nonexistent/ghost: cannot be started: no such file or directory")
    await family.stop()


async def test_a_load_that_has_run_its_course_is_no_failure(tmp_path: Path) -> None:
    family = Family(tmp_path)
    child = await family.start(python("load", "pass", may_end=True))
    assert await child.failed() is None


async def test_a_child_that_dies_while_starting_is_not_waited_for(tmp_path: Path) -> None:
    family = Family(tmp_path)
    child = await family.start(python("frail", "raise SystemExit('no such flag')", ready=free_lab_ports().url("relay")))
    async with aiohttp.ClientSession() as http:
        with pytest.raises(ServiceFailedError, match=r"frail exited with 1; the end of .*\n    no such flag"):
            await child.ready(http, within=30)


async def test_a_child_that_never_answers_is_given_up(tmp_path: Path) -> None:
    family = Family(tmp_path)
    child = await family.start(python("mute", "import time; time.sleep(60)", ready=free_lab_ports().url("relay")))
    async with aiohttp.ClientSession() as http:
        with pytest.raises(ServiceFailedError, match=r"mute was not ready within 0.2 s: http://127.0.0.1:"):
            await child.ready(http, within=0.2)
        assert not await child.well(http, 0.2)
    await family.stop()


async def test_whoever_ignores_sigterm_is_killed_with_all_its_group(tmp_path: Path) -> None:
    family = Family(tmp_path)
    code = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); child = os.fork()\n"
        "if child: print(child, flush=True)\n"
        "time.sleep(60)"
    )
    child = await family.start(python("stubborn", code, grace=0.1))
    while not (text := child.log.read_text()):
        await asyncio.sleep(0.02)
    await family.stop()
    assert not is_alive(child.pid)
    assert wait_for(lambda: not is_alive(int(text)))


async def test_the_last_started_is_the_first_to_be_stopped(tmp_path: Path) -> None:
    family = Family(tmp_path)
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
        child = await family.start(python(name, code.format(order=str(order), name=name)))
        while not child.log.read_text():
            await asyncio.sleep(0.02)
    await family.stop()
    assert order.read_text() == "load sidecar engine "


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
def test_a_runner_that_is_killed_leaves_no_child_behind() -> None:
    code = (
        "import os, subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, {str(LEASH)!r}, str(os.getpid()), 'sleep', '60'])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        child = int(runner.stdout.readline())
        assert wait_for(lambda: b"sleep" in Path(f"/proc/{child}/cmdline").read_bytes())
        os.kill(runner.pid, signal.SIGKILL)
    assert wait_for(lambda: not is_alive(child))
