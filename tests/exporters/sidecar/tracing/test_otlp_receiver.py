"""The OTLP receiver over real sockets: accepted and rejected messages, and its limits."""

import asyncio
import contextlib
import gzip
import io
import time
import traceback
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import grpc
import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import SpanContext

from exporters.configuration.otlp_endpoints import Collector, Receiver
from exporters.sidecar.http_api import bounded_server
from exporters.sidecar.tracing import otlp_receiver as receiver_module
from exporters.sidecar.tracing.engine_spans import MESSAGE_BYTES, EngineSpan, Message
from exporters.sidecar.tracing.otlp_receiver import MAX_CONCURRENT, METHOD, SERVICE, OtlpReceiver, engine_span_receiver
from exporters.sidecar.tracing.span_exporter import exporter
from exporters.text.errors import UsageError
from tests.support.engine_span_messages import loading, request_span, sent
from tests.support.ports import free_port
from tests.support.waiting import HANG, until

OURS = "00f067aa0ba902b7"
PROTOBUF = {"content-type": "application/x-protobuf"}


@dataclass
class Listening:
    """A listening receiver, a client for each protocol, and the received spans."""

    receiver: OtlpReceiver[Message]
    grpc_port: int
    url: str
    http_port: int
    session: aiohttp.ClientSession
    channel: grpc.aio.Channel
    spans: list[EngineSpan]
    others: list[tuple[bytes, int]]

    async def by_grpc(self, data: bytes) -> str:
        """Send a message; returns the name of the status."""
        try:
            assert await self.channel.unary_unary(f"/{SERVICE}/{METHOD}")(data) == b""
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
        return "OK"

    async def by_http(self, data: bytes, **headers: str) -> tuple[int, str]:
        """Post a message; returns status and body."""
        async with self.session.post(self.url, data=io.BytesIO(data), headers=PROTOBUF | headers) as response:
            return response.status, await response.text()

    def refused(self) -> dict[str, float]:
        (family,) = self.receiver.collect()
        return {sample.labels["reason"]: sample.value for sample in family.samples if sample.value}


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Listening]:
    spans: list[EngineSpan] = []
    others: list[tuple[bytes, int]] = []
    receiver = engine_span_receiver(spans.append, lambda message, count: others.append((message, count)))
    by_grpc, by_http = free_port(), free_port()
    await receiver.listen([Receiver(True, "127.0.0.1", by_grpc), Receiver(False, "127.0.0.1", by_http)])
    url = f"http://127.0.0.1:{by_http}/v1/traces"
    try:
        async with aiohttp.ClientSession() as session, grpc.aio.insecure_channel(f"127.0.0.1:{by_grpc}") as channel:
            yield Listening(receiver, by_grpc, url, by_http, session, channel, spans, others)
    finally:
        await receiver.close()


async def test_both_protocols_separate_engine_spans_from_others() -> None:
    async with opened() as listening:
        assert await listening.by_grpc(sent(request_span(OURS), loading())) == "OK"
        assert await listening.by_http(sent(request_span(OURS), loading())) == (200, "")
        packed = gzip.compress(sent(request_span(OURS)))
        for encoding in ("gzip", "GZip", "x-gzip"):
            assert await listening.by_http(packed, **{"content-encoding": encoding}) == (200, "")
        assert [span.parent for span in listening.spans] == [OURS] * 5
        assert listening.others == [(sent(loading()), 1)] * 2
        assert listening.refused() == {}


