"""The native lab: starts every service, waits until each is healthy, and stops all of them whatever happens."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp

from alerts.rule_file import render
from compose import services
from compose.child_processes import USUAL_SECONDS, Child, Family, Service
from compose.ports import HOST, refuse_busy
from compose.prometheus_tools import Tools
from compose.services import LabConfig
from compose.webhook import Inbox, Notification, serving
from exporters.prometheus_api import Prometheus
from exporters.slos import SloFile

_T = TypeVar("_T")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Lab:
    """A lab that is up; times in unix seconds."""

    config: LabConfig
    spec: SloFile
    family: Family
    inbox: Inbox
    http: aiohttp.ClientSession
    prometheus: Prometheus
    started: float

    async def offer(self, scenario: str) -> Child:
        """Start the load."""
        return await self.family.start(services.load(self.config, scenario))

    async def during(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of `work`, if every service lives that long.

        Raises:
            ServiceFailedError: one did not; `work` is cancelled.
        """
        task, fallen = asyncio.ensure_future(work), asyncio.ensure_future(self.family.fallen())
        try:
            await asyncio.wait((task, fallen), return_when=asyncio.FIRST_COMPLETED)
            if fallen.done():
                raise fallen.result()
            return task.result()
        finally:
            for each in (task, fallen):
                each.cancel()
            await asyncio.gather(task, fallen, return_exceptions=True)


@asynccontextmanager
async def running(
    config: LabConfig, spec: SloFile, tools: Tools, say: Say, on_arrival: Callable[[Notification], None]
) -> AsyncIterator[Lab]:
    """The lab, up and healthy; on leaving, nothing of it is left.

    Raises:
        ServiceFailedError: a service died or did not become ready.
        UsageError: a port is busy, or the folder is in use; nothing has been started.
    """
    refuse_busy(config.ports, config.used)
    with config.folder.claimed():
        services.write_configs(config, render(spec))
        family = Family(config.folder.logs)
        inbox = Inbox(config.folder.pages, on_arrival)
        async with aiohttp.ClientSession() as http, serving(inbox, HOST, config.ports.webhook):
            say(f"webhook is up at {config.ports.url('webhook')}")
            try:
                await _start(family, config, tools, http, say)
                yield Lab(
                    config,
                    spec,
                    family,
                    inbox,
                    http,
                    Prometheus(config.ports.url("prometheus"), timeout=5.0),
                    time.time(),
                )
            finally:
                await family.stop()


async def _start(family: Family, config: LabConfig, tools: Tools, http: aiohttp.ClientSession, say: Say) -> None:
    began = time.monotonic()

    async def wait(child: Child) -> None:
        await child.ready(http, child.service.within)
        where = (child.service.ready or "").rpartition("/")[0].removesuffix("/-").removesuffix("/api")
        say(f"{child.service.name} is up at {where} ({time.monotonic() - began:.1f} s)")

    async def begin(these: list[Service]) -> None:
        waits = [asyncio.ensure_future(wait(await family.start(each))) for each in these]
        try:
            await asyncio.gather(*waits)
        finally:
            for each in waits:
                each.cancel()

    order = services.services(config, tools)
    # What takes minutes comes first and alone, or the lab would open with a page that the engine is down.
    await begin([each for each in order if each.within > USUAL_SECONDS])
    await begin([each for each in order if each.within <= USUAL_SECONDS])
