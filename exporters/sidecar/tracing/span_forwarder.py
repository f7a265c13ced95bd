"""Forwards OTLP messages of the engine to the collector unchanged, without blocking the caller."""

import gzip
import logging
import threading
import urllib.request
from collections import deque
from collections.abc import Callable

from exporters.configuration.otlp_endpoints import Collector

MAX_QUEUED_SPANS = 8192
MAX_QUEUED_BYTES = 32 * 1024 * 1024
BATCH_SPANS = 512
BATCH_BYTES = 1024 * 1024
BATCH_SECONDS = 1.0

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
"""The gRPC method of the OTLP trace service."""

Send = Callable[[bytes], None]

logger = logging.getLogger("vllm_slo.traces")


class DeliveryCounters:
    """Counts accepted and failed spans, and logs when the collector fails and recovers; thread-safe."""

    def __init__(self, collector: str) -> None:
        self._collector = collector
        self._lock = threading.Lock()
        self._dropped = 0  # since the collector last accepted a message
        self.exported = 0
        self.failed = 0

    def count_exported(self, spans: int) -> None:
        with self._lock:
            if self._dropped:
                logger.info("%s accepts spans again; %d were dropped", self._collector, self._dropped)
                self._dropped = 0
            self.exported += spans

    def count_failed(self, spans: int, reason: str) -> None:
        with self._lock:
            if not self._dropped:
                logger.warning(
                    "%s does not accept spans; dropping them: %s",
                    self._collector,
                    reason[:300] or "no reason given",
                )
            self._dropped += spans
            self.failed += spans


class SpanForwarder:
    """A bounded queue of OTLP messages and the thread that sends them."""

    def __init__(self, send: Send, counters: DeliveryCounters, *, max_spans: int = MAX_QUEUED_SPANS) -> None:
        self._send = send
        self._counters = counters
        self._max_spans = max_spans
        self._queue: deque[tuple[bytes, int]] = deque()
        self._spans = 0
        self._bytes = 0
        self._changed = threading.Condition()
        self._closing = False
        self.accepted = 0
        self.queue_full = 0
        self._thread = threading.Thread(target=self._run, daemon=True)  # a slow collector must not delay the exit
        self._thread.start()

    def add(self, message: bytes, count: int) -> None:
        """Queue a message with `count` spans; an empty queue accepts a message of any size."""
        with self._changed:
            if self._queue and (self._spans + count > self._max_spans or self._bytes + len(message) > MAX_QUEUED_BYTES):
                self.queue_full += count
                return
            self.accepted += count
            self._queue.append((message, count))
            self._spans += count
            self._bytes += len(message)
            self._changed.notify()

    def close(self, timeout: float) -> None:
        """Send all queued messages; wait up to `timeout` seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing)
                if not self._queue:
                    return
                self._changed.wait_for(lambda: self._spans >= BATCH_SPANS or self._closing, BATCH_SECONDS)
                message, count = self._next_batch()
            try:
                self._send(message)
            except Exception as error:  # noqa: BLE001 - any failure only loses these spans
                self._counters.count_failed(count, str(error) or type(error).__name__)
            else:
                self._counters.count_exported(count)

    def _next_batch(self) -> tuple[bytes, int]:
        messages: list[bytes] = []
        spans = size = 0
        while self._queue:
            message, count = self._queue[0]
            if messages and (spans + count > BATCH_SPANS or size + len(message) > BATCH_BYTES):
                break
            self._queue.popleft()
            messages.append(message)
            spans += count
            size += len(message)
        self._spans -= spans
        self._bytes -= size
        return b"".join(messages), spans  # concatenated protobuf messages merge their repeated fields


def sender(collector: Collector) -> Send:
    """A function that sends an OTLP message by the protocol of the URL; it raises an exception if it fails."""
    scheme, _, rest = collector.url.partition("://")
    if scheme.startswith("grpc"):
        return _grpc_sender(rest, collector, tls=scheme == "grpcs")
    context = collector.tls.context() if scheme == "https" else None
    headers = {"content-type": "application/x-protobuf", **collector.headers}
    if collector.gzip:
        headers["content-encoding"] = "gzip"

    def send(message: bytes) -> None:
        body = gzip.compress(message) if collector.gzip else message
        request = urllib.request.Request(collector.url, body, headers)  # noqa: S310 - http or https
        with urllib.request.urlopen(request, timeout=collector.timeout, context=context):  # noqa: S310
            pass

    return send


def _grpc_sender(target: str, collector: Collector, *, tls: bool) -> Send:
    import grpc  # noqa: PLC0415 - loaded only where it is used

    if tls:
        channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(*collector.tls.contents()))
    else:
        channel = grpc.insecure_channel(target)
    export = channel.unary_unary(EXPORT)
    metadata = tuple(collector.headers.items())
    compression = grpc.Compression.Gzip if collector.gzip else None

    def send(message: bytes) -> None:
        try:
            export(message, timeout=collector.timeout, metadata=metadata, compression=compression)
        except grpc.RpcError as error:
            # Its own text has several lines.
            raise ConnectionError(f"{error.code().name}: {error.details()}") from error

    return send
