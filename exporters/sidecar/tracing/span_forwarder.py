"""Passes spans that others have made on to the collector, byte for byte, without ever waiting for it."""

import os
import ssl
import threading
import urllib.request
from collections import deque
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from exporters.configuration.otlp_endpoints import Collector

QUEUED_SPANS = 8192
QUEUED_BYTES = 32 * 1024 * 1024
BATCH_SPANS = 512
BATCH_BYTES = 1024 * 1024
BATCH_SECONDS = 1.0
SEND_SECONDS = 3.0

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
"""The one method of OTLP's trace service over gRPC."""

Send = Callable[[bytes], None]


class NotTakenError(Exception):
    """The collector did not take a message; the text says why."""


class Fared:
    """How spans fared with the collector, and one line per change of it; told by several threads."""

    def __init__(self, where: str, say: Callable[[str], None]) -> None:
        self._where = where
        self._say = say
        self._lock = threading.Lock()
        self._refused = 0  # since the collector last took something
        self.exported = 0
        self.failed = 0

    def taken(self, count: int) -> None:
        with self._lock:
            self.exported += count
            if self._refused:
                self._say(f"{self._where} takes spans again, after {self._refused} were dropped")
                self._refused = 0

    def lost(self, count: int, reason: str) -> None:
        with self._lock:
            self.failed += count
            if not self._refused:
                why = reason[:300] or "no reason given"
                self._say(f"{self._where} takes no spans, they are dropped and counted until it does: {why}")
            self._refused += count


class SpanForwarder:
    """A bounded queue of OTLP messages and the thread that sends them."""

    def __init__(self, send: Send, fared: Fared, *, queued: int = QUEUED_SPANS) -> None:
        self._send = send
        self._fared = fared
        self._limit = queued
        self._queue: deque[tuple[bytes, int]] = deque()
        self._spans = 0
        self._bytes = 0
        self._changed = threading.Condition()
        self._closing = False
        self.given = 0
        self.queue_full = 0
        self._thread = threading.Thread(target=self._run, daemon=True)  # a slow collector cannot keep the process
        self._thread.start()

    def add(self, message: bytes, count: int) -> None:
        """Queue a message of so many spans, all or none; one that is alone may be as large as it likes."""
        with self._changed:
            if self._queue and (self._spans + count > self._limit or self._bytes + len(message) > QUEUED_BYTES):
                self.queue_full += count
                return
            self.given += count
            self._queue.append((message, count))
            self._spans += count
            self._bytes += len(message)
            self._changed.notify()

    def close(self, patience: float) -> None:
        """Send what is queued, waiting up to `patience` seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(patience)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing)
                if not self._queue:
                    return
                self._changed.wait_for(lambda: self._spans >= BATCH_SPANS or self._closing, BATCH_SECONDS)
                message, count = self._batch()
            try:
                self._send(message)
            except NotTakenError as error:
                self._fared.lost(count, str(error))
            else:
                self._fared.taken(count)

    def _batch(self) -> tuple[bytes, int]:
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
        return b"".join(messages), spans  # protobuf: messages with nothing but lists, appended, are the lists appended


def sender(collector: Collector) -> Send:
    """Sends one OTLP message by the protocol that the address names, and raises `NotTakenError`."""
    scheme, _, rest = collector.url.partition("://")
    authority = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE") or os.environ.get(
        "OTEL_EXPORTER_OTLP_CERTIFICATE"
    )
    if scheme.startswith("grpc"):
        return _grpc_sender(rest, collector.headers, tls=scheme == "grpcs", authority=authority)
    context = ssl.create_default_context(cafile=authority) if scheme == "https" else None
    headers = {"content-type": "application/x-protobuf", **collector.headers}

    def send(message: bytes) -> None:
        request = urllib.request.Request(collector.url, message, headers)  # noqa: S310 - http or https, checked
        try:
            with urllib.request.urlopen(request, timeout=SEND_SECONDS, context=context):  # noqa: S310
                pass
        except (OSError, HTTPException) as error:
            raise NotTakenError(str(error)) from error

    return send


def _grpc_sender(target: str, headers: dict[str, str], *, tls: bool, authority: str | None) -> Send:
    import grpc  # noqa: PLC0415 - for those who use it only

    if tls:
        roots = None if authority is None else Path(authority).read_bytes()
        channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(roots))
    else:
        channel = grpc.insecure_channel(target)
    export = channel.unary_unary(EXPORT)
    metadata = tuple(headers.items())

    def send(message: bytes) -> None:
        try:
            export(message, timeout=SEND_SECONDS, metadata=metadata)
        except grpc.RpcError as error:
            raise NotTakenError(f"{error.code().name}: {error.details()}") from error

    return send
