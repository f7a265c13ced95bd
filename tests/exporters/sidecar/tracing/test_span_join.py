"""Requests and engine spans are joined in any order of arrival."""

import json
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from exporters.records.messages import Batch, Finished, Hello, Judged, Snapshot
from exporters.relay.record_sender import Outbox
from exporters.requestlog.writer import RequestLog
from exporters.sidecar.ingest import receiver as receiver_module
from exporters.sidecar.ingest.receiver import RecordReceiver
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.sidecar.tracing import span_join as join_module
from exporters.sidecar.tracing.engine_spans import EngineSpan, SpanTimes
from exporters.sidecar.tracing.span_join import JOIN_TIMEOUT, SILENCE_TIMEOUT, SpanJoin
from exporters.vocabulary.signals import Endpoint, Outcome, Verdict
from exporters.vocabulary.slo_file import Measure
from tests.support.openmetrics import whole
from tests.support.sample_records import SLOS
from tests.support.sample_records import finished as plain

TIMES = SpanTimes(0.5, 0.25, 2.0)
QUEUE_SECONDS = "llm_request_queue_seconds"


def span_id(number: int) -> str:
    return f"{number:016x}"


ENGINE_SLOS = {"queue": (Measure.QUEUE, 3.0), "prefill": (Measure.PREFILL, 6.0), "decode": (Measure.DECODE, 9.0)}


def finished(number: int = 1, **fields: object) -> Finished:
    ids = {"request_id": f"r-{number}", "span_id": span_id(number), "trace_id": "7" * 32}
    return plain(**{**ids, "engine_slos": ENGINE_SLOS, **fields})


def engines(number: int = 1, times: SpanTimes = TIMES, message: bytes = b"span") -> EngineSpan:
    return EngineSpan("7" * 32, span_id(number), times, message)


@dataclass
class Pipeline:
    """A record receiver with a span join, a clock that tests set, and their outputs."""

    folder: Path
    keeps_spans: bool = True
    now: float = 1000.0
    revision: str = "before"
    forwarded: list[tuple[bytes, int]] = field(default_factory=list)
    exported: list[str] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.span_join = SpanJoin(lambda message, count: self.forwarded.append((message, count)))
        self.start()

    def start(self) -> None:
        self.request_metrics = RequestMetrics(SLOS)
        self.request_metrics.add_model("tiny")
        self.log = RequestLog(self.folder / "log")
        self.receiver = RecordReceiver(
            self.request_metrics, self.log, lambda: self.revision, self._export_span, self.span_join, lambda: self.now
        )
        self.receiver.hello(Hello("relay-0", "run"), self.acknowledged.append)

    def _export_span(self, record: Finished, revision: str | None) -> bool:
        self.exported.append(record.request_id)
        return self.keeps_spans

    def receive(self, first: int, *records: Finished | Judged) -> int | None:
        return self.receiver.receive("run", Batch(first, list(records)))

    def span(self, span: EngineSpan) -> None:
        self.span_join.add_span(span, self.now)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.receiver.check_timeouts()

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]

    def lines(self) -> list[tuple[str, float | None]]:
        return [(line["request_id"], line["queue_ms"]) for line in self.entries()]

    def nonzero_samples(self) -> dict[str, float]:
        """Samples that are not 0, without their labels."""
        samples: dict[str, float] = {}
        for family in [*whole(self.request_metrics.collect(self.now)), *self.span_join.collect()]:
            for sample in family.samples:
                if sample.value and not sample.name.endswith(("_bucket", "_sum")):
                    reason = sample.labels.get("reason") or sample.labels.get("slo")
                    name = f"{sample.name}[{reason}]" if reason else sample.name
                    samples[name] = samples.get(name, 0) + sample.value
        return samples

    def counted(self) -> float:
        return self.nonzero_samples().get("llm_requests_total", 0)


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    pipeline = Pipeline(tmp_path)
    yield pipeline
    pipeline.log.close()


