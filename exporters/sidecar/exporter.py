"""The exporter process: runs everything that may be slow, because a slow scrape must not delay streams."""

import asyncio
import logging
import os
import socket
import ssl
import sys
import time
from collections.abc import Coroutine, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from exporters.configuration.child import ChildConfig, Reload
from exporters.configuration.sidecar import LogContent, SidecarConfig, TlsPort
from exporters.engines.bearer_token import EngineToken
from exporters.engines.changes.store import ConfigChangeStore
from exporters.engines.condition.rule import State
from exporters.engines.group import EngineGroup
from exporters.engines.names import named_targets
from exporters.exposition.accumulators import Accumulator, counter, gauge
from exporters.processes.child import Orders, TaskErrors, collect_garbage_rarely, run_child
from exporters.processes.usage import footprint
from exporters.records.connection import RelayListener
from exporters.records.messages import Finished
from exporters.requestlog.standard_output import STANDARD_OUTPUT, StandardOutputLog
from exporters.requestlog.writer import RequestLog
from exporters.sidecar.drain_control import Drain
from exporters.sidecar.follow.access_lines import judged_by
from exporters.sidecar.follow.follower import LogFollower, absent, fields_of
from exporters.sidecar.http_api.admin import Admin
from exporters.sidecar.http_api.bounded_server import BoundedServer
from exporters.sidecar.http_api.credentials import Credentials
from exporters.sidecar.http_api.http_server import ENGINE_LIVEZ, application, exposition, log_no_malformed_requests
from exporters.sidecar.ingest.ledger import RequestLedger
from exporters.sidecar.ingest.receiver import RecordReceiver, RelayConnection
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.sidecar.threaded_loop import run_in_threaded_loop
from exporters.text.errors import UsageError
from exporters.text.names import MAX_UNIQUE_BYTES
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Endpoint, Outcome

if TYPE_CHECKING:  # only --otlp and --engine-spans load the SDK and gRPC
    from exporters.sidecar.tracing.engine_spans import Message
    from exporters.sidecar.tracing.otlp_receiver import OtlpReceiver
    from exporters.sidecar.tracing.span_exporter import SpanQueue
    from exporters.sidecar.tracing.span_join import SpanJoin


NICE_INCREMENT = 5
"""Gives the relay priority if it shares a core with the exporter."""

TIMEOUT_CHECK_SECONDS = 0.2
"""Interval of the checks for requests that have waited too long for their span."""

OBSERVATION_SECONDS = 1.0
"""Interval of the observations from which the state of an engine follows."""

DISCONNECT_TIMEOUT = 1.0
"""The maximum time that a stopping exporter waits for relays, which have exited unless the supervisor was killed."""

RESPONSE_TIMEOUT = 1.0
"""The maximum time that a stopping exporter waits for clients that read their response slowly."""

# Read once: an upgrade removes the metadata of the package while its sidecar serves.
_VERSION = version("vllm-slo")

_WITH_FINGERPRINT = (Endpoint.CHAT_COMPLETIONS, Endpoint.COMPLETIONS)
"""The APIs whose responses have `system_fingerprint`."""

logger = logging.getLogger("vllm_slo.exporter")


