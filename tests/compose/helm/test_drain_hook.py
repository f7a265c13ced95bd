"""The preStop hook of vLLM, with a real sidecar: it returns when the sidecar is empty or time is out."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.compose.helm.chart import CHART
from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import sidecar
from tests.support.waiting import HANG, until

pytestmark = pytest.mark.slow

HOOK = CHART / "files/drain.py"
FOREVER = f"{10 * HANG:g}s"


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("t0ken\n")
    return path


async def start(seconds: float, url: str, token: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", str(HOOK), str(seconds), url, str(token)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # A proxy of the environment must not receive the token.
        env={"http_proxy": "http://127.0.0.1:1", "PATH": ""},
    )


async def ended(hook: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    async with asyncio.timeout(HANG):
        output, errors = await hook.communicate()
    return hook.returncode, output.decode(), errors.decode()


@pytest.mark.parametrize(
    "exporter_is_killed",
    [
        pytest.param(False, id="exporter runs"),
        pytest.param(True, id="exporter is killed", marks=pytest.mark.long),
    ],
)
async def test_it_returns_when_the_last_stream_has_ended_and_nothing_is_cut(
    tmp_path: Path, token: Path, exporter_is_killed: bool
) -> None:
    words = ("--admin-token-file", str(token), "--drain", FOREVER)
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *words) as running:
        async with running.open_stream("open") as rest:
            hook = await start(HANG, running.pages, token)
            await until(running.refuses_connections)
            if exporter_is_killed:
                running.signal_exporter(signal.SIGKILL)
            assert hook.returncode is None
            engine.may_finish.set()
            assert (await rest.read()).endswith(b"data: [DONE]\n\n")
        status, output, errors = await ended(hook)
        assert (status, errors, json.loads(output)["cut_requests"]) == (0, "", 0)
        assert await running.status("/readyz") == 503
        assert await running.refuses_connections()
        assert await running.stop() == 0


@pytest.mark.long
async def test_it_ends_when_time_is_out_and_the_drain_continues(tmp_path: Path, token: Path) -> None:
    words = ("--admin-token-file", str(token), "--drain-delay", FOREVER)
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *words) as running:
        message = "drain: not finished after 0.3 s: timed out; the drain continues\n"
        assert await ended(await start(0.3, running.pages, token)) == (1, "", message)
        assert await running.fetch("/readyz") == (503, "draining\n")


async def test_a_sidecar_that_refuses_is_not_asked_again(token: Path) -> None:
    asked = 0

    async def refuse(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=401, text="another token")

    app = web.Application()
    app.add_routes([web.post("/admin/drain", refuse)])
    async with TestServer(app) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert await ended(await start(HANG, url, token)) == (1, "", f"drain: {url} responded 401: another token\n")
    assert asked == 1
