"""A supervisor that is killed: its children end at once, and another one takes over their ports."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from tests.faults.sidecar_state import begin_drain
from tests.support.fake_engine import Engine, serving
from tests.support.ports import free_port
from tests.support.sidecar_process import (
    ROOT,
    RUN,
    START,
    Running,
    alive,
    children,
    children_by,
    command,
    environment,
    sidecar,
)
from tests.support.waiting import HANG, until

FOREVER = f"{10 * HANG:g}s"
SLOW_STOP = ("--drain-delay", FOREVER, "--drain", FOREVER, "--linger", FOREVER)
KILLED = "the supervisor was killed; this process ends at once"


async def serve_requests(_: Running) -> None:
    """No drain has begun."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, begin",
    [
        pytest.param(SLOW_STOP, serve_requests, id="serving"),
        pytest.param(("--drain", FOREVER, "--linger", FOREVER), begin_drain, id="draining"),
    ],
)
async def test_after_the_supervisor_was_killed_another_sidecar_serves_and_the_open_request_is_recorded(
    tmp_path: Path, words: tuple[str, ...], begin: Callable[[Running], Awaitable[None]]
) -> None:
    (tmp_path / "next").mkdir()
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *words) as running:
        pids = children(running.process.pid).values()
        assert len(pids) == 2
        async with running.open_stream("open") as rest:
            await begin(running)
            running.process.kill()
            async with sidecar(
                tmp_path / "next",
                engine.url,
                "--request-log",
                str(running.log),
                with_log=False,
                port=running.port,
                metrics_port=running.metrics_port,
            ) as successor:
                # Until they have ended, processes of the killed sidecar may have answered the probe.
                await until(lambda: not any(alive(pid) for pid in pids))
                await until(successor.ready)
                assert await successor.ask("next") == 200
                await running.logs("open", "next")
                assert [line["outcome"] for line in running.lines()] == ["upstream_error", "ok"]
            with pytest.raises(aiohttp.ClientPayloadError):
                await rest.read()
        lines = running.log_lines()
        for line in (
            f"WARNING relay-0: {KILLED}",
            f"WARNING exporter: {KILLED}",
            "WARNING relay-0: 1 open requests were cut",
        ):
            assert line in lines


HANGING_RELAY = f"""\
import runpy, sys, time
from exporters.relay.record_sender import Sender

Sender.close = lambda self, seconds: time.sleep({10 * HANG})
module = sys.argv[sys.argv.index("-m") + 1]
sys.argv = [module]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
"""A child in which the relay hangs before it exits."""


@pytest.mark.slow
async def test_a_child_that_hangs_when_the_supervisor_was_killed_is_ended_by_a_timer(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(HANGING_RELAY)
    code = START + children_by(script, tmp_path) + RUN
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, code=code) as running:
        relay, exporter = running.signal_relay(0), running.signal_exporter(0)
        running.process.kill()
        await until(lambda: not alive(exporter))
        await until(lambda: not alive(relay))


@pytest.mark.slow
async def test_children_that_are_starting_end_without_a_message_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    stderr, ports = tmp_path / "stderr", [f"127.0.0.1:{free_port()}" for _ in range(2)]
    flags = ["--upstream", "http://127.0.0.1:1", "--listen", ports[0], "--metrics", ports[1]]
    with stderr.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*command(*flags), cwd=ROOT, env=environment(), stderr=output)
    await until(lambda: len(children(process.pid)) == 2)
    pids = children(process.pid).values()
    process.kill()
    await process.wait()
    await until(lambda: not any(alive(pid) for pid in pids))
    assert "Traceback" not in stderr.read_text()
