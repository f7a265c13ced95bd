"""The summary counts every record, and requests without a first token count in the percentiles."""

import math
from dataclasses import astuple, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.vocabulary import slo_file
from exporters.vocabulary.signals import Verdict
from loadgen.client.completion import CompletionResponse
from loadgen.results.goodput_definitions import by_definition
from loadgen.results.record import ClientOutcome, Objective, Record
from loadgen.results.steady_state import State
from loadgen.results.summary import Quantiles, SloResult, quantiles, summarise, summarise_class
from loadgen.run.stalls import StallWatch
from loadgen.schedule.phases import AtOnce, ClosedLoop, Diurnal, Phase, Ramp, Steady, Steps
from loadgen.schedule.prompts import Part
from tests.loadgen.load_records import graded, planned, record, run
from tests.loadgen.queues import queue, seeded

SHIPPED = slo_file.load(slo_file.SHIPPED)
BRIEF = run(phases=[Steady("steady", 1, 4)])


OUTCOMES = st.sampled_from(list(ClientOutcome))
RECORDS = st.lists(
    st.builds(
        record,
        request_class=st.sampled_from(["siso", "lilo"]),
        phase=st.sampled_from(["calm", "busy"]),
        outcome=OUTCOMES,
        stream=st.booleans(),
        ttft=st.none() | st.floats(0, 100),
    )
)


@given(RECORDS)
def test_every_request_is_counted_once_in_its_class_and_phase(records: list[Record]) -> None:
    result = summarise(run(classes=["siso", "lilo"]), records)
    assert result.total.offered == len(records)
    assert sum(row.offered for row in result.classes) == len(records)
    assert sum(rows[-1].offered for rows in result.phases.values()) == len(records)
    for row in result.classes:
        assert sum(row.outcomes.values()) == row.offered
        assert row.without_first_token <= row.streams <= row.offered


def test_a_stream_without_a_first_token_is_worse_than_any_with_one() -> None:
    row = summarise_class(
        "siso",
        [
            *(record(ttft=value) for value in (0.1, 0.2, 0.3)),
            *(record(outcome=ClientOutcome.TIMEOUT) for _ in range(3)),
        ],
    )
    assert row.ttft == Quantiles(0.3, math.inf, math.inf)
    assert row.ttft_of_started == Quantiles(0.2, 0.3, 0.3)
    assert (row.streams, row.without_first_token) == (6, 3)


@given(st.lists(st.floats(0, 100), min_size=1), st.integers(0, 50))
def test_missing_values_never_lower_a_percentile(values: list[float], missing: int) -> None:
    for with_missing, without in zip(
        astuple(quantiles(values, missing=missing)), astuple(quantiles(values)), strict=True
    ):
        assert without is not None
        assert with_missing is not None
        assert with_missing >= without


def test_goodput_is_good_over_judged_and_abandoned_requests_are_counted() -> None:
    good, bad, abandoned = {"ttft": Verdict.GOOD}, {"ttft": Verdict.BAD}, {"ttft": Verdict.ABANDONED}
    result = summarise(
        BRIEF,
        [
            record(slo=good, good=True),
            record(slo=bad, good=False),
            record(slo=bad, good=False),
            record(slo=abandoned, outcome=ClientOutcome.CUT),
            record(outcome=ClientOutcome.CLIENT_ERROR),
        ],
    )
    row = result.classes[0]
    assert (row.judged, row.good, row.goodput, row.abandoned) == (3, 1, 1 / 3, 1)
    assert row.slos == {"ttft": SloResult(3, 2)}
    assert result.warnings == (
        (
            "1 requests were ended by the client (timeout, cut) before every SLO had a verdict; the SLOs without a "
            "verdict count them as abandoned, not as good or bad"
        ),
    )


HEALTHY = {"seconds": 100.0, "stalls": 3, "stalled": 0.9, "worst_stall": 0.5, "cpu_seconds": 25.0}


def test_a_generator_that_kept_up_is_valid() -> None:
    chunks = {"sent": 1.0, "send_lag": 0.049, "chunks": 10, "coalesced": 1}
    health = summarise(
        run(**HEALTHY), [record(**chunks) for _ in range(99)] + [record(outcome=ClientOutcome.NOT_SENT, sent=None)]
    ).health
    assert (health.faults, health.sent, health.offered, health.cpu, health.coalesced) == ((), 99, 100, 0.25, 0.1)


