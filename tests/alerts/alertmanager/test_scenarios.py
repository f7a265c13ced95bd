"""Two incidents on three replicas: with the most alerts, and with alerts on one replica and on all together.

`make scenarios` measures all ten; the other eight would take sixteen minutes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from compose.incidents import count_incidents
from compose.prometheus_tools import Tools
from tests.alerts.alertmanager.replica_lab import ReplicaLab, running
from tests.alerts.alertmanager.scenarios import delay_one_replica

pytestmark = pytest.mark.lab


async def cut_the_network_until_paged(lab: ReplicaLab) -> None:
    lab.cut_network()
    await lab.paged()
    lab.restore_network()


async def delay_one_replica_until_paged(lab: ReplicaLab) -> None:
    delay_one_replica(lab)
    await lab.paged()
    lab.replicas[0].reached.delay = 0.0


@pytest.mark.parametrize("fault", [cut_the_network_until_paged, delay_one_replica_until_paged])
async def test_an_incident_opens_one_page(
    fault: Callable[[ReplicaLab], Awaitable[None]], tools: Tools, tmp_path: Path
) -> None:
    async def incident(lab: ReplicaLab) -> None:
        await lab.healthy_traffic()
        await fault(lab)
        await lab.resolved()

    async with running(tmp_path, tools, print) as lab, asyncio.timeout(500):
        await lab.processes.during(incident(lab))
        assert count_incidents(lab.notifications.received, "page", lab.group_by).opened == 1, lab.pages()
