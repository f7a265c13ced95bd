"""Real OTLP receivers, an engine that keeps the heads it gets, and the sidecar as a process in front of it."""

import asyncio
import contextlib
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
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

from tests.support.ports import free_port
from tests.support.scripted_relay import DONE, END, SLOS, STREAM_HEAD, USAGE, chunk, content
from tests.support.waiting import HANG, until


@dataclass
class ReceivedSpans:
    """The requests that a receiver has got."""

    url: str
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
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
async def http_collector(port: int = 0) -> AsyncIterator[ReceivedSpans]:
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
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port or free_port())
    await site.start()
    received = ReceivedSpans(site.name)
    try:
        yield received
    finally:
        await runner.cleanup()


class _Servicer(TraceServiceServicer):
    def __init__(self, received: ReceivedSpans) -> None:
        self._received = received

    def Export(self, request: ExportTraceServiceRequest, context: grpc.ServicerContext) -> ExportTraceServiceResponse:  # noqa: N802 - the service's name for it
        self._received.requests.append(request)
        self._received.headers.append(dict(context.invocation_metadata()))
        return ExportTraceServiceResponse()


@contextlib.contextmanager
def grpc_receiver(port: int = 0) -> Iterator[ReceivedSpans]:
    """OTLP over gRPC, on threads of its own."""
    server = grpc.server(ThreadPoolExecutor(2))
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    received = ReceivedSpans(f"grpc://127.0.0.1:{bound}")
    add_TraceServiceServicer_to_server(_Servicer(received), server)  # type: ignore[no-untyped-call]  # generated code
    server.start()
    try:
        yield received
    finally:
        server.stop(None).wait()


@contextlib.asynccontextmanager
async def grpc_collector(port: int = 0) -> AsyncIterator[ReceivedSpans]:
    """The same beside tests that run on a loop."""
    with grpc_receiver(port) as received:
        yield received


@contextlib.asynccontextmanager
async def engine(usage: bytes = USAGE) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Answers completions with a stream, everything else with 404; the heads of the completions it has received."""
    heads: list[bytes] = []

    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if length := re.search(rb"content-length: (\d+)", head.lower()):
                    await reader.readexactly(int(length[1]))
                if b"/completions" in head.split(b"\r\n", 1)[0]:
                    heads.append(head)
                    writer.write(STREAM_HEAD + chunk(content("a")))
                    await asyncio.sleep(0.11)  # a decode that takes its time
                    writer.write(chunk(content("b", "stop")) + chunk(usage) + chunk(DONE) + END)
                else:
                    writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heads
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


def parent_in(head: bytes) -> tuple[str, str, bool]:
    """Trace id, span id and sampled flag of what the engine got, read by the propagator that vLLM reads it with."""
    lines = head.decode().split("\r\n")[1:]
    headers = {name: value for name, _, value in (line.partition(": ") for line in lines)}
    context = get_current_span(TraceContextTextMapPropagator().extract(headers)).get_span_context()
    return f"{context.trace_id:032x}", f"{context.span_id:016x}", context.trace_flags.sampled


@dataclass
class Sidecar:
    """The real sidecar, started as a user would."""

    process: asyncio.subprocess.Process
    port: int
    pages: int
    log: Path
    stderr: Path
    session: aiohttp.ClientSession

    async def ask(self, path: str = "/v1/chat/completions", **headers: str) -> str:
        body = {"model": "m", "stream": True, "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}
        async with self.session.post(f"http://127.0.0.1:{self.port}{path}", json=body, headers=headers) as answer:
            assert answer.status == 200
            return await answer.text()

    async def series(self) -> dict[str, float]:
        """The span counters."""
        async with self.session.get(f"http://127.0.0.1:{self.pages}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in lines)
            if name.startswith(("llm_sidecar_dropped_spans_total", "llm_sidecar_exported_spans_total"))
        }

    def log_lines(self) -> list[str]:
        """The lines of standard error as `LEVEL PROCESS: MESSAGE`, without their time."""
        return [line.partition(" ")[2] for line in self.stderr.read_text().splitlines()]

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    async def stop(self) -> float:
        """SIGTERM; how many seconds it took to end."""
        began = time.monotonic()
        self.process.terminate()
        async with asyncio.timeout(HANG):
            assert await self.process.wait() == 0
        seconds = time.monotonic() - began
        assert seconds < 30  # the drain, and the SDK's own shutdown, take 30 s at their longest
        return seconds


@contextlib.asynccontextmanager
async def sidecar(tmp_path: Path, upstream: int, *flags: str, **environment: str) -> AsyncIterator[Sidecar]:
    """`vllm-slo sidecar` in front of the engine on a port, ready to serve."""
    slos, log, stderr = tmp_path / "slos.yaml", tmp_path / "requests.jsonl", tmp_path / "stderr"
    slos.write_text(SLOS)
    port, pages = free_port(), free_port()
    arguments = {
        "--upstream": f"http://127.0.0.1:{upstream}",
        "--listen": f"127.0.0.1:{port}",
        "--metrics": f"127.0.0.1:{pages}",
        "--slos": str(slos),
        "--request-log": str(log),
    }
    own = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "VLLM_SLO_"))}
    with stderr.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from compose.cli import main; raise SystemExit(main())",
            "sidecar",
            *(word for pair in arguments.items() for word in pair),
            *flags,
            stderr=output,
            env=own | environment,
        )
    try:
        async with aiohttp.ClientSession() as session:
            running = Sidecar(process, port, pages, log, stderr, session)
            await until(lambda: _ready(session, pages) if process.returncode is None else True)
            assert process.returncode is None, stderr.read_text()
            yield running
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _ready(session: aiohttp.ClientSession, pages: int) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        async with session.get(f"http://127.0.0.1:{pages}/readyz") as answer:
            return answer.status == 200
    return False
