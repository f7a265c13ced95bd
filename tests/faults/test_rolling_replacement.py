"""Sidecars replaced one after the other behind a load balancer: no request is lost, and none is uncounted."""

import asyncio
import contextlib
import itertools
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from compose.programs.tools import Tools
from exporters.analysis.prometheus_api import Prometheus
from tests.support.fake_engine import Engine, serving, streaming_engine
from tests.support.ports import free_port
from tests.support.prometheus_process import prometheus
from tests.support.sidecar_process import PATIENCE, Running, sidecar
from tests.support.waiting import until

REPLACED, RATE, DELAY = 2, 100, 8
"""Sidecars, requests per second of each balancer, and seconds between the announcement of a drain and its begin."""
FLAGS = ("--drain", "30s", "--linger", "60s")


@dataclass
class Balancer:
    """Distributes requests over the sidecars that are ready, on connections that it keeps.

    It looks at /readyz every `check_interval` seconds, so it notices a drain late.
    """

    check_interval: float
    rate: int
    sidecars: list[Running]
    session: aiohttp.ClientSession
    results: Counter[str] = field(default_factory=Counter)

    async def run(self, stop: asyncio.Event) -> None:
        """Send `rate` requests per second until `stop`, then wait for the open ones."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as requests:
            next_at = next_check = loop.time()
            for number in itertools.count():
                if stop.is_set():
                    return
                if loop.time() >= next_check:
                    next_check = loop.time() + self.check_interval
                    ready = [each for each in list(self.sidecars) if await self._ready(each)]
                requests.create_task(self._request(ready[number % len(ready)], stream=number % 4 == 0))
                next_at = max(next_at + 1 / self.rate, loop.time() - 0.5)
                await asyncio.sleep(max(0.0, next_at - loop.time()))

    async def _ready(self, running: Running) -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            async with self.session.get(f"{running.pages}/readyz") as response:
                return response.status == 200
        return False

    async def _request(self, running: Running, *, stream: bool) -> None:
        """A unary request, or a stream of 0.1 s."""
        body = {"model": "tiny", "messages": [], "max_tokens": 5, "stream": stream}
        try:
            async with self.session.post(
                running.completions, json=body, headers={"connection": "keep-alive"}
            ) as response:
                end = (await response.read())[-14:]
            complete = end == b"data: [DONE]\n\n" if stream else response.status == 200
            self.results["complete" if complete else f"{response.status} {end!r}"] += 1
        except aiohttp.ClientError as error:
            self.results[repr(error)] += 1


async def more_requests(engine: Engine, count: int) -> None:
    """Wait until the engine has received `count` further requests."""
    target = len(engine.heads) + count
    await until(lambda: len(engine.heads) >= target)


@pytest.mark.long
async def test_sidecars_are_replaced_under_load_without_a_lost_or_uncounted_request(
    tools: Tools, tmp_path: Path
) -> None:
    metrics_ports = [free_port() for _ in range(2 * REPLACED)]
    stop = asyncio.Event()
    async with (
        serving(streaming_engine()) as engine,
        prometheus(tools.prometheus, tmp_path, *metrics_ports) as url,
        contextlib.AsyncExitStack() as processes,
        aiohttp.ClientSession(timeout=PATIENCE, connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        started: list[Running] = []

        async def start() -> Running:
            number = len(started)
            folder = tmp_path / f"sidecar-{number}"
            folder.mkdir()
            running = await processes.enter_async_context(
                sidecar(folder, engine.url, *FLAGS, "--drain-delay", f"{DELAY}s", metrics_port=metrics_ports[number])
            )
            started.append(running)
            return running

        in_turn = [await start() for _ in range(REPLACED)]
        # The second notices a drain late, but within the delay.
        balancers = [Balancer(interval, RATE, in_turn, session) for interval in (0.1, DELAY / 5)]
        loads = [asyncio.create_task(balancer.run(stop)) for balancer in balancers]
        for old in list(in_turn):
            in_turn.append(await start())  # it is ready
            await more_requests(engine, 2 * RATE)
            engine.may_finish.clear()  # so that streams are open when the drain begins
            old.process.send_signal(signal.SIGTERM)
            await until(old.refuses_connections)
            engine.may_finish.set()
            assert await old.ended() == 0
            in_turn.remove(old)
        stop.set()
        await asyncio.gather(*loads)
        assert sum((balancer.results for balancer in balancers), Counter()).keys() == {"complete"}
        assert await asyncio.gather(*(new.stop() for new in in_turn)) == [0] * REPLACED
        total = sum(balancer.results.total() for balancer in balancers)
        logged = [len(each.lines()) for each in started]
        assert sum(logged) == total
        assert min(logged) > 0
        lines = [line for each in started for line in each.log_lines() if line.startswith(("WARNING", "ERROR"))]
        assert [
            line for line in lines if "the metrics of engine" not in line
        ] == []  # on a busy machine it may time out
        server = Prometheus(url)
        query = "sum by (instance) (last_over_time(llm_requests_total[10m]))"
        read = {value.labels["instance"]: value.value for value in await asyncio.to_thread(server.query, query)}
        assert [read[f"127.0.0.1:{port}"] for port in metrics_ports] == logged
