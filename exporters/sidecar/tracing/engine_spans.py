"""Reads an OTLP message of the engine: its `llm_request` spans apart from all others, which are nobody's business."""

import math
import zlib
from dataclasses import dataclass

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # the generated code has types
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

MESSAGE_BYTES = 1024 * 1024
"""The largest message, unpacked: three full batches of vLLM's (512 spans). Reading the worst that fits takes 0.1 s."""

MESSAGE_SPANS = 20_000
"""An empty span takes two bytes of a message and several microseconds of ours."""

REQUEST_SPAN = "llm_request"
_QUEUE = "gen_ai.latency.time_in_queue"
_PREFILL = "gen_ai.latency.time_in_model_prefill"  # from scheduled to first token, as the body's metrics have it
_DECODE = "gen_ai.latency.time_in_model_decode"


class RefusedError(Exception):
    """A message that is not read; the text is the reason as the series names it."""


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """What the engine says of one request, in seconds; vLLM before 0.10 tells the time in the queue alone."""

    queue: float | None
    prefill: float | None
    decode: float | None

    @property
    def known(self) -> bool:
        return not self.queue is self.prefill is self.decode is None


@dataclass(frozen=True, slots=True)
class EngineSpan:
    """The engine's span of one request; `parent` is our span in hex, `message` an OTLP message of it alone."""

    parent: str
    times: EngineTimes
    message: bytes


@dataclass(frozen=True, slots=True)
class Message:
    """One OTLP message taken apart; messages appended to each other are one message again."""

    engine: list[EngineSpan]
    others: bytes
    other_count: int


def unpack(data: bytes) -> bytes:
    """What a gzipped message holds.

    Raises:
        RefusedError: it is none, or unpacks to more than a message may have.
    """
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        plain = unpacker.decompress(data, MESSAGE_BYTES + 1)
    except zlib.error as error:
        raise RefusedError("not_understood") from error
    if len(plain) > MESSAGE_BYTES:
        raise RefusedError("too_large")
    if not unpacker.eof:
        raise RefusedError("not_understood")
    return plain


def read(data: bytes, *, whole: bool) -> Message:
    """Take a message apart; without `whole` the spans themselves are left out, for nobody to be passed on to.

    Raises:
        RefusedError: it is no OTLP message, or has too many spans.
    """
    if len(data) > MESSAGE_BYTES:
        raise RefusedError("too_large")
    try:
        message = ExportTraceServiceRequest.FromString(data)
    except DecodeError as error:
        raise RefusedError("not_understood") from error
    count = sum(len(scope.spans) for resource in message.resource_spans for scope in resource.scope_spans)
    if count > MESSAGE_SPANS:
        raise RefusedError("too_large")
    engine = []
    for resource in message.resource_spans:
        for scope in resource.scope_spans:
            ours = [span for span in scope.spans if span.name == REQUEST_SPAN and span.parent_span_id]
            engine += [
                EngineSpan(span.parent_span_id.hex(), _times(span), _alone(resource, scope, span) if whole else b"")
                for span in ours
            ]
            if ours and whole:
                others = [span for span in scope.spans if span.name != REQUEST_SPAN or not span.parent_span_id]
                del scope.spans[:]
                scope.spans.extend(others)
    if not whole:
        return Message(engine, b"", 0)
    return Message(engine, message.SerializeToString() if engine else data, count - len(engine))


def _times(span: Span) -> EngineTimes:
    given = {
        pair.key: pair.value.double_value
        for pair in span.attributes
        if pair.value.WhichOneof("value") == "double_value"
        and math.isfinite(pair.value.double_value)
        and pair.value.double_value >= 0
    }
    return EngineTimes(given.get(_QUEUE), given.get(_PREFILL), given.get(_DECODE))


def _alone(resource: ResourceSpans, scope: ScopeSpans, span: Span) -> bytes:
    of_scope = ScopeSpans(scope=scope.scope, schema_url=scope.schema_url, spans=[span])
    of_resource = ResourceSpans(resource=resource.resource, schema_url=resource.schema_url, scope_spans=[of_scope])
    return bytes(ExportTraceServiceRequest(resource_spans=[of_resource]).SerializeToString())
