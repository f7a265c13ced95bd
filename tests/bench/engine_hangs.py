"""Hangs and heavy work of a real vLLM on the CPU: its state by the sidecar, beside what `/health` says.

`make bench NAME=engine_hangs` starts vLLM with a tiny model, and a sidecar in front that scrapes each 15 s. In each
situation it notes the state and the response of `/health` once a second.
"""

import asyncio
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.table import Table

from compose.vllm_cpu.launch import MODEL
from tests.bench.machine import tree
from tests.engine.vllm_process import vllm
from tests.support.ports import free_port
from tests.support.sidecar_process import SLOS, Running, sidecar

SLO_FILE = SLOS.replace("period: 2h", "period: 30d").replace("200ms", "15s")
HANG_SECONDS = 60.0


@dataclass(slots=True)
class Situation:
    """What was seen each second: the state, and whether `/health` returned 200."""

    name: str
    began: float = field(default_factory=time.monotonic)
    seen: list[tuple[float, str, bool]] = field(default_factory=list)

    @property
    def changes(self) -> str:
        """Each state with the second in which it began."""
        words, last = [], ""
        for at, state, _ in self.seen:
            if state != last:
                words.append(f"{state} {at - self.began:.0f} s")
                last = state
        return ", ".join(words)

    @property
    def healthy_while_wedged(self) -> str:
        wedged = Counter(healthy for _, state, healthy in self.seen if state == "wedged")
        return f"{wedged[True]} of {wedged.total()} s" if wedged else ""


class Watch:
    """Notes the state and the health of the engine once a second, in the current situation."""

    def __init__(self, metrics_url: str, engine_url: str) -> None:
        self._urls = metrics_url, engine_url
        self.situations: list[Situation] = []

    async def run(self) -> None:
        metrics, engine = self._urls
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1)) as session:
            while True:
                page, _ = await _get(session, f"{metrics}/metrics")
                _, status = await _get(session, f"{engine}/health")
                states = re.findall(r'^llm_engine_state\{.*state="(\w+)"\} 1', page, re.MULTILINE)
                self.situations[-1].seen.append((time.monotonic(), *(states or ["unknown"])[:1], status == 200))
                await asyncio.sleep(1)

    async def during(self, name: str, what: Callable[[], Awaitable[None]]) -> None:
        self.situations.append(Situation(name))
        await what()


async def _get(session: aiohttp.ClientSession, url: str) -> tuple[str, int]:
    try:
        async with session.get(url) as response:
            return await response.text(), response.status
    except (aiohttp.ClientError, TimeoutError, OSError):
        return "", 0


async def _request(running: Running, prompt: int, output: int, seconds: float = 300.0) -> None:
    """A stream; a client that has waited too long gives up."""
    body = {"model": MODEL, "prompt": "a " * prompt, "max_tokens": output, "ignore_eos": True, "stream": True}
    timeout = aiohttp.ClientTimeout(total=seconds)
    try:
        async with aiohttp.request("POST", f"{running.url}/v1/completions", json=body, timeout=timeout) as response:
            await response.read()
    except (aiohttp.ClientError, TimeoutError):
        pass


def _processes() -> tuple[int, int]:
    """The API server and the engine core of vLLM, which this process has started."""
    names = {one: Path(f"/proc/{one}/cmdline").read_text() for one in tree(os.getpid())}
    server, core = (next(one for one, name in names.items() if part in name) for part in ("api_server", "EngineCore"))
    return server, core


async def _stopped(running: Running, pid: int) -> None:
    """Stop a process while requests arrive, then let it continue."""
    os.kill(pid, signal.SIGSTOP)
    clients = [asyncio.create_task(_request(running, 50, 20)) for _ in range(3)]
    await asyncio.sleep(HANG_SECONDS)
    os.kill(pid, signal.SIGCONT)
    await asyncio.gather(*clients)
    await asyncio.sleep(20)


async def measure(folder: Path) -> list[Situation]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with sidecar(folder, url, slo_file=SLO_FILE) as running:
        watch = Watch(f"http://127.0.0.1:{running.metrics_port}", url)
        watch.situations.append(Situation("start of vLLM"))
        task = asyncio.create_task(watch.run())
        async with vllm(folder / "vllm.log", port):
            server, core = _processes()
            await watch.during("first requests", lambda: _request(running, 50, 20))
            await watch.during("a prompt of 4,000 tokens", lambda: _request(running, 3990, 50))
            await watch.during(
                "64 at once, of which 4 run",
                lambda: _all([_request(running, 300, 100) for _ in range(64)]),
            )
            await watch.during("idle for 30 s", lambda: asyncio.sleep(30))
            await watch.during("engine core stopped for 60 s", lambda: _stopped(running, core))
            await watch.during("API server stopped for 60 s", lambda: _stopped(running, server))
        watch.situations.append(Situation("vLLM has ended"))
        await asyncio.sleep(10)
        task.cancel()
        return watch.situations


async def _all(requests: list[Awaitable[None]]) -> None:
    await asyncio.gather(*requests)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        situations = asyncio.run(measure(Path(folder)))
    table = Table("situation", "state, and when it began", "/health 200 while wedged")
    for each in situations:
        table.add_row(each.name, each.changes, each.healthy_while_wedged)
    Console(width=140).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
