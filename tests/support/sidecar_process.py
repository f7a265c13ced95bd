"""Starts `vllm-slo sidecar` as a process with children, on free ports, in front of the engine of a test."""

import asyncio
import contextlib
import functools
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

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
OUTPUT_SLOS = SLOS + "  - {name: json, classes: [all], signal: valid_output, objective: 99%}\n"
STOPS_QUICKLY = ("--drain-delay", "0", "--linger", "0")
PATIENCE = aiohttp.ClientTimeout(total=HANG)
"""Timeout of a request, so that a relay that hangs fails a test instead of blocking all."""

START = "import sys; from compose.cli import main; from exporters.sidecar.supervision import supervisor; "
QUICK_RESTARTS = "supervisor.RESTART_PAUSE = supervisor.LONGEST_PAUSE = 0.1; "
IMPATIENT = "from exporters.sidecar.supervision import listeners; listeners.TAKEOVER_SECONDS = 0.1; "
"""Another program uses the port, so the wait for it is in vain."""
RUN = "sys.exit(main())"


def children_by(script: Path, folder: Path) -> str:
    """Python code that starts each child by `script`, which gets the words `-P -m MODULE`."""
    interpreter = folder / "python"
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} -P {script} "$@"\n')
    interpreter.chmod(0o755)
    return f"sys.executable = {str(interpreter)!r}; "


def command(*words: str, code: str = START + RUN, subcommand: str = "sidecar") -> list[str]:
    return [sys.executable, "-c", code, subcommand, *words]


