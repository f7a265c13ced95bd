"""OTLP collectors over HTTP and gRPC."""

import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tests.support.web_server import served


@dataclass
class ReceivedSpans:
    """The requests that a collector has received."""

    url: str
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    deadlines: list[float | None] = field(default_factory=list)
    """Seconds that were left for each request when it arrived; only with gRPC."""
    refuse: bool = False

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def services(self) -> set[Any]:
        resources = [resource.resource for request in self.requests for resource in request.resource_spans]
        return {attributes(resource)["service.name"] for resource in resources}


def attributes(of: Any) -> dict[str, Any]:
    """The attributes of a received span or resource as plain values."""
    return {pair.key: _plain(pair.value) for pair in of.attributes}


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    assert kind is not None
    return [_plain(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@contextlib.asynccontextmanager
async def http_collector(port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[ReceivedSpans]:
    """OTLP over HTTP/protobuf."""

    async def take(request: web.Request) -> web.Response:
        if received.refuse:
            return web.Response(status=400)
        assert request.content_type == "application/x-protobuf"
        received.requests.append(ExportTraceServiceRequest.FromString(await request.read()))
        received.headers.append({name.lower(): value for name, value in request.headers.items()})
        return web.Response(
            body=ExportTraceServiceResponse().SerializeToString(), content_type="application/x-protobuf"
        )

    app = web.Application()
    app.add_routes([web.post("/v1/traces", take)])
    async with served(app, port, tls) as url:
        received = ReceivedSpans(url)
        yield received


class _Servicer(TraceServiceServicer):
    def __init__(self, received: ReceivedSpans) -> None:
        self._received = received

    def Export(self, request: ExportTraceServiceRequest, context: grpc.ServicerContext) -> ExportTraceServiceResponse:  # noqa: N802 - the name in the service
        self._received.headers.append(dict(context.invocation_metadata()))
        self._received.deadlines.append(context.time_remaining())
        self._received.requests.append(request)
        return ExportTraceServiceResponse()


@contextlib.contextmanager
def grpc_receiver(port: int = 0, tls: grpc.ServerCredentials | None = None) -> Iterator[ReceivedSpans]:
    """OTLP over gRPC, in separate threads."""
    server = grpc.server(ThreadPoolExecutor(2))
    address = f"127.0.0.1:{port}"
    bound = server.add_insecure_port(address) if tls is None else server.add_secure_port(address, tls)
    received = ReceivedSpans(f"{'grpc' if tls is None else 'grpcs'}://127.0.0.1:{bound}")
    add_TraceServiceServicer_to_server(_Servicer(received), server)  # type: ignore[no-untyped-call]  # generated code
    server.start()
    try:
        yield received
    finally:
        server.stop(None).wait()


@contextlib.asynccontextmanager
async def grpc_collector(port: int = 0) -> AsyncIterator[ReceivedSpans]:
    """The same for tests that run in an event loop."""
    with grpc_receiver(port) as received:
        yield received


def parent_in(headers: dict[str, str]) -> tuple[str, str, bool]:
    """Trace id, span id and sampled flag in the headers of a request, parsed by the propagator that vLLM uses."""
    context = get_current_span(TraceContextTextMapPropagator().extract(headers)).get_span_context()
    return f"{context.trace_id:032x}", f"{context.span_id:016x}", context.trace_flags.sampled