@pytest.mark.parametrize(
    "records, changes, fault",
    [
        (
            [record(sent=1.0, send_lag=0.2)] * 3,
            {},
            "send lag p99 is 200 ms, above 50 ms: the load generator was overloaded",
        ),
        (
            [record(sent=1.0)],
            {"stalled": 1.1},
            "the event loop stalled 3 times, for 1.1 s in total: chunk times are late",
        ),
        (
            [record(sent=1.0)] * 9 + [record(outcome=ClientOutcome.NOT_SENT, sent=None)],
            {},
            "1 of 10 requests were not sent (see `error`)",
        ),
    ],
    ids=["late", "stalled", "not sent"],
)
def test_a_generator_that_did_not_keep_up_invalidates_the_run(
    records: list[Record], changes: dict[str, float], fault: str
) -> None:
    (found,) = summarise(run(**HEALTHY | changes), records).health.faults
    assert found.startswith((f"{fault}: ", f"{fault}; "))


def test_only_long_delays_of_the_event_loop_are_stalls() -> None:
    watch = StallWatch()
    for late in (0.001, 0.05, 0.06, 0.3):
        watch.add(late)
    assert (watch.count, round(watch.seconds, 3), watch.worst) == (2, 0.36, 0.3)


def test_percentiles_of_successes_and_with_failures_as_infinite() -> None:
    done = [record(e2e=value, tpot=value / 10, e2e_sent=value - 0.5) for value in (1.0, 2.0, 3.0)]
    failed = [record(outcome=ClientOutcome.UPSTREAM_ERROR, e2e=0.1) for _ in range(2)]
    row = summarise_class("siso", [*done, *failed])
    assert (row.e2e_ok, row.e2e_sent) == (Quantiles(2.0, 3.0, 3.0), Quantiles(1.5, 2.5, 2.5))
    assert (row.e2e, row.tpot_ok) == (Quantiles(3.0, math.inf, math.inf), Quantiles(0.2, 0.3, 0.3))
    assert row.tpot == Quantiles(0.3, math.inf, math.inf)


def queued(load: float, count: int, **changes: Any) -> list[Record]:
    """Streams of 3 s after their first tokens, at a server with this load."""
    return [
        record(due=due, sent=due, dispatched=due, ttft=wait, first=due + (wait or 0), closed=closed + 3, **changes)
        for due, wait, closed in queue(load, count, seeded(4), rate=10)
    ]


def test_the_stable_window_has_the_requests_that_are_due_in_it() -> None:
    """The requests of the first 10 s took 20 s and end within the window, in which they do not count."""
    cold, usual = 10.0, queued(0.5, 2000)
    records = [
        record(due=each.due, ttft=20.0, first=each.due + 20, closed=each.due + 23) if each.due < cold else each
        for each in usual
    ]
    window = summarise(run(phases=[Steady("steady", 200, 10)]), records).stable["steady"]
    assert window.steady.state is State.STEADY
    assert window.steady.start is not None
    assert cold <= window.steady.start < 40
    kept = [each for each in records if each.due >= window.steady.start]
    assert window.left_out == pytest.approx(1 - len(kept) / len(records))
    assert window.rows == (summarise_class("siso", kept), summarise_class("all", kept))
    p99 = window.rows[-1].ttft.p99
    assert p99 is not None
    assert p99 < 20


def test_a_phase_whose_queue_grew_has_no_stable_window_and_a_warning() -> None:
    records = queued(1.5, 1000)
    result = summarise(run(phases=[Steady("steady", 100, 10)]), records)
    window = result.stable["steady"]
    assert (window.steady.state, window.steady.start, window.left_out, window.rows) == (State.DRIFTING, None, None, ())
    assert result.warnings[0] == (
        "steady is not in a steady state: its queue grew, so its latencies depend on the length of the phase"
    )


def test_requests_that_a_stopped_run_cut_do_not_shorten_its_latencies() -> None:
    """At 1.5 times the load, latencies rise by 0.5 s per second; the wait of a request that was cut is not known."""
    end = 100.0
    records = [
        each
        if (each.first or 0) <= end
        else record(outcome=ClientOutcome.CUT, due=each.due, sent=each.due, dispatched=each.due, closed=end)
        for each in queued(1.5, 1000)
    ]
    steady = summarise(run(phases=[Steady("steady", 100, 10)]), records).stable["steady"].steady
    assert steady.state is State.DRIFTING
    assert steady.latency_growth == pytest.approx(0.5, abs=0.15)


def test_requests_that_failed_at_once_do_not_hide_a_queue() -> None:
    rejected = [
        record(due=each.due + 0.01, outcome=ClientOutcome.REJECTED, closed=each.due + 0.02) for each in queued(1, 1000)
    ]
    records = [*queued(1.5, 1000), *rejected]
    stable = summarise(run(phases=[Steady("steady", 100, 20)]), records).stable
    assert stable["steady"].steady.state is State.DRIFTING


