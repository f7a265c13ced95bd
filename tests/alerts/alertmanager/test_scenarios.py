"""An incident opens one page: the alerts of eight incidents at a real Alertmanager, and two incidents in the lab.

`python -m tests.alerts.alertmanager.scenarios` measures all ten; the other eight would take sixteen minutes.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import pytest

from compose.demo.incidents import count_incidents
from compose.lab.webhook import Notification, parse_notifications
from compose.programs.tools import Tools
from exporters.vocabulary.slo_file import load
from tests.alerts.alertmanager import live_alertmanager
from tests.alerts.alertmanager.live_alertmanager import ROOT, Alertmanager
from tests.alerts.alertmanager.receiver_servers import HttpSink, http_sink
from tests.alerts.alertmanager.replica_lab import ReplicaLab, running
from tests.alerts.alertmanager.scenarios import delay_one_replica
from tests.alerts.incident_series import Alerts, firing_alerts
from tests.support.promtool import Promtool
from tests.support.waiting import wait_until


def replay(alertmanager: Alertmanager, evaluations: Sequence[Alerts]) -> None:
    """Post each change as Prometheus does, fifty times as fast: the lab evaluates once a second."""
    for before, now in zip([frozenset(), *evaluations], [*evaluations, frozenset()], strict=True):
        alertmanager.post(map(dict, now - before))
        alertmanager.post(map(dict, before - now), firing=False)
        time.sleep(0.02)


def pages(sink: HttpSink) -> list[Notification]:
    bodies = enumerate(sink.bodies("page"))
    return [each for at, body in bodies for each in parse_notifications(json.dumps(body).encode(), float(at))]


def all_are_resolved(notifications: Sequence[Notification]) -> bool:
    last: Mapping[str, str] = {each.fingerprint: each.status for each in notifications}
    return bool(last) and {*last.values()} == {"resolved"}


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("engine down", "one replica of three", "traffic lost"), id="three incidents"),
        pytest.param((), id="all", marks=pytest.mark.long),
    ],
)
def test_the_alerts_of_an_incident_open_one_page(
    promtool: Promtool, tools: Tools, tmp_path: Path, names: tuple[str, ...]
) -> None:
    """Also if several kinds of alerts page; lost traffic raises only tickets."""
    evaluations = firing_alerts(promtool, load(ROOT / "compose/slos.yaml"), names=names)
    with http_sink() as sink:
        flags = ("--page", f"webhook={sink.url('page')}", "--ticket", f"webhook={sink.url('ticket')}")
        timing = ("--group-wait", "200ms", "--group-interval", "1200ms", "--keep-apart", "cluster")
        with live_alertmanager.running(tmp_path, tools, *flags, *timing) as alertmanager:
            replay(alertmanager, evaluations)
            assert wait_until(lambda: all_are_resolved(pages(sink))), pages(sink)
    clusters = {dict(each)["cluster"] for every in evaluations for each in every}
    opened = {
        cluster: count_incidents([each for each in pages(sink) if each.labels["cluster"] == cluster], "page").opened
        for cluster in clusters
    }
    assert opened == {**dict.fromkeys(clusters, 1), "traffic lost": 0}


async def cut_the_network_until_paged(lab: ReplicaLab) -> None:
    lab.cut_network()
    await lab.paged()
    lab.restore_network()


async def delay_one_replica_until_paged(lab: ReplicaLab) -> None:
    delay_one_replica(lab)
    await lab.paged()
    lab.replicas[0].reached.delay = 0.0


@pytest.mark.long
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
