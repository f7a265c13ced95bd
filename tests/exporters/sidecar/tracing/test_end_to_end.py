"""The real sidecar between a client, an engine and a real OTLP receiver."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.support.otlp_collectors import (
    ReceivedSpans,
    attributes,
    engine,
    grpc_collector,
    http_collector,
    parent_in,
    sidecar,
)
from tests.support.ports import free_port
from tests.support.waiting import until

TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT = "b7ad6b7169203331"
DROPPED = 'llm_sidecar_dropped_spans_total{reason="%s"}'
EXPORTED = "llm_sidecar_exported_spans_total"

Receiver = Callable[[], AbstractAsyncContextManager[ReceivedSpans]]


def whole(received: ReceivedSpans) -> list[Span]:
    return [span for span in received.spans if span.kind == Span.SPAN_KIND_SERVER]


@pytest.mark.parametrize(
    "receiver", [pytest.param(grpc_collector, id="gRPC"), pytest.param(http_collector, id="HTTP/protobuf")]
)
async def test_one_span_a_request_arrives_between_the_clients_and_the_engines(
    receiver: Receiver, tmp_path: Path
) -> None:
    async with receiver() as received, engine() as (port, heads):
        flags = ("--otlp", received.url, "--otlp-header", "Authorization=Bearer of news")
        async with sidecar(tmp_path, port, *flags, OTEL_EXPORTER_OTLP_HEADERS="x-scope=a,authorization=old") as running:
            await running.ask(traceparent=f"00-{TRACE}-{CLIENT}-00", tracestate="a=1")
            await running.ask("/v1/completions")
            await until(lambda: len(whole(received)) == 2)
            await until(lambda: _equals(running.series, {EXPORTED: len(received.spans)}))
            logged = running.logged()
            await running.stop()
    ours, root = sorted(whole(received), key=lambda span: span.start_time_unix_nano)
    assert (ours.trace_id.hex(), ours.parent_span_id.hex()) == (TRACE, CLIENT)
    assert parent_in(heads[0]) == (TRACE, ours.span_id.hex(), True)
    assert b"\r\ntracestate: a=1\r\n" in heads[0]
    assert parent_in(heads[1]) == (root.trace_id.hex(), root.span_id.hex(), True)
    assert root.parent_span_id == b""
    assert [line["trace_id"] for line in logged] == [TRACE, root.trace_id.hex()]

    assert (ours.name, root.name) == ("chat m", "text_completion m")
    values = attributes(ours)
    line = logged[0]
    assert values["gen_ai.request.model"] == "m"
    assert (values["gen_ai.usage.input_tokens"], values["gen_ai.usage.output_tokens"]) == (7, 3)
    assert values["gen_ai.response.finish_reasons"] == ["stop"]
    assert values["vllm_slo.class"] == "short"
    assert {name: values[f"vllm_slo.slo.{name}"] for name in line["slo"]} == line["slo"]
    assert values["vllm_slo.goodput"] is True
    assert values["gen_ai.response.time_to_first_chunk"] == pytest.approx(line["ttft_ms"] / 1000, abs=1e-6)
    assert ours.status.code == Status.STATUS_CODE_UNSET
    assert ours.end_time_unix_nano - ours.start_time_unix_nano == pytest.approx(line["e2e_ms"] * 1e6, abs=1000)
    assert [event.name for event in ours.events] == ["first_token"]
    assert ours.start_time_unix_nano < ours.events[0].time_unix_nano < ours.end_time_unix_nano
    children = [span for span in received.spans if span.parent_span_id == ours.span_id]
    assert [child.name for child in children] == ["queue", "prefill", "decode"]
    assert received.services == {"vllm-slo-sidecar"}
    assert received.headers[0]["authorization"] == "Bearer of news"
    assert received.headers[0]["x-scope"] == "a"
    assert "Bearer" not in running.stderr.read_text()


async def _equals(read: Callable[[], Awaitable[dict[str, float]]], wanted: dict[str, float]) -> bool:
    return wanted.items() <= (await read()).items()


async def test_a_request_that_the_engine_cannot_take_is_an_error_span(tmp_path: Path) -> None:
    async with http_collector() as received, sidecar(tmp_path, free_port(), "--otlp", received.url) as running:
        with pytest.raises(AssertionError):
            await running.ask()
        await until(lambda: whole(received))
    (span,) = whole(received)
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert attributes(span)["error.type"] == "upstream_unreachable"
    assert attributes(span)["http.response.status_code"] == 502


async def test_without_the_flag_nothing_is_sent_and_headers_pass_untouched(tmp_path: Path) -> None:
    async with (
        http_collector() as received,
        engine() as (port, heads),
        sidecar(tmp_path, port, OTEL_EXPORTER_OTLP_ENDPOINT=received.url) as running,
    ):
        await running.ask(traceparent=f"00-{TRACE}-{CLIENT}-00")
        await until(lambda: running.log.exists() and running.logged())
        assert running.logged()[0]["trace_id"] == TRACE
        assert await running.series() == {}
        await running.stop()
    assert parent_in(heads[0]) == (TRACE, CLIENT, False)
    assert received.requests == []


@pytest.mark.parametrize(
    "scheme,receiver",
    [pytest.param("grpc", grpc_collector, id="gRPC"), pytest.param("http", http_collector, id="HTTP/protobuf")],
)
async def test_a_collector_that_is_down_costs_counted_spans_only_and_is_found_when_it_comes(
    scheme: str, receiver: Callable[[int], AbstractAsyncContextManager[ReceivedSpans]], tmp_path: Path
) -> None:
    where = free_port()
    async with engine() as (port, _), sidecar(tmp_path, port, "--otlp", f"{scheme}://127.0.0.1:{where}") as running:
        assert await running.series() == {
            EXPORTED: 0,
            DROPPED % "queue_full": 0,
            DROPPED % "export_failed": 0,
            DROPPED % "fault": 0,
        }
        await asyncio.gather(*(running.ask() for _ in range(20)))
        await until(lambda: len(running.logged()) == 20)
        await until(lambda: _equals(running.series, {DROPPED % "export_failed": 80, EXPORTED: 0}), 20)
        async with receiver(where) as received:
            await running.ask()
            await until(lambda: whole(received), 20)
        await until(lambda: _equals(running.series, {EXPORTED: 4}))
        await running.stop()
    by_supervisor = [line for line in running.log_lines() if line.startswith("INFO supervisor: ")]
    down, up = [line for line in running.log_lines() if line not in by_supervisor]
    assert down.startswith(f"WARNING exporter: {scheme}://127.0.0.1:{where}")
    assert " does not accept spans; dropping them: " in down
    assert up.startswith("INFO exporter: ")
    assert up.endswith(" accepts spans again; 80 were dropped")
    assert len(by_supervisor) == 2  # its start and its stop


@pytest.mark.parametrize("scheme", ["grpc", "http"])
async def test_a_collector_that_takes_connections_and_never_answers_does_not_hold_up_the_end(
    scheme: str, tmp_path: Path
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass
        writer.close()

    hole = await asyncio.start_server(silent, "127.0.0.1", 0)
    address = f"{scheme}://127.0.0.1:{hole.sockets[0].getsockname()[1]}"
    async with engine() as (port, _), sidecar(tmp_path, port, "--otlp", address) as running:
        await asyncio.gather(*(running.ask() for _ in range(5)))
        await until(lambda: len(running.logged()) == 5)
        await running.stop()
    hole.close()
    assert "Traceback" not in running.stderr.read_text()


async def test_what_is_queued_when_the_order_to_stop_comes_is_still_sent(tmp_path: Path) -> None:
    async with (
        grpc_collector() as received,
        engine() as (port, _),
        sidecar(tmp_path, port, "--otlp", received.url) as running,
    ):
        await asyncio.gather(*(running.ask() for _ in range(10)))
        await running.stop()
    assert len(whole(received)) == 10