@pytest.mark.parametrize(
    "phase, tested",
    [
        pytest.param(Steady("steady", 10, 4), True, id="constant"),
        pytest.param(Ramp("steady", 10, 4, end_rate=8), False, id="ramp"),
        pytest.param(Diurnal("steady", 10, 4, peak_rate=8, cycle=5), False, id="diurnal"),
        pytest.param(Steps("steady", 10, steps=(1, 2)), False, id="steps"),
        pytest.param(AtOnce("steady", 10, requests=4), False, id="at once"),
        pytest.param(ClosedLoop("steady", 10, users=4), False, id="closed loop"),
        pytest.param(Steady("steady", 10, 0), False, id="idle"),
    ],
)
def test_only_a_constant_rate_can_have_a_steady_state(phase: Phase, *, tested: bool) -> None:
    assert ("steady" in summarise(run(phases=[phase]), []).stable) is tested


def test_a_class_without_requests_has_no_percentiles() -> None:
    row = summarise_class("siso", [])
    assert (row.offered, row.goodput, row.ttft, row.outcomes) == (0, None, Quantiles(), {})


def graded_record(
    request_class: str,
    outcome: ClientOutcome,
    *,
    first: float | None,
    gap: float = 0.0,
    closed: float = 30.0,
    answer: float | None = None,
    spec: slo_file.SloFile = SHIPPED,
) -> Record:
    """A stream due 10 s after the start whose first of 40 chunks came `first` seconds after that, its answer later."""
    request = planned(due=10.0, request_class=request_class, parts=(Part("p", 100),), max_tokens=40)
    response = CompletionResponse()
    if first is not None:
        response.first = 1010.0 + first
        response.gaps.extend([gap] * 39)
        response.last = response.first + 39 * gap
        response.answer = None if answer is None else 1010.0 + answer
    return graded(request, response, spec, closed=1000.0 + closed, outcome=outcome)


@pytest.mark.parametrize(
    "judged, verdicts, good",
    [
        pytest.param(
            graded_record("siso", ClientOutcome.OK, first=4.9),
            {"ttft": Verdict.GOOD, "availability": Verdict.GOOD},
            True,
            id="prompt",
        ),
        pytest.param(
            graded_record("siso", ClientOutcome.OK, first=5.1),
            {"ttft": Verdict.BAD, "availability": Verdict.GOOD},
            False,
            id="late",
        ),
        pytest.param(
            graded_record("silo", ClientOutcome.OK, first=9, gap=0.3),
            {"itl": Verdict.BAD, "availability": Verdict.GOOD},
            False,
            id="slow",
        ),
        pytest.param(
            graded_record("siso", ClientOutcome.TIMEOUT, first=None, closed=190),
            {"ttft": Verdict.BAD, "availability": Verdict.BAD},
            False,
            id="client timeout after 180 s",
        ),
        pytest.param(
            graded_record("siso", ClientOutcome.CUT, first=None, closed=12),
            {"ttft": Verdict.ABANDONED, "availability": Verdict.ABANDONED},
            None,
            id="cut before any verdict",
        ),
        pytest.param(graded_record("siso", ClientOutcome.NOT_SENT, first=None), {}, None, id="never sent"),
        pytest.param(
            graded_record("siso", ClientOutcome.CLIENT_ERROR, first=None, closed=11), {}, None, id="client error"
        ),
        pytest.param(
            graded_record("siso", ClientOutcome.REJECTED, first=None, closed=11),
            {"ttft": Verdict.BAD, "availability": Verdict.BAD},
            False,
            id="rejected",
        ),
    ],
)
def test_a_request_is_judged_from_the_time_it_was_due(
    judged: Record, verdicts: dict[str, Verdict], *, good: bool | None
) -> None:
    assert (judged.slo, judged.good) == (verdicts, good)


@pytest.mark.parametrize(
    "answer, outcome, closed, verdict",
    [
        pytest.param(19.0, ClientOutcome.OK, 50, Verdict.GOOD, id="in time"),
        pytest.param(21.0, ClientOutcome.OK, 50, Verdict.BAD, id="late"),
        pytest.param(None, ClientOutcome.TIMEOUT, 40, Verdict.BAD, id="still reasoning at the threshold"),
        pytest.param(None, ClientOutcome.OK, 20, None, id="only reasoning"),
    ],
)
def test_the_answer_is_judged_from_the_time_its_request_was_due(
    answer: float | None, outcome: ClientOutcome, closed: float, verdict: Verdict | None
) -> None:
    slo = slo_file.Slo(
        name="answer", classes=("siso",), sli=slo_file.Latency(slo_file.Measure.TTFT_ANSWER, 20.0), objective=0.95
    )
    judged = graded_record(
        "siso", outcome, first=2.0, closed=closed, answer=answer, spec=replace(SHIPPED, slos=(*SHIPPED.slos, slo))
    )
    assert (judged.ttft_answer, judged.slo.get("answer")) == (answer, verdict)


