"""Runs open streams and faults through a real sidecar for a long time: `make soak` (MINUTES=20, SEED=n).

Two relays and an exporter serve open streams, short requests and failing requests, while the faults of `soak_faults`
are injected at random, one after the other. After each fault the accounts of `soak_accounts` must balance. Then memory,
descriptors, threads and gauges are sampled, always in the same state: all streams are open. No series has the number of
asyncio tasks; they belong to connections and open requests, which are sampled in their place.

The exit code is 1 if one of these values is higher in the last quarter of the samples than in the second, if the
accounts do not balance, or if the sidecar does not stop with status 0. The limits of records and lines are a twentieth
of the usual ones (`small_bounds`), so that they are reached within seconds.
"""

import argparse
import asyncio
import itertools
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import aiohttp

from tests.faults import small_bounds
from tests.faults.fault_scripts import FAULTS, LONG, Clients, serving
from tests.faults.sidecar_state import open_descriptors, phases, relays
from tests.faults.soak_accounts import Accounts, Balance, LogFollower, Samples, identity_errors, total
from tests.faults.soak_faults import CONNECTIONS as CLIENT_CONNECTIONS
from tests.faults.soak_faults import KILLS, OTHERS, ImbalanceError, SkippedError, Soak, limited
from tests.support.ports import free_port
from tests.support.sidecar_process import RUN, START, Running, children_by, sidecar
from tests.support.waiting import HANG, until

STREAMS = 200
REQUESTS_PER_SECOND = 20.0
PAUSE_SECONDS = 4.0
"""The mean time between two faults."""

KILLS_SHARE = 0.5
"""The share of the faults that kill a process, at the times when one may be killed."""

OPEN_FILES = 800
"""The limit for each process of the sidecar: a relay serves 352 clients."""

LIMITS = (
    f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({OPEN_FILES}, {OPEN_FILES})); "
    "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))"
)

FLAGS = ("--workers", "2", "--request-log-max-size", "256KiB", "--request-log-total", "never", "--client-idle", "1h")

MEGABYTES, DESCRIPTORS, REQUESTS, THREADS, CONNECTIONS = "MB", "descriptors", "requests", "threads", "connections"
MAY_GROW = {
    MEGABYTES: (5.0, 0.1),
    DESCRIPTORS: (10.0, 0.02),
    REQUESTS: (10.0, 0.1),
    THREADS: (1.0, 0.0),
    CONNECTIONS: (10.0, 0.1),
}
"""The tolerated growth of the median by unit: an absolute value plus a share."""

Sample = dict[tuple[str, str], float]
"""Values by name and unit."""


def changes(samples: list[Sample]) -> dict[tuple[str, str], tuple[float, float]]:
    """The median of each value in the second quarter and in the last; empty for too few samples."""
    quarter = len(samples) // 4
    if not quarter:
        return {}
    return {
        key: (
            median(sample[key] for sample in samples[quarter : 2 * quarter]),
            median(sample[key] for sample in samples[-quarter:]),
        )
        for key in samples[-1]
    }


def growth(samples: list[Sample]) -> list[str]:
    """The values that are higher in the last quarter than in the second."""
    grown = []
    for (name, unit), (before, after) in changes(samples).items():
        fixed, share = MAY_GROW[unit]
        if after > before + fixed + share * before:
            grown.append(f"{name} has grown from {before:.1f} to {after:.1f} {unit}")
    return grown


def may_kill(share: float) -> bool:
    """Whether processes may be killed after this share of the time.

    In the last quarter they are older than in the second, so their leaks are visible.
    """
    return share < 1 / 4 or 1 / 2 <= share < 5 / 8


@dataclass
class Report:
    """The result of a soak."""

    failures: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    fault: str = ""
    """The last one that was injected."""
    injected: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, tuple[int, str]] = field(default_factory=dict)
    """How often, and why."""
    balance: Balance | None = None
    reasons: dict[str, int] = field(default_factory=dict)
    """Dropped lines and lost requests by reason."""


def _of_processes(running: Running) -> Iterator[tuple[tuple[str, str], float]]:
    exporter = running.exporter
    assert exporter is not None
    for name, pids in ("supervisor", [running.process.pid]), ("exporter", [exporter]), ("relays", relays(running)):
        folders = [Path("/proc") / str(pid) for pid in pids]
        for size in ("Rss:", "Pss:"):
            kilobytes = sum(_field(folder / "smaps_rollup", size) for folder in folders)
            yield (f"{name} {size[:-1].upper()}", MEGABYTES), kilobytes / 1024
        yield (f"{name} fds", DESCRIPTORS), float(sum(map(open_descriptors, pids)))
        yield (f"{name} threads", THREADS), float(sum(_field(folder / "status", "Threads:") for folder in folders))


def _field(file: Path, name: str) -> int:
    return next(int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith(name))


async def _sample(soak: Soak) -> Sample:
    """Take a sample when all streams are open."""
    samples: Samples = {}

    async def all_open() -> bool:
        nonlocal samples
        samples = await soak.samples()
        return phases(samples)["streaming"] >= soak.streams

    await until(all_open)
    sample = dict(_of_processes(soak.running))
    sample["client connections", CONNECTIONS] = float(total(samples, CLIENT_CONNECTIONS))
    return sample | {(phase, REQUESTS): count for phase, count in phases(samples).items()}