@pytest.mark.parametrize("scheme", ["grpc", "http"])
@pytest.mark.parametrize("packed", [True, False])
async def test_it_accepts_spans_from_the_exporters_that_vllm_uses(
    scheme: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if packed:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip")
    async with opened() as listening:
        where = listening.url if scheme == "http" else f"grpc://127.0.0.1:{listening.grpc_port}"
        vllm_exporter = exporter(Collector(url=where))
        context = SpanContext(int(OURS, 16), 7, is_remote=False)
        parent = SpanContext(int(OURS, 16), int(OURS, 16), is_remote=True)
        times = {"gen_ai.latency.time_in_queue": 0.5}
        span = ReadableSpan("llm_request", context, parent, Resource({}), times, start_time=1, end_time=2)
        assert await asyncio.to_thread(vllm_exporter.export, [span]) is SpanExportResult.SUCCESS
        await asyncio.to_thread(vllm_exporter.shutdown)
        assert [(each.parent, each.times.queue) for each in listening.spans] == [(OURS, 0.5)]


async def test_an_invalid_message_is_rejected_and_counted_by_reason() -> None:
    async with opened() as listening:
        assert await listening.by_grpc(b"\xff\xff\xff") == "INVALID_ARGUMENT"
        assert await listening.by_grpc(bytes(MESSAGE_BYTES + 1)) == "RESOURCE_EXHAUSTED"
        assert await listening.by_http(b"\xff\xff\xff") == (400, "not_understood\n")
        assert await listening.by_http(b"{}", **{"content-type": "application/json"}) == (400, "not_understood\n")
        assert await listening.by_http(b"plain", **{"content-encoding": "gzip"}) == (400, "not_understood\n")
        assert await listening.by_http(bytes(MESSAGE_BYTES + 1)) == (413, "too_large\n")
        assert listening.refused() == {"not_understood": 4, "too_large": 2}
        assert (listening.spans, listening.others) == ([], [])
        assert await listening.by_grpc(sent(request_span(OURS))) == "OK"


async def test_gzip_bombs_are_rejected_by_both_protocols() -> None:
    zeros = bytes(5 * MESSAGE_BYTES)
    async with opened() as listening:
        assert await listening.by_http(gzip.compress(zeros, 1), **{"content-encoding": "gzip"}) == (413, "too_large\n")
        export = listening.channel.unary_unary(f"/{SERVICE}/{METHOD}")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await export(zeros, compression=grpc.Compression.Gzip)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert listening.refused() == {"too_large": 2}


async def raw(port: int, data: bytes) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    await writer.drain()
    return writer


def beginning(length: int) -> bytes:
    """The start of a request without the rest of its body."""
    head = "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: "
    return f"{head}{length}\r\n\r\nabc".encode()


async def test_incomplete_messages_occupy_a_limited_number_of_slots_until_their_senders_disconnect() -> None:
    async with opened() as listening:
        writers = [await raw(listening.http_port, beginning(1000)) for _ in range(MAX_CONCURRENT)]
        await until(lambda: listening.receiver._in_progress == MAX_CONCURRENT)
        assert await listening.by_http(sent(request_span(OURS))) == (503, "busy\n")
        assert await listening.by_grpc(sent(request_span(OURS))) == "UNAVAILABLE"
        for writer in writers:
            writer.close()
        await until(lambda: listening.refused() == {"busy": 2, "cut_off": MAX_CONCURRENT})
        assert await listening.by_http(sent(request_span(OURS))) == (200, "")


@pytest.mark.slow
async def test_an_incomplete_message_occupies_its_slot_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_module, "READ_TIMEOUT", 0.05)
    async with opened() as listening:
        writer = await raw(listening.http_port, beginning(1000))
        await until(lambda: listening.refused() == {"cut_off": 1})
        writer.close()


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(PREFACE[:10], id="a part of the preface"),
        pytest.param(PREFACE, id="no message"),
        pytest.param(PREFACE + b"\x00\x00\x50\x01\x04\x00\x00\x00\x01\x83", id="a part of a head"),
    ],
)
async def test_a_sender_by_grpc_that_sends_no_message_is_disconnected(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By HTTP, it is a client of a `BoundedServer`."""
    monkeypatch.setattr(receiver_module, "IDLE_SECONDS", 0.1)
    async with opened() as listening:
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.grpc_port)
        writer.write(data)
        async with asyncio.timeout(HANG):
            await _ended(reader)
        writer.close()


@pytest.mark.parametrize("by_grpc", [True, False])
async def test_a_port_has_a_limit_of_connections(by_grpc: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_server, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(bounded_server, "LEAST_CONNECTIONS", 3)
    async with opened() as listening:
        port = listening.grpc_port if by_grpc else listening.http_port
        senders = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        ends = [asyncio.create_task(_ended(reader)) for reader, _ in senders]
        await until(lambda: sum(end.done() for end in ends) == 7)
        assert listening.receiver.closed_connections == (0 if by_grpc else 7)
        for _, writer in senders:
            writer.transport.abort()
        await asyncio.gather(*ends)


async def _ended(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        await reader.read()


@pytest.mark.parametrize("by_grpc", [True, False])
async def test_a_port_in_use_is_reported(by_grpc: bool) -> None:
    async with opened() as listening:
        port = listening.grpc_port if by_grpc else listening.http_port
        second = engine_span_receiver(listening.spans.append)
        with pytest.raises(UsageError) as caught:
            await second.listen([Receiver(by_grpc, "127.0.0.1", port)])
        await second.close()
        assert caught.value.__cause__ is not None
        traceback.clear_frames(caught.value.__cause__.__traceback__)  # a gRPC server must not outlive the loop
        assert str(caught.value) == (
            f"--engine-spans: cannot listen on 127.0.0.1:{port}, which was free when the sidecar started"
        )


async def test_the_slowest_message_within_the_limits_delays_the_event_loop_little() -> None:
    """Eight messages, each with half a million empty attributes in one span."""
    attributes = b"\x4a\x00" * (MESSAGE_BYTES // 2 - 20)
    data = attributes
    for tag in (b"\x12", b"\x12", b"\x0a"):  # a span in a scope in a resource
        data = tag + _varint(len(data)) + data
    assert MESSAGE_BYTES - 40 < len(data) <= MESSAGE_BYTES
    async with opened() as listening:
        sending = asyncio.gather(*(listening.by_http(data) for _ in range(MAX_CONCURRENT)))
        longest = 0.0
        while not sending.done():
            before = time.process_time()  # CPU time of this process, independent of others
            await asyncio.sleep(0.01)
            longest = max(longest, time.process_time() - before)
        assert await sending == [(200, "")] * MAX_CONCURRENT
    assert longest < 1.0


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
