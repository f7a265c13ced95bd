"""Spans created from records, and their queue for a collector that may be down."""

import logging
import re
import threading
import time
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from opentelemetry.trace.status import StatusCode

from exporters.configuration.otlp_endpoints import Semconv
from exporters.records.messages import Finished
from exporters.sidecar.tracing.request_spans import LONGEST_TEXT, SpanMaker, resource
from exporters.sidecar.tracing.span_exporter import SpanQueue
from exporters.vocabulary.signals import Endpoint, Outcome, Verdict
from tests.support.refused_threads import refuse_threads
from tests.support.sample_records import finished as sample

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
OURS = "00f067aa0ba902b7"


def finished(outcome: Outcome = Outcome.OK, **fields: object) -> Finished:
    return sample(**{"time": 1.7e9, "trace_id": TRACE, "span_id": OURS, "outcome": outcome, **fields})


def maker(semconv: Semconv = Semconv.V1_44) -> SpanMaker:
    return SpanMaker(semconv, Resource({"service.name": "it"}), "1.2.3", ("engine", 8000))


def spans(record: Finished, semconv: Semconv = Semconv.V1_44) -> list[ReadableSpan]:
    """The spans that a collector receives."""
    exporter = InMemorySpanExporter()
    span_queue = SpanQueue(maker(semconv), exporter, "memory")
    span_queue.add(record)
    span_queue.close()
    return list(exporter.get_finished_spans())


FULL = finished(
    parent_span_id=PARENT,
    parent_sampled=False,
    max_tokens=50,
    temperature=0.5,
    prompt_tokens=7,
    completion_tokens=3,
    cached_tokens=4,
    reasoning_tokens=2,
    finish_reason="stop",
    ttft=0.5,
    ttft_answer=0.75,
    slo={"ttft": Verdict.GOOD, "itl": Verdict.BAD, "availability": Verdict.ABANDONED},
    goodput=False,
    response_id="chatcmpl-1",
    response_model="tiny-v2",
    bad_at={"itl": 1.25},
)


def test_a_span_has_attributes_of_the_request_the_outcome_and_the_verdicts() -> None:
    (span,) = maker().spans(FULL, "0123456789ab")
    assert span.name == "chat tiny"
    assert span.kind is SpanKind.SERVER
    assert span.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 50,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.model": "tiny-v2",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.time_to_first_chunk": 0.5,
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.reasoning.output_tokens": 2,
        "server.address": "engine",
        "server.port": 8000,
        "url.path": "/v1/chat/completions",
        "http.response.status_code": 200,
        "vllm_slo.request_id": "r-1",
        "vllm_slo.class": "short",
        "vllm_slo.tenant": "team-a",
        "vllm_slo.outcome": "ok",
        "vllm_slo.goodput": False,
        "vllm_slo.config_revision": "0123456789ab",
        "vllm_slo.parent_sampled": False,
        "vllm_slo.slo.ttft": "good",
        "vllm_slo.slo.itl": "bad",
        "vllm_slo.slo.availability": "abandoned",
    }
    assert [(event.name, event.timestamp, event.attributes) for event in span.events] == [
        ("first_token", 1_700_000_000_500_000_000, None),
        ("first_answer_token", 1_700_000_000_750_000_000, None),
        ("slo_bad", 1_700_000_001_250_000_000, {"vllm_slo.slo": "itl"}),
    ]
    assert (span.start_time, span.end_time) == (1_700_000_000_000_000_000, 1_700_000_001_500_000_000)


def test_a_span_has_the_id_of_the_record_and_is_a_child_of_the_clients_span() -> None:
    (span,) = spans(FULL)
    assert span.context is not None
    assert (f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}") == (TRACE, OURS)
    assert span.parent is not None
    assert (span.parent.span_id, span.parent.is_remote) == (int(PARENT, 16), True)
    (root,) = spans(finished())
    assert root.parent is None


