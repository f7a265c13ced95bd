"""Starts the exporter and the relays, restarts what dies, and drains in the right order."""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

from exporters.configuration.child_process import ChildConfig, write_child_config
from exporters.configuration.sidecar_config import SidecarConfig
from exporters.sidecar.supervision.listeners import listen

EXPORTER = "exporter"
RESTART_PAUSE = 0.2
LONGEST_PAUSE = 5.0
SETTLED = 10.0
"""A child that lived this many seconds is started again at once; one that keeps dying waits longer each time."""

STOP_PATIENCE = 10.0


class Child:
    """One child process over all its lives."""

    def __init__(self, name: str, module: str, sockets: tuple[socket.socket, ...]) -> None:
        self.name = name
        self.module = module
        self.sockets = sockets
        self.lives = 0
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, config: ChildConfig) -> asyncio.subprocess.Process:
        fds = tuple(listening.fileno() for listening in self.sockets)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self.module,
            stdin=asyncio.subprocess.PIPE,
            pass_fds=fds,
            # Ctrl-c reaches the supervisor alone, which drains in order. Not a session: Linux would schedule it against
            # all others as a whole, and beside an engine that spins on the same cores a relay stalls for seconds.
            process_group=0,
        )
        self.process = process
        if process.stdin is not None:
            with contextlib.suppress(ConnectionError):  # died already: its exit status says so
                process.stdin.write(write_child_config(config))
                await process.stdin.drain()
        return process

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)


class Supervisor:
    """The children, their sockets, and the order in which they go."""

    def __init__(self, config: SidecarConfig) -> None:
        self._config = config
        self._salt = secrets.token_bytes(16)
        self._stopping = asyncio.Event()
        self._drained = asyncio.Event()
        self._folder = tempfile.TemporaryDirectory(prefix="vllm-slo-")
        self._records_path = str(Path(self._folder.name) / "records.sock")
        (pages,) = listen(config.metrics, "--metrics")
        records = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        records.bind(self._records_path)
        records.listen(128)
        # With SO_REUSEPORT each relay has a queue of its own; held open here, it outlives a relay that dies.
        relays = listen(config.listen, "--listen", config.workers)
        self._exporter = Child(EXPORTER, "exporters.sidecar.exporter", (pages, records))
        self._relays = [
            Child(f"relay-{n}", "exporters.relay.process", (listening,)) for n, listening in enumerate(relays)
        ]

    @property
    def _children(self) -> list[Child]:
        return [self._exporter, *self._relays]

    async def run(self) -> int:
        """Supervise until SIGTERM or SIGINT; 0 when all children ended well."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        watches = {child.name: loop.create_task(self._watch(child)) for child in self._children}
        try:
            self._say()
            await self._stopping.wait()
            for relay in self._relays:
                relay.signal(signal.SIGTERM)
                for listening in relay.sockets:
                    listening.close()
            await self._ended([watches[relay.name] for relay in self._relays], self._config.drain + STOP_PATIENCE)
            self._drained.set()
            self._exporter.signal(signal.SIGTERM)
            await self._ended([watches[EXPORTER]], STOP_PATIENCE)
        finally:
            for child in self._children:
                child.signal(signal.SIGKILL)
            self._folder.cleanup()
        return 0

    def _say(self) -> None:
        config = self._config
        tls = "" if config.certificate is None else " (TLS)"
        print(
            f"vllm-slo sidecar: relaying {config.listen}{tls} -> {config.upstream}, "
            f"metrics on {config.metrics}/metrics",
            file=sys.stderr,
            flush=True,
        )

    def _reload(self) -> None:
        self._exporter.signal(signal.SIGHUP)
        if self._config.certificate is not None:  # the only file that relays follow
            for relay in self._relays:
                relay.signal(signal.SIGHUP)

    async def _ended(self, watches: list[asyncio.Task[None]], patience: float) -> None:
        await asyncio.wait(watches, timeout=patience)

    async def _watch(self, child: Child) -> None:
        pause = RESTART_PAUSE
        # A relay would find nothing to do while the others drain; without an exporter their last records would be lost.
        over = self._drained if child is self._exporter else self._stopping
        while True:
            born = time.monotonic()
            life = f"{child.name}-{time.time_ns():x}"
            child.lives += 1
            process = await child.start(
                ChildConfig(
                    sidecar=self._config,
                    process=child.name,
                    life=life,
                    restarts={other.name: max(0, other.lives - 1) for other in self._children},
                    salt=self._salt,
                    records_path=self._records_path,
                    socket_fds=tuple(listening.fileno() for listening in child.sockets),
                )
            )
            if over.is_set():  # the order to stop came while it was being started
                child.signal(signal.SIGTERM)
            code = await process.wait()
            # The exporter ends well when told to stop from outside, as all are by systemd, and no relay is connected.
            if over.is_set() or (self._stopping.is_set() and code == 0):
                return
            how = f"by signal {-code}" if code < 0 else f"with status {code}"
            print(f"vllm-slo sidecar: {child.name} ended {how}; starting it again", file=sys.stderr, flush=True)
            if self._stopping.is_set():  # the relays wait for it, though not for long
                await asyncio.sleep(RESTART_PAUSE)
            else:
                pause = RESTART_PAUSE if time.monotonic() - born > SETTLED else min(2 * pause, LONGEST_PAUSE)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), pause)
            if over.is_set():
                return


async def supervise(config: SidecarConfig) -> int:
    """Run the sidecar of `config` until told to stop."""
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    return await Supervisor(config).run()
