"""Decides which traces are kept, and sends their spans to a collector without blocking; failed spans are counted."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from prometheus_client.core import Metric

from exporters.configuration.origin import origin
from exporters.configuration.otlp_endpoints import Collector
from exporters.configuration.trace_sampling import in_share
from exporters.exposition.accumulators import counter
from exporters.processes.worker_threads import GRPC_THREADS, require_threads
from exporters.records.messages import Finished
from exporters.sidecar.tracing.request_spans import SpanMaker, resource
from exporters.sidecar.tracing.span_forwarder import (
    BATCH_SECONDS,
    BATCH_SPANS,
    MAX_QUEUED_SPANS,
    DeliveryCounters,
    Send,
    SpanForwarder,
    sender,
)
from exporters.text.errors import type_and_place
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Outcome, Verdict
from exporters.vocabulary.verdicts import SERVER_FAULT

if TYPE_CHECKING:
    import requests

SHUTDOWN_TIMEOUT = 3.0
"""Seconds that a shutdown waits for the collector."""

_open_files = contextlib.ExitStack()
"""Files in memory that the SDK reads for each new connection."""

logger = logging.getLogger("vllm_slo.traces")


def _bad(record: Finished) -> bool:
    """Whether a verdict is bad, or the request failed or was rejected."""
    return (
        record.goodput is False
        or Verdict.BAD in record.slo.values()
        or record.outcome is Outcome.REJECTED
        or record.outcome in SERVER_FAULT
    )


def keeps(record: Finished, good_share: float) -> bool:
    """Whether the trace of the request is kept: bad ones always, good ones as the client sampled, else by share."""
    if record.trace_id is None or record.span_id is None:
        return False
    if _bad(record):
        return True
    return in_share(record.trace_id, good_share) if record.parent_sampled is None else record.parent_sampled


class _FirstMessage(logging.Handler):
    """Keeps only the first log message of the SDK for a batch."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = self.text or record.getMessage()


class _CountingExporter(SpanExporter):
    """Counts accepted and failed spans; the SDK calls it in its own thread."""

    def __init__(self, inner: SpanExporter, sdk_message: _FirstMessage, counters: DeliveryCounters) -> None:
        self._inner = inner
        self._sdk_message = sdk_message
        self._counters = counters
        self.started = 0
        self.deadline = float("inf")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.started += len(spans)
        result = SpanExportResult.FAILURE
        if time.monotonic() < self.deadline:
            self._sdk_message.text = ""
            try:
                result = self._inner.export(spans)
            except Exception as error:  # noqa: BLE001 - any failure only loses these spans
                self._sdk_message.text = repr(error)
        if result is SpanExportResult.SUCCESS:
            self._counters.count_exported(len(spans))
        else:
            self._counters.count_failed(len(spans), self._sdk_message.text)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()


