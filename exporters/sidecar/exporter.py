"""The exporter process: whatever may be slow lives here, so that a scrape can never stall a stream."""

import asyncio
import signal
import socket
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client.core import Metric

from exporters import signals, slos
from exporters.engines.scraper import Scraper
from exporters.sidecar.config import ChildConfig, SidecarConfig, read_child_config, stop_event
from exporters.sidecar.inbox import Inbox, RelayConnection
from exporters.sidecar.pages import application
from exporters.sidecar.request_log import RequestLog
from exporters.sidecar.requests import RequestSeries
from exporters.sidecar.tally import counter, gauge

if TYPE_CHECKING:
    from exporters.sidecar.traces import Traces


RELAYS_PATIENCE = 5.0
"""Beyond the drain, how long a stopping exporter stays for relays that are still connected."""


class Exporter:
    """Joins the inbox, the engine's scraper and the pages."""

    def __init__(self, config: ChildConfig) -> None:
        sidecar = config.sidecar
        self._config = config
        spec = slos.load(Path(sidecar.slos))
        self.series = RequestSeries(spec)
        for model in sidecar.models:
            self.series.add_model(model)
        self.scraper = Scraper(sidecar.upstream, sidecar.engine_metrics, spec.scrape_interval, self._models)
        self.log = RequestLog(Path(sidecar.request_log)) if sidecar.request_log else None
        self.traces = _traces(sidecar)
        self.inbox = Inbox(
            self.series,
            self.log,
            lambda: self.scraper.state.watch.revision,
            None if self.traces is None else self.traces.add,
        )

    def collect(self) -> Iterator[Metric]:
        """All families of the sidecar."""
        yield from self.series.collect(time.monotonic())
        yield from self.scraper.state.collect()
        yield gauge(signals.SIDECAR_BUILD, [((version("vllm-slo"),), 1.0)])
        before, since = self._config.restarts, self.inbox.restarts
        yield counter(
            signals.SIDECAR_RESTARTS,
            [((process,), float(count + since.get(process, 0))) for process, count in before.items()],
        )
        yield counter(signals.SIDECAR_LOG_ERRORS, [((), float(self.inbox.log_errors))])
        if self.traces is not None:
            yield from self.traces.collect()

    def reopen_log(self) -> None:
        """Follow a rotation of the request log, where there is one."""
        if self.log is not None:
            try:
                self.log.reopen()
            except OSError as error:
                print(f"exporter: request log: {error}; keeping the old file", file=sys.stderr, flush=True)

    def why_not_ready(self) -> str | None:
        """What keeps traffic away. The engine is not asked: while it is down the relay answers with a clear 502."""
        wanted = self._config.sidecar.workers
        connected = len(self.inbox.connected)
        if connected < wanted:
            return f"{connected} of {wanted} relays are connected"
        if any(snapshot.draining for snapshot in self.series.snapshots().values()):
            return "draining"
        return None

    def _models(self, models: tuple[str, ...]) -> None:
        for model in models:
            self.series.add_model(model)


def _traces(config: SidecarConfig) -> "Traces | None":
    if config.otlp is None:
        return None
    from exporters.sidecar.traces import traces  # noqa: PLC0415 - the SDK and gRPC, for those who trace only

    return traces(config.otlp, config.upstream)


async def serve(config: ChildConfig) -> None:
    """Run until SIGTERM; SIGHUP reopens the request log."""
    loop = asyncio.get_running_loop()
    exporter = Exporter(config)
    stop = stop_event(loop)
    loop.add_signal_handler(signal.SIGHUP, exporter.reopen_log)  # also without a log: unhandled, it would kill
    pages_fd, records_fd = config.socket_fds
    records = await loop.create_unix_server(
        lambda: RelayConnection(exporter.inbox), sock=socket.socket(fileno=records_fd)
    )
    runner = web.AppRunner(application(exporter.collect, exporter.why_not_ready), access_log=None)
    await runner.setup()
    await web.SockSite(runner, socket.socket(fileno=pages_fd)).start()
    scraping = loop.create_task(exporter.scraper.run())
    await stop.wait()
    # Told to stop all at once, by systemd or by the supervisor's death, the relays still have records to hand over.
    until = loop.time() + config.sidecar.drain + RELAYS_PATIENCE
    while exporter.inbox.connected and loop.time() < until:
        await asyncio.sleep(0.02)
    scraping.cancel()
    records.close()
    await runner.cleanup()
    if exporter.log is not None:
        exporter.log.close()
    if exporter.traces is not None:
        exporter.traces.close()


def main() -> int:
    asyncio.run(serve(read_child_config()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
