"""Runs open streams and faults through a real sidecar for a long time: `make soak` (MINUTES=20).

Memory, descriptors and gauges are sampled every ten seconds. The exit code is 1 if one of them is higher in the last
quarter of the time than in the second, or if the request log is incomplete.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import aiohttp

from tests.faults.fault_scripts import FAULTS, Clients, log_errors, serving
from tests.faults.sidecar_state import in_flight, kill_exporter, logged_outcomes, wait_for_in_flight
from tests.support.sidecar_process import Running, sidecar

STREAMS = 200
FAULTS_PER_SECOND = 5.0
SAMPLE_SECONDS = 10.0
KILLS = (1 / 16, 1 / 8, 3 / 16, 1 / 4, 1 / 2)
"""When the exporter is killed, as shares of the duration. The exporter is older in the last quarter than in the second,
so its own leaks are visible."""

MEGABYTES, DESCRIPTORS, REQUESTS = "MB", "descriptors", "requests"
MAY_GROW = {MEGABYTES: (5.0, 0.1), DESCRIPTORS: (10.0, 0.02), REQUESTS: (10.0, 0.1)}
"""The tolerated growth of the median by unit: an absolute value plus a share."""

Sample = dict[tuple[str, str], float]
"""Values by name and unit."""


def growth(samples: list[Sample]) -> list[str]:
    """The values that are higher in the last quarter than in the second."""
    quarter = len(samples) // 4
    grown = []
    for name, unit in samples[-1]:
        before = median(sample[name, unit] for sample in samples[quarter : 2 * quarter])
        after = median(sample[name, unit] for sample in samples[-quarter:])
        fixed, share = MAY_GROW[unit]
        if after > before + fixed + share * before:
            grown.append(f"{name} has grown from {before:.1f} to {after:.1f} {unit}")
    return grown


def _of_processes(running: Running) -> Iterator[tuple[tuple[str, str], float]]:
    for name, pid in (
        ("supervisor", running.process.pid),
        ("exporter", running.exporter),
        ("relay", running.relay),
    ):
        folder = Path("/proc") / str(pid)
        rollup = (folder / "smaps_rollup").read_text().splitlines()[1:]
        sizes = {line.split()[0]: int(line.split()[1]) for line in rollup}
        yield (f"{name} RSS", MEGABYTES), sizes["Rss:"] / 1024
        yield (f"{name} PSS", MEGABYTES), sizes["Pss:"] / 1024
        yield (f"{name} fds", DESCRIPTORS), float(len(list((folder / "fd").iterdir())))


async def _sample(running: Running) -> Sample:
    """Take a sample; retries while a process restarts."""
    while True:
        with contextlib.suppress(aiohttp.ClientError, OSError):
            sample = dict(_of_processes(running))
            return sample | {(phase, REQUESTS): count for phase, count in (await in_flight(running)).items()}
        await asyncio.sleep(0.1)


async def _load(clients: Clients, over: asyncio.Event) -> None:
    """Offer streams and faults until `over` is set."""

    async def stream() -> None:
        while not over.is_set():
            await clients.offer("streams long")

    async with asyncio.TaskGroup() as group:
        for _ in range(STREAMS):
            group.create_task(stream())
        while not over.is_set():
            group.create_task(clients.offer(random.choice(list(FAULTS))))  # noqa: S311 - not for cryptography
            await asyncio.sleep(1 / FAULTS_PER_SECOND)


async def _watch(running: Running, seconds: float) -> list[Sample]:
    """Take samples and kill the exporter at times."""
    began = time.monotonic()
    samples: list[Sample] = []
    kills = [share * seconds for share in KILLS]
    while (now := time.monotonic() - began) < seconds:
        if kills and now >= kills[0]:
            kills.pop(0)
            await kill_exporter(running)
        samples.append(await _sample(running))
        if len(samples) % 20 == 1:
            print("\n" + " ".join(f"{name:>14}" for name in ["seconds", *(name for name, _ in samples[0])]))
            print(" ".join(f"{unit:>14}" for unit in ["", *(unit for _, unit in samples[0])]))
        print(" ".join(f"{value:>14.1f}" for value in [now, *samples[-1].values()]), flush=True)
        await asyncio.sleep(max(0.0, began + now + SAMPLE_SECONDS - time.monotonic()))
    return samples


async def soak(folder: Path, seconds: float) -> list[str]:
    """The failures."""
    over = asyncio.Event()
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session,
        serving() as engine,
        sidecar(folder, engine.url) as running,
    ):
        clients = Clients(engine, session, running.url)
        load = asyncio.create_task(_load(clients, over))
        samples = await _watch(running, seconds)
        over.set()
        engine.may_end.set()
        await load
        await wait_for_in_flight(running, waiting=0, streaming=0)
        counters = await running.samples()
        failures = growth(samples)
        failures += [f"{name} is {counters[name]:.0f}" for name in NO_LOSS if counters[name]]
        if (status := await running.stop()) != 0:
            failures.append(f"the sidecar exited with status {status}")
        failures += [f"{request_id}: failed for its client" for request_id in clients.failed]
        failures += log_errors(clients.offered, logged_outcomes(running))
        print(f"\n{len(clients.offered)} requests offered, {len(logged_outcomes(running))} lines logged")
        return failures


NO_LOSS = ("llm_sidecar_dropped_records_total{relay-0}", "llm_sidecar_lost_requests_total{relay-0}")
"""Counters that must be 0."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    minutes = parser.parse_args().minutes
    if minutes < 1:
        parser.error("--minutes must be at least 1: fewer samples cannot be compared by quarters")
    with tempfile.TemporaryDirectory() as folder:
        failures = asyncio.run(soak(Path(folder), minutes * 60))
    print("\n".join(failures) or "no growth, and every request is accounted for")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
