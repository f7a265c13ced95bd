"""Starts, monitors and stops child processes together, so that none outlives the lab."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

_T = TypeVar("_T")

PARENT_DEATH_SIGNAL = Path(__file__).with_name("parent_death_signal.py")
_LOG_LINES = 15
START_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One process of the lab; `ready_url` returns 200 when it is ready; `grace` is the time from SIGTERM to SIGKILL."""

    name: str
    command: tuple[str, ...]
    ready_url: str | None = None
    start_timeout: float = START_TIMEOUT
    cwd: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    may_exit: bool = False  # exit status 0 is not a failure, for example of a completed load run
    grace: float = 10.0


class ServiceFailedError(Exception):
    """A child exited or did not become ready; the message ends with the last lines of its log."""

    def __init__(self, name: str, what: str, log: Path) -> None:
        super().__init__(f"{name} {what}; last lines of {log}:\n{tail(log)}")


def tail(log: Path) -> str:
    """The last lines of a log, indented."""
    try:
        with log.open(encoding="utf-8", errors="replace") as file:
            last = deque(file, maxlen=_LOG_LINES)
    except FileNotFoundError:
        last = deque()
    return "".join(f"    {line.rstrip()}\n" for line in last).rstrip("\n") or "    (empty)"


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"exited with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


class ChildProcess:
    """A service that runs in its own process group, with its output in a log file."""

    def __init__(self, service: Service, process: asyncio.subprocess.Process, log: Path) -> None:
        self.service, self.log = service, log
        self._process = process
        self._stopping = False

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def wait(self) -> int:
        return await self._process.wait()

    async def wait_for_failure(self) -> ServiceFailedError | None:
        """Wait for the process to end; None if this is not a failure."""
        code = await self.wait()
        if self._stopping or (code == 0 and self.service.may_exit):
            return None
        return ServiceFailedError(self.service.name, describe_exit(code), self.log)

    async def wait_until_ready(self, http: aiohttp.ClientSession, within: float) -> None:
        """Wait until the process is alive and its URL returns 200.

        Raises:
            ServiceFailedError: it exited, or `within` seconds have passed.
        """
        deadline = time.monotonic() + within
        while True:
            if not self.alive:
                raise ServiceFailedError(self.service.name, describe_exit(await self.wait()), self.log)
            failure = await self._probe(http, 2)
            if failure is None:
                return
            if time.monotonic() > deadline:
                what = f"was not ready within {within:g} s: {self.service.ready_url}: {failure}"
                raise ServiceFailedError(self.service.name, what, self.log)
            await asyncio.sleep(0.1)

    async def is_healthy(self, http: aiohttp.ClientSession, timeout: float) -> bool:  # noqa: ASYNC109 - of one request
        """Whether the process is alive and its URL, if any, returns 200; a permitted exit is healthy too."""
        if not self.alive:
            return self.service.may_exit and self._process.returncode == 0
        return await self._probe(http, timeout) is None

    async def _probe(self, http: aiohttp.ClientSession, timeout: float) -> str | None:  # noqa: ASYNC109 - of one request
        """None if the URL returns 200, or if there is no URL; else the response or error."""
        if self.service.ready_url is None:
            return None
        try:
            async with http.get(self.service.ready_url, timeout=aiohttp.ClientTimeout(total=timeout)) as response:
                text = (await response.text())[:200].strip()
                return None if response.status == 200 else f"{response.status} {text}".strip()
        except (aiohttp.ClientError, TimeoutError) as error:
            return str(error) or "no response"

    async def stop(self) -> None:
        """Send SIGTERM to the process and, after the grace period, SIGKILL to its group; wait for its end."""
        self._stopping = True
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()  # not the group: a supervisor stops its own children in order
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wait(), self.service.grace)
        self.kill()
        await self.wait()

    def kill(self) -> None:
        """Send SIGKILL to the process group."""
        self._stopping = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


class ChildProcesses:
    """All child processes of one lab."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self.children: list[ChildProcess] = []

    async def start(self, service: Service) -> ChildProcess:
        self._logs.mkdir(parents=True, exist_ok=True)
        path = self._logs / f"{service.name}.log"
        with path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                # Not a `preexec_fn`: Python code between fork and exec can deadlock in a process with threads.
                *(sys.executable, "-I", "-S", str(PARENT_DEATH_SIGNAL), str(os.getpid()), *service.command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                cwd=service.cwd,
                env={**os.environ, **service.env},
                # Ctrl-c at the terminal then reaches only the runner, which stops the children in order. Not a new
                # session: Linux schedules sessions as groups, so a busy engine would stall the others for seconds.
                process_group=0,
            )
        child = ChildProcess(service, process, path)
        self.children.append(child)
        return child

    async def during(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of `work`, which runs while every child is up.

        Raises:
            ServiceFailedError: a child failed; `work` is cancelled.
        """
        task, failure = asyncio.ensure_future(work), asyncio.ensure_future(self.wait_for_failure())
        try:
            await asyncio.wait((task, failure), return_when=asyncio.FIRST_COMPLETED)
            if failure.done():
                raise failure.result()
            return task.result()
        finally:
            for each in (task, failure):
                each.cancel()
            await asyncio.gather(task, failure, return_exceptions=True)

    async def wait_for_failure(self) -> ServiceFailedError:
        """Wait until a child fails."""
        waits = [asyncio.ensure_future(child.wait_for_failure()) for child in self.children]
        try:
            for completed in asyncio.as_completed(waits):
                error = await completed
                if error is not None:
                    return error
            await asyncio.Event().wait()
        finally:
            for wait in waits:
                wait.cancel()
        raise AssertionError  # unreachable: the event above is never set

    async def stop(self) -> None:
        """Stop the children in reverse order, the load before its target; when cancelled, kill all at once."""
        try:
            for child in reversed(self.children):
                await child.stop()
        except asyncio.CancelledError:
            for child in self.children:
                child.kill()
            raise
        finally:
            await asyncio.gather(*(child.wait() for child in self.children))
