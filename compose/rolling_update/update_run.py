"""Runs a rolling update: replicas behind HAProxy under load, replaced one after the other, and read by Prometheus."""

import asyncio
import json
import os
import secrets
import shutil
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from alerts import rule_file
from compose.lab import services
from compose.lab.ports import free_ports
from compose.lab.rewrite_config import COMPOSE_DIRECTORY
from compose.lab.run_directory import RunDirectory
from compose.lab.services import LabConfig, ours
from compose.processes.child_processes import ChildProcess, ChildProcesses, Service
from compose.programs.cache import Report
from compose.programs.haproxy import Haproxy
from compose.programs.tools import Tools
from compose.rolling_update.balancer import PORT, Balancing, add_replica, balancer, remove_replica
from compose.rolling_update.pod import Pod, Stop
from compose.rolling_update.pod_manifest import METRICS, read
from compose.rolling_update.update_checks import UpdateResult
from exporters.analysis.prometheus_api import Prometheus
from exporters.text.units import parse_duration
from exporters.vocabulary import signals, slo_file
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import Endpoint, Label
from loadgen.results.record import SUMMARY

_PERIOD, _SCRAPE = "48h", "5s"
"""Short enough to record a budget within minutes; the lab scrapes more often, which would take a core."""

SCENARIO = Path(__file__).with_name("scenario.yaml")
_COLD_START = "60s"
"""The time that an engine may take to start, on a busy machine."""

_BALANCER = 254
"""The last part of the address of the balancer; those of pods count from 1."""

_STREAMS = f'{Label.ROUTE}=~"{Endpoint.CHAT_COMPLETIONS}|{Endpoint.COMPLETIONS}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateConfig:
    """One update; times in seconds.

    `endpoint_delay` is the time from a change of a pod until the balancer has noticed it, `steady` that under load
    before and after the update. `changed` has flags of the sidecar that differ from the manifest.
    """

    directory: RunDirectory
    replicas: int = 3
    balancing: Balancing = Balancing.HTTP
    hook: bool = True
    endpoint_delay: float = 2.0
    steady: float = 15.0
    rate_scale: float = 1.0
    changed: Mapping[str, str] = field(default_factory=dict)


async def run(config: UpdateConfig, tools: Tools, haproxy: Haproxy, report: Report) -> UpdateResult:
    """Run the update and stop all processes.

    Raises:
        ServiceFailedError: a process exited or did not become ready.
        UsageError: the directory is in use, or HAProxy rejects a command.
    """
    with config.directory.lock():
        processes = ChildProcesses(config.directory.logs)
        async with aiohttp.ClientSession() as http:
            update = _RollingUpdate(config, processes, http, report)
            try:
                return await update.run(tools, haproxy)
            finally:
                update.kill_pods()  # all is measured, and a sidecar would linger for Prometheus
                await processes.stop()