class Exporter:
    """Connects the record receiver, the engine scrapers and the metrics port."""

    def __init__(self, config: ChildConfig) -> None:
        sidecar = config.sidecar
        self._config = config
        self.drain = Drain(config.drain_began_at, config.relays_exited_at)
        self.task_errors = TaskErrors()
        self._slos = config.slos
        follow = sidecar.follow
        self._fields = None if follow is None else fields_of(follow)
        judged = judged_by(self._fields, self._slos.file)
        self.request_metrics = RequestMetrics(
            judged,
            sidecar.max_models,
            hashes_prompts=sidecar.log_content is not LogContent.OFF,
            absent=() if follow is None else absent(self._fields),
        )
        self._logged_model_limit = False
        self._add_models(sidecar.models)
        tls = sidecar.trust.context()
        engines = named_targets(sidecar.upstream, sidecar.engine_metrics, sidecar.engine_names)
        store = ConfigChangeStore(Path(sidecar.state)) if sidecar.state else None
        self.engine_token = EngineToken(sidecar.engine_token_file) if sidecar.engine_token_file else None
        interval = self._slos.file.scrape_interval
        self.engines = EngineGroup(
            engines,
            interval,
            self._add_models,
            tls,
            store,
            self.engine_token,
            sees_responses=follow is None,
            probes=sidecar.probe,
        )
        self.engines.use(self._slos.file)
        self.credentials = Credentials(sidecar.metrics_auth_file) if sidecar.metrics_auth_file else None
        self.admin: Admin | None = None
        if sidecar.admin_token_file:
            self.admin = Admin(
                self.engines, self.drain, lambda: self.record_receiver.cut_requests, sidecar.admin_token_file
            )
        self.server: BoundedServer | None = None
        self._tls = config.tls
        self.tls_context: ssl.SSLContext | None = None
        if config.tls is not None and sidecar.tls_port is not TlsPort.CLIENTS:
            self.tls_context = config.tls.certificate.context()
        self.read_files()
        self.request_log = _request_log(sidecar)
        self.span_queue = _span_queue(sidecar)
        self.span_join: SpanJoin | None = None
        self.otlp_receiver: OtlpReceiver[Message] | None = None
        if sidecar.engine_spans:
            self.span_join, self.otlp_receiver = _engine_span_receiver(self.span_queue, sidecar)
        log = self.request_log
        self.ledger = RequestLedger(
            Path(config.journals) if config.journals else None,
            lambda run_id: 0 if log is None else log.last_numbers.get(run_id, 0),
            self.task_errors,
        )
        self.record_receiver = RecordReceiver(
            self.request_metrics,
            self.request_log,
            lambda: self.engines.revision,
            None if self.span_queue is None else self.span_queue.add,
            self.span_join,
            on_response=self._observe_response,
            task_errors=self.task_errors,
            ledger=self.ledger,
            restarts=config.restarts,
        )
        self.log_follower: LogFollower | None = None
        if follow is not None:
            self.log_follower = LogFollower(
                follow,
                judged,
                self.request_metrics,
                self.task_errors,
                fields=self._fields,
                allow_paths=sidecar.allow_paths,
                may_read=self._models_requested,
            )

    def collect(self) -> Iterator[Metric | Accumulator]:
        """All metric families of the sidecar."""
        yield from self.request_metrics.collect(time.monotonic())
        yield from self.engines.collect()
        yield gauge(signals.SIDECAR_MODELS_OVER_LIMIT, [((), float(len(self._models_over_limit())))])
        yield gauge(signals.SIDECAR_BUILD, [((_VERSION,), 1.0)])
        restarts = self.record_receiver.restarts
        yield counter(signals.SIDECAR_RESTARTS, [((process,), float(count)) for process, count in restarts.items()])
        footprints = {process: snapshot.footprint for process, snapshot in self.request_metrics.snapshots().items()}
        footprints[self._config.process] = footprint()
        reported = [((process,), usage) for process, usage in footprints.items() if usage is not None]
        yield counter(signals.SIDECAR_CPU, [(labels, usage.cpu) for labels, usage in reported])
        memory = [(labels, float(usage.memory)) for labels, usage in reported if usage.memory is not None]
        yield gauge(signals.SIDECAR_MEMORY, memory)
        ports = (self.server, self.otlp_receiver)
        closed = sum(port.closed_connections for port in ports if port is not None)
        yield counter(signals.SIDECAR_CLOSED_CONNECTIONS, [((), float(closed))])
        errors = {process: snapshot.task_errors for process, snapshot in self.request_metrics.snapshots().items()}
        errors[self._config.process] = self.task_errors.count
        yield counter(signals.SIDECAR_TASK_ERRORS, [((process,), float(count)) for process, count in errors.items()])
        yield gauge(signals.SIDECAR_RELOAD_SUCCESSFUL, [((), float(self._slos.last_reload_successful))])
        yield gauge(signals.SIDECAR_RELOAD_TIME, [((), self._slos.read_at)])
        if self.log_follower is not None:
            yield from self.log_follower.collect()
        else:
            yield counter(signals.SIDECAR_LOG_ERRORS, [((), float(self.record_receiver.log_errors))])
            yield from self.ledger.collect()
        if self._tls is not None:
            yield gauge(signals.SIDECAR_CERTIFICATE_EXPIRY, [((), self._tls.certificate.expiry)])
            yield gauge(signals.SIDECAR_CERTIFICATE_RELOAD, [((), float(self._tls.last_reload_successful))])
        if (roofline := self._config.sidecar.roofline) is not None:
            yield gauge(signals.ROOFLINE_PREFILL, [((), roofline.prefill)])
            yield gauge(signals.ROOFLINE_DECODE, [((str(n),), rate) for n, rate in roofline.decode.items()])
            yield gauge(signals.ROOFLINE_KV_TOKENS, [((), float(roofline.kv_tokens))])
            running = self.engines.running()
            yield gauge(signals.ROOFLINE_RUNNING, [((name,), roofline.decode_of(n)) for name, n in running.items()])
        for part in (self.span_queue, self.span_join, self.otlp_receiver):
            if part is not None:
                yield from part.collect()

    def periodic_tasks(self) -> list[Coroutine[None, None, None]]:
        """Tasks that run until they are cancelled."""
        keep_running = self.task_errors.keep_running
        tasks = [
            self.engines.run(partial(keep_running, "scraping an engine")),
            keep_running("checking timeouts", partial(_check_timeouts, self.record_receiver)),
            keep_running("observing the engines", self._observe_engines),
        ]
        if self.log_follower is not None:
            tasks.append(keep_running("following the log", self.log_follower.run))
        return tasks

    async def _observe_engines(self) -> None:
        while True:
            await asyncio.sleep(OBSERVATION_SECONDS)
            snapshots = self.request_metrics.snapshots().values()
            self.engines.observe([snapshot.waits for snapshot in snapshots], time.monotonic())

    def reload(self, reload: Reload) -> None:
        """Read all files again and use the SLO file."""
        self.read_files()
        slos = self._slos = reload.slos
        self._tls = reload.tls
        if self._tls is not None and self.tls_context is not None:
            self._tls.certificate.load_into(self.tls_context)
        judged = judged_by(self._fields, slos.file)
        self.request_metrics.use(judged)
        if self.log_follower is not None:
            self.log_follower.use(judged)
        self.engines.use(slos.file)

    def read_files(self) -> None:
        """Read credentials and tokens; an invalid file is logged and ignored."""
        for secrets in (self.credentials, self.admin, self.engine_token):
            if secrets is not None:
                try:
                    secrets.read()
                except UsageError as error:
                    logger.error("%s; ignoring this file", error)  # noqa: TRY400 - the message suffices

    def why_not_ready(self) -> str | None:
        """The reason to send no traffic to this sidecar. A down engine is none: the relay responds with status 502."""
        if self.drain.begun or any(snapshot.draining for snapshot in self.request_metrics.snapshots().values()):
            return "draining"
        if self.log_follower is not None:
            return self.log_follower.problem
        workers = self._config.sidecar.workers
        connected = len(self.record_receiver.connected)
        return None if connected >= workers else f"{connected} of {workers} relays are connected"

    def probe_engines(self, path: str) -> tuple[bool, str]:
        """Whether a probe of the engines succeeds, and the state of each with its evidence."""
        now, sidecar = time.monotonic(), self._config.sidecar
        text = "".join(each.line(now) for each in self.engines.conditions)
        if path == ENGINE_LIVEZ:
            succeeds = all(each.failing_for(now) < sidecar.wedged_after for each in self.engines.conditions)
        else:
            ready = {State.SERVING} if sidecar.unready_when_saturated else {State.SERVING, State.SATURATED}
            succeeds = all(each.condition.state in ready for each in self.engines.conditions)
            cold = [each.name for each in self.engines.conditions if sidecar.ready_when_warm and not each.warmth.warm]
            succeeds = succeeds and not cold
            text += "".join(f"{name} is not warm: vllm-slo load warm-up --ready has not reported it\n" for name in cold)
        return succeeds, text

    def _observe_response(self, record: Finished) -> None:
        """Report to the engines the fingerprint of a response, or that a complete one has none."""
        ended_at = record.time + record.e2e
        if record.system_fingerprint is not None:
            self.engines.observe_fingerprint(record.system_fingerprint, ended_at)
        elif record.outcome is Outcome.OK:
            was_read = record.completion_tokens is not None
            self.engines.observe_no_fingerprint(ended_at, certain=was_read and record.api in _WITH_FINGERPRINT)

    def _models_requested(self) -> bool:
        """Whether each engine was scraped, so that its models are label values, or could not be scraped."""
        return all(state.up or any(state.errors.values()) for state in self.engines.states)

    def _add_models(self, models: tuple[str, ...]) -> None:
        for model in models:
            self.request_metrics.add_model(model)
        over = {model for model in models if not self.request_metrics.has_model(model)}
        if over and not self._logged_model_limit:
            self._logged_model_limit = True
            logger.warning(
                "%d models count as `other`, because --max-models is %d or their names are longer than %d bytes",
                len(over),
                self._config.sidecar.max_models,
                MAX_UNIQUE_BYTES,
            )

    def _models_over_limit(self) -> set[str]:
        """The models of `--model` and of the last responses of the engines that are not label values."""
        listed = {*self._config.sidecar.models, *(model for state in self.engines.states for model in state.models)}
        return {model for model in listed if not self.request_metrics.has_model(model)}


