"""The processes of a running sidecar, the requests in its log and series, and the restart of its exporter."""

import contextlib
import os
import signal
from collections import Counter
from pathlib import Path

import aiohttp

from exporters.vocabulary.signals import Phase
from tests.bench.machine import tree
from tests.support.sidecar_process import Running
from tests.support.waiting import until

IN_FLIGHT = "llm_requests_in_flight{"


def relays(running: Running) -> list[int]:
    """Process ids of all running relays."""
    pids = []
    for pid in tree(running.process.pid):
        # The process may have ended.
        with contextlib.suppress(OSError):
            if b"exporters.relay.process" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                pids.append(pid)
    return pids


def open_descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def logged_outcomes(running: Running) -> list[tuple[str, str]]:
    return [(line["request_id"], line["outcome"]) for line in running.lines()]


async def counted_outcomes(running: Running) -> Counter[str]:
    """Requests by outcome, as counted by the current run of the exporter."""
    outcomes: Counter[str] = Counter()
    for name, value in (await running.samples()).items():
        if name.startswith("llm_requests_total{"):
            outcomes[name.split(",")[2]] += int(value)
    return +outcomes


async def in_flight(running: Running) -> dict[str, float]:
    """Requests by phase."""
    return phases(await running.samples())


def phases(samples: dict[str, float]) -> dict[str, float]:
    """Requests in flight by phase."""
    return {
        str(phase): sum(
            samples[name] for name in samples if name.startswith(IN_FLIGHT) and name.endswith(f",{phase}}}")
        )
        for phase in Phase
    }


async def wait_for_in_flight(running: Running, *, waiting: int, streaming: int) -> None:
    """Wait for these numbers of requests in flight."""

    async def reached() -> bool:
        try:
            return await in_flight(running) == {"waiting": waiting, "streaming": streaming}
        # The exporter is restarting.
        except aiohttp.ClientError:
            return False

    await until(reached)


async def kill_relay(running: Running) -> None:
    """Kill the only relay, and wait for the next one."""
    killed = running.signal_relay(signal.SIGKILL)
    await until(lambda: running.relay not in {None, killed})
    await until(running.ready)


async def begin_drain(running: Running) -> None:
    """Send SIGTERM, and wait until new connections are refused."""
    running.process.send_signal(signal.SIGTERM)
    await until(running.refuses_connections)


async def another_exporter(running: Running, killed: int) -> None:
    """Wait for the exporter that replaces the killed one, also in a drain."""

    async def serves() -> bool:
        return running.exporter not in {None, killed} and await running.status("/healthz") == 200

    await until(serves)


async def kill_exporter(running: Running) -> None:
    killed = running.exporter
    assert killed is not None
    os.kill(killed, signal.SIGKILL)

    async def replaced() -> bool:
        return running.exporter not in {None, killed} and await running.ready()

    await until(replaced)
