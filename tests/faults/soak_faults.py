"""The faults that a soak injects: each is a function that returns when the sidecar has recovered.

Each waits for a condition, such as a series, a line of standard error or the state of a client, never for a time.
"""

import asyncio
import os
import random
import resource
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp

from exporters.vocabulary.signals import Outcome
from tests.faults import raw_clients
from tests.faults.fault_scripts import LONG, UNREACHABLE, Clients, Engine
from tests.faults.sidecar_state import in_flight, kill_exporter, open_descriptors, phases, relays
from tests.faults.small_bounds import OUTBOX_RECORDS, PENDING_RECORDS
from tests.faults.soak_accounts import (
    COUNTED,
    DROPPED_LINES,
    DROPPED_RECORDS,
    REJECTED,
    RESTARTS,
    Accounts,
    Balance,
    Samples,
    of,
    total,
)
from tests.support.sidecar_process import Running, alive
from tests.support.waiting import until

RELAYS = ("relay-0", "relay-1")
CONNECTIONS, CONNECTIONS_LIMIT = "llm_sidecar_client_connections", "llm_sidecar_client_connections_limit"
RELOAD_SUCCESSFUL = "llm_sidecar_config_last_reload_successful{}"
RELOADED_AT = "llm_sidecar_config_last_reload_success_timestamp_seconds{}"
SECOND_SLO = "  - {name: second, classes: [all], signal: availability, objective: 95%}\n"
LOG_ERRORS = "llm_sidecar_log_errors_total"
LOG_WRITTEN_AGAIN = "request log: it can be written again"
MORE_THAN_DROPPED = 500
BIG_PROMPT = "x" * 2_000_000
BIG_PROMPTS = 20
STALLED = 10
EARLY_ANSWERS = 40
REQUESTS_ABOVE_LIMIT = 40
CROWD_DESCRIPTORS = 4096
"""More than the clients at both relays, and the connections of these to the engine."""
FEWEST_DESCRIPTORS = 3
"""A limit of open files below which a process opens none."""

CUT: set[str] = {Outcome.UPSTREAM_ERROR, Outcome.CLIENT_ABORT, Outcome.TRUNCATED}
"""Outcomes of requests that a relay cuts because its supervisor was killed."""

ENGINE_FAILS: set[str] = UNREACHABLE | {Outcome.TRUNCATED}


class SkippedError(Exception):
    """A fault cannot be injected here."""


class ImbalanceError(Exception):
    """The accounts of the sidecar and of its clients do not agree."""


@dataclass
class Soak:
    """A sidecar under load, and its accounts."""

    running: Running
    engine: Engine
    clients: Clients
    accounts: Accounts
    streams: int
    """Long streams that the load keeps open."""
    rng: random.Random = field(default_factory=random.Random)
    """The random numbers of the fault that is injected."""
    turned_away: int = 0
    renamed: int = 0
    _aborted: int | None = None
    """If relays were killed since the last balance: the requests that had failed before."""

    def kill_relays(self) -> None:
        """Requests may fail until the next balance, and some may not be read by any relay."""
        self._aborted = len(self.clients.aborted)
        self.clients.excuse(CUT)

    async def samples(self) -> Samples:
        """The series; waits for an exporter that restarts, and until it has a snapshot of each relay."""
        while True:
            try:
                samples = await self.running.samples()
            except aiohttp.ClientError:
                samples = {}
            if all(f"{REJECTED}{{{relay}}}" in samples for relay in RELAYS):
                return samples
            await asyncio.sleep(0.05)

    async def settle(self) -> Balance:
        """Stop the load, except for the open streams, and wait until the accounts are even.

        Raises:
            ImbalanceError: they are not.
        """
        self.engine.long_streams_may_end.clear()
        state: tuple[Balance, Samples] | None = None
        before: tuple[Balance, int, int, float] | None = None

        async def settled() -> bool:
            """Whether two readings are equal: a client learns later than the relay that its request has ended."""
            nonlocal state, before
            open_requests = len(self.clients.open)
            ended = len(self.clients.offered) - open_requests
            self.accounts.follower.read()
            samples = await self.samples()
            balance = self.accounts.balance(samples, open_requests, ended, self.turned_away)
            if self._aborted is not None and 0 <= balance.not_read <= len(self.clients.aborted) - self._aborted:
                self.accounts.unread += balance.not_read
                balance = self.accounts.balance(samples, open_requests, ended, self.turned_away)
            state = balance, samples
            previous, before = before, (balance, open_requests, total(samples, COUNTED), sum(phases(samples).values()))
            return (
                previous == before
                and balance.even
                and before[1] == before[3]
                and all(LONG in request for request in self.clients.open)
            )

        try:
            await until(settled)
        except TimeoutError:
            raise ImbalanceError(f"{state and state[0]}; {len(self.clients.open)} requests are open") from None
        assert state is not None
        balance, samples = state
        self._aborted = None
        if errors := self.accounts.count_errors(samples, balance, self.running.exporter):
            raise ImbalanceError("; ".join(errors))
        self.clients.excused = set()
        return balance

    def resume(self) -> None:
        """Continue the load."""
        self.engine.long_streams_may_end.set()

    @property
    def slo_file(self) -> Path:
        return self.running.log.with_name("slos.yaml")

    async def burst(self, count: int) -> None:
        await raw_clients.burst(self.clients, self.running.port, count)

    def errors_logged(self, text: str) -> int:
        """The number of lines of standard error with this text."""
        return sum(text in line for line in self.running.log_lines())


