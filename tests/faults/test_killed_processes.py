"""Whichever process of a sidecar is killed, each request that a relay has begun has a line or is counted."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Self

import aiohttp
import pytest

from tests.faults.fault_scripts import serving
from tests.faults.sidecar_state import relays
from tests.support.scripted_relay import CHAT
from tests.support.sidecar_process import QUICK_RESTARTS, RUN, START, Running, sidecar
from tests.support.waiting import until

pytestmark = pytest.mark.slow

BEGUN, RECORDED, LOST = (f"llm_sidecar_{of}_requests_total" for of in ("begun", "recorded", "lost"))
CRASHED, STOPPED = "{relay_crashed,chat_completions}", "{sidecar_stopped,chat_completions}"
OF_CHAT = "{chat_completions}"
IMPATIENT = START + "supervisor.STOP_TIMEOUT = supervisor.READINESS_TIMEOUT = 0.2; " + RUN


class Load:
    """Short streams, many at once, until it ends; counts the responses that clients have received."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._over = False
        self.sent = self.answered = 0

    async def _client(self, session: aiohttp.ClientSession) -> None:
        while not self._over:
            try:
                self.sent += 1
                async with session.post(self._running.completions, data=CHAT, headers={"x-fault": "unary"}) as response:
                    await response.read()
                    self.answered += response.status == 200
            except aiohttp.ClientError:
                await asyncio.sleep(0.02)  # while the relay restarts

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        self._clients = [asyncio.create_task(self._client(self._session)) for _ in range(20)]
        return self

    def stop(self) -> None:
        self._over = True

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        await asyncio.gather(*self._clients)
        await self._session.close()

    async def answers(self, more: int) -> None:
        """Wait for this number of further responses."""
        enough = self.answered + more
        await until(lambda: self.answered >= enough)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def balance(running: Running) -> dict[str, float]:
    """The counters when all begun requests are accounted for."""
    samples: dict[str, float] = {}

    async def even() -> bool:
        nonlocal samples
        try:
            samples = await running.samples()
        except aiohttp.ClientError:
            return False
        recorded = samples[RECORDED + OF_CHAT]
        return len(running.lines()) == recorded == samples[BEGUN + OF_CHAT] - samples[LOST + CRASHED]

    await until(even)
    return samples


EXPORTER, RELAY = Running.signal_exporter, Running.signal_relay


@pytest.mark.long
async def test_a_process_killed_under_load_leaves_no_request_without_a_line_or_a_count(tmp_path: Path) -> None:
    async with serving() as engine, sidecar(tmp_path, engine.url, code=START + QUICK_RESTARTS + RUN) as running:
        lost, answered = 0.0, 0
        for killed in ([EXPORTER], [RELAY], [RELAY, EXPORTER]):
            async with Load(running) as load:
                await load.answers(100)
                await until(running.ready)
                for signal_process in killed:
                    signal_process(running, signal.SIGKILL)
                await load.answers(100)
            samples, answered = await balance(running), answered + load.answered
            assert samples[BEGUN + OF_CHAT] >= answered
            if RELAY not in killed:
                assert samples[LOST + CRASHED] == lost
            lost = samples[LOST + CRASHED]
        assert lost > 0  # a relay may have had no open request when it was killed, but not both times
        assert await running.stop() == 0
        assert names(tmp_path) == ["requests.jsonl", "slos.yaml", "stderr"]  # no journal remains


async def test_what_a_stop_leaves_is_counted_at_the_next_start_after_a_scrape_and_logged_with_its_number(
    tmp_path: Path,
) -> None:
    async with serving() as engine:
        async with sidecar(tmp_path, engine.url, "--drain", "0", code=IMPATIENT) as running:
            running.signal_exporter(signal.SIGSTOP)
            async with Load(running) as load:
                await load.answers(100)
            assert await running.stop() == 0
            left = load.answered - len(running.lines())
            assert left > 0
        async with sidecar(tmp_path, engine.url) as running:
            await running.logs_line(f"ERROR exporter: {left} requests of the last run of the sidecar are lost")
            first, second = await running.samples(), await running.samples()
            assert (first[LOST + STOPPED], second[LOST + STOPPED]) == (0, left)
            assert second[BEGUN + OF_CHAT] == left
            assert await running.stop() == 0


async def test_the_requests_of_a_sidecar_that_is_killed_as_a_whole_are_counted_at_the_next_start(
    tmp_path: Path,
) -> None:
    async with serving() as engine:
        async with sidecar(tmp_path, engine.url) as running, Load(running) as load:
            await load.answers(100)
            exporter = running.exporter
            assert exporter is not None
            for pid in (running.process.pid, *relays(running), exporter):
                os.kill(pid, signal.SIGKILL)
            load.stop()
        async with sidecar(tmp_path, engine.url) as running:
            samples = await running.samples()

            async def counted() -> bool:
                nonlocal samples
                samples = await running.samples()
                return load.answered <= len(running.lines()) + samples[LOST + STOPPED]

            await until(counted)
            assert len(running.lines()) + samples[LOST + STOPPED] <= load.sent
            assert await running.stop() == 0
