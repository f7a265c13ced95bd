"""Several replicas of one model, each an engine with a sidecar, behind one load balancer and one Prometheus."""

import asyncio
import contextlib
import itertools
import json
import os
import random
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import yaml

from compose.lab import services
from compose.lab.ports import HOST
from compose.lab.run_directory import RunDirectory
from compose.lab.services import OURS, LabConfig
from compose.lab.webhook import Notification, NotificationStore, serve
from compose.processes.child_processes import ChildProcess, ChildProcesses, Service
from compose.programs.tools import Tools
from exporters.analysis.prometheus_api import Prometheus
from exporters.vocabulary.signals import REQUEST_START_HEADER
from tests.alerts.alertmanager.live_alertmanager import ROOT
from tests.alerts.alertmanager.tcp_forwarder import Forwarder
from tests.support.ports import free_lab_ports, free_port

SLOS = (
    (ROOT / "compose/slos.yaml")
    .read_text(encoding="utf-8")
    .replace("allow: []", "allow: [team-a, team-b]")
    .replace("per_tenant: false", "per_tenant: true\n  cold_start: 20s")
    .replace("{page: 50, ticket: 100}", "{page: 20, ticket: 40}")
)
"""The file of the lab with two tenants, for engines that start within 20 s and for little traffic."""
REPLICAS = 3
RATE = 5.0
"""Requests per second for all replicas together; their capacity is 12."""
_SLOTS, _TOKENS = "2", 16
_PROBE_INTERVAL = 0.5
_TIMING = {"--group-wait": "10s", "--group-interval": "1m", "--repeat-pages": "12h", "--repeat-tickets": "12h"}


@dataclass(slots=True)
class Replica:
    """`scraped` and `reached` are the networks from Prometheus to the sidecar, and from the sidecar to the engine."""

    name: str
    engine_port: int
    relay_port: int
    metrics_port: int
    scraped: Forwarder
    reached: Forwarder
    engine: ChildProcess | None = None
    sidecar: ChildProcess | None = None
    in_rotation: bool = True
    """Whether the load balancer may send requests to it."""
    ready: bool = False
    """The last probe of the load balancer."""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.relay_port}"


@dataclass(slots=True)
class Traffic:
    """The offered load; requests whose headers contain an item of `late` have waited in the gateway for 6 s."""

    rate: float = RATE
    classes: tuple[str, ...] = ("siso", "liso")
    late: frozenset[str] = frozenset()


