"""Trace headers through the relay, with tracing on and off."""

import time
from pathlib import Path

import pytest

from exporters.configuration.otlp_endpoints import Collector, Receiver
from exporters.configuration.trace_sampling import in_share
from exporters.vocabulary.signals import Verdict
from tests.support.scripted_relay import CHAT, STREAM_HEAD, Received, holds, ok, post, staged, whole_stream
from tests.support.waiting import until

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
STATE = "tracestate: vendor=a,other=b\r\n"
COLLECTOR = Collector(url="http://127.0.0.1:1/v1/traces")


def sent(received: Received, name: str) -> list[str]:
    lines = received.head.decode().split("\r\n")
    return [line.partition(": ")[2] for line in lines if line.startswith(f"{name}: ")]


async def test_with_tracing_off_headers_pass_untouched_and_the_log_has_the_trace(tmp_path: Path) -> None:
    async with staged(tmp_path, whole_stream) as stage:
        await stage.ask(post(CHAT, headers=f"traceparent: 00-{TRACE}-{SPAN}-00\r\n{STATE}"))
        await stage.ask(post(CHAT))
        await stage.ask(post(CHAT, headers=f"traceparent: 00-{TRACE}\r\n{STATE}"))
        first, second, third = await stage.record(1), await stage.record(2), await stage.record(3)
    assert sent(stage.requests[0], "traceparent") == [f"00-{TRACE}-{SPAN}-00"]
    assert sent(stage.requests[0], "tracestate") == ["vendor=a,other=b"]
    assert (first.trace_id, first.span_id, first.parent_span_id) == (TRACE, None, SPAN)
    assert sent(stage.requests[1], "traceparent") == []
    assert second.trace_id is None
    assert sent(stage.requests[2], "traceparent") == [f"00-{TRACE}"]
    assert sent(stage.requests[2], "tracestate") == ["vendor=a,other=b"]
    assert third.trace_id is None


@pytest.mark.parametrize("flags", ["00", "01"])
async def test_with_tracing_on_the_engine_gets_our_span_as_parent_and_the_clients_sampled_flag(
    tmp_path: Path, flags: str
) -> None:
    async with staged(tmp_path, whole_stream, otlp=COLLECTOR) as stage:
        await stage.ask(post(CHAT, headers=f"traceparent: 00-{TRACE}-{SPAN}-{flags}\r\n{STATE}"))
        record = await stage.record()
    assert (record.trace_id, record.parent_span_id, record.parent_sampled) == (TRACE, SPAN, flags == "01")
    assert record.span_id not in {None, SPAN}
    assert sent(stage.requests[0], "traceparent") == [f"00-{TRACE}-{record.span_id}-{flags}"]
    assert sent(stage.requests[0], "tracestate") == ["vendor=a,other=b"]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
async def test_without_a_client_the_sampled_flag_for_the_engine_is_whether_the_trace_is_in_the_share(
    tmp_path: Path, share: float
) -> None:
    collector = Collector(url="http://127.0.0.1:1/v1/traces", good_share=share)
    async with staged(tmp_path, whole_stream, otlp=collector) as stage:
        await stage.ask(post(CHAT))
        record = await stage.record()
    assert record.trace_id is not None
    flags = "01" if in_share(record.trace_id, share) else "00"
    assert sent(stage.requests[0], "traceparent") == [f"00-{record.trace_id}-{record.span_id}-{flags}"]


@pytest.mark.parametrize("collector", [Collector(url="http://127.0.0.1:1/v1/traces", good_share=0.0), None])
async def test_engine_spans_that_the_sidecar_receives_are_always_sampled_because_they_wait_for_the_verdicts(
    tmp_path: Path, collector: Collector | None
) -> None:
    receivers = (Receiver(True, "127.0.0.1", 1),)
    async with staged(tmp_path, whole_stream, otlp=collector, engine_spans=receivers) as stage:
        await stage.ask(post(CHAT, headers=f"traceparent: 00-{TRACE}-{SPAN}-00\r\n"))
        await stage.ask(post(CHAT))
        first, second = await stage.record(1), await stage.record(2)
    assert sent(stage.requests[0], "traceparent") == [f"00-{TRACE}-{first.span_id}-01"]
    assert sent(stage.requests[1], "traceparent") == [f"00-{second.trace_id}-{second.span_id}-01"]


async def test_paths_that_are_not_metered_have_no_span_and_keep_their_headers(tmp_path: Path) -> None:
    async with staged(tmp_path, ok, otlp=COLLECTOR) as stage:
        head = f"GET /v1/models HTTP/1.1\r\nhost: x\r\ntraceparent: 00-{TRACE}-{SPAN}-01\r\nconnection: close\r\n\r\n"
        await stage.ask(head.encode())
        record = await stage.record()
    assert sent(stage.requests[0], "traceparent") == [f"00-{TRACE}-{SPAN}-01"]
    assert (record.trace_id, record.span_id) == (TRACE, None)


@pytest.mark.parametrize("otlp", [COLLECTOR, None])
async def test_with_tracing_on_the_record_has_the_time_at_which_a_deadline_passed(
    tmp_path: Path, otlp: Collector | None
) -> None:
    async with staged(tmp_path, holds(STREAM_HEAD), otlp=otlp) as stage:
        client = await stage.client(post(CHAT, headers=f"x-request-start: t={time.time() - 40:.6f}\r\n"))
        await until(lambda: stage.judged)
        client.leave()
        record = await stage.record()
    assert stage.judged[0].slo == {"ttft": Verdict.BAD}
    if otlp is None:
        assert record.bad_at == {}
    else:
        assert record.bad_at.keys() == {"ttft"}
        assert 40 <= record.bad_at["ttft"] <= record.e2e
