"""Receives OTLP over gRPC and HTTP/protobuf, with limits; parses in a thread to avoid delays of the event loop."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

import grpc
from aiohttp import web
from prometheus_client.core import Metric

from exporters.configuration.otlp_endpoints import TRACES_PATH, Receiver
from exporters.exposition.accumulators import counter
from exporters.processes.worker_threads import GRPC_THREADS, ThreadsRefusedError, WorkerThreads, require_threads
from exporters.records.messages import NOT_UNDERSTOOD, TOO_LARGE
from exporters.sidecar.http_api.bounded_server import IDLE_SECONDS, BoundedServer, process_connection_limit
from exporters.sidecar.tracing.engine_spans import (
    MESSAGE_BYTES,
    EngineSpan,
    Message,
    RefusedError,
    decompress,
    parse_message,
)
from exporters.text.errors import UsageError
from exporters.vocabulary import signals

MAX_CONCURRENT = 8
"""Limit of messages in progress; further messages are rejected as busy, and their senders retry."""

READ_TIMEOUT = 10.0
SPANS_PER_TURN = 500
"""Spans joined before the event loop runs other tasks."""

SERVICE, METHOD = "opentelemetry.proto.collector.trace.v1.TraceService", "Export"
PROTOBUF = "application/x-protobuf"

BUSY, CUT_OFF = "busy", "cut_off"
_STATUS = {
    BUSY: (503, grpc.StatusCode.UNAVAILABLE),
    CUT_OFF: (408, grpc.StatusCode.DEADLINE_EXCEEDED),
    NOT_UNDERSTOOD: (400, grpc.StatusCode.INVALID_ARGUMENT),
    TOO_LARGE: (413, grpc.StatusCode.RESOURCE_EXHAUSTED),
}

logger = logging.getLogger("vllm_slo.traces")

Closer = Callable[[], Awaitable[None]]
_T = TypeVar("_T")


def engine_span_receiver(
    on_engine_span: Callable[[EngineSpan], None], forward: Callable[[bytes, int], None] | None = None
) -> "OtlpReceiver[Message]":
    """A receiver that passes engine spans to `on_engine_span` and other spans to `forward`."""

    async def take(message: Message) -> None:
        for number, span in enumerate(message.engine_spans, 1):
            on_engine_span(span)
            if not number % SPANS_PER_TURN:
                await asyncio.sleep(0)
        if forward is not None and message.other_count:
            forward(message.other_spans, message.other_count)

    return OtlpReceiver(partial(parse_message, with_spans=forward is not None), take)


class OtlpReceiver(Generic[_T]):
    """Calls `parse` in a thread, with one message at a time, and `take` with its result in the event loop."""

    def __init__(self, parse: Callable[[bytes], _T], take: Callable[[_T], Awaitable[None]]) -> None:
        self._parse = parse
        self._take = take
        self._parser_thread = WorkerThreads(1, "parsing of spans")
        self._closers: list[Closer] = []
        self._servers: list[BoundedServer] = []
        self._in_progress = 0
        self._refused = dict.fromkeys(_STATUS, 0)

    async def listen(self, receivers: Iterable[Receiver]) -> None:
        """Listen on all receivers; raises UsageError if an address that was free at the start is in use."""
        for receiver in receivers:
            try:
                await (self._listen_grpc if receiver.grpc else self._listen_http)(receiver)
            except ThreadsRefusedError as error:
                logger.error("--engine-spans: no spans are received on %s: %s", receiver.address, error)  # noqa: TRY400 - the message suffices
            except (OSError, RuntimeError) as error:
                raise UsageError(
                    f"--engine-spans: cannot listen on {receiver.address}, which was free when the sidecar started"
                ) from error

    async def _listen_http(self, receiver: Receiver) -> None:
        app = web.Application(client_max_size=MESSAGE_BYTES)
        app.add_routes([web.post(TRACES_PATH, self.http)])
        # The receiver decompresses itself, so that it can stop at the size limit.
        server = BoundedServer(app, idle=IDLE_SECONDS, auto_decompress=False, shutdown_timeout=1.0)
        self._servers.append(server)
        self._closers.append(server.close)
        await server.start(host=receiver.host, port=receiver.port)

    async def _listen_grpc(self, receiver: Receiver) -> None:
        require_threads(GRPC_THREADS)
        options = [
            ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ("grpc.max_concurrent_streams", MAX_CONCURRENT),
            ("grpc.so_reuseport", 0),  # else a second sidecar could receive half of the spans
            ("grpc.server_handshake_timeout_ms", round(IDLE_SECONDS * 1000)),
            ("grpc.max_connection_idle_ms", round(IDLE_SECONDS * 1000)),
            ("grpc.max_allowed_incoming_connections", process_connection_limit()),
        ]
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=2 * MAX_CONCURRENT)
        handler = grpc.stream_unary_rpc_method_handler(self.grpc)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        self._closers.append(partial(server.stop, None))
        server.add_insecure_port(receiver.address)
        await server.start()

    @property
    def closed_connections(self) -> int:
        """Connections that were closed because of the limit; gRPC does not report those that it closes."""
        return sum(server.closed_connections for server in self._servers)

    async def close(self) -> None:
        while self._closers:  # a gRPC server must not outlive the loop
            await self._closers.pop()()
        self._parser_thread.shutdown(wait=False, cancel_futures=True)

    async def http(self, request: web.Request) -> web.Response:
        """Handle an HTTP/protobuf message."""
        try:
            with self._slot():
                data = await _http_message(request)
                encoding = request.headers.get("content-encoding", "").lower()
                await self._process(data, compressed=encoding in {"gzip", "x-gzip"})
        except RefusedError as refused:
            return web.Response(status=_STATUS[str(refused)][0], text=f"{refused}\n")
        return web.Response(content_type=PROTOBUF)

    async def grpc(self, _: object, context: Any) -> bytes:
        """Handle a gRPC message, declared as a stream so that it is not read before it has a slot."""
        try:
            with self._slot():
                await self._process(await _grpc_message(context), compressed=False)
        except RefusedError as refused:
            await context.abort(_STATUS[str(refused)][1], str(refused))
        return b""

    def collect(self) -> Iterator[Metric]:
        refused = (((reason,), float(n)) for reason, n in self._refused.items())
        yield counter(signals.SIDECAR_REFUSED_MESSAGES, refused)

    @contextlib.contextmanager
    def _slot(self) -> Iterator[None]:
        """Take one of MAX_CONCURRENT slots, and count a rejection; raises RefusedError if none is free."""
        if self._in_progress == MAX_CONCURRENT:
            self._refused[BUSY] += 1
            raise RefusedError(BUSY)
        self._in_progress += 1
        try:
            yield
        except RefusedError as refused:
            self._refused[str(refused)] += 1
            raise
        finally:
            self._in_progress -= 1

    async def _process(self, data: bytes, *, compressed: bool) -> None:
        def parse() -> _T:
            return self._parse(decompress(data) if compressed else data)

        await self._take(await asyncio.get_running_loop().run_in_executor(self._parser_thread, parse))


async def _http_message(request: web.Request) -> bytes:
    if request.content_type != PROTOBUF:
        raise RefusedError(NOT_UNDERSTOOD)
    if (request.content_length or 0) > MESSAGE_BYTES:
        raise RefusedError(TOO_LARGE)
    try:
        async with asyncio.timeout(READ_TIMEOUT):
            return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise RefusedError(TOO_LARGE) from error
    except (TimeoutError, ConnectionError, web.RequestPayloadError) as error:
        raise RefusedError(CUT_OFF) from error


async def _grpc_message(context: Any) -> bytes:
    try:
        async with asyncio.timeout(READ_TIMEOUT):
            data = await context.read()
    except TimeoutError as error:
        raise RefusedError(CUT_OFF) from error
    if not isinstance(data, bytes):  # gRPC has rejected it
        raise RefusedError(TOO_LARGE)
    return data
