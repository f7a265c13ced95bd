"""The sidecar process with `--otlp`, between a client, an engine and a collector."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.support.fake_engine import Engine, serving, streaming_engine
from tests.support.otlp_collectors import ReceivedSpans, attributes, grpc_collector, http_collector, parent_in
from tests.support.ports import free_port
from tests.support.sidecar_process import Running, sidecar
from tests.support.waiting import until

pytestmark = pytest.mark.slow

TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT = "b7ad6b7169203331"
DROPPED = "llm_sidecar_dropped_spans_total{%s}"
EVERY_TRACE = ("--trace-good", "100%")
EXPORTED = "llm_sidecar_exported_spans_total{}"


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with serving(streaming_engine()) as engine:
        yield engine


def server_spans(received: ReceivedSpans) -> list[Span]:
    return [span for span in received.spans if span.kind == Span.SPAN_KIND_SERVER]


async def span_counts(running: Running) -> dict[str, float]:
    prefixes = (EXPORTED, DROPPED.partition("%")[0])
    return {name: value for name, value in (await running.samples()).items() if name.startswith(prefixes)}


async def test_the_span_of_a_request_is_a_child_of_the_clients_and_the_parent_of_the_engines(
    tmp_path: Path, engine: Engine
) -> None:
    async with grpc_collector() as received:
        flags = ("--otlp", received.url, *EVERY_TRACE, "--otlp-header", "Authorization=Bearer of news")
        variables = {"OTEL_EXPORTER_OTLP_HEADERS": "x-scope=a,authorization=old"}
        async with sidecar(tmp_path, engine.url, *flags, variables=variables) as running:
            engine.may_finish.clear()  # the relay has read the first token before the engine sends the rest
            headers = {"traceparent": f"00-{TRACE}-{CLIENT}-01", "tracestate": "a=1"}
            await running.stream(may_finish=engine.may_finish, **headers)
            await running.stream("/v1/completions")
            await until(lambda: len(server_spans(received)) == 2)
            await running.shows(EXPORTED, len(received.spans))
            logged = running.lines()
            assert await running.stop() == 0
    ours, root = sorted(server_spans(received), key=lambda span: span.start_time_unix_nano)
    assert (ours.trace_id.hex(), ours.parent_span_id.hex()) == (TRACE, CLIENT)
    assert parent_in(engine.heads[0]) == (TRACE, ours.span_id.hex(), True)
    assert engine.heads[0]["tracestate"] == "a=1"
    assert parent_in(engine.heads[1]) == (root.trace_id.hex(), root.span_id.hex(), True)
    assert root.parent_span_id == b""
    assert [line["trace_id"] for line in logged] == [TRACE, root.trace_id.hex()]

    assert (ours.name, root.name) == ("chat tiny", "text_completion tiny")
    values = attributes(ours)
    line = logged[0]
    assert values["gen_ai.request.model"] == "tiny"
    assert (values["gen_ai.usage.input_tokens"], values["gen_ai.usage.output_tokens"]) == (3, 2)
    assert values["gen_ai.response.finish_reasons"] == ["stop"]
    assert values["vllm_slo.class"] == "all"
    assert {name: values[f"vllm_slo.slo.{name}"] for name in line["slo"]} == line["slo"]
    assert values["vllm_slo.goodput"] is True
    assert values["gen_ai.response.time_to_first_chunk"] == pytest.approx(line["ttft_ms"] / 1000, abs=1e-6)
    assert ours.status.code == Status.STATUS_CODE_UNSET
    assert ours.end_time_unix_nano - ours.start_time_unix_nano == pytest.approx(line["e2e_ms"] * 1e6, abs=1000)
    assert [event.name for event in ours.events] == ["first_token"]
    assert ours.start_time_unix_nano < ours.events[0].time_unix_nano < ours.end_time_unix_nano
    children = [span for span in received.spans if span.parent_span_id == ours.span_id]
    assert [child.name for child in children] == ["frontend", "queue", "prefill", "decode"]
    assert received.services == {"vllm-slo-sidecar"}
    assert received.headers[0]["authorization"] == "Bearer of news"
    assert received.headers[0]["x-scope"] == "a"
    assert "Bearer" not in running.stderr.read_text()


async def test_a_disabled_sdk_sends_no_span_despite_the_flag_and_changes_no_header(
    tmp_path: Path, engine: Engine
) -> None:
    async with http_collector() as received:
        disabled = {"OTEL_SDK_DISABLED": "true"}
        async with sidecar(tmp_path, engine.url, "--otlp", received.url, variables=disabled) as running:
            await running.stream(traceparent=f"00-{TRACE}-{CLIENT}-00")
            await until(running.lines)
            assert running.lines()[0]["trace_id"] == TRACE
            assert await span_counts(running) == {}
            assert await running.stop() == 0
    assert parent_in(engine.heads[0]) == (TRACE, CLIENT, False)
    assert received.requests == []
    assert "WARNING supervisor: OTEL_SDK_DISABLED=true: no spans are exported" in running.log_lines()


async def test_the_variables_are_the_defaults_of_the_flags(tmp_path: Path, engine: Engine) -> None:
    """An operator that sets OpenTelemetry's variables in a pod expects the spans of all its containers."""
    async with http_collector() as received:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": received.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Basic%20secret",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_SERVICE_NAME": "mine",
            "OTEL_TRACES_SAMPLER": "always_on",
        }
        async with sidecar(tmp_path, engine.url, variables=variables) as running:
            await running.stream()
            await until(lambda: server_spans(received))
            assert await running.stop() == 0
    assert received.services == {"mine"}
    assert received.headers[0]["authorization"] == "Basic secret"
    assert received.headers[0]["content-encoding"] == "gzip"
    source = f"INFO supervisor: OTEL_EXPORTER_OTLP_ENDPOINT: spans are exported to {received.url}/v1/traces"
    assert source in running.log_lines()
    assert "secret" not in running.stderr.read_text()