@pytest.mark.parametrize(
    "outcome,status,failed",
    [
        pytest.param(Outcome.OK, 200, False, id="ok"),
        pytest.param(Outcome.CLIENT_ABORT, 200, False, id="client abort"),
        pytest.param(Outcome.CLIENT_ABORT, None, False, id="client abort before a response"),
        pytest.param(Outcome.CLIENT_ERROR, 400, False, id="client error"),
        pytest.param(Outcome.REJECTED, 429, False, id="rejected, rate limit"),
        pytest.param(Outcome.REJECTED, 503, True, id="rejected, unavailable"),
        pytest.param(Outcome.TIMEOUT_FIRST_TOKEN, 504, True, id="timeout before the first token"),
        pytest.param(Outcome.TIMEOUT_IDLE, 200, True, id="timeout in the stream"),
        pytest.param(Outcome.TRUNCATED, 200, True, id="truncated"),
        pytest.param(Outcome.UPSTREAM_ERROR, 200, True, id="error in the stream"),
        pytest.param(Outcome.UPSTREAM_UNREACHABLE, 502, True, id="unreachable"),
    ],
)
def test_the_status_is_an_error_if_the_server_failed(outcome: Outcome, status: int | None, failed: bool) -> None:
    (span,) = spans(finished(outcome, status=status))
    assert span.attributes is not None
    assert span.status.status_code is (StatusCode.ERROR if failed else StatusCode.UNSET)
    assert span.attributes.get("error.type") == (outcome.value if failed else None)
    assert span.attributes["vllm_slo.outcome"] == outcome.value


@pytest.mark.parametrize(
    "api, operation",
    [
        (Endpoint.CHAT_COMPLETIONS, "chat"),
        (Endpoint.RESPONSES, "chat"),
        (Endpoint.MESSAGES, "chat"),
        (Endpoint.COMPLETIONS, "text_completion"),
        (Endpoint.EMBEDDINGS, "embeddings"),
        (Endpoint.AUDIO_TRANSCRIPTIONS, "audio_transcriptions"),
    ],
)
def test_each_endpoint_has_its_operation(api: Endpoint, operation: str) -> None:
    (span,) = spans(finished(api=api))
    assert span.attributes is not None
    assert (span.name.partition(" ")[0], span.attributes["gen_ai.operation.name"]) == (operation, operation)


def test_unknown_values_are_absent() -> None:
    (span,) = spans(finished(model="", status=None, api=Endpoint.COMPLETIONS))
    assert span.name == "text_completion"
    assert span.events == ()
    assert set(span.attributes or {}) == {
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.stream",
        "server.address",
        "server.port",
        "url.path",
        "vllm_slo.request_id",
        "vllm_slo.class",
        "vllm_slo.tenant",
        "vllm_slo.outcome",
    }


def test_text_from_clients_is_truncated() -> None:
    (span,) = spans(finished(model="m" * 100_000, request_id="r" * 100_000))
    assert span.attributes is not None
    assert span.name == "chat " + "m" * LONGEST_TEXT
    assert span.attributes["gen_ai.request.model"] == "m" * LONGEST_TEXT
    assert span.attributes["vllm_slo.request_id"] == "r" * LONGEST_TEXT


def test_a_record_without_a_span_id_makes_no_span() -> None:
    assert spans(finished(span_id=None)) == []


def test_the_engines_times_are_children_around_the_first_token() -> None:
    whole, *children = spans(finished(ttft=0.5, queue=0.2, prefill=0.25, decode=0.75))
    assert whole.start_time is not None
    attributes = {
        child.name: ((child.start_time or 0) - whole.start_time, (child.end_time or 0) - whole.start_time)
        for child in children
    }
    assert attributes == {
        "frontend": (0, 50_000_000),
        "queue": (50_000_000, 250_000_000),
        "prefill": (250_000_000, 500_000_000),
        "decode": (500_000_000, 1_250_000_000),
    }
    assert all(child.parent == whole.context for child in children)
    assert {child.kind for child in children} == {SpanKind.INTERNAL}


def test_the_front_end_time_begins_with_the_end_of_the_upload() -> None:
    whole, frontend, *_ = spans(finished(ttft=0.5, before_relay=0.25, queue=0.0625, prefill=0.125))
    assert whole.start_time is not None
    assert frontend.name == "frontend"
    assert frontend.start_time == whole.start_time + 250_000_000
    assert frontend.end_time == whole.start_time + 312_500_000


def test_the_engines_times_of_a_unary_request_are_placed_before_its_end_and_clipped() -> None:
    whole, queue, prefill, decode = spans(finished(stream=False, queue=9.0, prefill=0.25, decode=0.75))
    assert (decode.start_time, decode.end_time) == (1_700_000_000_750_000_000, whole.end_time)
    assert (prefill.start_time, prefill.end_time) == (1_700_000_000_500_000_000, decode.start_time)
    assert (queue.start_time, queue.end_time) == (whole.start_time, prefill.start_time)


