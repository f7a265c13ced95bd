"""The limit of open files, and the number of clients that it allows, end to end."""

import asyncio
import contextlib
import resource
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from exporters.sidecar.supervision.descriptors import raise_limit
from tests.exporters.configuration.certificates import authority, needs_openssl
from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import PATIENCE, RUN, START, Running, sidecar
from tests.support.waiting import until

HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
MOST = 1_048_576
NO_LIMIT = resource.RLIM_INFINITY


def limited(soft: int, hard: int) -> str:
    return f"{START}import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard})); {RUN}"


@contextlib.asynccontextmanager
async def idle_clients(port: int, count: int) -> AsyncIterator[None]:
    """Connections that send no request."""
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    try:
        yield
    finally:
        for _, writer in connections:
            writer.transport.abort()


@pytest.mark.parametrize(
    "before, after",
    [
        pytest.param((256, 4096), (4096, 4096), id="to the hard limit"),
        pytest.param((1024, 1 << 30), (MOST, 1 << 30), id="at most to 1,048,576"),
        pytest.param((256, NO_LIMIT), (MOST, NO_LIMIT), id="without a hard limit"),
        pytest.param((1 << 30, 1 << 30), None, id="never lowered"),
        pytest.param((NO_LIMIT, NO_LIMIT), None, id="no limit at all"),
        pytest.param((4096, 4096), None, id="at the hard limit"),
    ],
)
def test_the_soft_limit_is_raised(
    monkeypatch: pytest.MonkeyPatch, before: tuple[int, int], after: tuple[int, int] | None
) -> None:
    limits = []
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: before)
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, new: limits.append(new))
    raise_limit()
    assert limits == ([] if after is None else [after])


def test_a_limit_that_the_kernel_refuses_remains_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_kind: int, _limits: tuple[int, int]) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (256, NO_LIMIT))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    raise_limit()
    assert caplog.messages == ["the limit of open files remains 256: current limit exceeds maximum limit"]


@pytest.mark.slow
async def test_the_soft_limit_is_raised_so_300_idle_clients_delay_no_request(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, code=limited(256, HARD)) as running:
        async with idle_clients(running.port, 300):
            await running.shows("llm_sidecar_client_connections{relay-0}", 300)
            assert await running.ask("one") == 200
            await running.logs("one")
        assert running.relay is not None
        expected = min(HARD, MOST) if HARD != resource.RLIM_INFINITY else MOST
        for pid in (running.process.pid, running.relay):
            assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (expected, HARD)


@pytest.mark.slow
async def test_above_the_limit_a_client_gets_a_recorded_503_and_clients_below_it_are_served(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, code=limited(256, 256)) as running:
        assert running.log_lines()[0].startswith(
            "WARNING supervisor: the limit of open files is 256, so each relay serves 80 clients at once; "
        )
        assert await running.ask("first") == 200  # on a connection that stays open
        await running.shows("llm_sidecar_client_connections_limit{relay-0}", 80)
        async with idle_clients(running.port, 300):
            await running.shows("llm_sidecar_client_connections{relay-0}", 80)
            assert await _status_on_a_new_connection(running, "rejected") == 503
            assert await running.ask("second") == 200
            await running.logs("first", "rejected", "second")
            (line,) = [line for line in running.lines() if line["request_id"] == "rejected"]
            assert (line["outcome"], line["status"], line["slo"]) == ("rejected", 503, {"availability": "bad"})
            await running.shows("llm_requests_total{all,other,rejected,chat_completions,false,other}", 1)
            await until(lambda: _rejected_at_least(running, 300 - 79 + 1))
        await until(lambda: _served(running))


@pytest.mark.slow
@needs_openssl
async def test_tls_clients_in_their_handshake_leave_descriptors_for_engines(tmp_path: Path) -> None:
    leaf = authority(tmp_path / "authority").issue("leaf")
    flags = ["--tls-cert", leaf.cert, "--tls-key", leaf.key]
    async with (
        serving(Engine()) as engine,
        sidecar(tmp_path, engine.url, *flags, code=limited(256, 256)) as running,
        idle_clients(running.port, 300),
    ):
        await until(lambda: _rejected_at_least(running, 300 - (80 + 32)))
        assert _open_descriptors(running.relay) < 256 - 80


@pytest.mark.slow
async def test_300_idle_clients_of_the_metrics_port_keep_neither_scrapes_nor_requests_away(tmp_path: Path) -> None:
    async with (
        serving(Engine()) as engine,
        sidecar(tmp_path, engine.url, code=limited(256, 256)) as running,
        idle_clients(running.metrics_port, 300),
    ):
        await until(lambda: _closed_at_least(running, 300 - 16))
        assert _open_descriptors(running.exporter) < 96
        async with (
            aiohttp.ClientSession(timeout=PATIENCE) as session,
            session.get(f"{running.pages}/metrics") as response,
        ):
            assert (response.status, bool(await response.read())) == (200, True)
        assert await running.ask("one") == 200
        running.process.send_signal(signal.SIGHUP)  # reopens the request log
        assert await running.ask("two") == 200
        await running.logs("one", "two")


def _open_descriptors(pid: int | None) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def _closed_at_least(running: Running, count: int) -> bool:
    return (await running.samples())["llm_sidecar_exporter_closed_connections_total{}"] >= count


async def _rejected_at_least(running: Running, count: int) -> bool:
    name = "llm_sidecar_rejected_connections_total{relay-0}"  # absent before the first snapshot of the relay
    return (await running.samples()).get(name, 0) >= count


async def _served(running: Running) -> bool:
    return await _status_on_a_new_connection(running, "after") == 200


async def _status_on_a_new_connection(running: Running, request_id: str) -> int:
    """Connections that are closed without a response, because too many are being rejected, are opened again."""
    status = 0

    async def responds() -> bool:
        nonlocal status
        headers = {"x-request-id": request_id}
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.post(running.completions, json={"model": "tiny"}, headers=headers) as response,
            ):
                await response.read()
                status = response.status
        except aiohttp.ClientConnectionError:
            return False
        return True

    await until(responds)
    return status