def test_a_time_that_a_span_lacks_because_it_was_dropped_is_counted(pipeline: Pipeline) -> None:
    pipeline.receive(1, finished(1))
    pipeline.span(engines(1, SpanTimes(None, 0.25, 2.0, (QUEUE_SECONDS,))))
    pipeline.advance(0.0)
    assert pipeline.lines() == [("r-1", None)]
    assert pipeline.nonzero_samples()["llm_sidecar_dropped_engine_values_total"] == 1


def test_a_request_waits_for_its_span_and_is_logged_and_acknowledged_with_its_times(pipeline: Pipeline) -> None:
    assert pipeline.receive(1, finished()) == 0
    assert (pipeline.lines(), pipeline.counted()) == ([], 0)
    pipeline.advance(5)
    pipeline.span(engines())
    assert pipeline.acknowledged == []
    pipeline.advance(0.2)
    assert pipeline.lines() == [("r-1", 500)]
    assert pipeline.acknowledged == [1]
    assert {
        name: value
        for name, value in pipeline.nonzero_samples().items()
        if "engine" in name or "_seconds_count" in name
    } == {
        "llm_requests_with_engine_times_total": 1,
        "llm_request_duration_seconds_count": 1,
        "llm_request_queue_seconds_count": 1,
        "llm_request_prefill_seconds_count": 1,
        "llm_request_decode_seconds_count": 1,
    }


def test_the_engines_span_gives_a_stream_its_front_end_time(pipeline: Pipeline) -> None:
    pipeline.receive(1, finished(ttft=1.0))
    pipeline.span(engines())
    pipeline.advance(0.2)
    assert [line["frontend_ms"] for line in pipeline.entries()] == [250]
    assert pipeline.nonzero_samples()["llm_request_frontend_seconds_count"] == 1


def test_a_span_that_comes_first_waits_for_its_request(pipeline: Pipeline) -> None:
    pipeline.span(engines())
    pipeline.advance(JOIN_TIMEOUT - 0.1)
    assert pipeline.receive(1, finished()) == 1
    assert pipeline.lines() == [("r-1", 500)]


def test_after_ten_seconds_a_request_is_logged_without_times_and_its_span_is_late(pipeline: Pipeline) -> None:
    pipeline.receive(1, finished())
    pipeline.advance(JOIN_TIMEOUT - 0.1)
    assert pipeline.lines() == []
    pipeline.advance(0.1)
    assert pipeline.lines() == [("r-1", None)]
    assert pipeline.acknowledged == [1]
    assert "llm_requests_with_engine_times_total" not in pipeline.nonzero_samples()
    pipeline.span(engines())
    assert pipeline.nonzero_samples()["llm_sidecar_unjoined_spans_total[late]"] == 1
    assert pipeline.forwarded == [(b"span", 1)]


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(finished(queue=0.1, prefill=0.1, decode=0.1), id="times in the body"),
        pytest.param(finished(outcome=Outcome.CLIENT_ABORT), id="client abort"),
        pytest.param(finished(outcome=Outcome.CLIENT_ERROR, status=400), id="client error"),
        pytest.param(finished(outcome=Outcome.REJECTED, status=429), id="rejected"),
        pytest.param(finished(outcome=Outcome.UPSTREAM_ERROR, status=500), id="upstream error"),
        pytest.param(finished(unmetered="KeyError"), id="metering failed"),
        pytest.param(finished(span_id=None), id="no span id"),
        pytest.param(finished(api=Endpoint.EMBEDDINGS), id="no times"),
    ],
)
def test_a_request_that_gets_or_needs_no_span_does_not_wait(pipeline: Pipeline, record: Finished) -> None:
    assert pipeline.receive(1, record) == 1
    assert (pipeline.counted(), len(pipeline.lines())) == (1, 1)


def test_lines_and_acknowledgements_keep_their_order_but_series_do_not_wait(
    pipeline: Pipeline,
) -> None:
    judged = Judged("tiny", "short", "team-a", {"ttft": Verdict.BAD}, goodput_lost=True)
    with_times = finished(3, queue=0.125)
    assert pipeline.receive(1, finished(1), judged, with_times, finished(4)) == 0
    assert pipeline.lines() == []
    assert pipeline.counted() == 1
    assert pipeline.nonzero_samples()["llm_slo_bad_events_total[ttft]"] == 1
    pipeline.span(engines(4))
    assert pipeline.counted() == 2
    pipeline.span(engines(1))
    pipeline.advance(0.2)
    assert pipeline.lines() == [("r-1", 500), ("r-3", 125), ("r-4", 500)]
    assert pipeline.acknowledged == [4]
    assert pipeline.counted() == 3
    assert pipeline.exported == ["r-3", "r-4", "r-1"]


