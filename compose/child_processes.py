"""Child processes that start, are watched and stop together, so that none is ever left behind."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

LEASH = Path(__file__).with_name("parent_death_signal.py")
_LOG_LINES = 15
USUAL_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One process of the lab: how it starts, the URL that answers 200 once it is ready, how long it may take to end."""

    name: str
    command: tuple[str, ...]
    ready: str | None = None
    within: float = USUAL_SECONDS  # from its start to the first 200
    cwd: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    may_end: bool = False  # a load that has run its course is no failure
    grace: float = 10.0


class ServiceFailedError(Exception):
    """A child died or never became ready; the text ends with the last lines of its log."""

    def __init__(self, name: str, what: str, log: Path) -> None:
        self.name = name
        super().__init__(f"{name} {what}; the end of {log}:\n{tail(log)}")


def tail(log: Path, lines: int = _LOG_LINES) -> str:
    """The last lines of a log, indented."""
    try:
        with log.open(encoding="utf-8", errors="replace") as file:
            last = deque(file, maxlen=lines)
    except FileNotFoundError:
        last = deque()
    return "".join(f"    {line.rstrip()}\n" for line in last).rstrip("\n") or "    (empty)"


def ending(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"exited with {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


class Child:
    """A running service: a process group of its own, its output in a log file."""

    def __init__(self, service: Service, process: asyncio.subprocess.Process, log: Path) -> None:
        self.service, self.log = service, log
        self._process = process
        self._stopping = False

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        return await self._process.wait()

    async def failed(self) -> ServiceFailedError | None:
        """Waits for the process to end; None when nothing is wrong with that."""
        code = await self.wait()
        if self._stopping or (code == 0 and self.service.may_end):
            return None
        return ServiceFailedError(self.service.name, ending(code), self.log)

    async def ready(self, http: aiohttp.ClientSession, within: float) -> None:
        """Waits until the process is alive and its URL answers 200.

        Raises:
            ServiceFailedError: it died, or `within` seconds have passed.
        """
        give_up, answer = time.monotonic() + within, "no answer"
        while True:
            if not self.alive:
                raise ServiceFailedError(self.service.name, ending(await self.wait()), self.log)
            if self.service.ready is None:
                return
            try:
                async with http.get(self.service.ready, timeout=aiohttp.ClientTimeout(total=2)) as response:
                    answer = f"{response.status} {(await response.text())[:200].strip()}".strip()
                    if response.status == 200:
                        return
            except (aiohttp.ClientError, TimeoutError) as error:
                answer = str(error) or "no answer"
            if time.monotonic() > give_up:
                what = f"was not ready within {within:g} s: {self.service.ready}: {answer}"
                raise ServiceFailedError(self.service.name, what, self.log)
            await asyncio.sleep(0.1)

    async def well(self, http: aiohttp.ClientSession, within: float) -> bool:
        """Whether it is alive and, where it has a URL, says so at this moment."""
        if not self.alive or self.service.ready is None:
            return self.alive or (self.service.may_end and self._process.returncode == 0)
        try:
            async with http.get(self.service.ready, timeout=aiohttp.ClientTimeout(total=within)) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def stop(self) -> None:
        """SIGTERM to the process, SIGKILL to its whole group after the grace; waits for the end."""
        self._stopping = True
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()  # not the group: a supervisor stops its own children, in its own order
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wait(), self.service.grace)
        self.kill()
        await self.wait()

    def kill(self) -> None:
        """SIGKILL to whatever is left of the group."""
        self._stopping = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


class Family:
    """All children of one lab."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self.children: list[Child] = []

    async def start(self, service: Service) -> Child:
        self._logs.mkdir(parents=True, exist_ok=True)
        path = self._logs / f"{service.name}.log"
        with path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                # Not a `preexec_fn`: Python code between fork and exec can deadlock where there are threads.
                *(sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *service.command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                cwd=service.cwd,
                env={**os.environ, **service.env},
                # A ctrl-c at the terminal reaches the runner only, which stops all in order. Not a session: Linux would
                # schedule each against all others as a whole, and beside an engine that spins they stall for seconds.
                process_group=0,
            )
        child = Child(service, process, path)
        self.children.append(child)
        return child

    async def fallen(self) -> ServiceFailedError:
        """Waits, for ever if all is well, for a child to end that should not have."""
        waits = [asyncio.ensure_future(child.failed()) for child in self.children]
        try:
            for wait in asyncio.as_completed(waits):
                error = await wait
                if error is not None:
                    return error
            await asyncio.Event().wait()
        finally:
            for wait_ in waits:
                wait_.cancel()
        raise AssertionError  # unreachable: the event above is never set

    async def stop(self) -> None:
        """Stops the last started first, so that load ends before what it measures; cancelled, it kills all at once."""
        try:
            for child in reversed(self.children):
                await child.stop()
        except asyncio.CancelledError:
            for child in self.children:
                child.kill()
            raise
        finally:
            await asyncio.gather(*(child.wait() for child in self.children))
