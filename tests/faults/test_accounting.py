"""Each offered request is logged once, with its outcome, and counted, for any fault."""

import asyncio
import json
import random
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from exporters.relay.record_sender import Outbox
from exporters.requestlog.writer import RequestLog
from exporters.sidecar.ingest.receiver import RecordReceiver, RelayConnection
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.vocabulary.signals import Outcome
from tests.faults.fault_scripts import UNREACHABLE, Clients, Engine, log_errors, serving
from tests.faults.sidecar_state import counted_outcomes, kill_exporter, logged_outcomes, wait_for_in_flight
from tests.support.exporter_listener import accepting
from tests.support.sample_records import SLOS
from tests.support.scripted_relay import UNARY, ok, post, staged
from tests.support.sidecar_process import QUICK_RESTARTS, RUN, START, Running, sidecar
from tests.support.waiting import until

QUICK = START + QUICK_RESTARTS + RUN
KILLS = 10


@pytest.mark.slow
async def test_offered_logged_and_counted_requests_are_the_same_over_all_runs_of_the_exporter(tmp_path: Path) -> None:
    """Each run of the exporter is killed after it has counted all requests, so its final counts are known."""
    rng = random.Random(1)  # noqa: S311 - reproducible
    by_series: Counter[str] = Counter()
    async with serving() as engine, sidecar(tmp_path, engine.url, code=QUICK) as running:
        clients = Clients(engine, running.session, running.url)
        for run in range(2):
            before = sum(by_series.values())
            await clients.offer_many(rng, 60)
            if run % 2:
                await engine.stop()
                async with asyncio.TaskGroup() as group:
                    for _ in range(10):
                        group.create_task(clients.offer("unary", UNREACHABLE))
                await engine.start()

            async def settled(ended: int = len(clients.offered) - before) -> bool:
                return (await counted_outcomes(running)).total() >= ended

            await until(settled)
            await wait_for_in_flight(running, waiting=0, streaming=0)
            by_series += await counted_outcomes(running)
            await kill_exporter(running)
        await _kill_with_open_requests(running, engine, clients)
        by_series += await counted_outcomes(running)
        assert await running.stop() == 0
        assert clients.failed == []
        assert log_errors(clients.offered, logged_outcomes(running)) == []
        assert by_series == Counter(outcome for _, outcome in logged_outcomes(running))
        assert by_series[Outcome.UPSTREAM_UNREACHABLE] > 0


@pytest.mark.long
async def test_an_exporter_killed_often_under_load_loses_no_request_or_line(tmp_path: Path) -> None:
    rng = random.Random(3)  # noqa: S311 - reproducible
    async with serving() as engine, sidecar(tmp_path, engine.url, code=QUICK) as running:
        clients = Clients(engine, running.session, running.url)
        over = asyncio.Event()

        async def load() -> None:
            while not over.is_set():
                await clients.offer_many(rng, 12, at_once=6)
                # Leaves the exporter CPU time to start.
                await asyncio.sleep(0.05)

        async with asyncio.TaskGroup() as group:
            group.create_task(load())
            for _ in range(KILLS):
                await asyncio.sleep(rng.uniform(0.0, 0.3))
                await kill_exporter(running)
            over.set()
        await wait_for_in_flight(running, waiting=0, streaming=0)
        samples = await running.samples()
        assert samples["llm_sidecar_restarts_total{exporter}"] == KILLS
        assert samples["llm_sidecar_lost_requests_total{relay_crashed,chat_completions}"] == 0
        assert samples["llm_sidecar_dropped_records_total{chat_completions}"] == 0
        assert await running.stop() == 0
        assert clients.failed == []
        assert len(clients.offered) > 10 * KILLS
        assert log_errors(clients.offered, logged_outcomes(running)) == []


async def _kill_with_open_requests(running: Running, engine: Engine, clients: Clients) -> None:
    """The next exporter shows three streaming and two waiting requests, and none after their end."""
    async with asyncio.TaskGroup() as group:
        for name in ["held in the stream"] * 3 + ["held back"] * 2:
            group.create_task(clients.offer(name))
        await wait_for_in_flight(running, waiting=2, streaming=3)
        await kill_exporter(running)
        await wait_for_in_flight(running, waiting=2, streaming=3)
        engine.may_end.set()

    async def counted() -> bool:
        return (await counted_outcomes(running))[Outcome.OK] == 5

    await until(counted)
    await wait_for_in_flight(running, waiting=0, streaming=0)


async def test_requests_that_end_while_the_exporter_is_down_are_logged_or_counted_as_dropped(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path, ok) as stage:
        sender = stage.sender
        sender.outbox = Outbox(limit=20)
        sender.start()

        for ended_while_down in (5, 50, 20):
            for _ in range(ended_while_down):
                assert (await stage.ask(post(UNARY))).endswith(b"ok")
            log = RequestLog(tmp_path / "log")
            receiver = RecordReceiver(RequestMetrics(SLOS), log, lambda: None)
            async with accepting(sender, partial(RelayConnection, receiver)):
                await until(lambda: sender.outbox.unacknowledged == 0)
            assert sender._transport is not None
            sender._transport.abort()
            log.close()
        sender._closing = True
        lines = [json.loads(text)["request_id"] for text in (tmp_path / "log").read_text().splitlines()]
        assert sender.outbox.dropped == 50 - 20
        assert len(lines) == len(set(lines)) == 5 + 50 + 20 - sender.outbox.dropped
