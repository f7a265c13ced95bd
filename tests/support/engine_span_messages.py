"""Engine spans as vLLM sends them."""

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

TRACE = "0af7651916cd43dd8448eb211c80319c"
TIMES = {"time_in_queue": 0.5, "time_in_model_prefill": 0.25, "time_in_model_decode": 2.0}
OWN_ID = "53d4abe7b140f38a"


def request_span(parent: str, times: dict[str, float] | None = None, span_id: str = OWN_ID) -> Span:
    """The span of a request, a child of the span `parent` (hex)."""
    latencies = TIMES if times is None else times
    attributes = [(f"gen_ai.latency.{name}", AnyValue(double_value=value)) for name, value in latencies.items()]
    attributes.append(("gen_ai.usage.completion_tokens", AnyValue(int_value=24)))
    return Span(
        trace_id=bytes.fromhex(TRACE),
        span_id=bytes.fromhex(span_id),
        parent_span_id=bytes.fromhex(parent),
        name="llm_request",
        kind=Span.SPAN_KIND_SERVER,
        start_time_unix_nano=1_700_000_000_000_000_000,
        end_time_unix_nano=1_700_000_002_750_000_000,
        attributes=[KeyValue(key=name, value=value) for name, value in attributes],
        flags=768,
    )


def loading() -> Span:
    """A span that vLLM sends during its start."""
    return Span(trace_id=bytes.fromhex(TRACE), span_id=b"12345678", parent_span_id=b"87654321", name="Load model")


def message(*spans: Span) -> ExportTraceServiceRequest:
    """An OTLP message with these spans."""
    scope = ScopeSpans(scope=InstrumentationScope(name="vllm.tracing.otel"), schema_url="of scope", spans=spans)
    service = KeyValue(key="service.name", value=AnyValue(string_value="vllm"))
    resource = ResourceSpans(resource=Resource(attributes=[service]), schema_url="of resource", scope_spans=[scope])
    return ExportTraceServiceRequest(resource_spans=[resource])


def sent(*spans: Span) -> bytes:
    return bytes(message(*spans).SerializeToString())
