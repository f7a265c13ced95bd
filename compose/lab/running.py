"""The native lab: starts every service, waits until each is healthy, and stops all of them at the end."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from alerts.links import Links
from alerts.rule_file import render
from compose.lab import services
from compose.lab.ports import HOST, refuse_busy
from compose.lab.services import LabConfig
from compose.lab.webhook import Notification, NotificationStore, serve
from compose.processes.child_processes import START_TIMEOUT, ChildProcess, ChildProcesses, Service
from compose.programs.cache import Report
from compose.programs.tools import Tools
from exporters.analysis.prometheus_api import Prometheus
from exporters.vocabulary.slo_file import SloFile


@dataclass(frozen=True, slots=True)
class Lab:
    """A running lab."""

    config: LabConfig
    spec: SloFile
    processes: ChildProcesses
    notifications: NotificationStore
    http: aiohttp.ClientSession
    prometheus: Prometheus

    async def start_load(self, scenario: str) -> ChildProcess:
        return await self.processes.start(services.load(self.config, scenario))


@asynccontextmanager
async def running(
    config: LabConfig, spec: SloFile, tools: Tools, report: Report, on_notification: Callable[[Notification], None]
) -> AsyncIterator[Lab]:
    """The lab with every service healthy; stops all processes on exit.

    Raises:
        ServiceFailedError: a service exited or did not become ready.
        UsageError: a port or the directory is in use; nothing has been started.
    """
    refuse_busy(config.ports, config.used)
    with config.directory.lock():
        trace_store = "" if config.otlp else config.ports.url("traces")
        links = Links(grafana=config.ports.url("grafana"), traces=trace_store)
        services.write_configs(config, render(spec, links, services.PRICES), spec.alerting.severities)
        for line in tools.sources:
            report(line)
        processes = ChildProcesses(config.directory.logs)
        notifications = NotificationStore(config.directory.notifications, on_notification)
        async with aiohttp.ClientSession() as http, serve(notifications, HOST, config.ports.webhook):
            report(f"webhook is up at {config.ports.url('webhook')}")
            try:
                await _start(processes, config, tools, http, report)
                yield Lab(
                    config,
                    spec,
                    processes,
                    notifications,
                    http,
                    Prometheus(config.ports.url("prometheus"), timeout=5.0),
                )
            finally:
                await processes.stop()


async def _start(
    processes: ChildProcesses, config: LabConfig, tools: Tools, http: aiohttp.ClientSession, report: Report
) -> None:
    start = time.monotonic()

    async def wait(child: ChildProcess) -> None:
        await child.wait_until_ready(http, child.service.start_timeout)
        address = (child.service.ready_url or "").rpartition("/")[0].removesuffix("/-").removesuffix("/api")
        report(f"{child.service.name} is up at {address} ({time.monotonic() - start:.1f} s)")

    async def start_all(batch: list[Service]) -> None:
        waits = [asyncio.ensure_future(wait(await processes.start(each))) for each in batch]
        try:
            await asyncio.gather(*waits)
        finally:
            for each in waits:
                each.cancel()

    order = services.services(config, tools)
    # A slow engine starts first; otherwise the lab would begin with a page for an engine that is down.
    await start_all([each for each in order if each.start_timeout > START_TIMEOUT])
    await start_all([each for each in order if each.start_timeout <= START_TIMEOUT])
