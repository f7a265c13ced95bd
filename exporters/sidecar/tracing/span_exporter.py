"""Sends spans to a collector without ever waiting for it: what it does not take is dropped and counted."""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from prometheus_client.core import Metric

from exporters import signals
from exporters.configuration.origin import origin
from exporters.configuration.otlp_endpoints import Collector
from exporters.exposition.accumulators import counter
from exporters.records import Finished
from exporters.sidecar.tracing.request_spans import SpanMaker, resource
from exporters.sidecar.tracing.span_forwarder import (
    BATCH_SECONDS,
    BATCH_SPANS,
    QUEUED_SPANS,
    Fared,
    Send,
    SpanForwarder,
    sender,
)

EXPORT_SECONDS = 3.0
"""One batch, with all retries, takes no longer than this; the same again is the most that a shutdown waits."""


class _Said(logging.Handler):
    """Keeps the first thing that the SDK has to say about a batch, in place of a log full of it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or record.getMessage()


class _Counted(SpanExporter):
    """Tells what the collector takes of our own spans and what not; called in the SDK's own thread."""

    def __init__(self, inner: SpanExporter, said: _Said, fared: Fared) -> None:
        self._inner = inner
        self._said = said
        self._fared = fared
        self.begun = 0
        self.give_up_at = float("inf")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.begun += len(spans)
        result = SpanExportResult.FAILURE
        if time.monotonic() < self.give_up_at:
            self._said.first = ""
            try:
                result = self._inner.export(spans)
            except Exception as error:  # noqa: BLE001 - whatever it is, these spans are lost and that is all
                self._said.first = repr(error)
        if result is SpanExportResult.SUCCESS:
            self._fared.taken(len(spans))
        else:
            self._fared.lost(len(spans), self._said.first)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()


class Traces:
    """A bounded queue between the records and the collector; with `send` another one for spans that others made."""

    def __init__(
        self,
        maker: SpanMaker,
        exporter: SpanExporter,
        where: str,
        *,
        send: Send | None = None,
        queued: int = QUEUED_SPANS,
        batch: int = BATCH_SPANS,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._maker = maker
        self._limit = queued
        self._given = 0
        self._queue_full = 0
        self._say = say or _say
        self._faults = 0
        self._said = _Said()
        self._hush(hush=True)
        self._fared = Fared(where, self._say)
        self._counted = _Counted(exporter, self._said, self._fared)
        self._processor = BatchSpanProcessor(
            self._counted,
            max_queue_size=queued,
            max_export_batch_size=batch,
            schedule_delay_millis=BATCH_SECONDS * 1000,
        )
        self._passing = None if send is None else SpanForwarder(send, self._fared, queued=queued)

    def add(self, record: Finished) -> bool:
        """Queue the spans of one request, all or none; whether they are kept."""
        try:
            spans = self._maker.spans(record)
        except Exception as error:  # noqa: BLE001 - a fault here must never cost a record its acknowledgement
            if not self._faults:
                self._say(f"no span could be made: {error!r}")
            self._faults += 1
            return False
        # The SDK would drop silently: what is given and not yet begun is what it holds.
        if self._given - self._counted.begun + len(spans) > self._limit:
            self._queue_full += len(spans)
            return False
        self._given += len(spans)
        for span in spans:
            self._processor.on_end(span)
        return True

    def pass_on(self, message: bytes, count: int) -> None:
        """Queue so many spans of others, as an OTLP message."""
        if self._passing is not None:
            self._passing.add(message, count)

    def collect(self) -> Iterator[Metric]:
        """How the spans fared."""
        yield counter(signals.SIDECAR_EXPORTED_SPANS, [((), float(self._fared.exported))])
        queue_full = self._queue_full + (self._passing.queue_full if self._passing else 0)
        dropped = {"queue_full": queue_full, "export_failed": self._fared.failed, "fault": self._faults}
        yield counter(signals.SIDECAR_DROPPED_SPANS, [((reason,), float(n)) for reason, n in dropped.items()])

    def close(self, patience: float = EXPORT_SECONDS) -> None:
        """Send what is queued, waiting up to `patience` seconds."""
        give_up_at = self._counted.give_up_at = time.monotonic() + patience
        # The SDK's own shutdown waits half a minute; as a daemon it cannot keep the process.
        closing = threading.Thread(target=self._processor.shutdown, daemon=True)
        closing.start()
        given = self._given
        if self._passing is not None:
            self._passing.close(patience)
            given += self._passing.given
        closing.join(max(0.0, give_up_at - time.monotonic()))
        self._hush(hush=False)
        if unsent := given - self._fared.exported - self._fared.failed:
            self._say(f"{unsent} spans could not be sent within {patience:g} s")

    def _hush(self, *, hush: bool) -> None:
        log = logging.getLogger("opentelemetry")
        log.propagate = not hush
        if hush:
            log.addHandler(self._said)
        else:
            log.removeHandler(self._said)


def traces(collector: Collector, upstream: str, *, pass_on: bool) -> Traces:
    """Traces for requests to `upstream`, sent to `collector`; `pass_on`: with the engine's own spans."""
    ours, engine = version("vllm-slo"), origin(upstream)
    maker = SpanMaker(collector.semconv, resource(ours), ours, (engine.host, engine.port))
    return Traces(maker, exporter(collector), collector.url, send=sender(collector) if pass_on else None)


def exporter(collector: Collector) -> SpanExporter:
    """The SDK's exporter for the protocol that the address names; only that one is imported."""
    scheme, _, rest = collector.url.partition("://")
    if scheme.startswith("grpc"):
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else its core says by itself what `_Counted` says once
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc  # noqa: PLC0415

        tls = scheme == "grpcs"
        return Grpc(
            f"{'https' if tls else 'http'}://{rest}",
            insecure=not tls,
            headers=tuple(collector.headers.items()),
            timeout=EXPORT_SECONDS,
        )
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http  # noqa: PLC0415

    return Http(collector.url, headers=collector.headers, timeout=EXPORT_SECONDS)


def _say(message: str) -> None:
    print(f"exporter: traces: {message}", file=sys.stderr, flush=True)