async def _in_a_burst(soak: Soak, *kills: Callable[[], None]) -> None:
    """Kill at any time in a burst of requests, which may fail."""
    soak.kill_relays()
    async with asyncio.TaskGroup() as group:
        group.create_task(soak.burst(soak.rng.randint(50, 400)))
        for kill in kills:
            await asyncio.sleep(soak.rng.uniform(0, 0.2 / len(kills)))
            kill()


async def _exporter_killed(soak: Soak) -> None:
    """Kill the exporter in a burst of requests."""
    async with asyncio.TaskGroup() as group:
        group.create_task(soak.burst(soak.rng.randint(50, 400)))
        await asyncio.sleep(soak.rng.uniform(0, 0.2))  # any time in the burst
        await kill_exporter(soak.running)


async def _exporter_stopped(soak: Soak) -> None:
    """Stop the exporter while more requests arrive than the relays keep records."""
    exporter = soak.running.exporter
    assert exporter is not None
    before = soak.accounts.since_start(await soak.samples(), DROPPED_RECORDS)
    os.kill(exporter, signal.SIGSTOP)
    try:
        await soak.burst(len(RELAYS) * OUTBOX_RECORDS + MORE_THAN_DROPPED)
    finally:
        os.kill(exporter, signal.SIGCONT)

    async def dropped() -> bool:
        return soak.accounts.since_start(await soak.samples(), DROPPED_RECORDS) > before

    await until(dropped)


async def _relay_killed(soak: Soak) -> None:
    """By SIGKILL or as by a crash, while requests begin and end."""
    before = await soak.samples()
    victim, number = soak.rng.choice(relays(soak.running)), soak.rng.choice([signal.SIGKILL, signal.SIGABRT])
    await _in_a_burst(soak, lambda: os.kill(victim, number))
    await _relay_replaced(soak, before)


async def _relay_and_exporter_killed(soak: Soak) -> None:
    """Within a fifth of a second, in either order, while requests begin and end."""
    before, exporter = await soak.samples(), soak.running.exporter
    assert exporter is not None
    victims = [soak.rng.choice(relays(soak.running)), exporter]
    soak.rng.shuffle(victims)
    await _in_a_burst(soak, *(partial(os.kill, victim, signal.SIGKILL) for victim in victims))
    await until(lambda: soak.running.exporter not in {None, exporter})
    await _relay_replaced(soak, before)


async def _relay_replaced(soak: Soak, before: Samples) -> None:
    restarted: list[str] = []

    async def replaced() -> bool:
        samples = await soak.samples()
        restarted[:] = [name for name in RELAYS if of(samples, RESTARTS, name) > of(before, RESTARTS, name)]
        return bool(restarted) and len(relays(soak.running)) == len(RELAYS) and await soak.running.ready()

    await until(replaced)
    soak.accounts.close_relay(before, restarted[0])


async def _sidecar_killed(soak: Soak) -> None:
    """The supervisor is killed while requests begin and end, and started again as soon as its children have ended."""
    before, children = await soak.samples(), [*relays(soak.running), soak.running.exporter]
    await _in_a_burst(soak, soak.running.process.kill)
    await until(lambda: not any(pid is not None and alive(pid) for pid in children))
    for relay in RELAYS:
        soak.accounts.close_relay(before, relay)
    soak.accounts.close_sidecar(before)
    await soak.running.start_again()

    async def counted() -> bool:
        """Whether the new run has counted what the killed one has left behind, after a scrape."""
        await soak.samples()
        return len(soak.accounts.runs()) == 1

    await until(counted)
    await until(soak.running.ready)


async def _no_descriptors(soak: Soak) -> None:
    await _spawn_fails(soak, resource.RLIMIT_NOFILE, FEWEST_DESCRIPTORS, "too many open files")


async def _no_processes(soak: Soak) -> None:
    if os.geteuid() == 0:
        raise SkippedError("the limit of processes does not apply to root")
    await _spawn_fails(soak, resource.RLIMIT_NPROC, 1, "resource temporarily unavailable")


