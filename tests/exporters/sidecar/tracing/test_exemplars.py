"""Exemplars that Prometheus stores have the trace id that the collector has received."""

import contextlib
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from compose.programs.tools import Tools
from exporters.vocabulary import signals
from tests.support.fake_engine import serving, streaming_engine
from tests.support.otlp_collectors import http_collector
from tests.support.prometheus_process import prometheus
from tests.support.sidecar_process import Running, sidecar
from tests.support.waiting import until


async def exemplars(running: Running, prometheus: str, signal: signals.Signal) -> list[dict[str, Any]]:
    """The exemplars of all buckets of a histogram; none before Prometheus is ready."""
    parameters = {"query": signal.bucket, "start": "0", "end": "2000000000"}
    with contextlib.suppress(aiohttp.ClientError):
        async with running.session.get(f"{prometheus}/api/v1/query_exemplars", params=parameters) as response:
            if response.status == 200:
                return [each for series in (await response.json())["data"] for each in series["exemplars"]]
    return []


@pytest.mark.long  # test_trace_decision.py has the exemplars of the exposition
async def test_prometheus_keeps_the_trace_of_a_request_with_its_value_and_time(tools: Tools, tmp_path: Path) -> None:
    async with (
        http_collector() as received,
        serving(streaming_engine()) as engine,
        sidecar(tmp_path, engine.url, "--otlp", received.url, "--trace-good", "100%") as running,
        prometheus(tools.prometheus, tmp_path, running.metrics_port) as url,
    ):
        await running.stream()

        expected = {
            signals.TTFT: "ttft_ms",
            signals.TTFT_ANSWER: "ttft_answer_ms",
            signals.DURATION: "e2e_ms",
            signals.QUEUE: "queue_ms",
        }

        async def kept() -> bool:
            return all([await exemplars(running, url, signal) for signal in expected])

        await until(kept)
        await until(running.lines)
        (line,) = running.lines()
        for signal, field in expected.items():
            (exemplar,) = await exemplars(running, url, signal)
            assert exemplar["labels"] == {"trace_id": line["trace_id"]}
            assert float(exemplar["value"]) == pytest.approx(line[field] / 1000, abs=1e-5)
        await until(lambda: received.spans)
        (trace_id,) = {span.trace_id.hex() for span in received.spans}
        (whole,) = [span for span in received.spans if not span.parent_span_id]
    assert trace_id == line["trace_id"]
    assert exemplar["timestamp"] == pytest.approx(whole.end_time_unix_nano / 1e9, abs=0.001)