class _RollingUpdate:
    def __init__(
        self, config: UpdateConfig, processes: ChildProcesses, http: aiohttp.ClientSession, report: Report
    ) -> None:
        self._config, self._processes, self._http, self._report = config, processes, http, report
        self._folder = config.directory.root
        self._manifest = read()
        self._token = secrets.token_hex(16)
        self._pods: dict[int, Pod] = {}  # by the slot of the balancer
        self._created = 0
        self._services = LabConfig(directory=config.directory, ports=free_ports())
        self._prometheus = Prometheus(self._services.ports.url("prometheus"), timeout=30.0)

    async def run(self, tools: Tools, haproxy: Haproxy) -> UpdateResult:
        config = self._config
        self._write_configs()
        await self._start(balancer(haproxy, self._folder, _address(_BALANCER), config.balancing, config.replicas))
        slots = range(1, config.replicas + 1)
        await asyncio.gather(*(self._new_pod(slot) for slot in slots))
        for slot in slots:
            await add_replica(self._folder, slot, self._pods[slot].address)
        await self._start(services.prometheus(self._services, tools))
        load = await self._start(self._load())
        self._report(f"{config.replicas} replicas behind HAProxy ({config.balancing}) are under load")
        began = time.time()
        stops, before = await self._processes.during(self._replace_all())
        await load.stop()
        await asyncio.sleep(2 * parse_duration(_SCRAPE))  # until the last requests have been scraped
        after = await asyncio.to_thread(self._budget)
        return await asyncio.to_thread(self._result, stops, before, after, began)

    def kill_pods(self) -> None:
        for pod in self._pods.values():
            pod.kill()

    async def _replace_all(self) -> tuple[list[Stop], Mapping[str, float]]:
        """How each replica stopped, and the budget before the first did."""
        await self._until_budget()
        await asyncio.sleep(self._config.steady)
        before = await asyncio.to_thread(self._budget)
        stops = [await self._replace(slot) for slot in sorted(self._pods)]
        await asyncio.sleep(self._config.steady)
        return stops, before

    async def _replace(self, slot: int) -> Stop:
        """Replace one pod as with `maxSurge: 0`: the new one starts when the old one has gone."""
        old = self._pods[slot]
        # The deletion of a pod removes its endpoint and starts its hook at the same time.
        removal = self._after_delay(remove_replica(self._folder, slot))
        stop, _ = await asyncio.gather(old.stop(hook=self._config.hook), removal)
        del self._pods[slot]
        self._write_targets()
        new = await self._new_pod(slot)
        await self._after_delay(add_replica(self._folder, slot, new.address))
        self._report(f"{old.name} is replaced by {new.name}: stopped in {stop.seconds:.1f} s")
        return stop

    async def _after_delay(self, change: Coroutine[Any, Any, None]) -> None:
        await asyncio.sleep(self._config.endpoint_delay)
        await change

    async def _new_pod(self, slot: int) -> Pod:
        self._created += 1
        name = f"pod-{self._created}"
        folder = self._folder / "pods" / name
        folder.mkdir(parents=True)
        shutil.copy(self._slos, folder)
        (folder / "token").touch(mode=0o600)
        (folder / "token").write_text(self._token, encoding="ascii")
        pod = self._pods[slot] = Pod(name, _address(self._created), self._manifest, folder, self._processes)
        await pod.start_sidecar(self._http, self._config.changed)
        # Not before: the alert's duration is scaled to the period of this run, but the start of a process is not.
        self._write_targets()
        await pod.start_engine(self._http)
        return pod

    async def _start(self, service: Service) -> ChildProcess:
        child = await self._processes.start(service)
        await child.wait_until_ready(self._http, service.start_timeout)
        return child

    def _load(self) -> Service:
        flags = {
            "--scenario": str(SCENARIO),
            "--target": f"http://{_address(_BALANCER)}:{PORT}",
            "--out": str(self._config.directory.load),
            "--slos": str(self._slos),
            "--rate-scale": str(self._config.rate_scale),
            "--grace": "120s",
        }
        return Service(name="load", command=(*ours(flags, "load", "run"), "--allow-invalid"), grace=150)

    def _write_configs(self) -> None:
        directory = self._config.directory
        shutil.rmtree(self._folder / "pods", ignore_errors=True)
        directory.rules.mkdir(parents=True)
        file = yaml.safe_load((COMPOSE_DIRECTORY / "slos.yaml").read_text(encoding="utf-8"))
        file |= {"period": _PERIOD, "scrape_interval": _SCRAPE}
        file["alerting"]["cold_start"] = _COLD_START
        self._slos.write_text(yaml.safe_dump(file), encoding="utf-8")
        (directory.rules / "rules.yaml").write_text(rule_file.render(slo_file.load(self._slos)), encoding="utf-8")
        targets = [{"files": [str(self._targets)], "refresh_interval": "1s"}]
        prometheus = {
            "global": {"scrape_interval": _SCRAPE, "scrape_timeout": _SCRAPE},
            "rule_files": [str(directory.rules / "rules.yaml")],
            "scrape_configs": [{"job_name": "vllm-slo-sidecar", "file_sd_configs": targets}],
        }
        directory.prometheus_config.write_text(yaml.safe_dump(prometheus), encoding="utf-8")

    @property
    def _slos(self) -> Path:
        return self._folder / "slos.yaml"

    @property
    def _targets(self) -> Path:
        return self._folder / "targets.json"

    def _write_targets(self) -> None:
        """Prometheus scrapes the present pods, also while they stop, as with the discovery of Kubernetes."""
        partial = self._folder / "targets.partial"
        partial.write_text(json.dumps([{"targets": [f"{each.address}:{METRICS}" for each in self._pods.values()]}]))
        partial.rename(self._targets)

    async def _until_budget(self) -> None:
        """Wait until the rules have recorded the budget of the SLO."""
        while not await asyncio.to_thread(self._budget):
            await asyncio.sleep(1)

    def _budget(self) -> dict[str, float]:
        query = f"min by ({Label.SLO}) ({signals.SLO_BUDGET_LEFT.name})"
        return self._prometheus.query_by(Label.SLO, query)

    def _result(
        self, stops: list[Stop], before: Mapping[str, float], after: Mapping[str, float], began: float
    ) -> UpdateResult:
        total = json.loads((self._config.directory.load / SUMMARY).read_text(encoding="utf-8"))["total"]
        over = f"[{time.time() - began + 60:.0f}s]"
        ask = self._prometheus.query_by
        fired = f'max by ({Label.ALERTNAME}, {Label.SEVERITY}) (max_over_time(ALERTS{{alertstate="firing"}}{over}))'
        return UpdateResult(
            replicas=self._config.replicas,
            stops=stops,
            offered=total["offered"],
            clients=total["outcomes"],
            counted=ask(
                Label.OUTCOME,
                f"sum by ({Label.OUTCOME}) (max_over_time({signals.REQUESTS.name}{{{_STREAMS}}}{over}))",
            ),
            alerts={
                each.labels[Label.ALERTNAME]: each.labels[Label.SEVERITY]
                for each in self._prometheus.query(fired)
                if each.labels[Label.ALERTNAME] != AlertName.WATCHDOG
            },
            bad_events=ask(Label.SLO, f"sum by ({Label.SLO}) (max_over_time({signals.SLO_BAD.name}{over}))"),
            budget_before=before,
            budget_after=after,
        )


def _address(number: int) -> str:
    """An address of the loopback network, which no run of another process uses."""
    run = os.getpid()
    return f"127.{64 + (run >> 8) % 64}.{run % 256}.{number}"
