"""A relay that dies takes its open requests along: counted as lost, while the other relay's go on."""

import asyncio
import os
import signal
from pathlib import Path

import aiohttp

from exporters.records import Hello, OpenRequests, Snapshot
from exporters.sidecar.ingest.record_receiver import RecordReceiver
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from tests.faults.fault_scripts import serving
from tests.faults.sidecar_state import logged_outcomes, wait_for_in_flight
from tests.support.sample_records import SLOS
from tests.support.scripted_relay import CHAT, DONE
from tests.support.sidecar_process import Running, sidecar
from tests.support.waiting import until

OF_RELAYS = ("restarts", "lost_requests")


def open_requests(waiting: int, streaming: int, *, draining: bool = False) -> Snapshot:
    return Snapshot([OpenRequests("m", "short", waiting, streaming, None)], 0.0, 1, 0, draining=draining)


def record_receiver() -> RecordReceiver:
    return RecordReceiver(RequestMetrics(SLOS), None, lambda: None)


def test_what_was_open_in_the_last_snapshot_is_lost_when_the_relay_comes_back_with_another_life() -> None:
    receiver = record_receiver()
    receiver.hello(Hello("relay-0", "a"))
    receiver.snapshot("relay-0", open_requests(5, 5))
    receiver.snapshot("relay-0", open_requests(2, 3))
    receiver.disconnected("relay-0")
    assert receiver.lost_requests == {}
    receiver.hello(Hello("relay-0", "b"))
    assert receiver.lost_requests == {"relay-0": 5}
    receiver.snapshot("relay-0", open_requests(1, 0))
    receiver.disconnected("relay-0")
    receiver.hello(Hello("relay-0", "c"))
    assert receiver.lost_requests == {"relay-0": 6}


def test_a_relay_that_reconnects_has_lost_nothing_then_or_when_it_dies_idle() -> None:
    receiver = record_receiver()
    receiver.hello(Hello("relay-0", "a"))
    receiver.snapshot("relay-0", open_requests(2, 3))
    receiver.disconnected("relay-0")
    receiver.hello(Hello("relay-0", "a"))
    receiver.snapshot("relay-0", open_requests(0, 0))
    receiver.disconnected("relay-0")
    receiver.hello(Hello("relay-0", "b"))
    assert receiver.lost_requests == {"relay-0": 0}


def test_a_relay_that_drained_has_lost_nothing() -> None:
    receiver = record_receiver()
    receiver.hello(Hello("relay-0", "a"))
    receiver.snapshot("relay-0", open_requests(2, 3, draining=True))
    receiver.disconnected("relay-0")
    receiver.hello(Hello("relay-0", "b"))
    assert receiver.lost_requests == {"relay-0": 0}


def test_a_relay_that_dies_before_its_first_snapshot_is_not_known_to_have_lost_anything() -> None:
    receiver = record_receiver()
    receiver.hello(Hello("relay-0", "a"))
    receiver.disconnected("relay-0")
    receiver.hello(Hello("relay-0", "b"))
    assert receiver.lost_requests == {"relay-0": 0}


def relays(running: Running) -> list[int]:
    """Process ids of all living relays."""
    pids = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                arguments = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:  # the process has ended
                continue
            if int(parent) == running.process.pid and b"exporters.relay.process" in arguments:
                pids.append(int(folder.name))
    return pids


async def test_a_relay_killed_with_open_requests_counts_them_lost_and_leaves_the_others_alone(tmp_path: Path) -> None:
    streams = 24  # spread over two relays by the kernel: all in one of them once in eight million runs
    async with serving() as engine, sidecar(tmp_path, engine.url, "--workers", "2") as running:

        async def stream(session: aiohttp.ClientSession) -> bool:
            """Whether it came to its end; without an id of its own, it gets one that says which relay it is in."""
            headers = {"x-fault": "held in the stream"}
            try:
                async with session.post(f"{running.url}/v1/chat/completions", data=CHAT, headers=headers) as response:
                    return (await response.read()).endswith(DONE)
            except aiohttp.ClientError:
                return False

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            open_streams = [asyncio.create_task(stream(session)) for _ in range(streams)]
            await wait_for_in_flight(running, waiting=0, streaming=streams)
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
            await wait_for_in_flight(running, waiting=0, streaming=streams - in_victim)
            engine.may_end.set()
            assert sum(await asyncio.gather(*open_streams)) == streams - in_victim
        await wait_for_in_flight(running, waiting=0, streaming=0)
        assert await running.stop() == 0
        assert [outcome for _, outcome in logged_outcomes(running)] == ["ok"] * (streams - in_victim)