@dataclass(slots=True)
class ReplicaLab:
    folder: Path
    processes: ChildProcesses
    notifications: NotificationStore
    http: aiohttp.ClientSession
    prometheus: Prometheus
    stack: contextlib.AsyncExitStack
    group_by: tuple[str, ...]
    """The labels by which Alertmanager groups alerts."""
    replicas: list[Replica] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)
    _names: "itertools.count[int]" = field(default_factory=itertools.count)

    async def new_replica(self) -> Replica:
        """A replica whose processes do not run, and that is not a target yet."""
        engine, relay, metrics = free_port(), free_port(), free_port()
        reached, scraped = Forwarder(engine), Forwarder(metrics)
        for each in (reached, scraped):
            await self.stack.enter_async_context(each.listening())
        return Replica(str(next(self._names)), engine, relay, metrics, scraped, reached)

    async def start_engine(self, replica: Replica) -> None:
        flags = ("--listen", f"{HOST}:{replica.engine_port}", "--max-num-seqs", _SLOTS, "--restart-seconds", "15")
        url = f"http://{HOST}:{replica.engine_port}/health"
        replica.engine = await self.start(
            Service(name=f"engine-{replica.name}", command=(*OURS, "simulate", *flags), ready_url=url)
        )

    async def start_sidecar(self, replica: Replica) -> None:
        flags = {
            "--upstream": f"http://{HOST}:{replica.reached.listens_on}",
            "--listen": f"{HOST}:{replica.relay_port}",
            "--metrics": f"{HOST}:{replica.metrics_port}",
            "--slos": str(self.folder / "slos.yaml"),
            "--drain-delay": "0s",
            "--drain": "5s",
            "--linger": "2s",
        }
        command = (*OURS, "sidecar", *itertools.chain(*flags.items()))
        url = f"http://{HOST}:{replica.metrics_port}/healthz"
        replica.sidecar = await self.start(
            Service(name=f"sidecar-{replica.name}", command=command, ready_url=url, grace=25)
        )

    def cut_network(self) -> None:
        """Between Prometheus and all sidecars, and between all sidecars and their engines."""
        for each in self.replicas:
            each.scraped.cut()
            each.reached.cut()

    def restore_network(self) -> None:
        for each in self.replicas:
            each.scraped.restore()
            each.reached.restore()

    async def kill_engine(self, replica: Replica) -> None:
        await _killed(replica.engine)

    async def kill_sidecar(self, replica: Replica) -> None:
        await _killed(replica.sidecar)

    async def stop(self, replica: Replica) -> None:
        """Stop the sidecar, which drains, and then the engine."""
        for child in (replica.sidecar, replica.engine):
            assert child is not None
            await child.stop()

    async def start(self, service: Service) -> ChildProcess:
        child = await self.processes.start(service)
        await child.wait_until_ready(self.http, service.start_timeout)
        return child

    def write_targets(self) -> None:
        """Prometheus scrapes exactly the present replicas."""
        targets = [f"{HOST}:{each.scraped.listens_on}" for each in self.replicas]
        partial = self.folder / "targets.partial"
        partial.write_text(json.dumps([{"targets": targets}]))
        partial.rename(self.folder / "targets.json")

    async def is_healthy(self, replica: Replica) -> bool:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            limit = aiohttp.ClientTimeout(total=2)
            async with self.http.get(f"{replica.url}/health", timeout=limit) as response:
                return response.status == 200
        return False

    async def becomes(self, replica: Replica, *, healthy: bool) -> None:
        while await self.is_healthy(replica) is not healthy:
            await asyncio.sleep(0.2)

    async def holds(self, query: str) -> None:
        """Wait until a query has a result."""
        while not await asyncio.to_thread(self.prometheus.query, query):
            await asyncio.sleep(0.5)

    async def healthy_traffic(self) -> None:
        """Wait until every class has more events than pages and tickets need, long after the engines have started."""
        await self.holds(f'min(sum by (class) (llm_slo_events_total{{slo="ttft"}})) >= {25 * RATE / 2}')

    def pages(self) -> list[Notification]:
        return [each for each in self.notifications.received if each.receiver == "page"]

    async def paged(self) -> None:
        while not self.pages():
            await asyncio.sleep(0.2)

    async def resolved(self) -> None:
        """Wait until no page fires, and every page that was received has been resolved."""
        while True:
            last = {frozenset(each.labels.items()): each.status for each in self.pages()}
            firing = await asyncio.to_thread(self.prometheus.query, 'ALERTS{severity="page"}')
            if not firing and all(status == "resolved" for status in last.values()):
                return
            await asyncio.sleep(0.5)

    async def probe(self) -> None:
        """Keep `ready` up to date, as a load balancer does."""

        async def one(replica: Replica) -> None:
            replica.ready = await self.is_healthy(replica)

        while True:
            await asyncio.gather(*(one(each) for each in self.replicas))
            await asyncio.sleep(_PROBE_INTERVAL)

    async def send_all(self) -> None:
        """Open-loop: the classes in turn, and a fifth of the requests from team-a."""
        choice = random.Random(0)  # noqa: S311 - of a replica
        async with asyncio.TaskGroup() as open_requests:
            for number in itertools.count():
                name, tenant = (
                    self.traffic.classes[number % len(self.traffic.classes)],
                    "team-a" if number % 5 == 0 else "team-b",
                )
                headers = {"x-request-class": name, "x-tenant": tenant}
                if self.traffic.late & {name, tenant}:
                    headers[REQUEST_START_HEADER] = f"t={time.time() - 6:.3f}"
                present = [each for each in self.replicas if each.in_rotation]
                ready = [each for each in present if each.ready] or present
                if ready:
                    open_requests.create_task(self._send(choice.choice(ready), headers))
                await asyncio.sleep(1 / self.traffic.rate)

    async def _send(self, replica: Replica, headers: dict[str, str]) -> None:
        body = {
            "model": "Qwen/Qwen2.5-14B-Instruct",
            "stream": True,
            "max_tokens": _TOKENS,
            "messages": [{"role": "user", "content": "hello"}],
        }
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with self.http.post(f"{replica.url}/v1/chat/completions", json=body, headers=headers) as response:
                await response.read()


