"""A pod as processes on an address of its own: a simulated vLLM and its native sidecar, in the order of Kubernetes."""

import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from compose.child_processes import ChildProcess, ChildProcesses, Service
from compose.rolling_update.pod_manifest import ENGINE, METRICS, PodManifest
from compose.services import OURS


@dataclass(frozen=True, slots=True)
class Stop:
    """How a pod stopped; times in seconds, exit statuses of the hook (None: not run), the engine and the sidecar."""

    name: str
    hook_seconds: float
    seconds: float
    hook: int | None
    engine: int
    sidecar: int

    @property
    def orderly(self) -> bool:
        return (self.hook or 0, self.engine, self.sidecar) == (0, 0, 0)


@dataclass(frozen=True, slots=True)
class PodFiles:
    """The manifest, the folder with `slos.yaml` and `token`, and flags that differ from the manifest."""

    manifest: PodManifest
    folder: Path
    changed: Mapping[str, str]


class Pod:
    """Runs from `start` to `stop`."""

    def __init__(self, name: str, address: str, files: PodFiles, processes: ChildProcesses) -> None:
        self.name, self.address = name, address
        self._files, self._processes = files, processes
        self._started: list[ChildProcess] = []

    async def start(self, http: aiohttp.ClientSession) -> None:
        """Start the sidecar, then the engine; returns when the readiness probes of both succeed."""
        files, sidecar, engine = self._files, f"http://{self.address}:{METRICS}", f"http://{self.address}:{ENGINE}"
        words = files.manifest.sidecar_words(self.address, files.folder, files.changed)
        grace = files.manifest.grace
        simulate = (*OURS, "simulate", "--preset=h200-qwen2.5-14b", f"--listen={self.address}:{ENGINE}")
        for service in (
            Service(name=f"sidecar-{self.name}", command=(*OURS, *words), ready_url=f"{sidecar}/healthz", grace=grace),
            Service(name=f"engine-{self.name}", command=simulate, ready_url=f"{engine}/health", grace=grace),
        ):
            child = await self._processes.start(service)
            self._started.append(child)
            await child.wait_until_ready(http, service.start_timeout)
        while not await _is_ready(http, f"{sidecar}/readyz"):
            await asyncio.sleep(0.1)

    async def stop(self, *, hook: bool) -> Stop:
        """Run the preStop hook unless `hook` is false, then SIGTERM to the engine, then to the sidecar."""
        began = time.monotonic()
        sidecar, engine = self._started
        status = await self._run_hook() if hook else None
        hook_seconds = time.monotonic() - began
        for child in (engine, sidecar):
            await child.stop()
        seconds = time.monotonic() - began
        return Stop(self.name, hook_seconds, seconds, status, await engine.wait(), await sidecar.wait())

    async def _run_hook(self) -> int:
        words = self._files.manifest.hook_words(self.address, self._files.folder)
        service = Service(name=f"hook-{self.name}", command=(sys.executable, "-I", *words), may_exit=True)
        return await (await self._processes.start(service)).wait()

    def kill(self) -> None:
        for child in self._started:
            child.kill()


async def _is_ready(http: aiohttp.ClientSession, url: str) -> bool:
    async with http.get(url) as response:
        return response.status == 200
