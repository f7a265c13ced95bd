"""Traces of requests as the sidecar and an engine send them."""

from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan

from exporters.configuration.otlp_endpoints import Semconv
from exporters.sidecar.tracing.request_spans import SpanMaker
from exporters.vocabulary.signals import Verdict
from tests.support.sample_records import finished

NOW = 1_700_000_000.0
MAKER = SpanMaker(Semconv.V1_44, Resource({"service.name": "vllm-slo-sidecar"}), "1.2.3", ("engine", 8000))


def request_spans(number: int, **fields: Any) -> list[ReadableSpan]:
    """The spans of one request; its ids follow from its number."""
    ids = {"trace_id": f"{number:032x}", "span_id": f"{number:016x}", "request_id": f"r-{number}"}
    return MAKER.spans(finished(**{**ids, "time": NOW - number, **fields}))


def bad_request(number: int, **fields: Any) -> list[ReadableSpan]:
    """A request that missed `ttft` after 0.333 s, and had its first token after 5 s."""
    times = {"ttft": 5.0, "e2e": 6.0, "queue": 4.5, "prefill": 0.25, "decode": 1.0}
    verdicts = {"slo": {"ttft": Verdict.BAD, "e2e": Verdict.GOOD}, "goodput": False, "bad_at": {"ttft": 0.333}}
    return request_spans(number, **{**times, **verdicts, **fields})


def good_request(number: int, **fields: Any) -> list[ReadableSpan]:
    return request_spans(number, **{"slo": {"ttft": Verdict.GOOD}, "goodput": True, "ttft": 0.125, **fields})


def encoded(*spans: ReadableSpan) -> bytes:
    """One OTLP message."""
    return bytes(encode_spans(spans).SerializeToString())
