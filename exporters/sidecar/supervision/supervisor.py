"""Starts the exporter and the relays, restarts them after a crash, and drains them in order."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import tempfile
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from exporters.configuration.child import ChildConfig, Reload, ServerCertificate, Slos
from exporters.configuration.sidecar import SidecarConfig, TlsPort
from exporters.requestlog.standard_output import STANDARD_OUTPUT
from exporters.sidecar.drain_control import Order, Report
from exporters.sidecar.supervision import system_limits
from exporters.sidecar.supervision.child import Child
from exporters.sidecar.supervision.descriptors import raise_limit
from exporters.sidecar.supervision.listeners import bind_again, listen_when_free
from exporters.text.errors import UsageError, system_reason
from exporters.vocabulary.slo_file import SloFile, load

EXPORTER = "exporter"
RESTART_PAUSE = 0.2
LONGEST_PAUSE = 5.0
STABLE_SECONDS = 10.0
"""The run time after which the restart pause of a child is reset; it doubles with each crash before that."""

CRASH_LOOP = 3
"""A relay that ends so often within the time above, one start after the other, has no listening socket until it runs.
After fewer crashes the socket stays open, so that connections wait for the next start and are not refused."""

WATCH_SECONDS = 5.0
"""Interval at which --watch-files reads the files."""

READINESS_TIMEOUT = 2.0
"""The maximum wait for the exporter to confirm that /readyz fails; after that the drain continues."""

STOP_TIMEOUT = 10.0

CUTTING_SIGNALS = 3
"""The number of SIGTERM and SIGINT that end a drain. Not 2: a container runtime or a script may send a second one, and
the drain must finish."""

INTERRUPTED = 130
"""The exit status of a program that SIGINT has ended."""

logger = logging.getLogger("vllm_slo.supervisor")


class Supervisor:
    """Runs the children, owns their sockets, and stops them in order."""

    def __init__(self, config: SidecarConfig, slos: SloFile, salt: bytes) -> None:
        self._config = config
        self._slos = Slos(file=slos, read_at=time.time())
        self._tls = None if config.certificate is None else ServerCertificate(certificate=config.certificate.read())
        self._salt = salt
        self._draining = asyncio.Event()
        self._stopping = asyncio.Event()
        self._readiness_failed = asyncio.Event()
        self._final_scrape = asyncio.Event()
        self._drain_began_at: float | None = None
        self._relays_exited_at: float | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._journals = self._new_journals() if config.follow is None else ""
        # The exporter of a killed supervisor releases this port when it has written its last line.
        (metrics,) = listen_when_free(config.metrics, "--metrics")
        # Both ends of the next two pairs remain open here, so that a restarted exporter receives what waits for it.
        self._to_exporter, relays = socket.socketpair()
        self._drain_control, exporter_drain_control = socket.socketpair()
        self._drain_control.setblocking(False)
        # When this end is closed, the relays announce the drain to clients, also relays that are started later.
        self._drain_notice, self._relay_drain_notice = socket.socketpair()
        # With SO_REUSEPORT each listener has its own queue, which survives a crash of its relay, but not a crash loop.
        listeners = listen_when_free(config.listen, "--listen", config.workers) if config.follow is None else []
        self._exporter = Child(EXPORTER, "exporters.sidecar.exporter", (metrics, relays, exporter_drain_control))
        self._relays = [
            Child(f"relay-{n}", "exporters.relay.process", (listener,)) for n, listener in enumerate(listeners)
        ]

    def _new_journals(self) -> str:
        """The folder of the journals: beside the request log, whose volume survives this process, else in memory."""
        log = self._config.request_log
        if log is not None and log != STANDARD_OUTPUT and not Path(log).is_char_device():
            journals = Path(f"{log}.journal").absolute()
        else:
            in_memory = Path("/dev/shm")  # noqa: S108 - the folder in it is private
            try:
                self._folder = tempfile.TemporaryDirectory(
                    prefix="vllm-slo-", dir=in_memory if in_memory.is_dir() else None, ignore_cleanup_errors=True
                )
            except OSError as error:
                logger.warning("requests of a relay that crashes are not counted: %s", system_reason(error))
                return ""
            journals = Path(self._folder.name)
        return str(journals / f"{time.time_ns():x}")

    @property
    def _children(self) -> list[Child]:
        return [self._exporter, *self._relays]

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT; returns the exit status."""
        loop = asyncio.get_running_loop()
        watches = {child.name: loop.create_task(self._watch(child)) for child in self._children}
        stop = loop.create_task(self._drain_and_stop(watches))
        watch_files = loop.create_task(self._watch_files()) if self._config.watch_files else None
        received: list[signal.Signals] = []

        def on_signal(number: signal.Signals) -> None:
            received.append(number)
            if len(received) >= CUTTING_SIGNALS:
                logger.warning("%s again: the sidecar ends at once, open requests are cut", number.name)
                stop.cancel()
            elif self._stopping.is_set():
                logger.warning(
                    "%s again: the drain continues; a third signal ends it and cuts open requests", number.name
                )
            self._stopping.set()
            self._begin_drain(number.name)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # one that arrived during the start is handled next
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        loop.add_reader(self._drain_control, self._read_reports)
        try:
            self._log_start()
            await asyncio.wait([stop])
        finally:
            if watch_files is not None:
                watch_files.cancel()
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # else it ends a process without its handler
            # asyncio closes its wakeup descriptor before it removes handlers: a signal in between prints a traceback.
            loop.remove_signal_handler(signal.SIGCHLD)
            for child in self._children:
                child.signal(signal.SIGKILL)
            if self._folder is not None:
                self._folder.cleanup()
        if not stop.cancelled():
            stop.result()
            return 0
        return INTERRUPTED if received[-1] is signal.SIGINT else 0

    async def _drain_and_stop(self, watches: dict[str, "asyncio.Task[None]"]) -> None:
        await self._draining.wait()
        await self._fail_readiness()
        if self._relays:
            await self._stop_relays(watches)
        self._relays_exited_at = time.monotonic()
        self._send_order(Order.RELAYS_EXITED)
        logger.info("drained")
        await self._stopping.wait()
        await self._linger()
        self._exporter.stop()
        await asyncio.wait([watches[EXPORTER]], timeout=STOP_TIMEOUT)

    async def _stop_relays(self, watches: dict[str, "asyncio.Task[None]"]) -> None:
        await asyncio.sleep(self._config.drain_delay)
        for relay in self._relays:
            relay.stop()
            for listener in relay.sockets:
                listener.close()
        await asyncio.wait(
            [watches[relay.name] for relay in self._relays],
            timeout=self._config.drain + self._config.linger + STOP_TIMEOUT,
        )
        for relay in self._relays:
            relay.signal(signal.SIGKILL)

    @property
    def _drain_in_progress(self) -> bool:
        return self._draining.is_set() and self._relays_exited_at is None

    def _log_start(self) -> None:
        config = self._config
        if config.follow is not None:
            log = config.follow
            logger.info("following %s (%s), metrics on %s/metrics", log.path, log.format, config.metrics)
            return
        clients, metrics = (
            " (TLS)" if config.certificate is not None and config.tls_port in (port, TlsPort.BOTH) else ""
            for port in (TlsPort.CLIENTS, TlsPort.METRICS)
        )
        text = "relaying %s%s -> %s, metrics on %s/metrics%s"
        logger.info(text, config.listen, clients, config.upstream, config.metrics, metrics)

    async def _watch_files(self) -> None:
        """Reload when the content of a file changes; its time would also change when its volume is mounted."""
        known = {path: _content(path) for path in self._config.reloaded_files}
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            found = {path: content for path in known if (content := _content(path)) is not None}
            if not found.items() <= known.items():
                known |= found
                self._reload()

    def _reload(self) -> None:
        """Read SLO file and certificate again, and let all children use them or the last valid ones."""
        self._reload_certificate()
        file = self._slos.file
        self._slos = msgspec.structs.replace(self._slos, last_reload_successful=False)
        try:
            reloaded = load(Path(self._config.slos))
            self._config.check(reloaded)
            self._slos = Slos(file=reloaded, read_at=time.time())
        except UsageError as error:
            mistakes = "; ".join(str(error).splitlines())
            logger.error("%s; keeping the old SLO file", mistakes)  # noqa: TRY400 - the message is complete
        finally:
            for child in self._children:  # the exporter first: it knows new classes before it gets their requests
                child.reload(Reload(slos=self._slos, tls=self._tls))
        if self._slos.file != file:
            requests = "requests that arrive" if self._relays else "lines that are read"
            logger.info("SLO file reloaded; it applies to %s from now on", requests)

    def _reload_certificate(self) -> None:
        if self._config.certificate is None or self._tls is None:
            return
        try:
            certificate = self._config.certificate.read()
        except UsageError as error:
            logger.error("%s; keeping the old certificate", error)  # noqa: TRY400 - the message is complete
            self._tls = msgspec.structs.replace(self._tls, last_reload_successful=False)
        else:
            self._tls = ServerCertificate(certificate=certificate)
            expiry = datetime.fromtimestamp(certificate.expiry, UTC)
            logger.info("certificate reloaded, it expires on %s UTC", f"{expiry:%Y-%m-%d %H:%M:%S}")

    def _reap(self) -> None:
        for child in self._children:
            child.reap()

    def _begin_drain(self, reason: str) -> None:
        if self._draining.is_set():
            return
        delay, drain = self._config.drain_delay, self._config.drain
        if self._relays:
            logger.info(
                "%s: /readyz fails, no new connections after %g s, open requests have %g s more", reason, delay, drain
            )
        else:
            logger.info("%s: /readyz fails, no further line is counted", reason)
        self._drain_began_at = time.monotonic()
        self._drain_notice.close()
        self._draining.set()

    def _send_order(self, order: Order) -> None:
        self._drain_control.send(bytes([order]))

    def _read_reports(self) -> None:
        for report in map(Report, self._drain_control.recv(64)):
            if report is Report.DRAIN_REQUESTED:
                self._begin_drain("POST /admin/drain")
            elif report is Report.READINESS_FAILED:
                self._readiness_failed.set()
            else:
                self._final_scrape.set()

    async def _fail_readiness(self) -> None:
        """Wait until the exporter confirms that /readyz fails, unless it hangs."""
        self._send_order(Order.FAIL_READINESS)
        try:
            async with asyncio.timeout(READINESS_TIMEOUT):
                await self._readiness_failed.wait()
        except TimeoutError:
            logger.warning(
                "the exporter did not confirm within %g s that /readyz fails; draining anyway", READINESS_TIMEOUT
            )

    async def _linger(self) -> None:
        """Wait until a scrape has read the final counts; relays may have used this time to wait for the exporter."""
        config = self._config
        if not config.linger:
            return
        waited = time.monotonic() - (self._drain_began_at or 0.0) - config.drain_delay - config.drain
        try:
            async with asyncio.timeout(config.linger - max(0.0, waited)):
                await self._final_scrape.wait()
        except TimeoutError:
            logger.warning("no scrape has read the final counts within %g s", self._config.linger)

    async def _watch(self, child: Child) -> None:
        pause, failures = RESTART_PAUSE, 0
        while not child.stopping.is_set():
            started_at = time.monotonic()
            event = await self._run(child)
            if child.stopping.is_set():
                return
            logger.warning("%s %s", child.name, event)
            if child is self._exporter and self._drain_in_progress:  # the relays wait for it a short time
                await asyncio.sleep(RESTART_PAUSE)
            else:
                if time.monotonic() - started_at > STABLE_SECONDS:
                    pause, failures = RESTART_PAUSE, 0
                else:
                    pause, failures = min(2 * pause, LONGEST_PAUSE), failures + 1
                if failures >= CRASH_LOOP and child is not self._exporter:
                    self._stop_listening(child, failures)
                # A drain must not wait for the pause: the relays need an exporter for their last records.
                wake = self._draining if child is self._exporter and not self._draining.is_set() else child.stopping
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
        child.run_id = f"{child.name}-{time.time_ns():x}"
        try:
            if child.starts > 1:
                self._check_certificate(child)
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

    def _check_certificate(self, relay: Child) -> None:
        """Report files that are invalid: the relay does not need them, but the next start of the sidecar does."""
        if self._config.certificate is not None and relay is not self._exporter:
            try:
                self._config.certificate.read()
            except UsageError as error:
                logger.warning("%s; %s starts with the last valid certificate", error, relay.name)

    def _child_config(self, child: Child) -> ChildConfig:
        shared = () if child is self._exporter else (self._relay_drain_notice, self._to_exporter)
        return ChildConfig(
            sidecar=self._config,
            slos=self._slos,
            tls=self._tls,
            process=child.name,
            run_id=child.run_id,
            restarts={other.name: max(0, other.starts - 1) for other in self._children},
            salt=self._salt,
            journals=self._journals,
            socket_fds=tuple(each.fileno() for each in (*child.sockets, *shared)),
            drain_began_at=self._drain_began_at,
            relays_exited_at=self._relays_exited_at,
        )


def _content(path: str) -> bytes | None:
    """The content of a file; None if it cannot be read, as while it is being replaced."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


def supervise(config: SidecarConfig, slos: SloFile, salt: bytes) -> int:
    """Run the sidecar until SIGTERM or SIGINT; `salt` is that of the hashes of prompts. Returns the exit status."""
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    raise_limit()
    for warning in system_limits.warnings(config):
        logger.warning("%s", warning)
    return asyncio.run(Supervisor(config, slos, salt).run())
