"""The exporter process: whatever may be slow lives here, so that a scrape can never stall a stream."""

import asyncio
import contextlib
import os
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
from exporters.configuration.child_process import ChildConfig, collect_seldom, read_child_config, stop_event
from exporters.configuration.sidecar_config import SidecarConfig
from exporters.engines.config_change_store import ConfigChangeStore
from exporters.engines.engine_group import EngineGroup
from exporters.engines.scrape_targets import targets
from exporters.errors import UsageError
from exporters.exposition.accumulators import Accumulator, counter, gauge
from exporters.process_usage import footprint
from exporters.requestlog.writer import RequestLog
from exporters.sidecar.http_api.admin import Admin
from exporters.sidecar.http_api.credentials import Credentials
from exporters.sidecar.http_api.http_server import application, page
from exporters.sidecar.ingest.record_receiver import RecordReceiver, RelayConnection
from exporters.sidecar.ingest.request_metrics import RequestMetrics

if TYPE_CHECKING:
    from exporters.sidecar.tracing.otlp_receiver import OtlpReceiver
    from exporters.sidecar.tracing.span_exporter import Traces
    from exporters.sidecar.tracing.span_join import SpanJoin


NICENESS = 5
"""Where a relay and the exporter share a core, the streams go first."""

SETTLE_SECONDS = 0.2
"""How often requests that have got their times, or have waited for long enough, are looked for."""

RELAYS_PATIENCE = 5.0
"""Beyond the drain, how long a stopping exporter stays for relays that are still connected."""


class Exporter:
    """Joins the inbox, the scrapers of the engines and the pages."""

    def __init__(self, config: ChildConfig) -> None:
        sidecar = config.sidecar
        self._config = config
        spec = slos.load(Path(sidecar.slos))
        self.series = RequestMetrics(spec)
        for model in sidecar.models:
            self.series.add_model(model)
        tls = sidecar.trust.context()
        engines = targets(sidecar.upstream, sidecar.engine_metrics)
        memory = ConfigChangeStore(Path(sidecar.state)) if sidecar.state else None
        self.engines = EngineGroup(engines, spec.scrape_interval, self._models, tls, memory)
        self.credentials = Credentials(sidecar.metrics_auth_file) if sidecar.metrics_auth_file else None
        self.admin = Admin(self.engines, sidecar.admin_token_file) if sidecar.admin_token_file else None
        self._certificate_expiry: float | None = None
        self.read_files()
        self.log = RequestLog(Path(sidecar.request_log)) if sidecar.request_log else None
        self.traces = _traces(sidecar)
        self.join: SpanJoin | None = None
        self.intake: OtlpReceiver | None = None
        if sidecar.engine_spans:
            self.join, self.intake = _engine_spans(spec, self.traces)
        self.inbox = RecordReceiver(
            self.series,
            self.log,
            lambda: self.engines.revision,
            None if self.traces is None else self.traces.add,
            self.join,
            answered=self.engines.observe_fingerprint,
        )

    def collect(self) -> Iterator[Metric | Accumulator]:
        """All families of the sidecar."""
        yield from self.series.collect(time.monotonic())
        yield from self.engines.collect()
        yield gauge(signals.SIDECAR_BUILD, [((version("vllm-slo"),), 1.0)])
        before, since = self._config.restarts, self.inbox.restarts
        yield counter(
            signals.SIDECAR_RESTARTS,
            [((process,), float(count + since.get(process, 0))) for process, count in before.items()],
        )
        lost = self.inbox.lost
        yield counter(
            signals.SIDECAR_LOST,
            [((process,), float(lost.get(process, 0))) for process in before if process != self._config.process],
        )
        costs = [(process, snapshot.footprint) for process, snapshot in self.series.snapshots().items()]
        known = [((process,), cost) for process, cost in (*costs, (self._config.process, footprint())) if cost]
        yield counter(signals.SIDECAR_CPU, [(labels, cost.cpu) for labels, cost in known])
        memory = [(labels, float(cost.memory)) for labels, cost in known if cost.memory is not None]
        yield gauge(signals.SIDECAR_MEMORY, memory)
        yield counter(signals.SIDECAR_LOG_ERRORS, [((), float(self.inbox.log_errors))])
        if self._certificate_expiry is not None:
            yield gauge(signals.SIDECAR_CERTIFICATE_EXPIRY, [((), self._certificate_expiry)])
        if (roofline := self._config.sidecar.roofline) is not None:
            yield gauge(signals.ROOFLINE_PREFILL, [((), roofline.prefill)])
            yield gauge(signals.ROOFLINE_DECODE, [((str(n),), rate) for n, rate in roofline.decode.items()])
            yield gauge(signals.ROOFLINE_KV_TOKENS, [((), float(roofline.kv_tokens))])
        for spans in (self.traces, self.join, self.intake):
            if spans is not None:
                yield from spans.collect()

    def reload(self) -> None:
        """Follow what has changed on disk."""
        self.reopen_log()
        self.read_files()

    def read_files(self) -> None:
        """Take who may see the pages, and when the certificate ends; what is wrong is said and changes nothing."""
        for secrets in (self.credentials, self.admin):
            if secrets is not None:
                try:
                    secrets.read()
                except UsageError as error:
                    print(f"exporter: {error}; nothing of this file is used", file=sys.stderr, flush=True)
        if self._config.sidecar.certificate is not None:
            with contextlib.suppress(UsageError):  # said by the relays
                self._certificate_expiry = self._config.sidecar.certificate.check()

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
    from exporters.sidecar.tracing.span_exporter import traces  # noqa: PLC0415 - the SDK and gRPC, for those who trace only

    return traces(config.otlp, config.upstream, pass_on=bool(config.engine_spans))