def test_a_repeated_record_has_the_same_span_ids() -> None:
    record = finished(queue=0.1, prefill=0.1, decode=0.1)
    first, again = maker().spans(record), maker().spans(record)
    assert [span.context for span in first] == [span.context for span in again]
    assert len({span.context.span_id for span in first if span.context}) == 4


@pytest.mark.parametrize(
    "environment,name",
    [
        pytest.param({}, "vllm-slo-sidecar", id="default"),
        pytest.param({"OTEL_SERVICE_NAME": "mine"}, "mine", id="OTEL_SERVICE_NAME"),
        pytest.param({"OTEL_RESOURCE_ATTRIBUTES": "service.name=mine,a=b"}, "mine", id="OTEL_RESOURCE_ATTRIBUTES"),
    ],
)
def test_the_environment_overrides_the_service_name(
    environment: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    assert resource("1.2.3").attributes["service.name"] == name


class ScriptedExporter(SpanExporter):
    """A collector with a scripted result, which can hang."""

    def __init__(self) -> None:
        self.result: SpanExportResult | Exception = SpanExportResult.SUCCESS
        self.started = threading.Semaphore(0)
        self.may_finish = threading.Event()
        self.may_finish.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.started.release()
        self.may_finish.wait(10)
        if isinstance(self.result, Exception):
            raise self.result
        if self.result is SpanExportResult.FAILURE:
            logging.getLogger("opentelemetry.exporter").error("Failed to export: %s", "connection refused")
        return self.result


def counts(span_queue: SpanQueue) -> dict[str, float]:
    return {
        sample.labels.get("reason", "exported"): sample.value
        for family in span_queue.collect()
        for sample in family.samples
    }


def flush(span_queue: SpanQueue) -> None:
    span_queue._processor.force_flush()


def test_spans_for_a_collector_that_is_down_are_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    collector = ScriptedExporter()
    span_queue = SpanQueue(maker(), collector, "the collector")
    collector.result = SpanExportResult.FAILURE
    for _ in range(3):
        span_queue.add(finished())
        flush(span_queue)
    collector.result = ValueError("boom")
    span_queue.add(finished())
    flush(span_queue)
    assert counts(span_queue) == {"exported": 0, "queue_full": 0, "export_failed": 4, "fault": 0}
    collector.result = SpanExportResult.SUCCESS
    for _ in range(2):
        span_queue.add(finished())
        flush(span_queue)
    assert counts(span_queue) == {"exported": 2, "queue_full": 0, "export_failed": 4, "fault": 0}
    span_queue.close()
    down, up = caplog.messages
    assert down.startswith("the collector does not accept spans; dropping them: ")
    assert down.endswith("Failed to export: connection refused")
    assert up == "the collector accepts spans again; 4 were dropped"


def test_the_queue_for_a_collector_that_hangs_is_bounded_and_does_not_block(caplog: pytest.LogCaptureFixture) -> None:
    collector = ScriptedExporter()
    collector.may_finish.clear()
    span_queue = SpanQueue(maker(), collector, "the collector", max_spans=8, batch=4)
    for _ in range(4):
        span_queue.add(finished())
    assert collector.started.acquire(timeout=120)  # four are in an export
    for _ in range(10):
        span_queue.add(finished())
    assert counts(span_queue) == {"exported": 0, "queue_full": 2, "export_failed": 0, "fault": 0}
    span_queue.add(finished(queue=0.1))  # two spans
    assert counts(span_queue)["queue_full"] == 4
    span_queue.close(timeout=0.05)
    assert caplog.messages == ["12 spans were not sent within 0.05 s"]
    collector.may_finish.set()
    while counts(span_queue)["export_failed"] < 8:  # else its log line reaches the next test
        time.sleep(0.01)


def test_a_failure_to_create_a_span_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    span_queue = SpanQueue(maker(), InMemorySpanExporter(), "memory")
    for _ in range(2):
        span_queue.add(finished(trace_id="no hex"))
    span_queue.close()
    assert counts(span_queue)["fault"] == 2
    (message,) = caplog.messages
    assert re.fullmatch(r"failed to create spans: ValueError at \S+/trace_sampling\.py:\d+", message)


def test_spans_are_sent_at_the_end_also_if_the_system_refuses_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = InMemorySpanExporter()
    span_queue = SpanQueue(maker(), memory, "memory")
    span_queue.add(finished(trace_id="1" * 32, span_id="2" * 16))
    refuse_threads(monkeypatch)
    span_queue.close()
    assert len(memory.get_finished_spans()) == 1