def test_a_stream_without_its_end_has_a_token_for_each_chunk() -> None:
    assert graded_record("siso", ClientOutcome.TRUNCATED, first=2.0).completion_tokens == 40
    assert graded_record("siso", ClientOutcome.OK, first=2.0).completion_tokens is None


def test_each_time_and_each_definition_of_tpot_is_recorded() -> None:
    response = CompletionResponse()
    response.first_byte = response.first_choice = 1011.0
    response.first, response.last, response.last_choice = 1012.0, 1016.0, 1018.0
    response.completion_tokens, response.coalesced = 5, 2
    response.gaps.extend([1.0] * 4)
    made = graded(planned(due=10.0), response, SHIPPED)
    assert (made.due, made.dispatched, made.sent, made.first_byte, made.first, made.answer) == (
        *(10.0, 10.25, 10.5, 11.0, 12.0),
        None,
    )
    assert (made.last, made.closed, made.send_lag, made.ttft, made.ttft_sent) == (16.0, 20.0, 0.25, 2.0, 1.5)
    assert (made.e2e, made.e2e_sent, made.coalesced) == (10.0, 9.5, 2)
    assert (made.itl_p50, made.itl_p95, made.chunks) == (1.0, 1.0, 5)
    assert (made.tpot, made.tpot_vllm, made.tpot_guidellm) == (4 / 4, 7 / 4, 5.5 / 5)


TIMED_SLOS = [
    Objective("ttft", "ttft", 1.0, 0.95),
    Objective("tpot", "tpot", 0.1, 0.95),
    Objective("availability", "availability", None, 0.99),
]
MET = {"ttft": Verdict.GOOD, "tpot": Verdict.GOOD, "availability": Verdict.GOOD}


def stream(*, good: bool | None, ttft: float, **changes: Any) -> Record:
    """A stream sent 0.5 s after its due time, whose TTFT counts from the due time; TPOT 50 ms."""
    times = {"due": 0.0, "sent": 0.5, "first_choice": ttft, "last_choice": ttft + 1, "tpot_vllm": 0.05, "tpot": 0.05}
    return record(**{**times, "ttft": ttft, "ttft_sent": ttft - 0.5, "good": good, "slo": MET} | changes)


QUICK = stream(good=True, ttft=0.9)
LATE = stream(good=False, ttft=1.4)  # within 1 s of sending, but not of the intended time
SLOW = stream(good=False, ttft=9.0)
ONE_TOKEN = stream(good=True, ttft=0.9, tpot=None, tpot_vllm=None)
FAILED = record(outcome=ClientOutcome.UPSTREAM_ERROR, sent=0.5, good=False, slo=MET)
NOT_SENT = record(outcome=ClientOutcome.NOT_SENT, sent=None)


def goodput_counts(*records: Record) -> dict[str, tuple[int, int]]:
    rows = by_definition(records, TIMED_SLOS, 10.0)
    return {f"{row.tool}, {row.definition.partition(':')[0]}": (row.good, row.of) for row in rows}


def test_the_definitions_count_different_requests() -> None:
    assert goodput_counts(QUICK, LATE, SLOW, ONE_TOKEN, FAILED, NOT_SENT) == {
        "vllm-slo, good / judged": (2, 5),
        "vllm-slo, good / offered": (2, 6),
        "vllm bench serve, completed requests that meet the SLOs, per second": (3, 4),
        "guidellm, conforming / (measurable + errors)": (2, 5),
        "aiperf, good / (ok + errors)": (3, 6),
        "inference-perf, good / successful": (3, 4),
    }


def test_an_empty_choice_before_the_first_token_is_a_first_token_for_vllm() -> None:
    early_role = stream(good=False, ttft=9.0, first_choice=0.6)
    assert goodput_counts(early_role)["vllm bench serve, completed requests that meet the SLOs, per second"] == (1, 1)
    assert goodput_counts(early_role)["aiperf, good / (ok + errors)"] == (0, 1)


def test_only_vllm_states_a_rate() -> None:
    rows = by_definition([QUICK, QUICK], TIMED_SLOS, 4.0)
    assert [row.per_second for row in rows if row.per_second is not None] == [0.5]
    assert [row.share for row in by_definition([], TIMED_SLOS, 0.0)] == [None] * 6
