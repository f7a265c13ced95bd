"""Signals that arrive while the processes of the sidecar start."""

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from tests.bench.machine import tree
from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import SLOS, sidecar
from tests.support.waiting import growing_pause, until

pytestmark = pytest.mark.slow

PROGRAM = "import sys; from compose.console_script import main; {}sys.exit(main())"
"""The program, which imports nothing before its first line."""


def blocks_sighup(pid: int) -> bool:
    (mask,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigBlk:")]
    return bool(int(mask.split()[1], 16) & 1 << signal.SIGHUP - 1)


async def test_signals_from_the_first_line_of_the_program_on_end_no_process(tmp_path: Path) -> None:
    signalled: set[int] = set()

    async def signal_all(pid: int) -> None:
        """Send SIGHUP to all processes, and the signals of a stop to the children."""
        await until(lambda: blocks_sighup(pid))
        began = time.monotonic()
        while True:
            for each in tree(pid):
                numbers = [signal.SIGHUP] if each == pid else [signal.SIGHUP, signal.SIGTERM, signal.SIGINT]
                for number in numbers:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(each, number)
                signalled.add(each)
            await growing_pause(began)

    async with (
        serving(Engine()) as engine,
        sidecar(tmp_path, engine.url, code=PROGRAM.format(""), while_starting=signal_all) as running,
    ):
        assert signalled == {running.process.pid, running.relay, running.exporter}
        assert await running.ask("one") == 200
        assert [line for line in running.log_lines() if not line.startswith("INFO")] == []
        assert await running.stop() == 0


EDIT_AFTER_READING = """
import os, signal
from pathlib import Path
from exporters.vocabulary import slo_file
load = slo_file.load
def load_then_edit(path):
    slo_file.load = load
    file = load(path)
    Path(path).write_text({text!r})
    os.kill(os.getpid(), signal.SIGHUP)
    return file
slo_file.load = load_then_edit
"""


async def test_a_sighup_right_after_the_slo_file_was_read_at_the_start_leads_to_a_reload(tmp_path: Path) -> None:
    edited = SLOS.replace("name: availability", "name: edited")
    code = PROGRAM.format(f"exec({EDIT_AFTER_READING.format(text=edited)!r}); ")
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, code=code) as running:
        await running.shows(f"llm_engine_up{{127.0.0.1:{engine.port}}}", 1)
        assert await running.ask("one") == 200
        await running.shows("llm_slo_events_total{all,tiny,edited,other}", 1)


async def test_a_sighup_while_the_sidecar_ends_does_not_change_its_exit_status(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url) as running:
        running.process.send_signal(signal.SIGTERM)
        stopped, began = asyncio.ensure_future(running.ended()), time.monotonic()
        while not stopped.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.process.pid, signal.SIGHUP)  # `send_signal` would take the exit status from asyncio
            await growing_pause(began)
        assert await stopped == 0
