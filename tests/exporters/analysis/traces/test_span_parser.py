"""OTLP messages become spans, and the sidecar's spans become requests."""

import math

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from exporters.analysis.traces.span_parser import parse_spans, request_of
from exporters.sidecar.tracing.engine_spans import MESSAGE_BYTES, RefusedError
from exporters.vocabulary.signals import Outcome, Verdict
from tests.support.engine_span_messages import TRACE, request_span, sent
from tests.support.sample_traces import bad_request, encoded, good_request, request_spans


def test_a_request_has_what_the_sidecar_wrote_into_its_span() -> None:
    (span, *phases) = parse_spans(encoded(*bad_request(7)))
    assert [phase.name for phase in phases] == ["frontend", "queue", "prefill", "decode"]
    assert {phase.parent_id for phase in phases} == {span.span_id}
    assert [(event.name, event.attributes) for event in span.events] == [
        ("first_token", {}),
        ("slo_bad", {"vllm_slo.slo": "ttft"}),
    ]
    request = request_of(span)
    assert request is not None
    assert (request.trace_id, request.request_id, request.request_class) == (f"{7:032x}", "r-7", "short")
    assert (request.model, request.tenant, request.route) == ("tiny", "team-a", "/v1/chat/completions")
    assert (request.duration, request.ttft) == (6_000_000_000, 5_000_000_000)
    assert (request.verdict, request.slos, request.outcome) == ("bad", {"ttft": "bad", "e2e": "good"}, "ok")
    assert [request_of(phase) for phase in phases] == [None] * 4


@pytest.mark.parametrize(
    "fields, verdict",
    [
        pytest.param({"slo": {"ttft": Verdict.GOOD}, "goodput": True}, "good", id="good"),
        pytest.param({"slo": {"ttft": Verdict.BAD}, "goodput": False}, "bad", id="an SLO missed"),
        pytest.param({"outcome": Outcome.REJECTED, "status": 429}, "bad", id="rejected"),
        pytest.param({"outcome": Outcome.UPSTREAM_ERROR}, "bad", id="failed"),
        pytest.param({"slo": {"ttft": Verdict.ABANDONED}, "outcome": Outcome.CLIENT_ABORT}, "abandoned", id="aborted"),
        pytest.param({"outcome": Outcome.CLIENT_ERROR, "status": 400}, None, id="not judged"),
    ],
)
def test_the_verdict_is_the_one_by_which_the_sidecar_keeps_traces(
    fields: dict[str, object], verdict: str | None
) -> None:
    request = request_of(parse_spans(encoded(*request_spans(1, **fields)))[0])
    assert request is not None
    assert request.verdict == verdict


def test_a_span_of_the_engine_is_kept_with_its_service() -> None:
    (span,) = parse_spans(sent(request_span("00f067aa0ba902b7")))
    assert (span.trace_id, span.parent_id, span.name, span.service) == (
        TRACE,
        "00f067aa0ba902b7",
        "llm_request",
        "vllm",
    )
    assert span.attributes["gen_ai.latency.time_in_queue"] == 0.5
    assert request_of(span) is None


def message(**fields: object) -> bytes:
    span = Span(**{"trace_id": bytes(15) + b"1", "span_id": bytes(7) + b"2", **fields})  # type: ignore[arg-type]
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.append(span)
    return bytes(request.SerializeToString())


def test_every_kind_of_attribute_has_a_value() -> None:
    nested = AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="k", value=AnyValue(int_value=2**62))]))
    values = {
        "bool": AnyValue(bool_value=True),
        "bytes": AnyValue(bytes_value=b"\x00\xff"),
        "nan": AnyValue(double_value=math.nan),
        "none": AnyValue(),
        "list": AnyValue(array_value=ArrayValue(values=[AnyValue(string_value="a"), nested])),
    }
    (span,) = parse_spans(message(attributes=[KeyValue(key=key, value=value) for key, value in values.items()]))
    assert span.attributes == {"bool": True, "bytes": "00ff", "nan": "nan", "none": None, "list": ["a", {"k": 2**62}]}


def test_times_that_no_calendar_has_are_limited_and_no_duration_is_negative() -> None:
    (late,) = parse_spans(message(start_time_unix_nano=2**64 - 1, end_time_unix_nano=5))
    assert late.duration == 0
    assert late.start < 2**63
    (failed,) = parse_spans(message(status=Status(code=Status.STATUS_CODE_ERROR, message="why")))
    assert (failed.error, failed.message) == (True, "why")


@pytest.mark.parametrize(
    "data, reason",
    [
        pytest.param(b"\xff\xff\xff", "not_understood", id="no protobuf"),
        pytest.param(message(trace_id=b"short"), "not_understood", id="a trace id of 5 bytes"),
        pytest.param(message(span_id=b""), "not_understood", id="no span id"),
        pytest.param(bytes(MESSAGE_BYTES + 1), "too_large", id="too many bytes"),
        pytest.param(sent(*[request_span("00f067aa0ba902b7")] * 1)[:-1], "not_understood", id="cut"),
    ],
)
def test_a_message_that_cannot_be_stored_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_spans(data)
    assert str(caught.value) == reason


def test_good_requests_have_a_first_token_too() -> None:
    request = request_of(parse_spans(encoded(*good_request(1)))[0])
    assert request is not None
    assert request.ttft == 125_000_000