def _request_log(config: SidecarConfig) -> RequestLog | StandardOutputLog | None:
    if config.request_log is None:
        return None
    if config.request_log == STANDARD_OUTPUT:
        return StandardOutputLog()
    return RequestLog(
        Path(config.request_log), limits=config.log_rotation, private=config.log_content is LogContent.FULL
    )


def _span_queue(config: SidecarConfig) -> "SpanQueue | None":
    if config.otlp is None:
        return None
    from exporters.sidecar.tracing.span_exporter import span_queue  # noqa: PLC0415 - see TYPE_CHECKING

    try:
        return span_queue(config.otlp, config.upstream, forward=bool(config.engine_spans))
    except RuntimeError as error:
        logger.error("no spans are exported: %s", error)  # noqa: TRY400 - the message suffices
        return None


def _engine_span_receiver(
    span_queue: "SpanQueue | None", config: SidecarConfig
) -> "tuple[SpanJoin, OtlpReceiver[Message]]":
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else its core logs each peer that does not use gRPC
    from exporters.sidecar.tracing.otlp_receiver import engine_span_receiver  # noqa: PLC0415 - see TYPE_CHECKING
    from exporters.sidecar.tracing.span_join import SpanJoin  # noqa: PLC0415 - see TYPE_CHECKING

    forward = None if span_queue is None else span_queue.forward
    span_join = SpanJoin(forward, 1.0 if config.otlp is None else config.otlp.good_share)
    return span_join, engine_span_receiver(lambda span: span_join.add_span(span, time.monotonic()), forward)


