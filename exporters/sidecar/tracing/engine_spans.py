"""Parses OTLP messages of the engine: separates `llm_request` spans from other spans."""

import zlib
from dataclasses import dataclass

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # the generated code has types
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from exporters.records.messages import NOT_UNDERSTOOD, TOO_LARGE
from exporters.vocabulary import engine_values, signals

MESSAGE_BYTES = 1024 * 1024
"""Maximum decompressed size: three full batches of vLLM (512 spans). Parsing takes 0.1 s at worst."""

MESSAGE_SPANS = 20_000
"""Maximum number of spans: an empty span takes two bytes, but several microseconds to parse."""

REQUEST_SPAN = "llm_request"
_SIGNALS = {
    "gen_ai.latency.time_in_queue": signals.QUEUE,
    "gen_ai.latency.time_in_model_prefill": signals.PREFILL,  # since scheduling, as in `metrics` of the response body
    "gen_ai.latency.time_in_model_decode": signals.DECODE,
}


class RefusedError(Exception):
    """The message is rejected; the text is the label value of the reason."""


@dataclass(frozen=True, slots=True)
class SpanTimes:
    """The engine times of one request in seconds; vLLM before 0.10 sends only the queue time."""

    queue: float | None
    prefill: float | None
    decode: float | None
    dropped: tuple[str, ...] = ()
    """The series that lack an implausible time."""

    @property
    def present(self) -> bool:
        return not self.queue is self.prefill is self.decode is None


@dataclass(frozen=True, slots=True)
class EngineSpan:
    """The engine span of a request; `parent` is the sidecar's span in hex, `message` an OTLP message with this span."""

    trace_id: str
    parent: str
    times: SpanTimes
    message: bytes


@dataclass(frozen=True, slots=True)
class Message:
    """The parts of an OTLP message; concatenated messages form one message."""

    engine_spans: list[EngineSpan]
    other_spans: bytes
    other_count: int


def decompress(data: bytes) -> bytes:
    """Decompress a gzipped message; raises RefusedError if the data is not gzip, or the message is too large."""
    decompressor = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        plain = decompressor.decompress(data, MESSAGE_BYTES + 1)
    except zlib.error as error:
        raise RefusedError(NOT_UNDERSTOOD) from error
    if len(plain) > MESSAGE_BYTES:
        raise RefusedError(TOO_LARGE)
    if not decompressor.eof:
        raise RefusedError(NOT_UNDERSTOOD)
    return plain


def read_message(data: bytes) -> tuple[ExportTraceServiceRequest, int]:
    """The message, and the number of its spans, both within their limits.

    Raises:
        RefusedError: the data is not an OTLP message, or is too large.
    """
    if len(data) > MESSAGE_BYTES:
        raise RefusedError(TOO_LARGE)
    try:
        message = ExportTraceServiceRequest.FromString(data)
    except DecodeError as error:
        raise RefusedError(NOT_UNDERSTOOD) from error
    count = sum(len(scope.spans) for resource in message.resource_spans for scope in resource.scope_spans)
    if count > MESSAGE_SPANS:
        raise RefusedError(TOO_LARGE)
    return message, count


def parse_message(data: bytes, *, with_spans: bool) -> Message:
    """Parse a message; without `with_spans` the spans are omitted, because nothing forwards them.

    Raises:
        RefusedError: the data is not an OTLP message, or is too large.
    """
    message, count = read_message(data)
    engine_spans = []
    for resource in message.resource_spans:
        for scope in resource.scope_spans:
            request_spans = [span for span in scope.spans if span.name == REQUEST_SPAN and span.parent_span_id]
            engine_spans += [
                EngineSpan(
                    span.trace_id.hex(),
                    span.parent_span_id.hex(),
                    _times(span),
                    _alone(resource, scope, span) if with_spans else b"",
                )
                for span in request_spans
            ]
            if request_spans and with_spans:
                other_spans = [span for span in scope.spans if span.name != REQUEST_SPAN or not span.parent_span_id]
                del scope.spans[:]
                scope.spans.extend(other_spans)
    if not with_spans:
        return Message(engine_spans, b"", 0)
    others = message.SerializeToString() if engine_spans else data
    return Message(engine_spans, others, count - len(engine_spans))


def _times(span: Span) -> SpanTimes:
    values = {
        signal: engine_values.seconds(pair.value.double_value)
        for pair in span.attributes
        if (signal := _SIGNALS.get(pair.key)) is not None and pair.value.WhichOneof("value") == "double_value"
    }
    return SpanTimes(
        values.get(signals.QUEUE),
        values.get(signals.PREFILL),
        values.get(signals.DECODE),
        tuple(signal.name for signal, value in values.items() if value is None),
    )


def _alone(resource: ResourceSpans, scope: ScopeSpans, span: Span) -> bytes:
    of_scope = ScopeSpans(scope=scope.scope, schema_url=scope.schema_url, spans=[span])
    of_resource = ResourceSpans(resource=resource.resource, schema_url=resource.schema_url, scope_spans=[of_scope])
    return bytes(ExportTraceServiceRequest(resource_spans=[of_resource]).SerializeToString())