async def test_flags_take_precedence_over_the_variables_and_queued_spans_are_sent_before_the_exit(
    tmp_path: Path, engine: Engine
) -> None:
    async with grpc_collector() as received, http_collector() as other:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": other.url, "OTEL_TRACES_SAMPLER": "always_off"}
        flags = ("--otlp", received.url, *EVERY_TRACE)
        async with sidecar(tmp_path, engine.url, *flags, variables=variables) as running:
            await asyncio.gather(*(running.stream() for _ in range(10)))
            assert await running.stop() == 0
    assert len(server_spans(received)) == 10
    assert other.requests == []
    assert "OTEL_" not in running.stderr.read_text()


@pytest.mark.parametrize(
    "scheme,receiver",
    [
        pytest.param("grpc", grpc_collector, id="gRPC"),
        pytest.param("http", http_collector, id="HTTP/protobuf", marks=pytest.mark.long),
    ],
)
async def test_spans_for_a_collector_that_is_down_are_counted_until_it_is_up(
    scheme: str, receiver: Callable[[int], AbstractAsyncContextManager[ReceivedSpans]], tmp_path: Path, engine: Engine
) -> None:
    where = free_port()
    flags = ("--otlp", f"{scheme}://127.0.0.1:{where}", *EVERY_TRACE)
    async with sidecar(tmp_path, engine.url, *flags) as running:
        assert await span_counts(running) == {
            EXPORTED: 0,
            DROPPED % "queue_full": 0,
            DROPPED % "export_failed": 0,
            DROPPED % "fault": 0,
        }
        await asyncio.gather(*(running.stream() for _ in range(20)))
        await until(lambda: len(running.lines()) == 20)
        await running.shows(DROPPED % "export_failed", 100)
        assert (await span_counts(running))[EXPORTED] == 0
        async with receiver(where) as received:
            await running.stream()
            await until(lambda: server_spans(received))
        await running.shows(EXPORTED, 5)
        assert await running.stop() == 0
    by_supervisor = [line for line in running.log_lines() if line.startswith("INFO supervisor: ")]
    down, up = [line for line in running.log_lines() if line not in by_supervisor]
    assert down.startswith(f"WARNING exporter: {scheme}://127.0.0.1:{where}")
    assert " does not accept spans; dropping them: " in down
    assert up.startswith("INFO exporter: ")
    assert up.endswith(" accepts spans again; 100 were dropped")
    assert len(by_supervisor) == 3  # start, drain and its end


@pytest.mark.parametrize("scheme", ["grpc", pytest.param("http", marks=pytest.mark.long)])
async def test_a_collector_that_never_responds_does_not_delay_the_exit(
    scheme: str, tmp_path: Path, engine: Engine
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass
        writer.close()

    collector = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"{scheme}://127.0.0.1:{collector.sockets[0].getsockname()[1]}"
    async with sidecar(tmp_path, engine.url, "--otlp", url, *EVERY_TRACE) as running:
        await asyncio.gather(*(running.stream() for _ in range(5)))
        await until(lambda: len(running.lines()) == 5)
        began = time.monotonic()
        assert await running.stop() == 0
        assert time.monotonic() - began < 30  # the default drain, and the timeout of the SDK's own shutdown
    collector.close()