async def run_command(*words: str, code: str = START + RUN, subcommand: str = "sidecar") -> tuple[int | None, str, str]:
    """Run a command until it exits: exit status, standard output and standard error."""
    process = await asyncio.create_subprocess_exec(
        *command(*words, code=code, subcommand=subcommand),
        cwd=ROOT,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(HANG):
        output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_SLO_", "OTEL_"))}


def children(pid: int) -> dict[str, int]:
    """Process ids of the running children by module."""
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
    start: Callable[[], Awaitable[asyncio.subprocess.Process]]
    scheme: str = "http"
    """The scheme of the metrics port; its certificate is not verified."""

    async def start_again(self) -> None:
        """Start it again with the same flags, after it has ended."""
        await self.ended()
        self.process = await self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def completions(self) -> str:
        return f"{self.url}/v1/chat/completions"

    @property
    def pages(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.metrics_port}"

    @property
    def exporter(self) -> int | None:
        return children(self.process.pid).get("exporters.sidecar.exporter")

    @property
    def relay(self) -> int | None:
        return children(self.process.pid).get("exporters.relay.process")

    def signal_exporter(self, number: int) -> int:
        """Send a signal to the exporter; returns its process id."""
        return _send_signal(self.exporter, number)

    def signal_relay(self, number: int) -> int:
        """Send a signal to the relay; returns its process id."""
        return _send_signal(self.relay, number)

    async def fetch(
        self, page: str, method: str = "GET", headers: dict[str, str] | None = None, body: str | None = None
    ) -> tuple[int, str]:
        """Status and body of an endpoint of the metrics port."""
        async with self.session.request(method, f"{self.pages}{page}", headers=headers, data=body) as response:
            return response.status, await response.text()

    async def status(self, page: str) -> int | None:
        """The status of an endpoint; None without a response."""
        try:
            async with self.session.get(f"{self.pages}{page}", timeout=aiohttp.ClientTimeout(total=20)) as response:
                return response.status
        except (aiohttp.ClientError, TimeoutError):
            return None

    async def refuses_connections(self) -> bool:
        """Whether no relay listens."""
        try:
            async with asyncio.timeout(HANG):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except ConnectionError:
            return True
        writer.transport.abort()
        return False

    async def ready(self) -> bool:
        return await self.status("/readyz") == 200

    async def samples(self) -> dict[str, float]:
        """All samples of /metrics as `name{value,value}`, with values in order of the label names."""
        _, text = await self.fetch("/metrics")
        rows = (line.rpartition(" ") for line in text.split("\n") if line and not line.startswith("#"))
        return {_short(series): float(value) for series, _, value in rows}

    async def shows(self, name: str, value: float) -> None:
        """Wait until a sample has this value."""

        async def shown() -> bool:
            try:
                return (await self.samples()).get(name) == value
            except aiohttp.ClientError:
                return False

        await until(shown)

    async def ask(self, request_id: str, *, model: str = "tiny") -> int:
        """Send a unary request; returns its status."""
        async with self.session.post(
            self.completions,
            json={"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5},
            headers={"x-request-id": request_id},
        ) as response:
            await response.read()
            return response.status

    async def stream(
        self, path: str = "/v1/chat/completions", *, may_finish: asyncio.Event | None = None, **headers: str
    ) -> str:
        """Send a streaming request and set `may_finish` after its first event; returns the body of its response."""
        body = {"model": "tiny", "stream": True, "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}
        async with self.session.post(f"{self.url}{path}", json=body, headers=headers) as response:
            assert response.status == 200
            first = await response.content.readuntil(b"\n\n")
            if may_finish is not None:
                may_finish.set()
            return (first + await response.read()).decode()

    @contextlib.asynccontextmanager
    async def open_stream(self, request_id: str) -> AsyncIterator[aiohttp.StreamReader]:
        """A stream after its first token; the engine waits before it sends more."""
        body, headers = {"model": "tiny", "messages": [], "stream": True}, {"x-request-id": request_id}
        async with self.session.post(self.completions, json=body, headers=headers) as response:
            assert b'"a"' in await response.content.readuntil(b"\n\n")
            yield response.content

    def lines(self) -> list[dict[str, Any]]:
        """The complete lines of the request log; the last one may still be being written."""
        try:
            text = self.log.read_text()
        except FileNotFoundError:  # not begun, or just rotated
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    async def logged(self) -> list[str]:
        return [line["request_id"] for line in self.lines()]

    async def logs(self, *request_ids: str) -> None:
        """Wait until the request log has these requests, in any order."""

        async def logged() -> bool:
            return sorted(await self.logged()) == sorted(request_ids)

        await until(logged)

    def log_lines(self) -> list[str]:
        """The lines of standard error without their time: `LEVEL PROCESS: MESSAGE`."""
        return [line.partition(" ")[2] for line in self.stderr.read_text().splitlines()]

    async def logs_line(self, line: str) -> None:
        """Wait until standard error has this line."""

        async def logged() -> bool:
            return line in self.log_lines()

        await until(logged)

    async def ended(self, seconds: float = HANG) -> int:
        async with asyncio.timeout(seconds):
            return await self.process.wait()

    async def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.ended()


@functools.cache
def _short(series: str) -> str:
    """`name{value,value}` of a series in an exposition. The parser of prometheus_client needs ten times as long."""
    name, _, labels = series.partition("{")
    pairs = sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels))
    values = re.sub(r"\\(.)", lambda escaped: "\n" if escaped[1] == "n" else escaped[1], ",".join(v for _, v in pairs))
    return f"{name}{{{values}}}"


def _engine_name(upstream: str, words: Sequence[str]) -> list[str]:
    """Names the engine by its address, which a test knows on any host, unless the test names or lists engines."""
    if any(word.startswith(("--engine-name", "--engine-metrics")) for word in words):
        return []
    return ["--engine-name", f"{upstream}={urlsplit(upstream).netloc.rpartition('@')[2]}"]


async def _responds(running: Running, probe: str) -> bool:
    return await running.status(probe) == 200


def _send_signal(pid: int | None, number: int) -> int:
    assert pid is not None
    os.kill(pid, number)
    return pid


@contextlib.asynccontextmanager
async def sidecar(
    tmp_path: Path,
    upstream: str,
    *words: str,
    code: str = START + RUN,
    with_log: bool = True,
    slo_file: str = SLOS,
    variables: dict[str, str] | None = None,
    stdout: int | None = None,
    port: int | None = None,
    metrics_port: int | None = None,
    while_starting: Callable[[int], Coroutine[None, None, None]] | None = None,
) -> AsyncIterator[Running]:
    """A ready sidecar. Processes that remain are killed, and none may have logged a traceback.

    `while_starting` gets the process id of the supervisor, and runs until the sidecar is ready.
    """
    slos, log = tmp_path / "slos.yaml", tmp_path / "requests.jsonl"
    slos.write_text(slo_file)
    port, metrics_port = port or free_port(), metrics_port or free_port()
    flags = ["--upstream", upstream, "--listen", f"127.0.0.1:{port}", "--metrics", f"127.0.0.1:{metrics_port}"]
    flags += [*STOPS_QUICKLY, "--slos", str(slos), *(["--request-log", str(log)] if with_log else []), *words]
    flags += _engine_name(upstream, words)
    async with _started(
        tmp_path, command(*flags, code=code), log, port, metrics_port, variables, stdout, while_starting=while_starting
    ) as running:
        yield running


@contextlib.asynccontextmanager
async def following_sidecar(
    tmp_path: Path, upstream: str, log: Path, *words: str, slo_file: str = SLOS, probe: str = "/readyz"
) -> AsyncIterator[Running]:
    """A sidecar that follows a log; its state is `state` in `tmp_path`."""
    slos, state, metrics_port = tmp_path / "follow-slos.yaml", tmp_path / "state", free_port()
    slos.write_text(slo_file)
    flags = ["--upstream", upstream, "--metrics", f"127.0.0.1:{metrics_port}", "--linger", "0", "--slos", str(slos)]
    flags += ["--follow", str(log), "--follow-state", str(state), *words, *_engine_name(upstream, words)]
    async with _started(tmp_path, command(*flags), log, 0, metrics_port, probe=probe) as running:
        yield running


@contextlib.asynccontextmanager
async def _started(
    tmp_path: Path,
    words: list[str],
    log: Path,
    port: int,
    metrics_port: int,
    variables: dict[str, str] | None = None,
    stdout: int | None = None,
    probe: str = "/readyz",
    while_starting: Callable[[int], Coroutine[None, None, None]] | None = None,
) -> AsyncIterator[Running]:
    stderr = tmp_path / f"stderr{'' if port else '-follow'}"
    stderr.unlink(missing_ok=True)

    async def start() -> asyncio.subprocess.Process:
        with stderr.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *words,
                cwd=ROOT,
                env=environment() | (variables or {}),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=output,
            )

    process = await start()
    pids: set[int] = set()
    starting = None if while_starting is None else asyncio.create_task(while_starting(process.pid))
    try:
        connector = aiohttp.TCPConnector(ssl=False)
        async with aiohttp.ClientSession(timeout=PATIENCE, connector=connector) as session:
            scheme = "https" if {"metrics", "both"} & {*words} else "http"
            running = Running(process, session, port, metrics_port, log, stderr, start, scheme)
            await until(lambda: _responds(running, probe) if process.returncode is None else True)
            assert process.returncode is None, stderr.read_text()
            if starting is not None:
                starting.cancel()
            yield running
    finally:
        process = running.process
        pids = set(children(process.pid).values())
        if process.returncode is None:
            process.kill()
            await process.wait()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert "Traceback" not in stderr.read_text()
