"""Converts OTLP messages to spans, and reads from the sidecar's spans what requests are filtered by."""

import math
from collections.abc import Iterable
from typing import Any

import msgspec
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from exporters.records.messages import NOT_UNDERSTOOD
from exporters.sidecar.tracing.engine_spans import RefusedError, read_message
from exporters.vocabulary.signals import Outcome, Verdict
from exporters.vocabulary.verdicts import SERVER_FAULT

_LATEST = 2**63 - 1
"""The largest integer of SQLite, as a time in the year 2262."""

_SLO = "vllm_slo.slo."


class Event(msgspec.Struct, frozen=True):
    """Something at one moment of a span, in unix nanoseconds."""

    name: str
    time: int
    attributes: dict[str, Any]


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of a trace; times are unix nanoseconds, ids are hexadecimal."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    service: str
    start: int
    end: int
    error: bool
    message: str
    attributes: dict[str, Any]
    events: list[Event]

    @property
    def duration(self) -> int:
        return self.end - self.start


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the sidecar's span describes it; times are unix nanoseconds, None is unknown."""

    trace_id: str
    span_id: str
    start: int
    duration: int
    ttft: int | None
    request_id: str
    request_class: str = msgspec.field(name="class")
    tenant: str
    model: str
    route: str
    outcome: str
    verdict: str | None
    slos: dict[str, str]


def parse_spans(data: bytes) -> list[Span]:
    """The spans of a message.

    Raises:
        RefusedError: the data is not an OTLP message, is too large, or has a span without valid ids.
    """
    spans: list[Span] = []
    message, _ = read_message(data)
    for resource in message.resource_spans:
        service = str(_attributes(resource.resource.attributes).get("service.name", ""))
        for scope in resource.scope_spans:
            spans += [_span(span, service) for span in scope.spans]
    return spans


def request_of(span: Span) -> Request | None:
    """The request that a span of the sidecar describes; None for other spans."""
    outcome = span.attributes.get("vllm_slo.outcome")
    if outcome is None:
        return None
    slos = {key.removeprefix(_SLO): str(value) for key, value in span.attributes.items() if key.startswith(_SLO)}
    first = next((event.time for event in span.events if event.name == "first_token"), None)
    return Request(
        trace_id=span.trace_id,
        span_id=span.span_id,
        start=span.start,
        duration=span.duration,
        ttft=None if first is None else max(0, first - span.start),
        request_id=_text(span, "vllm_slo.request_id"),
        request_class=_text(span, "vllm_slo.class"),
        tenant=_text(span, "vllm_slo.tenant"),
        model=_text(span, "gen_ai.request.model"),
        route=_text(span, "url.path"),
        outcome=str(outcome),
        verdict=_verdict(span.attributes.get("vllm_slo.goodput"), slos, str(outcome)),
        slos=slos,
    )


def _text(span: Span, name: str) -> str:
    return str(span.attributes.get(name, ""))


def _verdict(goodput: Any, slos: dict[str, str], outcome: str) -> str | None:
    """The verdict by which the sidecar decides which traces are kept: failed and rejected requests are bad too."""
    failed = outcome == Outcome.REJECTED or outcome in SERVER_FAULT
    if failed or goodput is False or Verdict.BAD in slos.values():
        return Verdict.BAD.value
    if goodput is True:
        return Verdict.GOOD.value
    return Verdict.ABANDONED.value if slos else None


def _span(span: OtlpSpan, service: str) -> Span:
    if len(span.trace_id) != 16 or len(span.span_id) != 8:
        raise RefusedError(NOT_UNDERSTOOD)
    start = _time(span.start_time_unix_nano)
    return Span(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex() or None,
        name=span.name,
        service=service,
        start=start,
        end=max(start, _time(span.end_time_unix_nano)),
        error=span.status.code == Status.STATUS_CODE_ERROR,
        message=span.status.message,
        attributes=_attributes(span.attributes),
        events=[Event(event.name, _time(event.time_unix_nano), _attributes(event.attributes)) for event in span.events],
    )


def _time(nanoseconds: int) -> int:
    return min(nanoseconds, _LATEST)


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case None:
            return None
        case "array_value":
            return [_value(each) for each in value.array_value.values]
        case "kvlist_value":
            return _attributes(value.kvlist_value.values)
        case "bytes_value":
            return value.bytes_value.hex()
        case "double_value" if not math.isfinite(value.double_value):
            return str(value.double_value)
        case kind:
            return getattr(value, kind)
