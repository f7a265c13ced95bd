"""The order of the drain, processes killed during a drain, and two sidecars that start at once."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.faults.sidecar_state import another_exporter, begin_drain
from tests.support.fake_engine import Engine, serving
from tests.support.ports import free_port
from tests.support.sidecar_process import (
    IMPATIENT,
    ROOT,
    RUN,
    START,
    STOPS_QUICKLY,
    Running,
    alive,
    children_by,
    command,
    environment,
    sidecar,
)
from tests.support.waiting import HANG, until

pytestmark = pytest.mark.slow

STOPPING = "INFO supervisor: SIGTERM: /readyz fails, no new connections after 0 s, open requests have 15 s more"
PATIENT = ("--drain", f"{HANG:g}s")
"""A busy machine may need more than the 15 s of the default to start an exporter three times."""

PATIENT_RELAY = f"""\
import runpy, sys
from exporters.relay.record_sender import Sender

close = Sender.close
Sender.close = lambda self, seconds: close(self, {HANG})
module = sys.argv[sys.argv.index("-m") + 1]
sys.argv = [module]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
"""A child in which the relay waits longer for the exporter than 5 s, which a busy machine may need to start one."""

LONG_READINESS_TIMEOUT = f"{START}supervisor.READINESS_TIMEOUT = 60.0; {RUN}"
SHORT_READINESS_TIMEOUT = f"{START}supervisor.READINESS_TIMEOUT = 0.1; {RUN}"


def patient_relay(folder: Path) -> str:
    script = folder / "child.py"
    script.write_text(PATIENT_RELAY)
    return START + children_by(script, folder) + RUN


async def test_relays_serve_until_the_exporter_confirms_that_readiness_fails(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, code=LONG_READINESS_TIMEOUT) as running:
        exporter = running.signal_exporter(signal.SIGSTOP)
        running.process.send_signal(signal.SIGTERM)
        await running.logs_line(STOPPING)
        request_ids = [f"r-{n}" for n in range(10)]
        assert [await _post_on_new_connection(running, name) for name in request_ids] == [200] * 10
        os.kill(exporter, signal.SIGCONT)
        await until(running.refuses_connections)
        assert await running.ended() == 0
        assert sorted(await running.logged()) == sorted(request_ids)


async def test_an_exporter_that_hangs_delays_the_drain_for_a_bounded_time(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, code=SHORT_READINESS_TIMEOUT) as running:
        exporter = running.signal_exporter(signal.SIGSTOP)
        await begin_drain(running)
        os.kill(exporter, signal.SIGCONT)
        assert await running.ended() == 0
        assert running.log_lines()[1:] == [
            STOPPING,
            "WARNING supervisor: the exporter did not confirm within 0.1 s that /readyz fails; draining anyway",
            "INFO supervisor: drained",
        ]


async def test_an_exporter_killed_before_it_confirms_is_restarted_and_not_ready(
    tmp_path: Path,
) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, code=LONG_READINESS_TIMEOUT) as running:
        exporter = running.signal_exporter(signal.SIGSTOP)
        relay = running.signal_relay(signal.SIGSTOP)
        running.process.send_signal(signal.SIGTERM)
        await running.logs_line(STOPPING)
        os.kill(exporter, signal.SIGKILL)
        await another_exporter(running, exporter)
        assert await running.fetch("/readyz") == (503, "draining\n")
        assert not await running.refuses_connections()  # the relay cannot close its listener, because it is stopped
        os.kill(relay, signal.SIGCONT)
        assert await running.ended() == 0


async def test_an_exporter_killed_in_the_drain_is_restarted_and_no_record_is_lost(tmp_path: Path) -> None:
    code = patient_relay(tmp_path)
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *PATIENT, code=code) as running:
        async with running.open_stream("open") as rest:
            await begin_drain(running)
            exporter = running.signal_exporter(signal.SIGKILL)
            await another_exporter(running, exporter)
            running.signal_exporter(signal.SIGKILL)
            engine.may_finish.set()  # the relay has to wait for an exporter to send the record to
            assert (await rest.read()).endswith(b"data: [DONE]\n\n")
        assert await running.ended() == 0
        (line,) = running.lines()
        assert (line["request_id"], line["outcome"], line["completion_tokens"]) == ("open", "ok", 2)
        assert running.log_lines().count("WARNING supervisor: exporter exited by signal 9; restarting it") == 2


async def test_an_exporter_in_its_restart_pause_is_started_when_the_drain_begins(tmp_path: Path) -> None:
    code = patient_relay(tmp_path)
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *PATIENT, code=code) as running:
        async with running.open_stream("open") as rest:
            running.signal_exporter(signal.SIGKILL)
            await running.logs_line("WARNING supervisor: exporter exited by signal 9; restarting it")
            engine.may_finish.set()
            running.process.send_signal(signal.SIGTERM)
            assert (await rest.read()).endswith(b"data: [DONE]\n\n")
        assert await running.ended() == 0
        assert await running.logged() == ["open"]


async def test_a_relay_killed_in_the_drain_is_not_restarted(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url) as running:
        async with running.open_stream("open"):
            await begin_drain(running)
            exporter = running.signal_exporter(0)
            running.signal_relay(signal.SIGKILL)
            assert await running.ended() == 0
        assert "restarting it" not in running.stderr.read_text()
        assert not alive(exporter)


async def _post_on_new_connection(running: Running, request_id: str) -> int:
    """Send a request on a new connection, so that the kernel selects a relay."""
    headers = {"x-request-id": request_id, "connection": "close"}
    body = {"model": "tiny", "messages": [], "max_tokens": 5}
    async with running.session.post(running.completions, json=body, headers=headers) as response:
        await response.read()
        return response.status


async def test_of_two_sidecars_with_workers_started_at_once_exactly_one_is_refused(tmp_path: Path) -> None:
    """Concurrently, so that they bind in any order."""
    address = f"127.0.0.1:{free_port()}"
    flags = ["--upstream", "http://127.0.0.1:1", "--listen", address, "--workers", "2", *STOPS_QUICKLY]
    started = [
        await asyncio.create_subprocess_exec(
            *command(*flags, "--metrics", f"127.0.0.1:{free_port()}", code=START + IMPATIENT + RUN),
            cwd=ROOT,
            env=environment(),
            stderr=asyncio.subprocess.PIPE,
        )
        for _ in range(2)
    ]
    try:
        async with asyncio.timeout(HANG):
            done, _ = await asyncio.wait(
                [asyncio.create_task(each.wait()) for each in started], return_when=asyncio.FIRST_COMPLETED
            )
        assert [each.result() for each in done] == [2]
        (loser,) = [each for each in started if each.returncode is not None]
        assert loser.stderr is not None
        refusal = f"--listen: cannot listen on {address}: address already in use"
        retrying, refused = (await loser.stderr.read()).decode().splitlines()
        assert retrying.endswith(
            f"WARNING supervisor: {refusal}; retrying for 0.1 s, because a sidecar may just have been killed"
        )
        assert refused == f"vllm-slo: {refusal}"
    finally:
        for each in started:
            if each.returncode is None:
                each.terminate()
        for each in started:
            await each.communicate()
