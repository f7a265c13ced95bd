"""The request times that a real vLLM (its community CPU build) reports in the response and in its span agree."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from compose.lab.ports import HOST
from compose.vllm_cpu import launch
from tests.engine.vllm_process import vllm
from tests.support.otlp_collectors import attributes, grpc_collector
from tests.support.ports import free_port
from tests.support.sidecar_process import Running, sidecar
from tests.support.waiting import until

pytestmark = pytest.mark.engine

REQUESTS, TOKENS = 12, (1, 8, 24, 48)
TIMES = {
    "queue": ("queue_time_ms", "time_in_queue"),
    "prefill": ("time_to_first_token_ms", "time_in_model_prefill"),
    "decode": ("generation_time_ms", "time_in_model_decode"),
}
SHOWN, HIDDEN = b'"metrics"', b'"m3trics"'


@contextlib.asynccontextmanager
async def renaming_proxy(engine_port: int) -> AsyncIterator[int]:
    """A proxy that renames the times in the engine's responses, so that the sidecar must use the span."""
    writers: list[asyncio.StreamWriter] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data.replace(SHOWN, HIDDEN))
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection(HOST, engine_port)
        writers.extend((writer, ours))
        await asyncio.gather(copy(reader, ours), copy(theirs, writer))

    server = await asyncio.start_server(serve, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


async def send_request(running: Running, number: int) -> tuple[str, dict[str, Any]]:
    """Send one streaming request; returns its id and the renamed times in its response."""
    body = {
        "model": launch.MODEL,
        "messages": [{"role": "user", "content": f"{number} " + "tell me more " * (5 * number)}],
        "max_tokens": TOKENS[number % len(TOKENS)],
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"x-request-id": f"times-{number}"}
    async with running.session.post(running.completions, json=body, headers=headers) as response:
        assert response.status == 200
        text = await response.text()
    assert SHOWN.decode() not in text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    (metrics,) = [event["m3trics"] for event in events if event.get("m3trics")]
    return headers["x-request-id"], metrics


async def test_the_times_in_the_response_and_in_the_span_of_a_request_agree(tmp_path: Path) -> None:
    port, spans = free_port(), f"grpc://{HOST}:{free_port()}"
    async with (
        grpc_collector() as got,
        renaming_proxy(port) as proxy,
        sidecar(
            tmp_path, f"http://{HOST}:{proxy}", "--engine-spans", spans, "--otlp", got.url, "--trace-good", "100%"
        ) as running,
        vllm(tmp_path / "vllm", port, otlp=spans),
    ):
        response_metrics = dict(await asyncio.gather(*(send_request(running, number) for number in range(REQUESTS))))
        ended = time.monotonic()
        await until(lambda: len(running.lines()) == REQUESTS)
        waited = time.monotonic() - ended
        await until(lambda: sum(span.name == "llm_request" for span in got.spans) == REQUESTS)
        _, exposition = await running.fetch("/metrics")
    lines = {line["request_id"]: line for line in running.lines()}
    theirs = {span.trace_id.hex(): attributes(span) for span in got.spans if span.name == "llm_request"}
    assert any(span.name != "llm_request" for span in got.spans if not attributes(span).get("vllm_slo.outcome"))
    worst = 0.0
    for request_id, in_response in response_metrics.items():
        line = lines[request_id]
        for name, (of_response, of_span) in TIMES.items():
            in_span = theirs[line["trace_id"]][f"gen_ai.latency.{of_span}"] * 1000
            assert line[f"{name}_ms"] == pytest.approx(in_span, abs=0.001)
            worst = max(worst, abs(line[f"{name}_ms"] - (in_response[of_response] or 0.0)))
            assert worst <= 5, (name, line, in_response)
    assert max(line["queue_ms"] for line in lines.values()) > 20  # 4 run at a time, so some waited
    covered = [line for line in exposition.splitlines() if line.startswith("llm_requests_with_engine_times_total{")]
    assert sum(float(line.rpartition(" ")[2]) for line in covered) == REQUESTS
    assert 'llm_sidecar_unjoined_spans_total{reason="late"} 0.0' in exposition
    print(f"worst difference {worst:.3f} ms; last log line {waited:.1f} s after the last response")