def _engine_spans(spec: slos.SloFile, traces: "Traces | None") -> "tuple[SpanJoin, OtlpReceiver]":
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else its core has a line for each peer that talks nonsense
    from exporters.sidecar.tracing.otlp_receiver import OtlpReceiver  # noqa: PLC0415
    from exporters.sidecar.tracing.span_join import SpanJoin  # noqa: PLC0415 - as above

    pass_on = None if traces is None else traces.pass_on
    join = SpanJoin(spec, pass_on)
    return join, OtlpReceiver(lambda span: join.span(span, time.monotonic()), pass_on)


async def _settle(inbox: RecordReceiver) -> None:
    while True:
        await asyncio.sleep(SETTLE_SECONDS)
        inbox.clock()


async def serve(config: ChildConfig) -> None:
    """Run until SIGTERM; SIGHUP reopens the request log and reads certificate and credentials again."""
    loop = asyncio.get_running_loop()
    exporter = Exporter(config)
    stop = stop_event(loop)
    loop.add_signal_handler(signal.SIGHUP, exporter.reload)  # also without such files: unhandled, it would kill
    pages_fd, records_fd = config.socket_fds
    records = await loop.create_unix_server(
        lambda: RelayConnection(exporter.inbox), sock=socket.socket(fileno=records_fd)
    )
    pages = application(exporter.collect, exporter.why_not_ready, exporter.credentials, exporter.admin)
    runner = web.AppRunner(pages, access_log=None)
    await runner.setup()
    await web.SockSite(runner, socket.socket(fileno=pages_fd)).start()
    if exporter.intake is not None:
        await exporter.intake.listen(config.sidecar.engine_spans)
    page(exporter.collect(), "")  # the first page takes 30 times as long as the next: not while there is traffic
    collect_seldom()
    scraping, settling = loop.create_task(exporter.engines.run()), loop.create_task(_settle(exporter.inbox))
    await stop.wait()
    # Told to stop all at once, by systemd or by the supervisor's death, the relays still have records to hand over.
    until = loop.time() + config.sidecar.drain + RELAYS_PATIENCE
    while exporter.inbox.connected and loop.time() < until:
        await asyncio.sleep(0.02)
    scraping.cancel()
    settling.cancel()
    records.close()
    await runner.cleanup()
    if exporter.intake is not None:
        await exporter.intake.close()
    exporter.inbox.close()
    if exporter.log is not None:
        exporter.log.close()
    if exporter.traces is not None:
        exporter.traces.close()


def main() -> int:
    os.nice(NICENESS)
    try:
        asyncio.run(serve(read_child_config()))
    except UsageError as error:  # a file was right when the sidecar started, and is wrong at this restart
        print(f"exporter: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
