"""Starts the exporter and the relays, restarts them after a crash, and drains them in order."""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import tempfile
import time
from functools import partial
from pathlib import Path

import msgspec

from exporters.configuration.child_config import ChildConfig, Slos
from exporters.configuration.sidecar_config import SidecarConfig
from exporters.errors import UsageError, system_reason
from exporters.sidecar.supervision.child import Child
from exporters.sidecar.supervision.descriptors import raise_limit
from exporters.sidecar.supervision.listeners import bind_again, listen
from exporters.slos import SloFile, load

EXPORTER = "exporter"
RESTART_PAUSE = 0.2
LONGEST_PAUSE = 5.0
STABLE_SECONDS = 10.0
"""After this run time the restart pause of a child is reset; it doubles with each crash before that."""

CRASH_LOOP = 3
"""A relay that ends so often within the time above, one start after the other, has no listening socket until it runs.
After fewer crashes the socket stays open, so that connections wait for the next start and are not refused."""

READINESS_TIMEOUT = 2.0
"""The maximum wait for the exporter to confirm that /readyz fails; after that the drain continues."""

STOP_TIMEOUT = 10.0

logger = logging.getLogger("vllm_slo.supervisor")


class Supervisor:
    """Runs the children, owns their sockets, and stops them in order."""

    def __init__(self, config: SidecarConfig, slos: SloFile) -> None:
        self._config = config
        self._slos = Slos(file=slos, read_at=time.time())
        self._salt = secrets.token_bytes(16)
        self._stopping = asyncio.Event()
        self._folder = tempfile.TemporaryDirectory(prefix="vllm-slo-", ignore_cleanup_errors=True)
        self._records_path = str(Path(self._folder.name) / "records.sock")
        (metrics,) = listen(config.metrics, "--metrics")
        records = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        records.bind(self._records_path)
        records.listen(128)
        # Both ends remain open here, so that a restarted exporter receives the pending order to drain.
        self._drain_control, exporter_drain_control = socket.socketpair()
        self._drain_control.setblocking(False)
        # With SO_REUSEPORT each listener has its own queue, which survives a crash of its relay, but not a crash loop.
        listeners = listen(config.listen, "--listen", config.workers)
        self._exporter = Child(EXPORTER, "exporters.sidecar.exporter", (metrics, records, exporter_drain_control))
        self._relays = [
            Child(f"relay-{n}", "exporters.relay.process", (listener,)) for n, listener in enumerate(listeners)
        ]

    @property
    def _children(self) -> list[Child]:
        return [self._exporter, *self._relays]

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT; returns the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        watches = {child.name: loop.create_task(self._watch(child)) for child in self._children}
        try:
            self._log_start()
            await self._stopping.wait()
            logger.info("stopping: /readyz fails, open requests have %g s to finish", self._config.drain)
            await self._fail_readiness()
            for relay in self._relays:
                relay.stop()
                for listener in relay.sockets:
                    listener.close()
            await asyncio.wait(
                [watches[relay.name] for relay in self._relays], timeout=self._config.drain + STOP_TIMEOUT
            )
            self._exporter.stop()
            await asyncio.wait([watches[EXPORTER]], timeout=STOP_TIMEOUT)
        finally:
            for child in self._children:
                child.signal(signal.SIGKILL)
            self._folder.cleanup()
        return 0

    def _log_start(self) -> None:
        config = self._config
        tls = "" if config.certificate is None else " (TLS)"
        logger.info("relaying %s%s -> %s, metrics on %s/metrics", config.listen, tls, config.upstream, config.metrics)

    def _reload(self) -> None:
        """Read the SLO file again, and let all children use it and read their files again, also if it is invalid."""
        file = self._slos.file
        self._slos = msgspec.structs.replace(self._slos, last_reload_successful=False)
        try:
            self._slos = Slos(file=load(Path(self._config.slos)), read_at=time.time())
        except UsageError as error:
            mistakes = "; ".join(str(error).splitlines())
            logger.error("%s; keeping the old SLO file", mistakes)  # noqa: TRY400 - the message is complete
        finally:
            for child in self._children:  # the exporter first: it knows new classes before it gets their requests
                child.reload(self._slos)
        if self._slos.file != file:
            logger.info("SLO file reloaded; it applies to requests that arrive from now on")

    def _reap(self) -> None:
        for child in self._children:
            child.reap()

    async def _fail_readiness(self) -> None:
        """Wait until the exporter confirms that /readyz fails, unless it hangs."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(READINESS_TIMEOUT):
                await loop.sock_sendall(self._drain_control, b"\0")
                await loop.sock_recv(self._drain_control, 1)
        except TimeoutError:
            logger.warning(
                "the exporter did not confirm within %g s that /readyz fails; draining anyway", READINESS_TIMEOUT
            )

    async def _watch(self, child: Child) -> None:
        pause, failures = RESTART_PAUSE, 0
        while not child.stopping.is_set():
            started_at = time.monotonic()
            event = await self._run(child)
            if child.stopping.is_set():
                return
            logger.warning("%s %s", child.name, event)
            if child is self._exporter and self._stopping.is_set():  # the relays wait for it a short time
                await asyncio.sleep(RESTART_PAUSE)
            else:
                if time.monotonic() - started_at > STABLE_SECONDS:
                    pause, failures = RESTART_PAUSE, 0
                else:
                    pause, failures = min(2 * pause, LONGEST_PAUSE), failures + 1
                if failures >= CRASH_LOOP and child is not self._exporter:
                    self._stop_listening(child, failures)
                # A drain must not wait for the pause: the relays need an exporter for their last records.
                wake = self._stopping if child is self._exporter else child.stopping
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(wake.wait(), pause)

    def _stop_listening(self, relay: Child, failures: int) -> None:
        """Close the relay's socket: its connections would wait for a process that may never accept them."""
        if failures == CRASH_LOOP:
            logger.warning(
                "%s ended %d times within %g s of its start; its listening socket stays closed until it runs",
                relay.name,
                failures,
                STABLE_SECONDS,
            )
        for listener in relay.sockets:
            listener.close()
        relay.sockets = ()

    async def _run(self, child: Child) -> str:
        """Run a child until it exits; returns the reason of its end for a log message."""
        child.starts += 1
        try:
            if not child.sockets:
                others = [listener for relay in self._relays for listener in relay.sockets]
                child.sockets = (bind_again(self._config.listen, others, shared=len(self._relays) > 1),)
            await child.start(partial(self._child_config, child))
        except OSError as error:  # too few descriptors, processes or memory, or another program uses the port
            child.starts -= 1
            return f"cannot be started: {system_reason(error)}; retrying"
        code = await child.exited()
        how = f"by signal {-code}" if code < 0 else f"with status {code}"
        return f"exited {how}; restarting it"

    def _child_config(self, child: Child) -> ChildConfig:
        return ChildConfig(
            sidecar=self._config,
            slos=self._slos,
            process=child.name,
            run_id=f"{child.name}-{time.time_ns():x}",
            restarts={other.name: max(0, other.starts - 1) for other in self._children},
            salt=self._salt,
            records_path=self._records_path,
            socket_fds=tuple(listener.fileno() for listener in child.sockets),
            draining=self._stopping.is_set(),
        )


async def supervise(config: SidecarConfig, slos: SloFile) -> int:
    """Run the sidecar until SIGTERM or SIGINT; returns the exit status."""
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    raise_limit()
    return await Supervisor(config, slos).run()
