"""Mistakes that `vllm-slo drain` reports; its drains are in `supervision/test_rollout.py`."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from compose.cli import main


@pytest.fixture
def token(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text("t0ken")
    return str(path)


@pytest.mark.parametrize(
    "words, message",
    [
        (
            ["--sidecar", "h:9464"],
            "--sidecar: 'h:9464' is not a valid URL; write http://host:port or https://host:port",
        ),
        (["--sidecar", "http://h:1/x"], "--sidecar: 'http://h:1/x' has a path; remove '/x'"),
        (
            ["--sidecar", "http://127.0.0.1:1"],
            "--sidecar: http://127.0.0.1:1: request failed: [Errno 111] Connection refused",
        ),
        (
            ["--timeout", "0s"],
            "--timeout: '0s' is not a valid duration; write a number with a unit, such as 250ms, 30s or 10m",
        ),
    ],
)
def test_invalid_flags_are_rejected(
    token: str, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["drain", "--admin-token-file", token, *words]) == (3 if message.endswith("refused") else 2)
    assert capsys.readouterr().err == f"vllm-slo: {message}\n"


@pytest.mark.parametrize(
    "status, text, message",
    [
        pytest.param(
            200, "<html>", "--sidecar: URL is not a sidecar: it responded 200 with '<html>'", id="a web server"
        ),
        pytest.param(
            401,
            "",
            "--admin-token-file: the sidecar rejected the token; use the file of its --admin-token-file",
            id="another token",
        ),
        pytest.param(
            404,
            "",
            "--sidecar: URL has no /admin/drain; start the sidecar with --admin-token-file FILE",
            id="no admin endpoints",
        ),
    ],
)
async def test_a_response_without_a_drain_is_reported(
    token: str, capsys: pytest.CaptureFixture[str], status: int, text: str, message: str
) -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(status=status, text=text)

    app = web.Application()
    app.add_routes([web.post("/admin/drain", page)])
    async with TestServer(app) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert await asyncio.to_thread(main, ["drain", "--admin-token-file", token, "--sidecar", url]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {message.replace('URL', url)}\n"


async def test_an_engine_that_did_not_serve_is_named(token: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def page(_: web.Request) -> web.Response:
        wedged = "gpu-0:8000 is wedged for 95 s: requests wait for it, and nothing moves for 123 s"
        return web.json_response({"seconds": 20.0, "cut_requests": 3, "engines": [wedged]})

    app = web.Application()
    app.add_routes([web.post("/admin/drain", page)])
    async with TestServer(app) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert await asyncio.to_thread(main, ["drain", "--admin-token-file", token, "--sidecar", url]) == 0
    assert capsys.readouterr().out == (
        "drained in 20 s; open requests that were cut: 3\n"
        "engine gpu-0:8000 is wedged for 95 s: requests wait for it, and nothing moves for 123 s\n"
    )
