"""Creates the spans of a request: a SERVER span with the verdicts, and child spans for the engine's times."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode
from opentelemetry.util.types import AttributeValue

from exporters.configuration.otlp_endpoints import Semconv
from exporters.records.messages import Finished
from exporters.vocabulary.signals import GENERATING, Endpoint, Outcome
from exporters.vocabulary.verdicts import SERVER_FAULT

PROVIDER = "vllm"
"""The value of the provider attribute; the conventions list only hosted services."""

_OPERATIONS = {**dict.fromkeys(GENERATING, "chat"), Endpoint.COMPLETIONS: "text_completion"}

SERVICE = "vllm-slo-sidecar"
LONGEST_TEXT = 256
"""Maximum length of model names and request ids, which clients choose."""

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_UNSET = Status(StatusCode.UNSET)
_ERROR = Status(StatusCode.ERROR)


@dataclass(frozen=True, slots=True)
class AttributeNames:
    """Attribute names of one version that depend on the version; `by_field` maps fields of a record to names."""

    provider: str
    by_field: dict[str, str]


_IN_ALL_VERSIONS = {
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "response_id": "gen_ai.response.id",
    "response_model": "gen_ai.response.model",
}
NAMES = {
    Semconv.V1_36: AttributeNames("gen_ai.system", _IN_ALL_VERSIONS),
    Semconv.V1_44: AttributeNames(
        "gen_ai.provider.name",
        {
            **_IN_ALL_VERSIONS,
            "stream": "gen_ai.request.stream",
            "ttft": "gen_ai.response.time_to_first_chunk",
            "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
            "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
        },
    ),
}


def resource(version: str) -> Resource:
    """The resource of the sidecar's spans; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override it."""
    merged = Resource.create({SERVICE_VERSION: version})
    if str(merged.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        merged = merged.merge(Resource({SERVICE_NAME: SERVICE}))
    return merged


class SpanMaker:
    """Creates spans from records; span ids depend only on the record, so that back ends can detect duplicates."""

    def __init__(self, semconv: Semconv, resource: Resource, version: str, engine: tuple[str, int]) -> None:
        self._names = NAMES[semconv]
        self._resource = resource
        self._scope = InstrumentationScope("vllm-slo", version)
        self._address, self._port = engine

    def spans(self, record: Finished, config_revision: str | None = None) -> list[ReadableSpan]:
        """The span of a request and its child spans; none if the record has no span id."""
        if record.trace_id is None or record.span_id is None:
            return []
        trace_id = int(record.trace_id, 16)
        context = SpanContext(trace_id, int(record.span_id, 16), is_remote=False, trace_flags=_SAMPLED)
        parent = None
        if record.parent_span_id is not None:
            flags = _SAMPLED if record.parent_sampled else TraceFlags()
            parent = SpanContext(trace_id, int(record.parent_span_id, 16), is_remote=True, trace_flags=flags)
        operation = _OPERATIONS.get(record.api, record.api.value)  # else such as `rerank`
        model = record.model[:LONGEST_TEXT]
        start = _nanoseconds(record.time)
        end = start + max(0, _nanoseconds(record.e2e))
        # Created as a finished span: a span from a tracer costs several times as much, and takes no given span id.
        request = ReadableSpan(
            name=f"{operation} {model}" if model else operation,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=self._attributes(record, operation, model, config_revision),
            events=_events(record, start),
            kind=SpanKind.SERVER,
            status=_ERROR if failed(record) else _UNSET,
            start_time=start,
            end_time=end,
            instrumentation_scope=self._scope,
        )
        return [request, *(self._child(context, *phase) for phase in _phases(record, start, end))]

    def _attributes(
        self, record: Finished, operation: str, model: str, config_revision: str | None
    ) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": operation,
            self._names.provider: PROVIDER,
            "server.address": self._address,
            "server.port": self._port,
            "url.path": record.route,
            "vllm_slo.request_id": record.request_id[:LONGEST_TEXT],
            "vllm_slo.class": record.request_class,
            "vllm_slo.tenant": record.tenant,
            "vllm_slo.outcome": record.outcome.value,
        }
        if model:
            attributes["gen_ai.request.model"] = model
        for field, name in self._names.by_field.items():
            value = getattr(record, field)
            if value is not None:
                attributes[name] = value
        if record.finish_reason is not None:
            attributes["gen_ai.response.finish_reasons"] = (record.finish_reason,)
        if record.status is not None:
            attributes["http.response.status_code"] = record.status
        if record.parent_sampled is not None:
            attributes["vllm_slo.parent_sampled"] = record.parent_sampled
        if config_revision is not None:
            attributes["vllm_slo.config_revision"] = config_revision
        if record.goodput is not None:
            attributes["vllm_slo.goodput"] = record.goodput
        for slo, verdict in record.slo.items():
            attributes[f"vllm_slo.slo.{slo}"] = verdict.value
        if failed(record):
            attributes["error.type"] = record.outcome.value
        return attributes

    def _child(self, parent: SpanContext, name: str, start: int, end: int) -> ReadableSpan:
        span_id = blake2b(f"{parent.span_id:x} {name}".encode(), digest_size=8).digest()
        return ReadableSpan(
            name=name,
            context=SpanContext(parent.trace_id, int.from_bytes(span_id, "big"), False, _SAMPLED),
            parent=parent,
            resource=self._resource,
            kind=SpanKind.INTERNAL,
            start_time=start,
            end_time=end,
            instrumentation_scope=self._scope,
        )


def failed(record: Finished) -> bool:
    """Whether the server failed; client aborts, client errors and status 429 are not failures."""
    if record.outcome is Outcome.REJECTED:
        return record.status is None or record.status >= 500
    return record.outcome in SERVER_FAULT


def _events(record: Finished, start: int) -> list[Event]:
    events = []
    if record.ttft is not None:
        events.append(Event("first_token", timestamp=start + _nanoseconds(record.ttft)))
        if record.ttft_answer is not None and record.ttft_answer > record.ttft:
            events.append(Event("first_answer_token", timestamp=start + _nanoseconds(record.ttft_answer)))
    for slo, at in record.bad_at.items():
        events.append(Event("slo_bad", {"vllm_slo.slo": slo}, start + _nanoseconds(at)))
    return events


def _phases(record: Finished, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    """Name, start and end of the phases: the engine's front end, its queue, prefill and decode.

    The engine reports only durations. So phases are placed around the first token, or before the end of a unary
    request, and are clipped to the span of the request.
    """
    decode = _nanoseconds(record.decode or 0.0)
    first = end - decode if record.ttft is None else start + _nanoseconds(record.ttft)
    scheduled = first - _nanoseconds(record.prefill or 0.0)
    queued = scheduled - _nanoseconds(record.queue or 0.0)
    for name, seconds, since, until in (
        ("frontend", record.frontend, queued - _nanoseconds(record.frontend or 0.0), queued),
        ("queue", record.queue, queued, scheduled),
        ("prefill", record.prefill, scheduled, first),
        ("decode", record.decode, first, first + decode),
    ):
        if seconds is not None:
            yield name, min(max(since, start), end), min(max(until, start), end)


def _nanoseconds(seconds: float) -> int:
    integral = int(seconds)  # a float of Unix nanoseconds has an error of up to 128
    return integral * 1_000_000_000 + round((seconds - integral) * 1e9)
