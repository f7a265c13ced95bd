"""OTLP messages of an engine, taken apart."""

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
        pytest.param({"time_in_queue": 0.0}, SpanTimes(0.0, None, None), id="no time at all is a time"),
        pytest.param(
            {"time_in_queue": -1.0, "time_in_model_prefill": float("nan"), "time_in_model_decode": float("inf")},
            SpanTimes(None, None, None),
            id="nonsense",
        ),
        pytest.param({}, SpanTimes(None, None, None), id="none"),
    ],
)
def test_a_span_tells_the_times_that_its_version_knows(attributes: dict[str, float], times: SpanTimes) -> None:
    (span,) = parse_message(sent(request_span(OURS, attributes)), with_spans=False).engine_spans
    assert (span.parent, span.times, span.times.present) == (OURS, times, times != SpanTimes(None, None, None))


def test_a_request_span_without_a_parent_is_nobodys_and_passed_on_with_the_others() -> None:
    root = request_span("")
    parsed = parse_message(sent(root, loading()), with_spans=True)
    assert (parsed.engine_spans, parsed.other_count) == ([], 2)
    assert parsed.other_spans == sent(root, loading())


def test_the_parts_of_a_message_are_its_spans_unchanged_with_their_resource_and_scope() -> None:
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


def test_where_spans_are_passed_on_to_nobody_none_is_kept() -> None:
    parsed = parse_message(sent(request_span(OURS), loading()), with_spans=False)
    assert [span.message for span in parsed.engine_spans] == [b""]
    assert (parsed.other_spans, parsed.other_count) == (b"", 0)


def refused(data: bytes) -> str:
    with pytest.raises(RefusedError) as caught:
        parse_message(decompress(data), with_spans=True)
    return str(caught.value)


def packed(data: bytes) -> bytes:
    return gzip.compress(data, 1)


def test_a_packed_message_is_the_message() -> None:
    assert decompress(packed(sent(loading()))) == sent(loading())


def test_a_bomb_is_given_up_where_it_becomes_too_large() -> None:
    bomb = packed(bytes(MESSAGE_BYTES + 1))
    assert len(bomb) < 30_000
    assert refused(bomb) == "too_large"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"no gzip at all", id="not packed"),
        pytest.param(packed(sent(loading()))[:-9], id="cut off"),
        pytest.param(packed(b"\xff\xff\xff"), id="packed nonsense"),
        pytest.param(packed(sent(loading())[:-1]), id="packed half of a message"),
    ],
)
def test_what_is_no_message_is_not_understood(data: bytes) -> None:
    assert refused(data) == "not_understood"


def test_random_bytes_are_refused_or_hold_no_span() -> None:
    dice = random.Random(5)  # noqa: S311 - repeatable, not secret
    for _ in range(2000):
        with contextlib.suppress(RefusedError):
            assert parse_message(dice.randbytes(dice.randrange(60)), with_spans=True).engine_spans == []


def test_a_message_of_nothing_but_empty_spans_is_refused_before_each_is_looked_at() -> None:
    spans = [Span()] * (MESSAGE_SPANS + 1)
    empty = ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=[ScopeSpans(spans=spans)])])
    with pytest.raises(RefusedError, match=r"^too_large$"):
        parse_message(empty.SerializeToString(), with_spans=True)