def test_a_line_has_the_config_revision_at_the_end_of_its_request(pipeline: Pipeline) -> None:
    pipeline.receive(1, finished(1))
    pipeline.revision = "after"
    pipeline.receive(2, finished(2, queue=0.125))
    pipeline.advance(JOIN_TIMEOUT)
    assert [line["config_revision"] for line in pipeline.entries()] == ["before", "after"]


def test_an_exporter_killed_while_a_request_waits_counts_each_request_once_over_both_runs(pipeline: Pipeline) -> None:
    outbox = Outbox()
    outbox.add(finished(1))
    for number in range(2, 102):
        outbox.add(finished(number, queue=0.125))

    def send() -> None:
        pipeline.receiver.hello(Hello("relay-0", "run"), outbox.acknowledged, outbox.counted)
        for batch in outbox.batches():
            outbox.acknowledged(pipeline.receiver.receive("run", batch))

    send()
    before = pipeline.counted()
    assert before == 100
    pipeline.log.close()  # as if killed
    outbox.connection_lost()
    pipeline.span_join = SpanJoin()
    pipeline.start()
    send()
    pipeline.span(engines(1))
    pipeline.advance(0.2)
    assert before + pipeline.counted() == 101
    assert len(pipeline.exported) == 101
    assert [name for name, _ in pipeline.lines()] == [f"r-{n}" for n in range(1, 102)]
    assert outbox.unacknowledged == 0


def test_a_request_counted_when_its_span_arrives_is_not_counted_by_the_next_exporter(pipeline: Pipeline) -> None:
    counted: list[int] = []
    pipeline.receiver.hello(Hello("relay-0", "run"), pipeline.acknowledged.append, counted.extend)
    pipeline.receive(1, finished(1), finished(2))
    pipeline.span(engines(2))
    assert (counted, pipeline.counted()) == ([2], 1)


def test_records_sent_again_while_they_wait_are_accepted_once(pipeline: Pipeline) -> None:
    assert pipeline.receive(1, finished(1), finished(2, queue=0.125)) == 0
    assert pipeline.receive(1, finished(1), finished(2, queue=0.125), finished(3, queue=0.125)) == 0
    pipeline.advance(JOIN_TIMEOUT)
    assert pipeline.lines() == [("r-1", None), ("r-2", 125), ("r-3", 125)]
    assert pipeline.counted() == 3


