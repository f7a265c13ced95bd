"""Hangs and heavy work of a real vLLM: its state by the sidecar, beside what `/health` says.

`make bench NAME=engine_hangs` starts vLLM's CPU build with a tiny model, or another vLLM by `--vllm`, and a sidecar in
front that scrapes each 15 s. In each situation it notes the state and the response of `/health` once a second.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import re
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.table import Table

from compose.lab.ports import HOST
from compose.vllm_cpu import launch
from tests.engine.vllm_process import served, vllm
from tests.support.ports import free_port
from tests.support.sidecar_process import SLOS, Running, sidecar

SLO_FILE = SLOS.replace("period: 2h", "period: 30d").replace("200ms", "15s")
SMALL_CACHE = ("--num-gpu-blocks-override", "130", "--max-num-seqs", "64")
"""Flags of the CPU build: a KV cache that holds little more than the longest prompt."""

HANG_SECONDS = 60.0
SCRAPED = 16.0
"""Seconds in which the sidecar scrapes at least once."""
PATIENCE = 120.0
"""Seconds after which a client gives up."""
LONG = 800
"""Tokens of a response that takes seconds."""

_STATE = r'^llm_engine_state\{.*state="(\w+)"\} 1'
_REASON = r'^llm_engine_state_reason\{.*reason="(\w+)"\} 1'


@dataclass(frozen=True, slots=True)
class Sample:
    """One second: when, the state, its reason, and the status of `/health`, 0 without a response."""

    at: float
    state: str
    reason: str
    health: int


@dataclass(slots=True)
class Situation:
    """What was seen each second, in seconds since it began; and when the engine was made to hang, until when."""

    name: str
    began: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)
    hang: tuple[float, float] | None = None

    @property
    def now(self) -> float:
        return time.monotonic() - self.began

    @property
    def changes(self) -> str:
        """Each state with the second in which it began."""
        before = [None, *(sample.state for sample in self.samples)]
        return ", ".join(
            f"{sample.state} {sample.at:.0f} s"
            for sample, last in zip(self.samples, before, strict=False)
            if sample.state != last
        )

    @property
    def figures(self) -> dict[str, float | None]:
        """Seconds; those in a state are samples, and those after the end of a hang count neither way."""
        start, end = self.hang or (math.inf, math.inf)
        wedged = [sample for sample in self.samples if sample.state == "wedged"]
        found = [sample for sample in wedged if sample.at >= start]
        rightly = [sample for sample in found if sample.at <= end]
        return {
            "wedged_after": found[0].at - start if found else None,
            "over_after": max(0.0, found[-1].at - end) if found else None,
            "wedged": len(rightly),
            "health_200_while_wedged": sum(sample.health == 200 for sample in rightly),
            "falsely_wedged": len(wedged) - len(found),
        }


class Watch:
    """Notes the state and the health of the engine once a second, in the current situation."""

    def __init__(self, metrics_url: str, engine_url: str, folder: Path) -> None:
        self._metrics, self._engine, self._folder = metrics_url, engine_url, folder
        self.situations: list[Situation] = []

    async def run(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.9)) as session:
            while True:
                situation = self.situations[-1]
                at, next_second = situation.now, asyncio.create_task(asyncio.sleep(1))
                (page, _), (_, health) = await asyncio.gather(
                    _get(session, f"{self._metrics}/metrics"), _get(session, f"{self._engine}/health")
                )
                state, reason = (re.search(pattern, page, re.MULTILINE) for pattern in (_STATE, _REASON))
                situation.samples.append(
                    Sample(at, state[1] if state else "unknown", reason[1] if reason else "unknown", health)
                )
                await next_second

    @contextlib.asynccontextmanager
    async def situation(self, name: str) -> AsyncIterator[Situation]:
        """What happens in this context; the results so far are then written."""
        self.situations.append(Situation(name))
        try:
            yield self.situations[-1]
        finally:
            write(self._folder, self.situations)


async def _get(session: aiohttp.ClientSession, url: str) -> tuple[str, int]:
    try:
        async with session.get(url) as response:
            return await response.text(), response.status
    except (aiohttp.ClientError, TimeoutError, OSError):
        return "", 0


@dataclass(frozen=True, slots=True)
class Clients:
    """Streams through the sidecar, for a model with a context of so many tokens."""

    running: Running
    model: str
    context: int

    async def stream(self, prompt: int, output: int, number: int = 0) -> None:
        """One stream of as many tokens; prompts with different numbers share no prefix."""
        body = {
            "model": self.model,
            "prompt": f"{number} " + "a " * prompt,
            "max_tokens": output,
            "ignore_eos": True,
            "stream": True,
        }
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            url = f"{self.running.url}/v1/completions"
            async with aiohttp.request("POST", url, json=body, timeout=timeout) as response:
                await response.read()

    async def streams(self, count: int, prompt: int, output: int) -> None:
        """Distinct prompts, at once."""
        await asyncio.gather(*(self.stream(prompt, output, number) for number in range(count)))

    async def as_soon_as_it_listens(self, port: int) -> None:
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(HOST, port)
                writer.close()
                break
            await asyncio.sleep(0.1)
        await self.streams(8, 50, 20)

    async def longest(self) -> None:
        await self.stream(self.context - 70, 50)

    async def burst(self) -> None:
        await self.streams(64, self.context // 16, LONG)

    @contextlib.asynccontextmanager
    async def around(self, situation: Situation) -> AsyncIterator[None]:
        """Three streams that are open when the engine stops in this context, and three that arrive meanwhile."""
        async with asyncio.TaskGroup() as clients:
            clients.create_task(self.streams(3, 50, LONG))
            await asyncio.sleep(1)
            start = situation.now
            situation.hang = start, math.inf
            clients.create_task(self.streams(3, 60, 20))
            yield
            situation.hang = start, situation.now
        await asyncio.sleep(SCRAPED)


def _processes() -> tuple[int, int]:
    """The API server and its child, the engine core, of the vLLM that this process has started."""
    parents: dict[int, int] = {}
    cores: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if "EngineCore" in (folder / "cmdline").read_text():
                cores.append(int(folder.name))

    def is_ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and is_ours(parents[pid]))

    core = next(filter(is_ours, cores))
    return parents[core], core


async def _stopped(clients: Clients, situation: Situation, pid: int) -> None:
    """Stop a process while requests are open, then let it continue."""
    async with clients.around(situation):
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(HANG_SECONDS)
        os.kill(pid, signal.SIGCONT)


async def _killed(clients: Clients, situation: Situation, pid: int) -> None:
    async with clients.around(situation):
        os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(SCRAPED)


async def _asleep(clients: Clients, url: str) -> None:
    """Sleep while requests arrive, then wake up."""
    async with aiohttp.request("POST", f"{url}/sleep?level=1") as response:
        response.raise_for_status()
    waiting = asyncio.create_task(clients.streams(3, 50, 20))
    await asyncio.sleep(2 * SCRAPED)
    async with aiohttp.request("POST", f"{url}/wake_up") as response:
        response.raise_for_status()
    await waiting
    await asyncio.sleep(SCRAPED)


async def measure(folder: Path, options: argparse.Namespace) -> list[Situation]:
    port = free_port()
    url = f"http://{HOST}:{port}"
    log = folder / "vllm.log"
    engine = (
        vllm(log, port, *SMALL_CACHE)
        if options.vllm is None
        else served((*shlex.split(options.vllm), "--host", HOST, "--port", str(port)), log, port, {})
    )
    async with sidecar(folder, url, slo_file=SLO_FILE) as running, contextlib.AsyncExitStack() as stack:
        clients = Clients(running, options.model, options.context)
        watch = Watch(running.pages, url, folder)
        async with watch.situation("start of vLLM, with requests as soon as it listens"):
            watching = asyncio.create_task(watch.run())
            first = asyncio.create_task(clients.as_soon_as_it_listens(port))
            await stack.enter_async_context(engine)
            await first
        await _situations(watch, clients, url, options.sleep)
        watching.cancel()
        return watch.situations


async def _situations(watch: Watch, clients: Clients, url: str, sleep: bool) -> None:
    server, core = _processes()
    async with watch.situation(f"a prompt of {clients.context - 70:,} tokens"):
        await clients.longest()
        await asyncio.sleep(SCRAPED)
    async with watch.situation("64 requests at once, more than the KV cache holds"):
        await clients.burst()
    async with watch.situation(f"engine core stopped for {HANG_SECONDS:.0f} s") as situation:
        await _stopped(clients, situation, core)
    async with watch.situation(f"API server stopped for {HANG_SECONDS:.0f} s") as situation:
        await _stopped(clients, situation, server)
    if sleep:
        async with watch.situation("asleep, with requests"):
            await _asleep(clients, url)
    async with watch.situation("engine core killed") as situation:
        await _killed(clients, situation, core)


def table(situations: list[Situation]) -> Table:
    rows = Table("situation", "state, and when it began", "wedged after", "over after", "/health 200", "falsely wedged")
    for each in situations:
        figures = each.figures
        after, over = (_seconds(figures[name]) for name in ("wedged_after", "over_after"))
        healthy = f"{figures['health_200_while_wedged']} of {figures['wedged']} s" if figures["wedged"] else ""
        rows.add_row(each.name, each.changes, after, over, healthy, f"{figures['falsely_wedged']} s")
    rows.caption = "`/health` 200: seconds in which it returned 200, of those in which the engine was wedged"
    return rows


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} s"


def write(folder: Path, situations: list[Situation]) -> None:
    """The table and all samples, as text and as JSON."""
    with (folder / "engine_hangs.txt").open("w") as out:
        Console(width=160, file=out).print(table(situations))
    results = [{**asdict(each), "figures": each.figures} for each in situations]
    (folder / "engine_hangs.json").write_text(json.dumps(results, indent=1) + "\n")


def main() -> int:
    flags = argparse.ArgumentParser(prog="python -m tests.bench.engine_hangs", description=__doc__)
    flags.add_argument("--vllm", metavar="COMMAND", help="starts vLLM; --host and --port are added. Default: CPU build")
    flags.add_argument("--model", default=launch.MODEL, help="its served name (default: %(default)s)")
    flags.add_argument("--context", type=int, default=4096, help="its --max-model-len (default: %(default)s)")
    flags.add_argument(
        "--sleep", action="store_true", help="also let it sleep: it has --enable-sleep-mode and dev mode"
    )
    flags.add_argument("--out", type=Path, help="folder for the table, all samples and the logs")
    options = flags.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        situations = asyncio.run(measure(folder, options))
    Console(width=160).print(table(situations))
    return 0


if __name__ == "__main__":
    sys.exit(main())
