"""The open requests of a killed relay are counted as lost; those of other relays continue."""

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from exporters.records import Hello, OpenRequests, Snapshot
from exporters.sidecar.ingest.record_receiver import RecordReceiver
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from tests.faults.fault_scripts import serving
from tests.faults.sidecar_state import logged_outcomes, relays, wait_for_in_flight
from tests.support.sample_records import SLOS
from tests.support.scripted_relay import CHAT, DONE
from tests.support.sidecar_process import sidecar
from tests.support.waiting import until

OF_RELAYS = ("restarts", "lost_requests")


def open_requests(waiting: int, streaming: int, *, draining: bool = False) -> Snapshot:
    return Snapshot([OpenRequests("m", "short", waiting, streaming, None)], 0.0, 1, 0, draining=draining)


def receiver_after(*snapshots: Snapshot) -> RecordReceiver:
    """A receiver whose relay connected with run id `a`, sent these snapshots and disconnected."""
    receiver = RecordReceiver(RequestMetrics(SLOS), None, lambda: None)
    receiver.hello(Hello("relay-0", "a"))
    for snapshot in snapshots:
        receiver.snapshot("relay-0", snapshot)
    receiver.disconnected("relay-0")
    return receiver


@pytest.mark.parametrize(
    "snapshots, lost",
    [
        pytest.param([open_requests(5, 5), open_requests(2, 3)], 5, id="the last snapshot counts"),
        pytest.param([open_requests(2, 3, draining=True)], 0, id="the relay drained"),
        pytest.param([], 0, id="no snapshot"),
    ],
)
def test_the_open_requests_of_the_last_snapshot_are_lost_after_a_restart(snapshots: list[Snapshot], lost: int) -> None:
    receiver = receiver_after(*snapshots)
    assert receiver.lost_requests == {}
    receiver.hello(Hello("relay-0", "b"))
    assert receiver.lost_requests == {"relay-0": lost}


@pytest.mark.parametrize(
    "run_id, waiting, lost",
    [pytest.param("b", 1, 6, id="the relay restarts again"), pytest.param("a", 0, 0, id="the relay only reconnects")],
)
def test_lost_requests_add_up_over_restarts_and_not_over_reconnects(run_id: str, waiting: int, lost: int) -> None:
    receiver = receiver_after(open_requests(2, 3))
    receiver.hello(Hello("relay-0", run_id))
    receiver.snapshot("relay-0", open_requests(waiting, 0))
    receiver.disconnected("relay-0")
    receiver.hello(Hello("relay-0", "c"))
    assert receiver.lost_requests == {"relay-0": lost}


# The engine streams chat chunks on both paths, which are no output of a response and do not end it.
@pytest.mark.parametrize(
    "path, phase, outcome",
    [
        pytest.param("/v1/chat/completions", "streaming", "ok", id="chat"),
        pytest.param("/v1/responses", "waiting", "truncated", id="responses"),
    ],
)
async def test_the_open_requests_of_a_killed_relay_are_lost_and_other_relays_are_unaffected(
    tmp_path: Path, path: str, phase: str, outcome: str
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
            restarts, lost = ([samples[f"llm_sidecar_{of}_total{{relay-{n}}}"] for n in (0, 1)] for of in OF_RELAYS)
            assert sorted(restarts) == [0, 1]
            in_victim = sum(name.startswith(f"relay-{restarts.index(1)}-") for name in engine.request_ids)
            assert 0 < in_victim < streams
            assert lost == [in_victim * restarted for restarted in restarts]
            await wait_for_in_flight(running, **in_flight(streams - in_victim))
            engine.may_end.set()
            assert sum(await asyncio.gather(*open_streams)) == streams - in_victim
        await wait_for_in_flight(running, waiting=0, streaming=0)
        assert await running.stop() == 0
        assert [outcome for _, outcome in logged_outcomes(running)] == [outcome] * (streams - in_victim)