class SpanQueue:
    """A bounded queue of spans for the collector; with `send` also a queue for the engine's spans."""

    def __init__(
        self,
        maker: SpanMaker,
        exporter: SpanExporter,
        collector: str,
        *,
        good_share: float = 1.0,
        send: Send | None = None,
        max_spans: int = MAX_QUEUED_SPANS,
        batch: int = BATCH_SPANS,
    ) -> None:
        self._maker = maker
        self._good_share = good_share
        self._max_spans = max_spans
        self._accepted = 0
        self._queue_full = 0
        self._faults = 0
        self._sdk_message = _FirstMessage()
        self._redirect_sdk_log()
        self._counters = DeliveryCounters(collector)
        self._exporter = _CountingExporter(exporter, self._sdk_message, self._counters)
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=max_spans,
            max_export_batch_size=batch,
            schedule_delay_millis=BATCH_SECONDS * 1000,
        )
        self._forwarder = None if send is None else SpanForwarder(send, self._counters, max_spans=max_spans)

    def add(self, record: Finished, config_revision: str | None = None) -> bool:
        """Queue all spans of one request or none; returns whether they are kept."""
        try:
            if not keeps(record, self._good_share):
                return False
            spans = self._maker.spans(record, config_revision)
        except Exception as error:  # noqa: BLE001 - the record must still be acknowledged
            if not self._faults:
                logger.warning("failed to create spans: %s", type_and_place(error))
            self._faults += 1
            return False
        # The SDK queues accepted spans until their export starts; if its queue is full, it drops spans silently.
        if self._accepted - self._exporter.started + len(spans) > self._max_spans:
            self._queue_full += len(spans)
            return False
        self._accepted += len(spans)
        for span in spans:
            self._processor.on_end(span)
        return True

    def forward(self, message: bytes, count: int) -> None:
        """Queue an OTLP message with `count` engine spans."""
        if self._forwarder is not None:
            self._forwarder.add(message, count)

    def collect(self) -> Iterator[Metric]:
        """Counters of exported and dropped spans."""
        yield counter(signals.SIDECAR_EXPORTED_SPANS, [((), float(self._counters.exported))])
        queue_full = self._queue_full + (self._forwarder.queue_full if self._forwarder else 0)
        dropped = {"queue_full": queue_full, "export_failed": self._counters.failed, "fault": self._faults}
        yield counter(signals.SIDECAR_DROPPED_SPANS, [((reason,), float(n)) for reason, n in dropped.items()])

    def close(self, timeout: float = SHUTDOWN_TIMEOUT) -> None:
        """Send all queued spans; wait up to `timeout` seconds."""
        deadline = self._exporter.deadline = time.monotonic() + timeout
        # The shutdown of the SDK may wait 30 s; in a daemon thread it cannot delay the exit.
        shut_down = cast("Callable[[], None]", self._processor.shutdown)
        shutdown = threading.Thread(target=shut_down, daemon=True)
        try:
            shutdown.start()
        except RuntimeError:  # the system refuses a thread
            shut_down()
        accepted = self._accepted
        if self._forwarder is not None:
            self._forwarder.close(timeout)
            accepted += self._forwarder.accepted
        if shutdown.ident is not None:
            shutdown.join(max(0.0, deadline - time.monotonic()))
        self._restore_sdk_log()
        if unsent := accepted - self._counters.exported - self._counters.failed:
            logger.warning("%d spans were not sent within %g s", unsent, timeout)

    def _redirect_sdk_log(self) -> None:
        log = logging.getLogger("opentelemetry")
        log.propagate = False
        log.addHandler(self._sdk_message)

    def _restore_sdk_log(self) -> None:
        log = logging.getLogger("opentelemetry")
        log.propagate = True
        log.removeHandler(self._sdk_message)


def span_queue(collector: Collector, upstream: str, *, forward: bool) -> SpanQueue:
    """A span queue for requests to `upstream`; `forward`: also for the engine's spans.

    Raises:
        RuntimeError: the system refuses a thread.
    """
    if collector.url.startswith("grpc"):
        require_threads(GRPC_THREADS)
    sidecar_version, engine = version("vllm-slo"), origin(upstream)
    maker = SpanMaker(collector.semconv, resource(sidecar_version), sidecar_version, (engine.host, engine.port))
    send = sender(collector) if forward else None
    return SpanQueue(maker, exporter(collector), collector.url, good_share=collector.good_share, send=send)


def exporter(collector: Collector) -> SpanExporter:
    """The SDK's exporter for the protocol of the URL; the other one is not imported."""
    scheme, _, rest = collector.url.partition("://")
    if scheme.startswith("grpc"):
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else its core logs each failure
        import grpc  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc  # noqa: PLC0415

        tls = scheme == "grpcs"
        return Grpc(
            f"{'https' if tls else 'http'}://{rest}",
            insecure=not tls,
            credentials=grpc.ssl_channel_credentials(*collector.tls.contents()) if tls else None,
            headers=tuple(collector.headers.items()),
            timeout=collector.timeout,
            compression=grpc.Compression.Gzip if collector.gzip else grpc.Compression.NoCompression,
        )
    from opentelemetry.exporter.otlp.proto.http import Compression  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http  # noqa: PLC0415

    return Http(
        collector.url,
        *collector.tls.paths(_open_files),
        headers=collector.headers,
        timeout=collector.timeout,
        compression=Compression.Gzip if collector.gzip else Compression.NoCompression,
        session=_session(),
    )


def _session() -> "requests.Session":
    """A session in which the authorities of the collector take precedence over REQUESTS_CA_BUNDLE."""
    import requests  # noqa: PLC0415 - loaded only where it is used

    class CollectorSession(requests.Session):
        def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
            return super().merge_environment_settings(url, proxies, stream, self.verify, cert)

    return CollectorSession()
