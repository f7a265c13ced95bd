"""The liveness probe of vLLM restarts it only on the word of the sidecar, and never because the sidecar is missing."""

import asyncio
import sys

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.compose.helm.chart import CHART
from tests.support.ports import free_port
from tests.support.waiting import HANG

pytestmark = pytest.mark.slow

PROBE = CHART / "files/livez.py"


async def probe(url: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", str(PROBE), url), stderr=asyncio.subprocess.PIPE, env={"http_proxy": "http://x"}
    )
    async with asyncio.timeout(HANG):
        _, errors = await process.communicate()
    return process.returncode, errors.decode()


@pytest.mark.parametrize(
    "status, text, expected",
    [
        pytest.param(200, "gpu:8000 is wedged for 10 s: it accepts\n", (0, ""), id="not for long enough"),
        pytest.param(
            503,
            "gpu:8000 is wedged for 70 s: it accepts\n",
            (1, "gpu:8000 is wedged for 70 s: it accepts\n"),
            id="wedged",
        ),
        pytest.param(404, "404: Not Found", (0, ""), id="a sidecar without this endpoint"),
        pytest.param(500, "", (0, ""), id="a sidecar that fails"),
    ],
)
async def test_only_the_verdict_of_the_sidecar_fails_it(status: int, text: str, expected: tuple[int, str]) -> None:
    async def livez(_: web.Request) -> web.Response:
        return web.Response(status=status, text=text)

    app = web.Application()
    app.router.add_get("/engine/livez", livez)
    async with TestServer(app) as server:
        assert await probe(f"http://127.0.0.1:{server.port}") == expected


async def test_a_missing_sidecar_does_not_restart_the_engine() -> None:
    assert await probe(f"http://127.0.0.1:{free_port()}") == (0, "")
