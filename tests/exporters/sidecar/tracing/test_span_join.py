"""A request and the engine's span of it find each other, in whichever order they come; no socket in here."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from exporters.records import Batch, Finished, Hello, Judged, Snapshot
from exporters.requestlog.writer import RequestLog
from exporters.sidecar.ingest import record_receiver as inbox_module
from exporters.sidecar.ingest.record_receiver import RecordReceiver
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.sidecar.tracing import span_join as join_module
from exporters.sidecar.tracing.engine_spans import EngineSpan, EngineTimes
from exporters.sidecar.tracing.span_join import SILENCE, WAIT, SpanJoin
from exporters.signals import Outcome, Verdict
from tests.support.openmetrics import whole
from tests.support.sample_records import SLOS
from tests.support.sample_records import finished as plain

TIMES = EngineTimes(0.5, 0.25, 2.0)


def span_id(number: int) -> str:
    return f"{number:016x}"


def finished(number: int = 1, **fields: object) -> Finished:
    return plain(**{"request_id": f"r-{number}", "span_id": span_id(number), "trace_id": "7" * 32, **fields})


def engines(number: int = 1, times: EngineTimes = TIMES, message: bytes = b"span") -> EngineSpan:
    return EngineSpan(span_id(number), times, message)


@dataclass
class Desk:
    """An inbox with a join, a clock that is told, and everything that comes out of it."""

    folder: Path
    keeps: bool = True
    now: float = 1000.0
    revision: str = "before"
    passed: list[tuple[bytes, int]] = field(default_factory=list)
    traced: list[str] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.join = SpanJoin(SLOS, lambda message, count: self.passed.append((message, count)))
        self.start()

    def start(self) -> None:
        self.series = RequestMetrics(SLOS)
        self.series.add_model("tiny")
        self.log = RequestLog(self.folder / "log")
        self.inbox = RecordReceiver(
            self.series, self.log, lambda: self.revision, self._trace, self.join, lambda: self.now
        )
        self.inbox.hello(Hello("relay-0", "life"), self.acknowledged.append)

    def _trace(self, record: Finished) -> bool:
        self.traced.append(record.request_id)
        return self.keeps

    def take(self, first: int, *records: Finished | Judged) -> int | None:
        return self.inbox.take("life", Batch(first, list(records)))

    def span(self, span: EngineSpan) -> None:
        self.join.span(span, self.now)

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.inbox.clock()

    def lines(self) -> list[tuple[str, float | None]]:
        text = (self.folder / "log").read_text().splitlines()
        return [(line["request_id"], line["queue_ms"]) for line in map(json.loads, text)]

    def moved(self) -> dict[str, float]:
        """Samples that are not 0, without their labels."""
        found: dict[str, float] = {}
        for family in [*whole(self.series.collect(self.now)), *self.join.collect()]:
            for sample in family.samples:
                if sample.value and not sample.name.endswith(("_bucket", "_sum")):
                    reason = sample.labels.get("reason") or sample.labels.get("slo")
                    name = f"{sample.name}[{reason}]" if reason else sample.name
                    found[name] = found.get(name, 0) + sample.value
        return found

    def counted(self) -> float:
        return self.moved().get("llm_requests_total", 0)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.log.close()


def test_a_request_waits_for_its_span_and_is_logged_and_acknowledged_with_its_times(desk: Desk) -> None:
    assert desk.take(1, finished()) == 0
    assert (desk.lines(), desk.counted()) == ([], 0)
    desk.passes(5)
    desk.span(engines())
    assert desk.acknowledged == []
    desk.passes(0.2)
    assert desk.lines() == [("r-1", 500)]
    assert desk.acknowledged == [1]
    assert {name: value for name, value in desk.moved().items() if "engine" in name or "_seconds_count" in name} == {
        "llm_requests_with_engine_times_total": 1,
        "llm_request_duration_seconds_count": 1,
        "llm_request_queue_seconds_count": 1,
        "llm_request_prefill_seconds_count": 1,
        "llm_request_decode_seconds_count": 1,
    }


def test_a_span_that_comes_first_waits_for_its_request(desk: Desk) -> None:
    desk.span(engines())
    desk.passes(WAIT - 0.1)
    assert desk.take(1, finished()) == 1
    assert desk.lines() == [("r-1", 500)]


def test_after_ten_seconds_a_request_goes_on_without_and_its_span_is_late(desk: Desk) -> None:
    desk.take(1, finished())
    desk.passes(WAIT - 0.1)
    assert desk.lines() == []
    desk.passes(0.1)
    assert desk.lines() == [("r-1", None)]
    assert desk.acknowledged == [1]
    assert "llm_requests_with_engine_times_total" not in desk.moved()
    desk.span(engines())
    assert desk.moved()["llm_sidecar_unjoined_spans_total[late]"] == 1
    assert desk.passed == [(b"span", 1)]


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(finished(queue=0.1, prefill=0.1, decode=0.1), id="times in the body"),
        pytest.param(finished(outcome=Outcome.CLIENT_ABORT), id="client left"),
        pytest.param(finished(outcome=Outcome.CLIENT_ERROR, status=400), id="refused by the engine"),
        pytest.param(finished(outcome=Outcome.REJECTED, status=429), id="rejected"),
        pytest.param(finished(outcome=Outcome.UPSTREAM_ERROR, status=500), id="engine failed"),
        pytest.param(finished(unmetered="KeyError"), id="metering failed"),
        pytest.param(finished(span_id=None), id="no span of ours"),
    ],
)
def test_what_will_get_no_span_or_needs_none_does_not_wait(desk: Desk, record: Finished) -> None:
    assert desk.take(1, record) == 1
    assert (desk.counted(), len(desk.lines())) == (1, 1)


def test_lines_and_acknowledgements_keep_their_order_behind_one_that_waits_but_series_do_not(desk: Desk) -> None:
    judged = Judged("tiny", "short", "team-a", {"ttft": Verdict.BAD}, goodput_lost=True)
    with_times = finished(3, queue=0.125)
    assert desk.take(1, finished(1), judged, with_times, finished(4)) == 0
    assert desk.lines() == []
    assert desk.counted() == 1
    assert desk.moved()["llm_slo_bad_events_total[ttft]"] == 1
    desk.span(engines(4))
    assert desk.counted() == 2
    desk.span(engines(1))
    desk.passes(0.2)
    assert desk.lines() == [("r-1", 500), ("r-3", 125), ("r-4", 500)]
    assert desk.acknowledged == [4]
    assert desk.counted() == 3
    assert desk.traced == ["r-3", "r-4", "r-1"]


def test_a_line_has_the_configuration_that_its_request_ended_under(desk: Desk) -> None:
    desk.take(1, finished(1))
    desk.revision = "after"
    desk.take(2, finished(2, queue=0.125))
    desk.passes(WAIT)
    text = (desk.folder / "log").read_text().splitlines()
    assert [json.loads(line)["config_revision"] for line in text] == ["before", "after"]


def test_an_exporter_killed_while_requests_wait_gets_them_again_and_logs_each_once(desk: Desk) -> None:
    assert desk.take(1, finished(1, queue=0.125), finished(2), finished(3, queue=0.125)) == 1
    desk.log.close()  # killed: neither clock nor close
    desk.join = SpanJoin(SLOS)
    desk.start()
    assert desk.take(2, finished(2), finished(3, queue=0.125)) == 0
    desk.span(engines(2))
    desk.passes(0.2)
    assert desk.lines() == [("r-1", 125), ("r-2", 500), ("r-3", 125)]
    assert desk.acknowledged == [3]


def test_records_sent_again_while_they_wait_are_taken_once(desk: Desk) -> None:
    assert desk.take(1, finished(1), finished(2, queue=0.125)) == 0
    assert desk.take(1, finished(1), finished(2, queue=0.125), finished(3, queue=0.125)) == 0
    desk.passes(WAIT)
    assert desk.lines() == [("r-1", None), ("r-2", 125), ("r-3", 125)]
    assert desk.counted() == 3


def test_a_log_that_fails_when_a_wait_is_over_is_tried_again_and_nothing_is_counted_twice(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    desk.take(1, finished(1), finished(2, queue=0.125))
    with monkeypatch.context() as patch:
        patch.setattr(desk.log, "write", full)
        desk.span(engines())
        desk.passes(0.2)
        desk.passes(0.2)
        assert (desk.inbox.log_errors, desk.acknowledged, desk.counted()) == (1, [], 1)
        assert capsys.readouterr().err == "exporter: request log: [Errno 28] No space left on device\n"
    desk.passes(inbox_module.RETRY_SECONDS)
    assert desk.lines() == [("r-1", 500), ("r-2", 125)]
    assert (desk.acknowledged, desk.counted()) == ([2], 2)


def test_more_than_may_be_held_ends_all_waits(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "HELD_RECORDS", 3)
    assert desk.take(1, finished(1), finished(2), finished(3)) == 0
    assert desk.take(4, finished(4)) == 3
    assert desk.lines() == [("r-1", None), ("r-2", None), ("r-3", None)]


def test_a_relay_that_drains_is_answered_before_it_goes(desk: Desk) -> None:
    desk.take(1, finished())
    desk.inbox.snapshot("relay-0", Snapshot([], 0.0, 0, 0, draining=True))
    desk.passes(3.9)
    assert desk.acknowledged == []
    desk.passes(0.1)
    assert desk.acknowledged == [1]


def test_when_the_exporter_ends_what_waits_is_logged_as_it_is(desk: Desk) -> None:
    desk.take(1, finished())
    desk.inbox.close()
    assert desk.lines() == [("r-1", None)]


def test_an_engine_that_sends_no_spans_is_waited_for_no_longer_than_a_minute_and_again_when_one_comes(
    desk: Desk,
) -> None:
    number = 0

    def waits() -> bool:
        nonlocal number
        number += 1
        before = desk.inbox.log_errors, len(desk.lines())
        desk.take(number, finished(number))
        return (desk.inbox.log_errors, len(desk.lines())) == before

    assert waits()
    desk.passes(SILENCE - 1)
    assert waits()
    desk.passes(WAIT)
    assert not waits()
    desk.span(engines(number))  # late for its request, and yet a sign
    assert waits()
    desk.span(engines(number))
    desk.passes(10 * SILENCE)  # a quiet engine is no silent one
    assert waits()


def with_slos(**fields: Any) -> Finished:
    return finished(
        slo={"ttft": Verdict.GOOD, "e2e": Verdict.GOOD, "availability": Verdict.GOOD}, goodput=True, **fields
    )


@pytest.mark.parametrize(
    "times,bad,goodput",
    [
        pytest.param(EngineTimes(3.0, 6.0, 9.0), set(), 1, id="each on its threshold"),
        pytest.param(EngineTimes(3.1, 6.0, 9.0), {"queue"}, 0, id="queue"),
        pytest.param(EngineTimes(3.0, 6.1, 9.1), {"prefill", "decode"}, 0, id="prefill and decode"),
    ],
)
def test_slos_on_the_engines_times_are_judged_when_the_span_comes_and_counted_once(
    desk: Desk, times: EngineTimes, bad: set[str], goodput: int
) -> None:
    desk.take(1, with_slos(completion_tokens=7))
    desk.span(engines(1, times))
    desk.passes(0.2)
    moved = desk.moved()
    events = {name.split("[")[1][:-1]: n for name, n in moved.items() if name.startswith("llm_slo_events_total")}
    assert events == dict.fromkeys(("ttft", "e2e", "availability", "queue", "prefill", "decode"), 1)
    assert {name.split("[")[1][:-1] for name in moved if name.startswith("llm_slo_bad")} == bad
    assert moved["llm_goodput_events_total"] == 1
    assert moved.get("llm_goodput_requests_total", 0) == goodput
    (line,) = (desk.folder / "log").read_text().splitlines()
    assert {name for name, verdict in json.loads(line)["slo"].items() if verdict == "bad"} == bad


def test_a_verdict_that_has_fallen_already_stays(desk: Desk) -> None:
    record = with_slos()
    record.slo["decode"] = Verdict.BAD  # no first token in time
    record.counted = ["decode"]
    record.goodput, record.goodput_counted = False, True
    desk.take(1, record)
    desk.span(engines())
    desk.passes(0.2)
    moved = desk.moved()
    assert "llm_slo_events_total[decode]" not in moved
    assert moved["llm_slo_events_total[queue]"] == 1
    assert "llm_goodput_events_total" not in moved
    assert "llm_goodput_requests_total" not in moved


def test_what_the_body_tells_stays_and_makes_no_second_verdict(desk: Desk) -> None:
    record = finished(queue=1.0, prefill=1.0, decode=1.0, slo={"queue": Verdict.GOOD}, goodput=True)
    desk.span(engines(1, EngineTimes(9.0, 9.0, 9.0)))
    desk.take(1, record)
    assert desk.lines() == [("r-1", 1000)]
    assert "llm_slo_bad_events_total[queue]" not in desk.moved()


@pytest.mark.parametrize("span_first", [True, False])
@pytest.mark.parametrize("kept", [True, False])
def test_a_span_goes_the_way_of_its_requests_span(desk: Desk, kept: bool, span_first: bool) -> None:
    desk.keeps = kept
    steps: list[Callable[[], object]] = [lambda: desk.span(engines()), lambda: desk.take(1, finished())]
    for step in steps if span_first else reversed(steps):
        assert desk.passed == []
        step()
    desk.passes(0.2)
    assert desk.passed == ([(b"span", 1)] if kept else [])
    desk.span(engines(message=b"of its second answer"))
    assert desk.passed == ([(b"span", 1), (b"of its second answer", 1)] if kept else [])


def test_spans_of_several_answers_to_one_request_are_passed_on_together(desk: Desk) -> None:
    desk.span(engines(message=b"a"))
    desk.span(engines(message=b"b"))
    desk.take(1, finished())
    assert desk.passed == [(b"ab", 2)]


def test_a_span_of_a_request_that_did_not_come_through_here_is_passed_on_in_the_end(desk: Desk) -> None:
    desk.span(engines())
    desk.passes(WAIT)
    assert desk.passed == [(b"span", 1)]
    assert desk.moved() == {"llm_sidecar_unjoined_spans_total[no_request]": 1}


def test_a_span_without_times_is_counted_and_ends_the_wait(desk: Desk) -> None:
    desk.take(1, finished())
    desk.span(engines(1, EngineTimes(None, None, None)))
    desk.passes(0.2)
    assert desk.lines() == [("r-1", None)]
    assert desk.moved()["llm_sidecar_unjoined_spans_total[no_times]"] == 1


@pytest.mark.parametrize(
    "limit,value", [pytest.param("SPANS", 10, id="by number"), pytest.param("SPAN_BYTES", 40, id="by size")]
)
@pytest.mark.parametrize("parents", [pytest.param(1000, id="of many"), pytest.param(1, id="of one")])
def test_spans_that_nobody_asks_for_are_bounded_and_passed_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, parents: int
) -> None:
    monkeypatch.setattr(join_module, limit, value)
    for number in range(1000):
        desk.span(engines(number % parents))
    given_up = desk.moved()["llm_sidecar_unjoined_spans_total[too_many]"]
    assert 1000 - 10 <= given_up <= 1000
    assert sum(count for _, count in desk.passed) == given_up
    desk.passes(WAIT)
    assert sum(count for _, count in desk.passed) == 1000