async def _check_timeouts(record_receiver: RecordReceiver) -> None:
    while True:
        await asyncio.sleep(TIMEOUT_CHECK_SECONDS)
        record_receiver.check_timeouts()


async def _count_last_requests(exporter: Exporter) -> None:
    """Count the requests that wait for a span after all relays have exited; then the counts are final."""
    await exporter.drain.relays_exited()
    while exporter.record_receiver.connected:
        await asyncio.sleep(0.02)
    if exporter.span_join is not None:
        exporter.span_join.release_requests()
    exporter.record_receiver.check_timeouts()
    if exporter.log_follower is not None:
        await exporter.log_follower.stop()
    exporter.drain.end()


async def serve(config: ChildConfig) -> None:
    """Run until the supervisor stops this process."""
    loop = asyncio.get_running_loop()
    exporter = Exporter(config)
    orders = Orders(loop, exporter.reload)
    metrics, relays, drain_control = (socket.socket(fileno=fd) for fd in config.socket_fds)
    exporter.drain.connect(drain_control, loop)
    relay_listener = RelayListener(relays, lambda: RelayConnection(exporter.record_receiver), loop)
    app = application(
        exporter.collect,
        exporter.why_not_ready,
        exporter.credentials,
        exporter.admin,
        drain=exporter.drain,
        scraped=exporter.ledger.scraped,
        probe=exporter.probe_engines,
    )
    log_no_malformed_requests()
    exporter.server = BoundedServer(app, shutdown_timeout=RESPONSE_TIMEOUT)
    await exporter.server.start(sock=metrics, ssl=exporter.tls_context)
    if exporter.otlp_receiver is not None:
        await exporter.otlp_receiver.listen(config.sidecar.engine_spans)
    exposition(exporter.collect(), "")  # the first exposition takes 30 times as long; do it before there is traffic
    collect_garbage_rarely()
    tasks = [loop.create_task(task) for task in (*exporter.periodic_tasks(), _count_last_requests(exporter))]
    await orders.stop.wait()
    exporter.drain.begin()
    until = loop.time() + DISCONNECT_TIMEOUT
    while exporter.record_receiver.connected and loop.time() < until:
        await asyncio.sleep(0.02)
    if exporter.log_follower is not None:
        await exporter.log_follower.stop()
    exporter.drain.end()
    for task in tasks:
        task.cancel()
    relay_listener.close()
    exporter.record_receiver.close()
    if exporter.request_log is not None:
        exporter.request_log.close()
    await exporter.server.close()
    if exporter.otlp_receiver is not None:
        await exporter.otlp_receiver.close()
    exporter.ledger.close()
    if exporter.span_queue is not None:
        exporter.span_queue.close()


if __name__ == "__main__":
    os.nice(NICE_INCREMENT)
    sys.exit(run_child(serve, run_in_threaded_loop))
