"""The real sidecar with `--engine-spans`, between a client, an engine that sends its spans, and a collector."""

import asyncio
import contextlib
import io
import os
import resource
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.engine_span_messages import loading, message, request_span, sent
from tests.support.otlp_collectors import Sidecar, engine, grpc_collector, http_collector, parent_in, sidecar
from tests.support.ports import free_port
from tests.support.scripted_relay import USAGE
from tests.support.sidecar_process import children
from tests.support.waiting import until

WITHOUT_TIMES = USAGE.partition(b',"metrics"')[0] + b"}\n\n"
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT = "b7ad6b7169203331"


async def post(running: Sidecar, url: str, data: bytes) -> int:
    headers = {"content-type": "application/x-protobuf"}
    async with running.session.post(f"{url}/v1/traces", data=io.BytesIO(data), headers=headers) as answer:
        return answer.status


async def deliver(running: Sidecar, url: str, data: bytes) -> None:
    """Send a message as an engine would, by the protocol that the address names."""
    if url.startswith("http:"):
        assert await post(running, url, data) == 200
        return
    async with grpc.aio.insecure_channel(url.removeprefix("grpc://")) as channel:
        assert await channel.unary_unary(EXPORT)(data) == b""


async def value(running: Sidecar, name: str) -> float:
    """The sum of a series over its labels; -1 without any."""
    async with running.session.get(f"http://127.0.0.1:{running.pages}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    values = [float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
    return sum(values) if values else -1.0


async def is_(running: Sidecar, name: str, wanted: float) -> bool:
    return await value(running, name) == wanted


def lines(running: Sidecar) -> list[dict[str, Any]]:
    return running.logged() if running.log.exists() else []


@pytest.mark.parametrize("scheme", ["grpc", "http"])
async def test_a_requests_times_come_with_the_engines_span_which_goes_on_to_the_collector(
    scheme: str, tmp_path: Path
) -> None:
    where = f"{scheme}://127.0.0.1:{free_port()}"
    collector = grpc_collector if scheme == "grpc" else http_collector
    async with collector() as received, engine(WITHOUT_TIMES) as (port, heads):
        flags = ("--engine-spans", where, "--otlp", received.url, "--otlp-header", "x-scope=a")
        async with sidecar(tmp_path, port, *flags) as running:
            await running.ask()
            _, ours, sampled = parent_in(heads[0])
            assert sampled
            await asyncio.sleep(0.6)  # nothing is logged or counted meanwhile: the request waits for its span
            assert (lines(running), await value(running, "llm_requests_total")) == ([], 0)
            await deliver(running, where, sent(request_span(ours), loading()))
            await until(lambda: lines(running))
            assert await value(running, "llm_requests_with_engine_times_total") == 1
            assert await value(running, "llm_requests_total") == 1
            await until(lambda: is_(running, "llm_sidecar_exported_spans_total", 6))
            (line,) = lines(running)
            await running.stop()
            assert [line.partition(": ")[0] for line in running.log_lines()] == ["INFO supervisor"] * 2
    assert (line["queue_ms"], line["prefill_ms"], line["decode_ms"]) == (500, 250, 2000)
    # with the resource and the scope that they had
    resource_spans = [spans for request in received.requests for spans in request.resource_spans]
    forwarded = [spans for spans in resource_spans if spans.schema_url == "of resource"]
    assert sorted(forwarded, key=str) == sorted(
        (message(span).resource_spans[0] for span in (request_span(ours), loading())), key=str
    )
    below = {span.name for span in received.spans if span.parent_span_id.hex() == ours}
    assert below == {"llm_request", "queue", "prefill", "decode"}
    assert all(headers["x-scope"] == "a" for headers in received.headers)


async def test_without_a_collector_the_engine_is_asked_to_sample_all_the_same(tmp_path: Path) -> None:
    where = f"http://127.0.0.1:{free_port()}"
    async with engine(WITHOUT_TIMES) as (port, heads), sidecar(tmp_path, port, "--engine-spans", where) as running:
        await running.ask(traceparent=f"00-{TRACE}-{CLIENT}-00")
        trace, ours, sampled = parent_in(heads[0])
        assert (trace, sampled) == (TRACE, True)
        assert ours != CLIENT
        await deliver(running, where, sent(request_span(ours)))
        await until(lambda: lines(running))
        assert lines(running)[0]["queue_ms"] == 500
        assert await running.series() == {}


async def test_a_request_whose_body_tells_its_times_does_not_wait(tmp_path: Path) -> None:
    where = f"http://127.0.0.1:{free_port()}"
    async with engine() as (port, _), sidecar(tmp_path, port, "--engine-spans", where) as running:
        await running.ask()
        await until(lambda: lines(running))
        assert lines(running)[0]["queue_ms"] == 12.5


async def test_an_exporter_killed_while_a_request_waits_loses_nothing_and_logs_it_once(tmp_path: Path) -> None:
    where = f"grpc://127.0.0.1:{free_port()}"
    async with engine(WITHOUT_TIMES) as (port, heads), sidecar(tmp_path, port, "--engine-spans", where) as running:
        for _ in range(3):
            await running.ask()
        await asyncio.sleep(0.6)  # nothing is logged meanwhile: the requests wait for their spans
        assert lines(running) == []
        exporter = children(running.process.pid)["exporters.sidecar.exporter"]
        os.kill(exporter, signal.SIGKILL)
        await until(lambda: children(running.process.pid).get("exporters.sidecar.exporter", exporter) != exporter)
        theirs = sent(*(request_span(parent_in(head)[1]) for head in heads))
        await until(lambda: _delivered(running, where, theirs))
        await until(lambda: len(lines(running)) == 3)
        assert [line["queue_ms"] for line in lines(running)] == [500, 500, 500]
        assert await value(running, "llm_requests_total") == 3
        assert await value(running, "llm_requests_with_engine_times_total") == 3
        await running.stop()
        assert len(lines(running)) == 3


async def _delivered(running: Sidecar, where: str, data: bytes) -> bool:
    with contextlib.suppress(grpc.aio.AioRpcError):
        await deliver(running, where, data)
        return True
    return False


async def test_a_sidecar_told_to_stop_waits_for_spans_no_longer_than_its_relays_for_their_answer(
    tmp_path: Path,
) -> None:
    where = f"http://127.0.0.1:{free_port()}"
    async with engine(WITHOUT_TIMES) as (port, _), sidecar(tmp_path, port, "--engine-spans", where) as running:
        await running.ask()
        assert await running.stop() > 3
        assert [line["queue_ms"] for line in lines(running)] == [None]


SPANS_IN_A_MESSAGE, MESSAGES = 500, 80


async def test_ten_thousand_unjoinable_spans_a_second_hold_up_neither_scrapes_nor_requests(tmp_path: Path) -> None:
    where = f"http://127.0.0.1:{free_port()}"
    flood = [
        sent(*(request_span(f"{at * SPANS_IN_A_MESSAGE + n + 1:016x}") for n in range(SPANS_IN_A_MESSAGE)))
        for at in range(MESSAGES)
    ]
    async with (
        http_collector() as received,
        engine(WITHOUT_TIMES) as (port, heads),
        sidecar(tmp_path, port, "--engine-spans", where, "--otlp", received.url) as running,
    ):
        exporter = children(running.process.pid)["exporters.sidecar.exporter"]
        before = memory(exporter)
        sent_messages: list[int] = []

        async with scraping(running, sent_messages) as sent_at_scrapes:
            began = time.monotonic()
            for number, each in enumerate(flood):
                sent_messages.append(number)
                assert await post(running, where, each) == 200
                assert await post(running, where, b"\xff nonsense") == 400
                await asyncio.sleep(max(0.0, began + (number + 1) * SPANS_IN_A_MESSAGE / 10_000 - time.monotonic()))
            await running.ask()
            await deliver(running, where, sent(request_span(parent_in(heads[0])[1])))
            await until(lambda: lines(running))
        assert lines(running)[0]["queue_ms"] == 500
        assert {4 * count // (MESSAGES + 1) for count in sent_at_scrapes} >= {0, 1, 2, 3}  # in each quarter of them
        assert memory(exporter) - before < 150e6
        # at most 20,000 are held; where the flood takes longer than a span is held, fewer
        assert await value(running, "llm_sidecar_unjoined_spans_total") >= 40_001 - 20_000
        assert await value(running, 'llm_sidecar_refused_otlp_messages_total{reason="not_understood"}') == MESSAGES


@contextlib.asynccontextmanager
async def scraping(running: Sidecar, sent_messages: list[int]) -> AsyncIterator[list[int]]:
    """Scrapes without end; the number of sent messages at each response."""
    counts: list[int] = []

    async def scrape() -> None:
        while True:
            await value(running, "llm_requests_total")
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