async def _spawn_fails(soak: Soak, kind: int, soft: int, reason: str) -> None:
    """The supervisor is at this limit when the exporter is killed."""
    supervisor, line = soak.running.process.pid, f"exporter cannot be started: {reason}"
    killed, earlier = soak.running.exporter, soak.errors_logged(line)
    assert killed is not None
    with limited(supervisor, kind, soft):
        os.kill(killed, signal.SIGKILL)
        await until(lambda: soak.errors_logged(line) > earlier)
    await until(lambda: soak.running.exporter not in {None, killed})
    await until(soak.running.ready)


@contextmanager
def limited(pid: int, kind: int, soft: int) -> Iterator[None]:
    before = resource.prlimit(pid, kind)
    resource.prlimit(pid, kind, (soft, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, kind, before)


async def _disk_full(soak: Soak) -> None:
    """Files of the exporter cannot grow, for more requests than lines may wait."""
    dropped = total(await soak.samples(), DROPPED_LINES)
    async with _failing_log(soak):
        with _no_growth(soak, 1):
            while total(await soak.samples(), DROPPED_LINES) <= dropped + MORE_THAN_DROPPED:
                await soak.burst(PENDING_RECORDS // 2)


async def _partial_writes(soak: Soak) -> None:
    """Files of the exporter cannot grow, so that writes to the log fail, some of them after a part."""
    async with _failing_log(soak) as fails:
        with _no_growth(soak, soak.rng.randint(1, 500)):
            await until(fails)


async def _fifo(soak: Soak) -> None:
    """Another program replaces the log by a FIFO without a reader."""
    log = soak.running.log
    async with _failing_log(soak) as fails:
        while not log.is_fifo():
            await _rename(soak)
            with suppress(FileExistsError):  # the exporter was faster
                os.mkfifo(log)
        await until(fails)
        log.unlink()


@asynccontextmanager
async def _failing_log(soak: Soak) -> AsyncIterator[Callable[[], Awaitable[bool]]]:
    """Gives a condition, whether a write to the log has failed, and waits at the end until one has succeeded."""
    before, written = await soak.samples(), soak.errors_logged(LOG_WRITTEN_AGAIN)

    async def fails() -> bool:
        return total(await soak.samples(), LOG_ERRORS) > total(before, LOG_ERRORS)

    yield fails
    await until(lambda: soak.errors_logged(LOG_WRITTEN_AGAIN) > written)


def _no_growth(soak: Soak, size: int) -> AbstractContextManager[None]:
    """Files of the exporter cannot grow beyond `size`."""
    assert soak.running.exporter is not None
    return limited(soak.running.exporter, resource.RLIMIT_FSIZE, size)


async def _rename(soak: Soak) -> None:
    log = soak.running.log
    soak.renamed += 1

    def renamed() -> bool:
        try:
            log.rename(log.with_name(f"{log.name}.{soak.renamed}"))
        except FileNotFoundError:  # the exporter is rotating it
            return False
        return True

    await until(renamed)


async def _log_renamed(soak: Soak) -> None:
    """By another program."""
    await _rename(soak)
    await until(soak.running.log.exists)


async def _reload(soak: Soak) -> None:
    """SIGHUP without any change, in a burst of requests."""
    async with asyncio.TaskGroup() as group:
        group.create_task(soak.burst(200))
        soak.running.process.send_signal(signal.SIGHUP)


async def _slo_file_changed(soak: Soak) -> None:
    """SIGHUP after another SLO was added or removed."""
    text = soak.slo_file.read_text()
    changed = text.removesuffix(SECOND_SLO) if text.endswith(SECOND_SLO) else text + SECOND_SLO
    await _reload_in_a_burst(soak, (changed, True))


async def _slo_file_invalid(soak: Soak) -> None:
    """SIGHUP with an invalid file, and then with the old one."""
    text = soak.slo_file.read_text()
    await _reload_in_a_burst(soak, (f"{text}nonsense: true\n", False), (text, True))


async def _reload_in_a_burst(soak: Soak, *files: tuple[str, bool]) -> None:
    """Reload these SLO files, each with whether it is valid, while requests arrive."""
    if RELOAD_SUCCESSFUL not in await soak.samples():
        raise SkippedError("this sidecar does not reload the SLO file")
    async with asyncio.TaskGroup() as group:
        group.create_task(soak.burst(200))
        for text, valid in files:
            await _reload_slos(soak, text, valid=valid)


async def _reload_slos(soak: Soak, text: str, *, valid: bool) -> None:
    before = await soak.samples()
    soak.slo_file.write_text(text)
    soak.running.process.send_signal(signal.SIGHUP)

    async def reloaded() -> bool:
        samples = await soak.samples()
        return samples[RELOAD_SUCCESSFUL] == valid and (samples[RELOADED_AT] > before[RELOADED_AT]) == valid

    await until(reloaded)


async def _crowd(soak: Soak) -> None:
    """Idle clients up to the limit of each relay, and requests above it."""
    await soak.settle()
    before = await soak.samples()
    limit, descriptors = of(before, CONNECTIONS_LIMIT, RELAYS[0]), _relay_descriptors(soak)
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < CROWD_DESCRIPTORS:
        raise SkippedError(f"the clients and the engine need {CROWD_DESCRIPTORS} descriptors")
    crowd = raw_clients.Crowd(soak.running.port)
    samples = before

    async def full() -> bool:
        nonlocal samples
        samples = await soak.samples()
        return all(of(samples, CONNECTIONS, relay) >= limit for relay in RELAYS)

    async def counted() -> bool:
        return total(await soak.samples(), REJECTED) - total(before, REJECTED) == crowd.turned_away

    try:
        # The kernel spreads the connections over the relays.
        await crowd.idle(len(RELAYS) * limit)
        while not await full():
            await crowd.idle(limit // 4)
            await asyncio.sleep(0.3)  # a snapshot is sent every 0.25 s
        await until(counted)
        async with asyncio.TaskGroup() as group:
            for _ in range(REQUESTS_ABOVE_LIMIT):
                group.create_task(crowd.ask(soak.clients, "unary"))
        await until(counted)
    finally:
        await crowd.leave()
    soak.turned_away += crowd.turned_away

    async def gone() -> bool:
        """Also the connections to the engine that were opened for them."""
        connections = total(await soak.samples(), CONNECTIONS)
        return connections <= total(before, CONNECTIONS) and _relay_descriptors(soak) <= descriptors

    await until(gone)


async def _engine_away(soak: Soak) -> None:
    """The engine closes its listener and all connections, and returns."""
    soak.clients.excuse(ENGINE_FAILS)
    before = _unreachable(await soak.samples())
    await soak.engine.stop()

    async def unreachable() -> bool:
        return _unreachable(await soak.samples()) > before

    await until(unreachable)
    await soak.engine.start()


def _relay_descriptors(soak: Soak) -> int:
    return sum(map(open_descriptors, relays(soak.running)))


def _unreachable(samples: Samples) -> float:
    return sum(value for name, value in samples.items() if f",{Outcome.UPSTREAM_UNREACHABLE}," in name)


async def _engine_resets(soak: Soak) -> None:
    """The engine resets all connections and continues to listen."""
    soak.clients.excuse(ENGINE_FAILS)
    soak.engine.reset_connections()


async def _big_prompts(soak: Soak) -> None:
    await _offer_big_prompts(soak)


async def _offer_big_prompts(soak: Soak) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(BIG_PROMPTS):
            group.create_task(soak.clients.offer("streams", prompt=BIG_PROMPT))


async def _engine_stops_reading(soak: Soak) -> None:
    """While big prompts are sent to it."""
    soak.engine.stop_reading()
    try:
        prompts = asyncio.create_task(_offer_big_prompts(soak))

        async def waiting() -> bool:
            return (await in_flight(soak.running))["waiting"] >= BIG_PROMPTS

        await until(waiting)
    finally:
        soak.engine.resume_reading()
    await prompts


async def _clients_stall(soak: Soak) -> None:
    await raw_clients.stall(soak.clients, soak.running.port, STALLED)


async def _early_answers(soak: Soak) -> None:
    """The engine answers requests before it reads their bodies, while others use its connections."""
    async with asyncio.TaskGroup() as group:
        group.create_task(soak.burst(200))
        group.create_task(raw_clients.upload_in_vain(soak.clients, soak.running.port, EARLY_ANSWERS))


Inject = Callable[[Soak], Awaitable[None]]

KILLS: dict[str, Inject] = {
    "exporter killed": _exporter_killed,
    "relay killed": _relay_killed,
    "relay and exporter killed": _relay_and_exporter_killed,
    "sidecar killed and started again": _sidecar_killed,
    "exporter killed, no descriptors": _no_descriptors,
    "exporter killed, no processes": _no_processes,
}
"""Faults after which a process is new."""

OTHERS: dict[str, Inject] = {
    "exporter stopped and continued": _exporter_stopped,
    "disk full": _disk_full,
    "log file may not grow": _partial_writes,
    "log renamed by another program": _log_renamed,
    "log replaced by a FIFO": _fifo,
    "SIGHUP": _reload,
    "SIGHUP, changed SLO file": _slo_file_changed,
    "SIGHUP, invalid SLO file": _slo_file_invalid,
    "clients above the limit": _crowd,
    "engine away": _engine_away,
    "engine resets all connections": _engine_resets,
    "engine stops reading": _engine_stops_reading,
    "big prompts": _big_prompts,
    "clients that do not read": _clients_stall,
    "early answers": _early_answers,
}
