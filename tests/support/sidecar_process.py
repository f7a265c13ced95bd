"""Starts `vllm-slo sidecar` as a user would: a process with children, on free ports, in front of a test's engine."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.support.ports import free_port
from tests.support.waiting import HANG, until

ROOT = Path(__file__).parents[2]
SLOS = """
version: 1
period: 2h
scrape_interval: 200ms
classes:
  - {name: all}
slos:
  - {name: availability, classes: [all], signal: availability, objective: 99%}
"""
PATIENCE = aiohttp.ClientTimeout(total=HANG)
"""For one request, so that a relay which hangs fails a test instead of stopping them all."""

START = "import sys; from compose.cli import main; from exporters.sidecar.supervision import supervisor; "
QUICK_RESTARTS = "supervisor.RESTART_PAUSE = supervisor.LONGEST_PAUSE = 0.1; "
RUN = "sys.exit(main())"


def command(*words: str, code: str = START + RUN) -> list[str]:
    return [sys.executable, "-c", code, "sidecar", *words]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_SLO_", "OTEL_"))}


def children(pid: int) -> dict[str, int]:
    """Process ids of the living children by the module that they run."""
    pids: dict[str, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid and fields[0] != "Z":
                    words = (folder / "cmdline").read_bytes().split(b"\0")
                    if b"-m" in words:
                        pids[words[words.index(b"-m") + 1].decode()] = int(folder.name)
    return pids


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@dataclass
class Running:
    """A started sidecar."""

    process: asyncio.subprocess.Process
    session: aiohttp.ClientSession
    port: int
    metrics_port: int
    log: Path
    stderr: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pages(self) -> str:
        return f"http://127.0.0.1:{self.metrics_port}"

    @property
    def exporter(self) -> int | None:
        return children(self.process.pid).get("exporters.sidecar.exporter")

    @property
    def relay(self) -> int | None:
        return children(self.process.pid).get("exporters.relay.process")

    async def status(self, page: str) -> int | None:
        """The status of a page; None without a response."""
        try:
            async with self.session.get(f"{self.pages}{page}", timeout=aiohttp.ClientTimeout(total=2)) as response:
                return response.status
        except (aiohttp.ClientError, TimeoutError):
            return None

    async def refuses_connections(self) -> bool:
        """Whether no relay listens any more."""
        try:
            async with asyncio.timeout(2):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except ConnectionError:
            return True
        writer.transport.abort()
        return False

    async def ready(self) -> bool:
        return await self.status("/readyz") == 200

    async def samples(self) -> dict[str, float]:
        """All samples of the text page as `name{value,value}`, the values in the order of the labels' names."""
        async with self.session.get(f"{self.pages}/metrics") as response:
            text = await response.text()
        return {
            f"{sample.name}{{{','.join(value for _, value in sorted(sample.labels.items()))}}}": sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def shows(self, name: str, value: float) -> None:
        """Wait until a sample has this value."""

        async def shown() -> bool:
            try:
                return (await self.samples()).get(name) == value
            except aiohttp.ClientError:
                return False

        await until(shown)

    async def ask(self, request_id: str, *, model: str = "tiny") -> int:
        """One whole request; its status."""
        async with self.session.post(
            f"{self.url}/v1/chat/completions",
            json={"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5},
            headers={"x-request-id": request_id},
        ) as response:
            await response.read()
            return response.status

    async def logged(self) -> list[str]:
        return [json.loads(line)["request_id"] for line in self.log.read_text().splitlines()]

    async def logs(self, *request_ids: str) -> None:
        """Wait until the log has these requests, in any order."""

        async def logged() -> bool:
            return sorted(await self.logged()) == sorted(request_ids)

        await until(logged)

    def log_lines(self) -> list[str]:
        """The lines of standard error as `LEVEL PROCESS: MESSAGE`, without their time."""
        return [line.partition(" ")[2] for line in self.stderr.read_text().splitlines()]

    async def logs_line(self, line: str) -> None:
        """Wait until a line of standard error is this one, whole."""

        async def logged() -> bool:
            return line in self.log_lines()

        await until(logged)

    async def ended(self, seconds: float = HANG) -> int:
        async with asyncio.timeout(seconds):
            return await self.process.wait()

    async def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.ended()


@contextlib.asynccontextmanager
async def sidecar(
    tmp_path: Path, upstream: str, *words: str, code: str = START + RUN, with_log: bool = True
) -> AsyncIterator[Running]:
    """A ready sidecar; what is left of it afterwards is killed, and must not have logged a traceback."""
    slos, log, stderr = tmp_path / "slos.yaml", tmp_path / "requests.jsonl", tmp_path / "stderr"
    slos.write_text(SLOS)
    port, metrics_port = free_port(), free_port()
    flags = ["--upstream", upstream, "--listen", f"127.0.0.1:{port}", "--metrics", f"127.0.0.1:{metrics_port}"]
    flags += ["--slos", str(slos), *(["--request-log", str(log)] if with_log else []), *words]
    with stderr.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command(*flags, code=code), cwd=ROOT, env=environment(), stdin=asyncio.subprocess.DEVNULL, stderr=output
        )
    pids: set[int] = set()
    try:
        async with aiohttp.ClientSession(timeout=PATIENCE) as session:
            running = Running(process, session, port, metrics_port, log, stderr)
            await until(running.ready)
            yield running
    finally:
        pids = set(children(process.pid).values())
        if process.returncode is None:
            process.kill()
            await process.wait()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert "Traceback" not in stderr.read_text()