async def _killed(child: ChildProcess | None) -> None:
    assert child is not None
    child.kill()
    await child.wait()


@contextlib.asynccontextmanager
async def running(
    folder: Path, tools: Tools, on_notification: Callable[[Notification], None], rules_of: Path | None = None
) -> AsyncIterator[ReplicaLab]:
    """Healthy replicas under load; rules and routes as the checkout `rules_of` renders them, or this one."""
    config = LabConfig(directory=RunDirectory(folder), ports=free_lab_ports())
    with config.directory.lock():
        (folder / "slos.yaml").write_text(SLOS, encoding="utf-8")
        group_by = await asyncio.to_thread(_write_configs, config, rules_of)
        processes = ChildProcesses(config.directory.logs)
        notifications = NotificationStore(config.directory.notifications, on_notification)
        unlimited = aiohttp.TCPConnector(limit=0)  # an overload has hundreds of open requests
        async with (
            contextlib.AsyncExitStack() as stack,
            aiohttp.ClientSession(connector=unlimited) as http,
            serve(notifications, HOST, config.ports.webhook),
        ):
            prometheus = Prometheus(config.ports.url("prometheus"), timeout=5.0)
            lab = ReplicaLab(folder, processes, notifications, http, prometheus, stack, group_by)
            try:
                lab.replicas = [await lab.new_replica() for _ in range(REPLICAS)]
                await asyncio.gather(*(lab.start_engine(each) for each in lab.replicas))
                await asyncio.gather(*(lab.start_sidecar(each) for each in lab.replicas))
                lab.write_targets()
                for service in (services.alertmanager(config, tools), services.prometheus(config, tools)):
                    await lab.start(service)
                background = [asyncio.create_task(each) for each in (lab.probe(), lab.send_all())]
                try:
                    yield lab
                finally:
                    for each in background:
                        each.cancel()
                    await asyncio.gather(*background, return_exceptions=True)
            finally:
                await processes.stop()


def _write_configs(config: LabConfig, rules_of: Path | None) -> tuple[str, ...]:
    """Write the configuration of Prometheus and Alertmanager; returns the labels by which Alertmanager groups."""
    directory, webhook = config.directory, config.ports.url("webhook")
    environment = {**os.environ, **({"PYTHONPATH": str(rules_of.absolute())} if rules_of else {})}

    def render(*words: str) -> None:
        subprocess.run([*OURS, "alerts", *words], env=environment, check=True, stdout=subprocess.DEVNULL)

    render("render", "--slos", str(directory.root / "slos.yaml"), "--out", str(directory.rules))
    receivers = ("--page", f"webhook={webhook}/page", "--ticket", f"webhook={webhook}/ticket")
    timing = itertools.chain(*_TIMING.items())
    render("alertmanager", "--out", str(directory.alertmanager_config.parent), *receivers, *timing)
    prometheus = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(directory.rules / "rules.yaml")],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [config.ports.address("alertmanager")]}]}]},
        "scrape_configs": [
            {
                "job_name": "vllm-slo-sidecar",
                "file_sd_configs": [{"files": [str(directory.root / "targets.json")], "refresh_interval": "1s"}],
            }
        ],
    }
    directory.prometheus_config.write_text(json.dumps(prometheus), encoding="utf-8")
    route = yaml.safe_load(directory.alertmanager_config.read_text(encoding="utf-8"))["route"]
    return tuple(route["group_by"])