def test_a_failed_write_after_a_wait_is_retried_and_nothing_is_counted_twice(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    pipeline.receive(1, finished(1), finished(2, queue=0.125))
    with monkeypatch.context() as patch:
        patch.setattr(pipeline.log, "write", full)
        pipeline.span(engines())
        pipeline.advance(0.2)
        pipeline.advance(0.2)
        assert (pipeline.receiver.log_errors, pipeline.acknowledged, pipeline.counted()) == (1, [], 2)
        assert caplog.messages == ["request log: [Errno 28] No space left on device"]
    pipeline.advance(receiver_module.RETRY_SECONDS)
    assert pipeline.lines() == [("r-1", 500), ("r-2", 125)]
    assert (pipeline.acknowledged, pipeline.counted()) == ([2], 2)


def test_the_limit_of_pending_records_ends_all_waits(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_module, "MAX_PENDING_RECORDS", 3)
    assert pipeline.receive(1, finished(1), finished(2), finished(3)) == 0
    assert pipeline.receive(4, finished(4)) == 3
    assert pipeline.lines() == [("r-1", None), ("r-2", None), ("r-3", None)]


def test_a_draining_relay_gets_its_acknowledgement_before_it_exits(pipeline: Pipeline) -> None:
    pipeline.receive(1, finished())
    pipeline.receiver.snapshot("relay-0", Snapshot([], 0.0, 0, draining=True))
    pipeline.advance(3.9)
    assert pipeline.acknowledged == []
    pipeline.advance(0.1)
    assert pipeline.acknowledged == [1]


def test_records_that_wait_are_logged_when_the_exporter_exits(pipeline: Pipeline) -> None:
    pipeline.receive(1, finished())
    pipeline.receiver.close()
    assert pipeline.lines() == [("r-1", None)]


def test_after_a_minute_without_spans_requests_do_not_wait_until_a_span_arrives(
    pipeline: Pipeline,
) -> None:
    number = 0

    def waits() -> bool:
        nonlocal number
        number += 1
        before = pipeline.receiver.log_errors, len(pipeline.lines())
        pipeline.receive(number, finished(number))
        return (pipeline.receiver.log_errors, len(pipeline.lines())) == before

    assert waits()
    pipeline.advance(SILENCE_TIMEOUT - 1)
    assert waits()
    pipeline.advance(JOIN_TIMEOUT)
    assert not waits()
    pipeline.span(engines(number))  # late for its request, but the engine sends spans
    assert waits()
    pipeline.span(engines(number))
    pipeline.advance(10 * SILENCE_TIMEOUT)  # without requests, missing spans do not count
    assert waits()


def with_slos(**fields: Any) -> Finished:
    return finished(
        slo={"ttft": Verdict.GOOD, "e2e": Verdict.GOOD, "availability": Verdict.GOOD}, goodput=True, **fields
    )


@pytest.mark.parametrize(
    "times,bad,goodput",
    [
        pytest.param(SpanTimes(3.0, 6.0, 9.0), set(), 1, id="each on its threshold"),
        pytest.param(SpanTimes(3.1, 6.0, 9.0), {"queue"}, 0, id="queue"),
        pytest.param(SpanTimes(3.0, 6.1, 9.1), {"prefill", "decode"}, 0, id="prefill and decode"),
    ],
)
def test_slos_on_engine_times_are_judged_with_the_span_and_counted_once(
    pipeline: Pipeline, times: SpanTimes, bad: set[str], goodput: int
) -> None:
    pipeline.receive(1, with_slos(completion_tokens=7))
    pipeline.span(engines(1, times))
    pipeline.advance(0.2)
    samples = pipeline.nonzero_samples()
    events = {name.split("[")[1][:-1]: n for name, n in samples.items() if name.startswith("llm_slo_events_total")}
    assert events == dict.fromkeys(("ttft", "e2e", "availability", "queue", "prefill", "decode"), 1)
    assert {name.split("[")[1][:-1] for name in samples if name.startswith("llm_slo_bad")} == bad
    assert samples["llm_goodput_events_total"] == 1
    assert samples.get("llm_goodput_requests_total", 0) == goodput
    (line,) = pipeline.entries()
    assert {name for name, verdict in line["slo"].items() if verdict == "bad"} == bad


def test_an_earlier_verdict_is_kept(pipeline: Pipeline) -> None:
    record = with_slos()
    record.slo["decode"] = Verdict.BAD  # first_token_timeout
    record.counted = ["decode"]
    record.goodput, record.goodput_counted = False, True
    pipeline.receive(1, record)
    pipeline.span(engines())
    pipeline.advance(0.2)
    samples = pipeline.nonzero_samples()
    assert "llm_slo_events_total[decode]" not in samples
    assert samples["llm_slo_events_total[queue]"] == 1
    assert "llm_goodput_events_total" not in samples
    assert "llm_goodput_requests_total" not in samples


def test_times_from_the_response_are_kept_and_judged_once(pipeline: Pipeline) -> None:
    record = finished(queue=1.0, prefill=1.0, decode=1.0, slo={"queue": Verdict.GOOD}, goodput=True)
    pipeline.span(engines(1, SpanTimes(9.0, 9.0, 9.0)))
    pipeline.receive(1, record)
    assert pipeline.lines() == [("r-1", 1000)]
    assert "llm_slo_bad_events_total[queue]" not in pipeline.nonzero_samples()


@pytest.mark.parametrize("span_first", [True, False])
@pytest.mark.parametrize("kept", [True, False])
def test_an_engine_span_is_kept_if_its_request_span_is(pipeline: Pipeline, kept: bool, span_first: bool) -> None:
    pipeline.keeps_spans = kept
    steps: list[Callable[[], object]] = [lambda: pipeline.span(engines()), lambda: pipeline.receive(1, finished())]
    for step in steps if span_first else reversed(steps):
        assert pipeline.forwarded == []
        step()
    pipeline.advance(0.2)
    assert pipeline.forwarded == ([(b"span", 1)] if kept else [])
    pipeline.span(engines(message=b"second"))
    assert pipeline.forwarded == ([(b"span", 1), (b"second", 1)] if kept else [])


def test_spans_of_several_choices_are_forwarded_together(pipeline: Pipeline) -> None:
    pipeline.span(engines(message=b"a"))
    pipeline.span(engines(message=b"b"))
    pipeline.receive(1, finished())
    assert pipeline.forwarded == [(b"ab", 2)]


def test_a_span_of_an_unknown_request_is_forwarded_after_the_timeout(pipeline: Pipeline) -> None:
    pipeline.span(engines())
    pipeline.advance(JOIN_TIMEOUT)
    assert pipeline.forwarded == [(b"span", 1)]
    assert pipeline.nonzero_samples() == {"llm_sidecar_unjoined_spans_total[no_request]": 1}


@pytest.mark.parametrize("trace_id,kept", [("7" * 18 + "80000000000000", True), ("7" * 18 + "7fffffffffffff", False)])
def test_a_span_whose_request_never_ends_is_kept_if_its_trace_is_in_the_share(
    pipeline: Pipeline, trace_id: str, kept: bool
) -> None:
    """For example of a killed relay, or of another sidecar, which keeps the same share."""
    pipeline.span_join._good_share = 0.5
    pipeline.span(EngineSpan(trace_id, span_id(1), TIMES, b"span"))
    pipeline.advance(JOIN_TIMEOUT - 0.1)
    assert pipeline.forwarded == []
    pipeline.advance(0.1)
    assert pipeline.forwarded == ([(b"span", 1)] if kept else [])
    assert pipeline.nonzero_samples() == {"llm_sidecar_unjoined_spans_total[no_request]": 1}


def test_many_waiting_spans_use_bounded_memory(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_module, "MAX_SPANS", 1000)
    pipeline.span_join._good_share = 0.0
    size = 1000
    tracemalloc.start()
    try:
        for number in range(3000):
            pipeline.span(engines(number, message=number.to_bytes(size, "big")))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.7 * 1000 * size
    assert pipeline.nonzero_samples() == {"llm_sidecar_unjoined_spans_total[too_many]": 2000}
    pipeline.advance(JOIN_TIMEOUT)
    assert sum(pipeline.nonzero_samples().values()) == 3000
    assert pipeline.forwarded == []


def test_a_span_without_times_is_counted_and_ends_the_wait(pipeline: Pipeline) -> None:
    pipeline.receive(1, finished())
    pipeline.span(engines(1, SpanTimes(None, None, None)))
    pipeline.advance(0.2)
    assert pipeline.lines() == [("r-1", None)]
    assert pipeline.nonzero_samples()["llm_sidecar_unjoined_spans_total[no_times]"] == 1


@pytest.mark.parametrize(
    "limit,value", [pytest.param("MAX_SPANS", 10, id="by number"), pytest.param("MAX_SPAN_BYTES", 40, id="by size")]
)
@pytest.mark.parametrize("parents", [pytest.param(1000, id="of many requests"), pytest.param(1, id="of one request")])
def test_the_number_and_size_of_unjoined_spans_is_limited(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, parents: int
) -> None:
    monkeypatch.setattr(join_module, limit, value)
    for number in range(1000):
        pipeline.span(engines(number % parents))
    released = pipeline.nonzero_samples()["llm_sidecar_unjoined_spans_total[too_many]"]
    assert 1000 - 10 <= released <= 1000
    assert sum(count for _, count in pipeline.forwarded) == released
    pipeline.advance(JOIN_TIMEOUT)
    assert sum(count for _, count in pipeline.forwarded) == 1000
