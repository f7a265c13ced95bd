"""The requests in the log and series of a running sidecar, and the restart of its exporter."""

import os
import signal
from collections import Counter

import aiohttp

from exporters.signals import Phase
from tests.support.sidecar_process import Running
from tests.support.waiting import until

IN_FLIGHT = "llm_requests_in_flight{"


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
    samples = await running.samples()
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


async def kill_exporter(running: Running) -> None:
    killed = running.exporter
    assert killed is not None
    os.kill(killed, signal.SIGKILL)

    async def replaced() -> bool:
        return running.exporter not in {None, killed} and await running.ready()

    await until(replaced)
