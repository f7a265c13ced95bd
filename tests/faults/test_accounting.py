"""Whatever fails, each request that was offered is in the log once, with its outcome, and in the counters."""

import asyncio
import json
import os
import random
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from exporters.relay.record_sender import Outbox
from exporters.requestlog.writer import RequestLog
from exporters.sidecar.ingest.record_receiver import RecordReceiver, RelayConnection
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.signals import Outcome, Phase
from tests.faults.fault_scripts import UNREACHABLE, Crowd, Engine, serving, wrong
from tests.support.sample_records import SLOS
from tests.support.scripted_relay import UNARY, Received, post, staged
from tests.support.sidecar_process import QUICK_RESTARTS, RUN, START, Running, sidecar
from tests.support.waiting import until

QUICK = START + QUICK_RESTARTS + RUN
IN_FLIGHT = "llm_requests_in_flight{"


def logged(running: Running) -> list[tuple[str, str]]:
    lines = [json.loads(text) for text in running.log.read_text().splitlines()]
    return [(line["request_id"], line["outcome"]) for line in lines]


async def counted(running: Running) -> Counter[str]:
    """Requests by outcome, as this life of the exporter has counted them."""
    found: Counter[str] = Counter()
    for name, value in (await running.samples()).items():
        if name.startswith("llm_requests_total{"):
            found[name.split(",")[2]] += int(value)
    return +found


async def in_flight(running: Running) -> dict[str, float]:
    """Requests by phase."""
    samples = await running.samples()
    return {
        str(phase): sum(
            samples[name] for name in samples if name.startswith(IN_FLIGHT) and name.endswith(f",{phase}}}")
        )
        for phase in Phase
    }


async def flying(running: Running, *, waiting: int, streaming: int) -> None:
    """Wait until exactly these are in flight."""

    async def holds() -> bool:
        try:
            return await in_flight(running) == {"waiting": waiting, "streaming": streaming}
        except aiohttp.ClientError:  # it is being started again
            return False

    await until(holds)


async def kill_exporter(running: Running) -> None:
    gone = running.exporter
    assert gone is not None
    os.kill(gone, signal.SIGKILL)

    async def replaced() -> bool:
        return running.exporter not in {None, gone} and await running.ready()

    await until(replaced)


@pytest.mark.parametrize("seed", [1, 2])
async def test_offered_logged_and_counted_are_the_same_requests_over_all_lives_of_the_exporter(
    tmp_path: Path, seed: int
) -> None:
    """Each life ends when all is told, so that what it counted is known when it dies."""
    dice = random.Random(seed)  # noqa: S311 - a schedule that can be had again
    by_series: Counter[str] = Counter()
    async with serving() as engine, sidecar(tmp_path, engine.url, code=QUICK) as running:
        crowd = Crowd(engine, running.session, running.url)
        for life in range(4):
            before = sum(by_series.values())
            await crowd.press(dice, 60)
            if life % 2:
                await engine.go()
                async with asyncio.TaskGroup() as group:
                    for _ in range(10):
                        group.create_task(crowd.offer("answers", UNREACHABLE))
                await engine.come()

            async def settled(wanted: int = len(crowd.offered) - before) -> bool:
                return (await counted(running)).total() >= wanted

            await until(settled)
            await flying(running, waiting=0, streaming=0)
            by_series += await counted(running)
            await kill_exporter(running)
        assert await running.stop() == 0
        assert crowd.failed == []
        assert wrong(crowd.offered, logged(running)) == []
        assert by_series == Counter(outcome for _, outcome in logged(running))
        assert by_series[Outcome.UPSTREAM_UNREACHABLE] > 0


async def test_an_exporter_killed_ten_times_under_load_costs_no_request_no_line_and_no_gauge(tmp_path: Path) -> None:
    dice = random.Random(3)  # noqa: S311 - as above
    async with serving() as engine, sidecar(tmp_path, engine.url, code=QUICK) as running:
        crowd = Crowd(engine, running.session, running.url)
        over = asyncio.Event()

        async def load() -> None:
            while not over.is_set():
                await crowd.press(dice, 12, at_once=6)
                await asyncio.sleep(0.05)  # leaves the exporter some of the machine to start on

        async with asyncio.TaskGroup() as group:
            group.create_task(load())
            for _ in range(10):
                await asyncio.sleep(dice.uniform(0.0, 0.3))
                await kill_exporter(running)
            over.set()
        await flying(running, waiting=0, streaming=0)
        await _kill_with_open_requests(running, engine, crowd)
        samples = await running.samples()
        assert samples["llm_sidecar_restarts_total{exporter}"] == 11
        assert samples["llm_sidecar_lost_requests_total{relay-0}"] == 0
        assert samples["llm_sidecar_dropped_records_total{relay-0}"] == 0
        assert await running.stop() == 0
        assert crowd.failed == []
        assert len(crowd.offered) > 100
        assert wrong(crowd.offered, logged(running)) == []


async def _kill_with_open_requests(running: Running, engine: Engine, crowd: Crowd) -> None:
    """Three that stream and two that wait are shown as such by the next exporter, and as ended once they have."""
    async with asyncio.TaskGroup() as group:
        for name in ["held in the stream"] * 3 + ["held back"] * 2:
            group.create_task(crowd.offer(name))
        await flying(running, waiting=2, streaming=3)
        await kill_exporter(running)
        await flying(running, waiting=2, streaming=3)
        engine.may_end.set()
    await flying(running, waiting=0, streaming=0)


async def test_requests_that_end_while_the_exporter_is_away_too_long_are_logged_or_counted_as_dropped(
    tmp_path: Path,
) -> None:
    async def ok(received: Received) -> None:
        await received.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    path = str(tmp_path / "records.sock")
    async with staged(tmp_path, ok) as stage:
        sender = stage.sender
        sender._path, sender.outbox = path, Outbox(limit=20)
        sender.start()

        async def all_told() -> bool:
            return sender.outbox.unacknowledged == 0

        for ended_while_away in (5, 50, 20):
            for _ in range(ended_while_away):
                assert (await stage.ask(post(UNARY))).endswith(b"ok")
            log = RequestLog(tmp_path / "log")
            inbox = RecordReceiver(RequestMetrics(SLOS), log, lambda: None)
            server = await asyncio.get_running_loop().create_unix_server(partial(RelayConnection, inbox), path)
            await until(all_told)
            server.close()
            assert sender._transport is not None
            sender._transport.abort()
            log.close()
        sender._closing = True
        lines = [json.loads(text)["request_id"] for text in (tmp_path / "log").read_text().splitlines()]
        assert sender.outbox.dropped == 50 - 20
        assert len(lines) == len(set(lines)) == 5 + 50 + 20 - sender.outbox.dropped
