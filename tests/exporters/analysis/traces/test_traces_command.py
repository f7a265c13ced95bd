"""`vllm-slo traces` as a process: from the exporter of the SDK to the page, over a restart, and its refusals."""

import asyncio
import contextlib
import signal
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from opentelemetry.sdk.trace.export import SpanExportResult

from exporters.configuration.otlp_endpoints import Collector
from exporters.sidecar.tracing.span_exporter import exporter
from tests.support.command_line import CommandLine
from tests.support.ports import busy_port, free_port
from tests.support.sample_traces import bad_request
from tests.support.sidecar_process import ROOT, command, environment, run_command
from tests.support.waiting import HANG, until


async def healthy(url: str) -> bool:
    with contextlib.suppress(aiohttp.ClientConnectionError):
        async with aiohttp.ClientSession() as session, session.get(f"{url}/healthz") as response:
            return response.status == 200
    return False


@contextlib.asynccontextmanager
async def running(file: Path, *flags: str) -> AsyncIterator[str]:
    """The URL of a started store; stopped by SIGTERM, with exit status 0."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = await asyncio.create_subprocess_exec(
        *command("--listen", f"127.0.0.1:{port}", "--trace-file", str(file), *flags, subcommand="traces"),
        cwd=ROOT,
        env=environment(),
    )
    try:
        await until(lambda: healthy(url))
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(HANG):
            assert await process.wait() == 0


async def get(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 200
        return await response.text()


async def sent(url: str, number: int, *, compressed: bool) -> None:
    """Send the spans of a request with the exporter of the sidecar."""
    sdk = exporter(Collector(url=f"{url}/v1/traces", gzip=compressed))
    assert await asyncio.to_thread(sdk.export, bad_request(number)) is SpanExportResult.SUCCESS
    await asyncio.to_thread(sdk.shutdown)


@pytest.mark.slow
async def test_spans_of_the_sidecars_exporter_are_shown_after_a_restart_until_they_are_too_old(tmp_path: Path) -> None:
    file = tmp_path / "traces.db"
    pages = [f"/traces/{number:032x}" for number in (1, 2)]
    async with running(file) as url:
        for number, compressed in ((1, True), (2, False)):
            await sent(url, number, compressed=compressed)
        before = [await get(url + page) for page in pages]
        assert all("chat tiny" in page for page in before)
    async with running(file, "--keep", "2h", "--trace-max-size", "16MiB") as url:
        assert [await get(url + page) for page in pages] == before
        assert pages[0] in await get(f"{url}/?verdict=bad&class=short")
    async with running(file, "--keep", "1ms"):
        pass
    with contextlib.closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT count(*) FROM spans").fetchone() == (0,)


@pytest.mark.parametrize(
    "flags, message",
    [
        (
            "--keep 0s",
            "--keep: '0s' is not a valid duration; write a number with a unit, such as 250ms, 30s or 10m",
        ),
        ("--trace-max-size 1MiB", "--trace-max-size: 1MiB is too small; write at least 16MiB"),
        pytest.param(
            "--trace-max-size big",
            "--trace-max-size: 'big' is not a valid size; write bytes or a number with a unit, such as 64KiB or 256MiB",
        ),
    ],
)
def test_a_wrong_flag_is_refused(flags: str, message: str, cli: CommandLine) -> None:
    assert cli.refusal("traces", *flags.split()) == message


@pytest.mark.slow
async def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with busy_port() as port:
        address = f"127.0.0.1:{port}"
        code, _, errors = await run_command(
            "--listen", address, "--trace-file", str(tmp_path / "traces.db"), subcommand="traces"
        )
    assert (code, errors) == (2, f"vllm-slo: --listen: cannot listen on {address}: address already in use\n")
    assert not await asyncio.to_thread((tmp_path / "traces.db").exists)