async def _load(soak: Soak, over: asyncio.Event) -> None:
    """Offer long streams, and short requests of all kinds, until `over` is set."""

    async def may_begin() -> bool:
        await soak.engine.long_streams_may_end.wait()
        return not over.is_set()

    async def stream() -> None:
        while await may_begin():
            await soak.clients.offer(LONG)
            await asyncio.sleep(0.05)  # between failures, while the engine is away

    async def request() -> None:
        if await may_begin():
            await soak.clients.offer(random.choice(list(FAULTS)))  # noqa: S311 - not for cryptography

    async with asyncio.TaskGroup() as group:
        for _ in range(soak.streams):
            group.create_task(stream())
        while await may_begin():
            group.create_task(request())
            await asyncio.sleep(1 / REQUESTS_PER_SECOND)


def _random(*seeds: int) -> random.Random:
    return random.Random(str(seeds))  # noqa: S311 - not for cryptography


async def _inject(soak: Soak, report: Report, seconds: float, seed: int, faults: Sequence[str]) -> None:
    """Inject each fault once, then random ones until the time is over. Each is followed by a balance and a sample."""
    began = time.monotonic()
    kills, others = ([name for name in faults if name in kind] for kind in (KILLS, OTHERS))
    _random(seed).shuffle(kills)
    _random(seed).shuffle(others)
    first = kills + others
    await _add_sample(soak, report, began)
    for number in itertools.count():
        now = time.monotonic() - began
        if not first and now >= seconds:
            return
        soak.rng = _random(seed, number)  # so that a fault does not depend on the time that the earlier ones took
        kill = soak.rng.random() < KILLS_SHARE  # drawn in any case, so that the other draws do not depend on the time
        name = first.pop(0) if first else soak.rng.choice(kills if kill and may_kill(now / seconds) else others)
        report.fault = name
        print(f"{now:8.1f} s  {name}", flush=True)
        try:
            await (KILLS | OTHERS)[name](soak)
            report.injected[name] += 1
        except SkippedError as reason:
            report.skipped[name] = report.skipped.get(name, (0, ""))[0] + 1, str(reason)
        report.balance = await soak.settle()
        soak.resume()
        await _add_sample(soak, report, began)
        await asyncio.sleep(soak.rng.uniform(0, 2 * PAUSE_SECONDS) if seconds else 0)


async def _add_sample(soak: Soak, report: Report, began: float) -> None:
    sample = await _sample(soak)
    if len(report.samples) % 10 == 0:
        first, second = zip(*(name.split() if " " in name else ("", name) for name, _ in sample), strict=True)
        for words in (("", *first), ("", *second), ("seconds", *(unit for _, unit in sample))):
            print(" ".join(f"{word:>11}" for word in words))
    report.samples.append(sample)
    print(" ".join(f"{value:>11.1f}" for value in [time.monotonic() - began, *sample.values()]), flush=True)


async def soak(
    folder: Path, seconds: float, seed: int, streams: int = STREAMS, faults: Sequence[str] = (*KILLS, *OTHERS)
) -> Report:
    """Soak a sidecar; without `seconds`, each fault is injected once."""
    report, over = Report(), asyncio.Event()
    code = f"{START}{children_by(Path(small_bounds.__file__), folder)}{LIMITS}; {RUN}"
    connector = aiohttp.TCPConnector(limit=0, force_close=True)  # so that each connection has an open request
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with limited(os.getpid(), resource.RLIMIT_NOFILE, hard):
        async with (
            aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session,
            serving(free_port()) as engine,
            sidecar(folder, engine.url, *FLAGS, code=code) as running,
        ):
            clients = Clients(engine, session, running.url)
            under_test = Soak(running, engine, clients, Accounts(LogFollower(running.log)), streams)
            load = asyncio.create_task(_load(under_test, over))
            try:
                await _inject(under_test, report, seconds, seed, faults)
                report.balance = await under_test.settle()
                report.reasons = under_test.accounts.reasons(await under_test.samples())
            except (ImbalanceError, TimeoutError) as error:
                report.failures.append(f"{report.fault}: {str(error) or f'not over within {HANG:g} s'}")
            over.set()
            report.failures += await _stop(under_test)
            await load
            report.failures += [f"{request_id}: failed for its client" for request_id in clients.failed]
            if engine.smuggled:
                report.failures.append(f"{engine.smuggled} requests of the engine were bytes of a body")
            follower = LogFollower(running.log)
            follower.read()
            if report.balance is not None:
                report.failures += identity_errors(clients.offered, follower.lines, report.balance)
    return report


async def _stop(soak: Soak) -> list[str]:
    """Stop the sidecar; its open streams end during the drain."""
    soak.running.process.send_signal(signal.SIGTERM)
    await until(soak.running.refuses_connections)
    soak.engine.may_end.set()
    soak.resume()
    status = await soak.running.ended()
    return [] if status == 0 else [f"the sidecar exited with status {status}"]


def _print_summary(report: Report) -> None:
    print("\nfaults injected:")
    for name in KILLS | OTHERS:
        skipped, reason = report.skipped.get(name, (0, ""))
        print(f"{report.injected[name]:8}  {name}" + (f"; skipped {skipped} times: {reason}" if skipped else ""))
    print("medians in the second quarter and in the last:")
    for (name, unit), (before, after) in changes(report.samples).items():
        print(f"{before:10.1f} {after:10.1f}  {name} ({unit})")
    print(f"accounts: {report.balance}")
    print("by reason:", ", ".join(f"{count} {reason}" for reason, count in sorted(report.reasons.items())) or "none")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="repeats the faults of a run")
    words = parser.parse_args()
    if words.minutes < 1:
        parser.error("--minutes must be at least 1: fewer samples cannot be compared by quarters")
    print(f"seed {words.seed}")
    random.seed(words.seed)
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(soak(Path(folder), words.minutes * 60, words.seed))
    _print_summary(report)
    failures = report.failures + growth(report.samples)
    print("\n".join(failures) or "no growth, and every request is accounted for")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
