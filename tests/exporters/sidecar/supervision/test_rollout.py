"""The stop of a sidecar in a rollout: the delay, the drain, the final scrape, and the drain by an admin request."""

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.faults.sidecar_state import another_exporter, begin_drain
from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import Running, run_command, sidecar
from tests.support.waiting import HANG, until

pytestmark = pytest.mark.slow

FOREVER = f"{10 * HANG:g}s"
STREAMED = "llm_requests_total{all,tiny,ok,chat_completions,true,other}"
TOKEN = "t0ken"  # noqa: S105 - of a test
ADMIN = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return path


async def not_ready(running: Running) -> None:
    """Wait until /readyz fails because of the drain."""

    async def draining() -> bool:
        return await running.fetch("/readyz") == (503, "draining\n")

    await until(draining)


def began(reason: str, delay: float, drain: float) -> str:
    times = f"no new connections after {delay:g} s, open requests have {drain:g} s more"
    return f"INFO supervisor: {reason}: /readyz fails, {times}"


async def connection_header(running: Running) -> str | None:
    """Send a request on a connection of the client's pool; returns the header of the response."""
    body = {"model": "tiny", "messages": [], "max_tokens": 5}
    async with running.session.post(running.completions, json=body) as response:
        assert response.status == 200
        await response.read()
        return response.headers.get("connection")


@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_in_the_delay_connections_are_accepted_and_only_a_third_signal_ends_it_at_once(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    """Relays ask clients to reconnect, also a relay that is restarted in the delay."""
    continues = (
        f"WARNING supervisor: {number.name} again: the drain continues; a third signal ends it and cuts open requests"
    )
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, "--drain-delay", FOREVER) as running:
        assert await connection_header(running) is None
        running.process.send_signal(signal.SIGTERM)
        await not_ready(running)
        assert await connection_header(running) == "close"  # on the connection that the client has kept
        assert await connection_header(running) == "close"  # on a new one
        await until(lambda: len(running.lines()) == 3)  # else the relay may lose them
        running.signal_relay(signal.SIGKILL)
        await running.shows("llm_sidecar_restarts_total{relay-0}", 1)
        assert await connection_header(running) == "close"
        running.process.send_signal(number)
        await running.logs_line(continues)
        assert await connection_header(running) == "close"
        running.process.send_signal(number)
        assert await running.ended() == status
        assert running.log_lines()[1:] == [
            began("SIGTERM", 10 * HANG, 15),
            "WARNING supervisor: relay-0 exited by signal 9; restarting it",
            continues,
            f"WARNING supervisor: {number.name} again: the sidecar ends at once, open requests are cut",
        ]


async def test_an_upload_that_is_open_at_sigterm_finishes(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, "--drain", FOREVER) as running:
        sent, rest = asyncio.Event(), asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield b'{"model":"tiny","messages":[],'
            sent.set()
            await rest.wait()
            yield b'"max_tokens":5}'

        async def upload() -> int:
            async with running.session.post(running.completions, data=body()) as response:
                await response.read()
                return response.status

        uploading = asyncio.create_task(upload())
        await sent.wait()
        await until(lambda: _received(running))
        await begin_drain(running)
        rest.set()
        assert await uploading == 200
        assert await running.ended() == 0
        assert [line["outcome"] for line in running.lines()] == ["ok"]


async def _received(running: Running) -> bool:
    """Whether the relay has accepted the connection of the upload."""
    return (await running.samples()).get("llm_sidecar_client_connections{relay-0}") == 1


async def _knows_the_model(running: Running) -> bool:
    """Whether the exporter has read the engine's models, each of which gets its series at 0."""
    return STREAMED in await running.samples()


async def test_metrics_remain_until_a_scrape_has_read_the_final_counts(tmp_path: Path) -> None:
    words = ("--drain", FOREVER, "--linger", FOREVER)
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *words) as running:
        await until(lambda: _knows_the_model(running))
        async with running.open_stream("open") as rest:
            await begin_drain(running)
            assert (await running.samples())[STREAMED] == 0  # this scrape precedes the final counts
            engine.may_finish.set()
            await rest.read()
        await running.logs_line("INFO supervisor: drained")
        await running.logs("open")
        assert await running.fetch("/readyz") == (503, "draining\n")
        assert running.process.returncode is None
        seen = []
        with contextlib.suppress(aiohttp.ClientError):
            while True:
                seen.append((await running.samples())[STREAMED])
        assert seen[-1] == 1
        assert await running.ended() == 0
        assert running.log_lines()[-1] == "INFO supervisor: drained"


async def test_open_streams_are_cut_after_the_drain_and_without_a_scrape_it_ends_after_the_linger_time(
    tmp_path: Path,
) -> None:
    words = ("--drain", "100ms", "--linger", "100ms")
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *words) as running:
        async with running.open_stream("open") as rest:
            assert await running.stop() == 0
            with pytest.raises(aiohttp.ClientPayloadError):
                await rest.read()
        assert [line["outcome"] for line in running.lines()] == ["upstream_error"]
        assert running.log_lines()[2:] == [
            "WARNING relay-0: 1 open requests were cut",
            "INFO supervisor: drained",
            "WARNING supervisor: no scrape has read the final counts within 0.1 s",
        ]


