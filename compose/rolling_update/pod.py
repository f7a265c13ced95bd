"""A pod as processes on an address of its own: a simulated vLLM and its native sidecar, in the order of Kubernetes."""

import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from compose.lab.services import OURS
from compose.processes.child_processes import ChildProcess, ChildProcesses, Service
from compose.rolling_update.pod_manifest import ENGINE, METRICS, PodManifest


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


class Pod:
    """A pod whose processes do not run yet; the folder has `slos.yaml` and `token`."""

    def __init__(self, name: str, address: str, manifest: PodManifest, folder: Path, processes: ChildProcesses) -> None:
        self.name, self.address = name, address
        self._manifest, self._folder, self._processes = manifest, folder, processes
        self._metrics = f"http://{address}:{METRICS}"
        self._started: list[ChildProcess] = []  # the sidecar, then the engine

    async def start_sidecar(self, http: aiohttp.ClientSession, changed: Mapping[str, str]) -> None:
        """Start the native sidecar, with flags that differ from the manifest, until its startup probe succeeds."""
        words = self._manifest.sidecar_words(self.address, self._folder, changed)
        # In a pod, the name of the host is that of the pod.
        name = f"--engine-name=http://{self.address}:{ENGINE}={self.name}:{ENGINE}"
        await self._start(http, "sidecar", (*OURS, *words, name), f"{self._metrics}/healthz")

    async def start_engine(self, http: aiohttp.ClientSession) -> None:
        """Start the engine; returns when the readiness probes of both succeed."""
        words = ("simulate", "--preset=h200-qwen2.5-14b", f"--listen={self.address}:{ENGINE}")
        await self._start(http, "engine", (*OURS, *words), f"http://{self.address}:{ENGINE}/health")
        while not await _is_ready(http, f"{self._metrics}/readyz"):
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
        words = self._manifest.hook_words(self.address, self._folder)
        service = Service(name=f"hook-{self.name}", command=(sys.executable, "-I", *words), may_exit=True)
        return await (await self._processes.start(service)).wait()

    async def _start(self, http: aiohttp.ClientSession, kind: str, command: tuple[str, ...], probe: str) -> None:
        service = Service(name=f"{kind}-{self.name}", command=command, ready_url=probe, grace=self._manifest.grace)
        child = await self._processes.start(service)
        self._started.append(child)
        await child.wait_until_ready(http, service.start_timeout)

    def kill(self) -> None:
        for child in self._started:
            child.kill()


async def _is_ready(http: aiohttp.ClientSession, url: str) -> bool:
    async with http.get(url) as response:
        return response.status == 200
