"""Which traces are kept, by verdict, outcome, sampled flag and share."""

from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from exporters.configuration.otlp_endpoints import Semconv
from exporters.records.messages import Batch, Finished
from exporters.sidecar.http_api.http_server import exposition
from exporters.sidecar.ingest.receiver import RecordReceiver
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.sidecar.tracing.request_spans import SpanMaker
from exporters.sidecar.tracing.span_exporter import SpanQueue, keeps
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Outcome, Verdict
from tests.support.openmetrics import parse_openmetrics
from tests.support.sample_records import SLOS
from tests.support.sample_records import finished as sample

IN_HALF, NOT_IN_HALF = f"{'7' * 18}80000000000000", f"{'7' * 18}7fffffffffffff"
GOOD = {"ttft": Verdict.GOOD, "availability": Verdict.GOOD}


def finished(trace_id: str | None = NOT_IN_HALF, **fields: Any) -> Finished:
    return sample(**{"trace_id": trace_id, "span_id": "1" * 16, "slo": GOOD, "goodput": True, **fields})


@pytest.mark.parametrize("trace_id,kept", [pytest.param(IN_HALF, True), pytest.param(NOT_IN_HALF, False)])
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="good"),
        pytest.param({"slo": {}, "goodput": None}, id="no SLO"),
        pytest.param(
            {"outcome": Outcome.CLIENT_ABORT, "slo": {"ttft": Verdict.ABANDONED}, "goodput": None}, id="abort"
        ),
        pytest.param({"outcome": Outcome.CLIENT_ERROR, "status": 400, "slo": {}, "goodput": None}, id="client error"),
    ],
)
def test_a_request_that_is_not_bad_is_kept_if_its_trace_is_in_the_share(
    trace_id: str, kept: bool, fields: dict[str, Any]
) -> None:
    assert keeps(finished(trace_id, **fields), 0.5) is kept


BAD = [
    pytest.param({"slo": {"ttft": Verdict.BAD, "availability": Verdict.GOOD}, "goodput": False}, id="a bad verdict"),
    pytest.param({"slo": {}, "goodput": False}, id="goodput lost"),
    *(
        pytest.param({"outcome": outcome, "slo": {}, "goodput": None}, id=outcome.value)
        for outcome in Outcome
        if outcome not in {Outcome.OK, Outcome.CLIENT_ABORT, Outcome.CLIENT_ERROR}
    ),
]


@pytest.mark.parametrize("parent_sampled", [None, False, True])
@pytest.mark.parametrize("fields", BAD)
def test_a_bad_or_failed_request_is_always_kept(fields: dict[str, Any], parent_sampled: bool | None) -> None:
    assert keeps(finished(parent_sampled=parent_sampled, **fields), 0.0)


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("trace_id", [IN_HALF, NOT_IN_HALF])
def test_a_good_request_is_kept_as_its_client_sampled_it(trace_id: str, sampled: bool) -> None:
    assert keeps(finished(trace_id, parent_sampled=sampled), 0.5) is sampled


def test_a_request_without_a_span_has_no_trace_to_keep() -> None:
    assert not keeps(finished(span_id=None), 1.0)
    assert not keeps(finished(span_id=None, trace_id=None, goodput=False), 1.0)


def test_only_kept_traces_are_exported_and_are_exemplars() -> None:
    exporter = InMemorySpanExporter()
    maker = SpanMaker(Semconv.V1_44, Resource({}), "1", ("engine", 1))
    queue = SpanQueue(maker, exporter, "memory", good_share=0.5)
    metrics = RequestMetrics(SLOS)
    receiver = RecordReceiver(metrics, None, lambda: None, queue.add)
    # Each in a bucket of its own, so that no exemplar replaces another.
    late, sampled = "a" * 18 + "0" * 14, "b" * 18 + "0" * 14
    records = [
        finished(NOT_IN_HALF, e2e=0.2),
        finished(IN_HALF, e2e=0.9),
        finished(late, e2e=9.0, slo={"e2e": Verdict.BAD}, goodput=False),
        finished(sampled, e2e=40.0, parent_sampled=True, parent_span_id="2" * 16),
        finished("c" * 32, e2e=100.0, parent_sampled=False, parent_span_id="2" * 16),
    ]
    receiver.receive("run", Batch(1, list(records)))
    queue.close()
    kept = {f"{span.context.trace_id:032x}" for span in exporter.get_finished_spans() if span.context}
    assert kept == {IN_HALF, late, sampled}
    exposition(metrics.collect(0.0), "")  # the first exposition of a series is 0
    text, _ = exposition(metrics.collect(0.0), "application/openmetrics-text; version=1.0.0")
    exemplars = {
        each.exemplar.labels["trace_id"]: each.exemplar.value
        for family in parse_openmetrics(text.decode())
        for each in family.samples
        if each.exemplar is not None and each.name == signals.DURATION.bucket
    }
    assert exemplars == {IN_HALF: 0.9, late: 9.0, sampled: 40.0}