async def drain(running: Running) -> dict[str, Any]:
    status, text = await running.fetch("/admin/drain", "POST", ADMIN)
    assert status == 200
    drained: dict[str, Any] = json.loads(text)
    return drained


async def test_an_admin_request_returns_when_drained_and_the_process_stays_until_sigterm(
    tmp_path: Path, token: Path
) -> None:
    words = ("--admin-token-file", str(token), "--drain", FOREVER, "--linger", FOREVER)
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *words) as running:
        assert (await running.fetch("/admin/drain", "POST"))[0] == 401
        assert await running.ready()
        before = time.monotonic()
        async with running.open_stream("open") as rest:
            first = asyncio.create_task(drain(running))
            await until(running.refuses_connections)
            assert await running.fetch("/readyz") == (503, "draining\n")
            second = asyncio.create_task(drain(running))
            done, _ = await asyncio.wait({first, second}, timeout=0.3)  # shows that they wait for the open stream
            assert not done
            engine.may_finish.set()
            assert (await rest.read()).endswith(b"data: [DONE]\n\n")
        drained = await first
        assert drained == await second
        assert drained["cut_requests"] == 0
        assert 0.3 < drained["seconds"] < time.monotonic() - before
        assert await drain(running) == drained
        assert await running.fetch("/readyz") == (503, "draining\n")
        assert running.process.returncode is None
        running.process.send_signal(signal.SIGTERM)
        with pytest.raises(TimeoutError):  # it waits for a scrape
            await running.ended(0.5)
        assert (await running.samples())[STREAMED] == 1
        assert await running.ended() == 0
        assert running.log_lines()[1:] == [
            began("POST /admin/drain", 0, 10 * HANG),
            "INFO supervisor: drained",
        ]
        assert [line["outcome"] for line in running.lines()] == ["ok"]


async def test_an_admin_request_joins_the_drain_of_sigterm_and_is_answered_before_the_exit(
    tmp_path: Path, token: Path
) -> None:
    words = ("--admin-token-file", str(token), "--drain", FOREVER)
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *words) as running:
        async with running.open_stream("open") as rest:
            await begin_drain(running)
            reader, writer = await asyncio.open_connection("127.0.0.1", running.metrics_port)
            head = f"POST /admin/drain HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n"
            writer.write(f"{head}expect: 100-continue\r\ncontent-length: 1\r\n\r\n".encode())
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"  # the exporter has it
            engine.may_finish.set()
            await rest.read()
        async with asyncio.timeout(HANG):
            response = await reader.read()
        writer.close()
        assert response.startswith(b"HTTP/1.1 200 OK\r\n")
        assert response.endswith(b',"cut_requests":0}\n')
        assert await running.ended() == 0
        assert running.log_lines()[1:] == [began("SIGTERM", 0, 10 * HANG), "INFO supervisor: drained"]


async def test_requests_that_are_cut_are_reported_to_the_command(tmp_path: Path, token: Path) -> None:
    words = ("--admin-token-file", str(token), "--drain", "100ms")
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *words) as running:
        async with running.open_stream("open") as rest:
            status, output, errors = await run_command(
                "--sidecar", running.pages, "--admin-token-file", str(token), subcommand="drain"
            )
            assert (status, errors) == (0, "")
            assert output.startswith("drained in ")
            assert output.endswith(" s; open requests that were cut: 1\n")
            with pytest.raises(aiohttp.ClientPayloadError):
                await rest.read()
        assert "WARNING relay-0: 1 open requests were cut" in running.log_lines()
        assert [line["outcome"] for line in running.lines()] == ["upstream_error"]
        assert await running.stop() == 0


async def test_an_admin_drain_survives_the_exporter_that_has_received_it(tmp_path: Path, token: Path) -> None:
    words = ("--admin-token-file", str(token), "--drain", FOREVER, "--linger", FOREVER)
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *words) as running:
        async with running.open_stream("open") as rest:
            command = asyncio.create_task(
                run_command("--sidecar", running.pages, "--admin-token-file", str(token), subcommand="drain")
            )
            await until(running.refuses_connections)
            before = time.monotonic()
            exporter = running.signal_exporter(signal.SIGKILL)
            await another_exporter(running, exporter)
            assert await running.fetch("/readyz") == (503, "draining\n")
            least = time.monotonic() - before
            engine.may_finish.set()
            await rest.read()
        status, output, errors = await command
        assert (status, errors) == (0, "")
        assert output.endswith(" s; open requests that were cut: 0\n")
        seconds = (await drain(running))["seconds"]
        exporter = running.signal_exporter(signal.SIGKILL)
        await another_exporter(running, exporter)
        assert least < (await drain(running))["seconds"] <= seconds
        assert await running.fetch("/readyz") == (503, "draining\n")
        assert await running.status("/metrics") == 200
        assert await running.stop() == 0
        assert await running.logged() == ["open"]


async def test_a_drain_that_takes_longer_than_the_timeout_of_the_command_continues(tmp_path: Path, token: Path) -> None:
    words = ("--admin-token-file", str(token), "--drain-delay", FOREVER)
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *words) as running:
        flags = ("--sidecar", running.pages, "--admin-token-file", str(token), "--timeout", "300ms")
        message = "the sidecar has not drained within 0.3 s; the drain continues\n"
        assert await run_command(*flags, subcommand="drain") == (1, "", message)
        await not_ready(running)
        assert await connection_header(running) == "close"
