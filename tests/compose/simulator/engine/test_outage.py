"""An outage of the simulated engine refuses connections and ends with a restart."""

import asyncio
from dataclasses import replace

import aiohttp
import pytest

from compose.simulator.api.restarting_server import Simulator, SimulatorConfig
from compose.simulator.engine.flags import preset_flags
from compose.simulator.presets.preset import PRESETS
from tests.support.waiting import until

TOY = PRESETS["toy"]


class Outage(Simulator):
    """Ends its waits when the test allows it."""

    def __init__(self, config: SimulatorConfig) -> None:
        super().__init__(config)
        self.waits: list[float] = []
        self.may_end = asyncio.Event()

    async def _wait_before_restart(self, seconds: float) -> None:
        self.waits.append(seconds)
        await self.may_end.wait()


async def test_the_engine_refuses_connections_during_its_outage_and_has_one_outage() -> None:
    flags = replace(preset_flags(TOY), outage_after=0, outage_seconds=300)
    simulator = Outage(
        SimulatorConfig(host="127.0.0.1", port=0, preset=TOY, model="toy", flags=flags, restart_seconds=7.0)
    )
    running = asyncio.create_task(simulator.run())
    await until(lambda: simulator.waits == [300])
    async with aiohttp.ClientSession(f"http://127.0.0.1:{simulator.port}") as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get("/health")
        simulator.may_end.set()
        await until(simulator.listening.is_set)
        async with session.post("/simulator/config", json={"max_num_seqs": 5}) as response:
            assert response.status == 200
        await until(lambda: simulator.waits == [300, 7])
        await until(simulator.listening.is_set)
        async with session.get("/health") as response:
            assert response.status == 200
    assert simulator.waits == [300, 7]
    simulator.stop()
    await running
