"""The open requests of a killed relay are counted as lost; those of other relays continue."""

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from tests.faults.fault_scripts import serving
from tests.faults.sidecar_state import logged_outcomes, relays, wait_for_in_flight
from tests.support.scripted_relay import CHAT, DONE
from tests.support.sidecar_process import sidecar
from tests.support.waiting import until

pytestmark = pytest.mark.slow


# The engine streams chat chunks on both paths, which are not output of a response and do not end it.
@pytest.mark.parametrize(
    "path, endpoint, phase, outcome",
    [
        pytest.param("/v1/chat/completions", "chat_completions", "streaming", "ok", id="chat"),
        pytest.param("/v1/responses", "responses", "waiting", "truncated", marks=pytest.mark.long, id="responses"),
    ],
)
async def test_the_open_requests_of_a_killed_relay_are_lost_and_other_relays_are_unaffected(
    tmp_path: Path, path: str, endpoint: str, phase: str, outcome: str
) -> None:
    def in_flight(count: int) -> dict[str, int]:
        return {"waiting": 0, "streaming": 0} | {phase: count}

    # The kernel spreads them over two relays; all are in one relay once in eight million runs.
    streams = 24
    async with serving() as engine, sidecar(tmp_path, engine.url, "--workers", "2") as running:

        async def stream(session: aiohttp.ClientSession) -> bool:
            """Whether the stream completed. It has no request id, so the relay generates one that names the relay."""
            headers = {"x-fault": "held in the stream"}
            try:
                async with session.post(running.url + path, data=CHAT, headers=headers) as response:
                    return (await response.read()).endswith(DONE)
            except aiohttp.ClientError:
                return False

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            open_streams = [asyncio.create_task(stream(session)) for _ in range(streams)]
            await wait_for_in_flight(running, **in_flight(streams))
            victim = relays(running)[0]
            os.kill(victim, signal.SIGKILL)

            async def replaced() -> bool:
                return victim not in relays(running) and len(relays(running)) == 2 and await running.ready()

            await until(replaced)
            samples = await running.samples()
            restarts = [samples[f"llm_sidecar_restarts_total{{relay-{n}}}"] for n in (0, 1)]
            assert sorted(restarts) == [0, 1]
            in_victim = sum(name.startswith(f"relay-{restarts.index(1)}-") for name in engine.request_ids)
            assert 0 < in_victim < streams
            await running.shows(f"llm_sidecar_lost_requests_total{{relay_crashed,{endpoint}}}", in_victim)
            await wait_for_in_flight(running, **in_flight(streams - in_victim))
            engine.may_end.set()
            assert sum(await asyncio.gather(*open_streams)) == streams - in_victim
        await wait_for_in_flight(running, waiting=0, streaming=0)
        assert await running.stop() == 0
        assert [outcome for _, outcome in logged_outcomes(running)] == [outcome] * (streams - in_victim)
