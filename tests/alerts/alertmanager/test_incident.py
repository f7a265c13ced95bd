"""An overload, a restart and another overload in the real lab are one incident, not one page per alert."""

import asyncio
from pathlib import Path

import pytest

from alerts.plan import Plan
from compose.demo.incidents import count_incidents
from compose.lab.run_directory import RunDirectory
from compose.lab.running import Lab, running
from compose.lab.services import LabConfig
from compose.programs.tools import Tools
from exporters.vocabulary import slo_file
from tests.alerts.alertmanager.live_alertmanager import ROOT
from tests.alerts.alertmanager.offered_load import offered
from tests.support.ports import free_lab_ports

# Of compose/alertmanager/alertmanager.yml, in seconds.
GROUP_INTERVAL = 60.0


async def paged(lab: Lab, name: str) -> None:
    while not any(
        (each.name, each.receiver, each.status) == (name, "page", "firing") for each in lab.notifications.received
    ):
        await asyncio.sleep(0.2)


async def holds(lab: Lab, query: str) -> None:
    while not await asyncio.to_thread(lab.prometheus.query, query):
        await asyncio.sleep(0.5)


async def resolved(lab: Lab) -> None:
    """Every page that was received has been resolved."""
    while True:
        last = {frozenset(each.labels.items()): each for each in lab.notifications.received if each.receiver == "page"}
        if last and all(each.status == "resolved" for each in last.values()):
            return
        await asyncio.sleep(0.2)


async def set_slots(lab: Lab, slots: int) -> None:
    async with lab.http.post(lab.config.upstream + "/simulator/config", json={"max_num_seqs": slots}) as response:
        assert response.status == 200


@pytest.mark.long
async def test_overload_restart_and_overload_open_few_pages(tools: Tools, tmp_path: Path) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text((ROOT / "compose/slos.yaml").read_text().replace("threshold: 5s", "threshold: 500ms"))
    # The engine is still down when Alertmanager next notifies of the group, `group_interval` after the first page.
    restart = GROUP_INTERVAL + 3 * Plan.of(slo_file.load(path)).warm_up
    simulator = ("--max-num-seqs", "1", "--restart-seconds", str(restart))
    config = LabConfig(directory=RunDirectory(tmp_path / "run"), ports=free_lab_ports(), slos=path, simulator=simulator)
    async with running(config, slo_file.load(path), tools, print, print) as lab, offered(lab), asyncio.timeout(500):
        await lab.processes.during(paged(lab, "LLMErrorBudgetBurn"))
        await set_slots(lab, 2)
        await lab.processes.during(paged(lab, "LLMEngineDown"))
        await lab.processes.during(holds(lab, "llm_engine_up == 1"))
        await lab.processes.during(
            holds(lab, 'llm_slo:tier_bad_events:ratio{slo="ttft",window="5s"} and on () llm_engine_up == 1')
        )
        await set_slots(lab, 256)
        await lab.processes.during(resolved(lab))
        pages, tickets = (count_incidents(lab.notifications.received, each) for each in ("page", "ticket"))
    assert pages.opened <= 2, lab.notifications.received
    assert pages.updates <= 4, lab.notifications.received
    assert tickets.opened <= 3, lab.notifications.received
