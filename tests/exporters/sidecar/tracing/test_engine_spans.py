"""Parsing of OTLP messages of an engine."""

import contextlib
import gzip
import random

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from exporters.sidecar.tracing.engine_spans import (
    MESSAGE_BYTES,
    MESSAGE_SPANS,
    RefusedError,
    SpanTimes,
    decompress,
    parse_message,
)
from exporters.vocabulary.signals import DECODE, PREFILL, QUEUE
from tests.support.engine_span_messages import loading, message, request_span, sent

OURS = "00f067aa0ba902b7"
OTHER = "b7ad6b7169203331"


@pytest.mark.parametrize(
    "attributes,times",
    [
        pytest.param(
            {"time_in_queue": 0.5, "time_in_model_prefill": 0.25, "time_in_model_decode": 2.0},
            SpanTimes(0.5, 0.25, 2.0),
            id="vLLM since 0.10",
        ),
        pytest.param({"time_in_queue": 0.5, "time_in_scheduler": 0.1}, SpanTimes(0.5, None, None), id="vLLM before"),
        pytest.param({"time_in_queue": 0.0}, SpanTimes(0.0, None, None), id="zero is a time"),
        pytest.param(
            {"time_in_queue": -1.0, "time_in_model_prefill": float("nan"), "time_in_model_decode": float("inf")},
            SpanTimes(None, None, None, (QUEUE.name, PREFILL.name, DECODE.name)),
            id="invalid times",
        ),
        pytest.param(
            {"time_in_queue": 90_000.0, "time_in_model_decode": 2.0},
            SpanTimes(None, None, 2.0, (QUEUE.name,)),
            id="a time above a day",
        ),
        pytest.param({}, SpanTimes(None, None, None), id="none"),
    ],
)
def test_a_span_has_the_times_of_its_vllm_version(attributes: dict[str, float], times: SpanTimes) -> None:
    (span,) = parse_message(sent(request_span(OURS, attributes)), with_spans=False).engine_spans
    assert (span.parent, span.times, span.times.present) == (OURS, times, (times.queue, times.decode) != (None, None))


def test_a_request_span_without_a_parent_is_forwarded_with_the_others() -> None:
    root = request_span("")
    parsed = parse_message(sent(root, loading()), with_spans=True)
    assert (parsed.engine_spans, parsed.other_count) == ([], 2)
    assert parsed.other_spans == sent(root, loading())


def test_the_parts_of_a_message_keep_spans_resource_and_scope() -> None:
    parsed = parse_message(sent(request_span(OURS), loading(), request_span(OTHER)), with_spans=True)
    assert [span.parent for span in parsed.engine_spans] == [OURS, OTHER]
    messages = [span.message for span in parsed.engine_spans]
    assert messages == [sent(request_span(OURS)), sent(request_span(OTHER))]
    assert (parsed.other_spans, parsed.other_count) == (sent(loading()), 1)
    together = ExportTraceServiceRequest.FromString(b"".join([*messages, parsed.other_spans]))
    assert together.resource_spans == [
        *message(request_span(OURS)).resource_spans,
        *message(request_span(OTHER)).resource_spans,
        *message(loading()).resource_spans,
    ]


def test_without_forwarding_no_span_is_kept() -> None:
    parsed = parse_message(sent(request_span(OURS), loading()), with_spans=False)
    assert [span.message for span in parsed.engine_spans] == [b""]
    assert (parsed.other_spans, parsed.other_count) == (b"", 0)


def refused(data: bytes) -> str:
    with pytest.raises(RefusedError) as caught:
        parse_message(decompress(data), with_spans=True)
    return str(caught.value)


def packed(data: bytes) -> bytes:
    return gzip.compress(data, 1)


def test_a_compressed_message_is_decompressed() -> None:
    assert decompress(packed(sent(loading()))) == sent(loading())


def test_decompression_stops_at_the_size_limit() -> None:
    bomb = packed(bytes(MESSAGE_BYTES + 1))
    assert len(bomb) < 30_000
    assert refused(bomb) == "too_large"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"no gzip at all", id="not compressed"),
        pytest.param(packed(sent(loading()))[:-9], id="incomplete gzip"),
        pytest.param(packed(b"\xff\xff\xff"), id="no OTLP"),
        pytest.param(packed(sent(loading())[:-1]), id="incomplete OTLP"),
    ],
)
def test_an_invalid_message_is_not_understood(data: bytes) -> None:
    assert refused(data) == "not_understood"


def test_random_bytes_are_rejected_or_contain_no_span() -> None:
    dice = random.Random(5)  # noqa: S311 - repeatable, not secret
    for _ in range(2000):
        with contextlib.suppress(RefusedError):
            assert parse_message(dice.randbytes(dice.randrange(60)), with_spans=True).engine_spans == []


def test_a_message_with_too_many_empty_spans_is_rejected() -> None:
    spans = [Span()] * (MESSAGE_SPANS + 1)
    empty = ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=[ScopeSpans(spans=spans)])])
    with pytest.raises(RefusedError, match=r"^too_large$"):
        parse_message(empty.SerializeToString(), with_spans=True)
