"""One page per incident on three replicas: the scenario with the most alerts, and the one that changes most often.

`make scenarios` measures all ten. The others take ten minutes more, and promtool tests their rules one by one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from compose.incidents import count_incidents
from compose.prometheus_tools import Tools
from tests.alerts.alertmanager.replica_lab import ReplicaLab, running

pytestmark = pytest.mark.lab


async def cut_the_network_until_paged(lab: ReplicaLab) -> None:
    lab.cut_network()
    await lab.paged()
    lab.restore_network()


async def crash_until_paged(lab: ReplicaLab) -> None:
    """An engine that serves for a moment after each start."""
    replica = lab.replicas[0]
    while not lab.pages():
        await lab.kill_engine(replica)
        await lab.holds("llm_engine_up == 0")
        await lab.start_engine(replica)
        await lab.becomes(replica, healthy=True)
        await lab.holds("count(llm_engine_up == 1) == 3")


@pytest.mark.parametrize("fault", [cut_the_network_until_paged, crash_until_paged])
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
