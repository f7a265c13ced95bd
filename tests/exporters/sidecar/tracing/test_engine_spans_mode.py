"""The sidecar process with `--engine-spans`, between a client, an engine that sends spans, and a collector."""

import asyncio
import contextlib
import io
import resource
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from tests.support.engine_span_messages import loading, message, request_span, sent
from tests.support.fake_engine import Engine, serving, streaming_engine
from tests.support.otlp_collectors import grpc_collector, http_collector, parent_in
from tests.support.ports import free_port
from tests.support.sidecar_process import Running, sidecar
from tests.support.waiting import until

pytestmark = pytest.mark.slow

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT = "b7ad6b7169203331"


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with serving(streaming_engine(with_times=False)) as engine:
        yield engine


async def post(running: Running, url: str, data: bytes) -> int:
    headers = {"content-type": "application/x-protobuf"}
    async with running.session.post(f"{url}/v1/traces", data=io.BytesIO(data), headers=headers) as response:
        return response.status


async def deliver(running: Running, url: str, data: bytes) -> None:
    """Send a message by the protocol of the URL."""
    if url.startswith("http:"):
        assert await post(running, url, data) == 200
        return
    async with grpc.aio.insecure_channel(url.removeprefix("grpc://")) as channel:
        assert await channel.unary_unary(EXPORT)(data) == b""


async def value(running: Running, name: str) -> float:
    """The sum of a series over its labels; the first exposition has first counts at 0."""
    await running.samples()
    return sum(value for key, value in (await running.samples()).items() if key.startswith(f"{name}{{"))


@pytest.mark.parametrize("scheme", ["grpc", pytest.param("http", marks=pytest.mark.long)])
async def test_the_engine_span_adds_times_to_its_request_and_is_forwarded_to_the_collector(
    scheme: str, tmp_path: Path, engine: Engine
) -> None:
    where = f"{scheme}://127.0.0.1:{free_port()}"
    collector = grpc_collector if scheme == "grpc" else http_collector
    async with collector() as received:
        flags = ("--engine-spans", where, "--otlp", received.url, "--trace-good", "100%", "--otlp-header", "x-scope=a")
        async with sidecar(tmp_path, engine.url, *flags) as running:
            await running.stream()
            _, ours, sampled = parent_in(engine.heads[0])
            assert sampled
            await asyncio.sleep(0.6)  # the request waits for its span, so nothing is logged or counted
            assert (running.lines(), await value(running, "llm_requests_total")) == ([], 0)
            await deliver(running, where, sent(request_span(ours), loading()))
            await until(running.lines)
            assert await value(running, "llm_requests_with_engine_times_total") == 1
            assert await value(running, "llm_requests_total") == 1
            await running.shows("llm_sidecar_exported_spans_total{}", 7)
            (line,) = running.lines()
            assert await running.stop() == 0
            assert [line.partition(": ")[0] for line in running.log_lines()] == ["INFO supervisor"] * 3
    assert (line["queue_ms"], line["prefill_ms"], line["decode_ms"]) == (500, 250, 2000)
    # forwarded with their resource and scope
    resource_spans = [spans for request in received.requests for spans in request.resource_spans]
    forwarded = [spans for spans in resource_spans if spans.schema_url == "of resource"]
    assert sorted(forwarded, key=str) == sorted(
        (message(span).resource_spans[0] for span in (request_span(ours), loading())), key=str
    )
    below = {span.name for span in received.spans if span.parent_span_id.hex() == ours}
    assert below == {"llm_request", "frontend", "queue", "prefill", "decode"}
    assert all(headers["x-scope"] == "a" for headers in received.headers)


async def test_engine_spans_wait_for_the_verdicts_of_their_requests(tmp_path: Path, engine: Engine) -> None:
    where = f"http://127.0.0.1:{free_port()}"
    async with http_collector() as received:
        flags = ("--engine-spans", where, "--otlp", received.url, "--trace-good", "0%")
        async with sidecar(tmp_path, engine.url, *flags) as running:
            await running.stream()
            await running.stream(traceparent=f"00-{TRACE}-{CLIENT}-01")
            await running.stream(traceparent=f"00-{TRACE[::-1]}-{CLIENT}-00")
            good, sampled, unsampled = (parent_in(head) for head in engine.heads)
            assert [flag for _, _, flag in (good, sampled, unsampled)] == [True, True, True]
            theirs = [sent(request_span(own)) for _, own, _ in (good, sampled, unsampled)]
            await deliver(running, where, b"".join(theirs))
            async with running.session.post(running.completions, data=b"no json") as response:
                assert response.status == 500
            await until(lambda: len(running.lines()) == 4)
            *_, failed = running.lines()
            assert await running.stop() == 0
    assert failed["outcome"] == "upstream_error"
    assert {span.parent_span_id.hex() for span in received.spans if span.name == "llm_request"} == {sampled[1]}
    ours = {span.trace_id.hex() for span in received.spans if span.name != "llm_request"}
    assert ours == {sampled[0], failed["trace_id"]}


SPANS_IN_A_MESSAGE, MESSAGES = 500, 50


@pytest.mark.long
async def test_unjoined_spans_at_a_high_rate_delay_neither_scrapes_nor_requests(tmp_path: Path, engine: Engine) -> None:
    where = f"http://127.0.0.1:{free_port()}"
    flood = [
        sent(*(request_span(f"{at * SPANS_IN_A_MESSAGE + n + 1:016x}") for n in range(SPANS_IN_A_MESSAGE)))
        for at in range(MESSAGES)
    ]
    async with (
        http_collector() as received,
        sidecar(tmp_path, engine.url, "--engine-spans", where, "--otlp", received.url) as running,
    ):
        exporter = running.signal_exporter(0)
        before = memory(exporter)
        sent_messages: list[int] = []

        async with scraping(running, sent_messages) as sent_at_scrapes:
            began = time.monotonic()
            for number, each in enumerate(flood):
                sent_messages.append(number)
                assert await post(running, where, each) == 200
                assert await post(running, where, b"\xff nonsense") == 400
                await asyncio.sleep(max(0.0, began + (number + 1) * SPANS_IN_A_MESSAGE / 10_000 - time.monotonic()))
            await running.stream()
            await deliver(running, where, sent(request_span(parent_in(engine.heads[0])[1])))
            await until(running.lines)
        assert running.lines()[0]["queue_ms"] == 500
        assert {4 * count // (MESSAGES + 1) for count in sent_at_scrapes} >= {
            0,
            1,
            2,
            3,
        }  # scrapes in each quarter of the messages
        assert memory(exporter) - before < 150e6
        # the sidecar keeps up to 20,000 spans, for a limited time
        assert await value(running, "llm_sidecar_unjoined_spans_total") > MESSAGES * SPANS_IN_A_MESSAGE - 20_000
        assert await value(running, "llm_sidecar_refused_otlp_messages_total") == MESSAGES


@contextlib.asynccontextmanager
async def scraping(running: Running, sent_messages: list[int]) -> AsyncIterator[list[int]]:
    """Scrapes continuously; yields the number of sent messages at each response."""
    counts: list[int] = []

    async def scrape() -> None:
        while True:
            await running.fetch("/metrics")
            counts.append(len(sent_messages))

    task = asyncio.ensure_future(scrape())
    try:
        yield counts
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
