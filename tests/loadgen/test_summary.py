"""The summary counts every record, and requests without a first token count in the percentiles."""

from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters import slos
from exporters.signals import Verdict
from loadgen.arrivals import Phase
from loadgen.completion_response import CompletionResponse
from loadgen.grading import make_record
from loadgen.prompt_text import Part
from loadgen.request_record import ClientOutcome, Record
from loadgen.summary import Quantiles, SloResult, quantiles, summarise, summarise_class
from tests.loadgen.load_records import planned, record, run

SHIPPED = slos.load(slos.SHIPPED)
BRIEF = run(phases=[Phase("steady", 1, 4)])


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
    assert row.ttft == Quantiles(0.3, None, None)
    assert row.ttft_of_started == Quantiles(0.2, 0.3, 0.3)
    assert (row.streams, row.without_first_token) == (6, 3)


@given(st.lists(st.floats(0, 100), min_size=1), st.integers(0, 50))
def test_missing_values_never_lower_a_percentile(values: list[float], missing: int) -> None:
    for with_missing, without in zip(
        astuple(quantiles(values, missing=missing)), astuple(quantiles(values)), strict=True
    ):
        assert without is not None
        assert with_missing is None or with_missing >= without


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


def test_an_overloaded_generator_and_requests_not_sent_are_warnings() -> None:
    late = [record(send_lag=0.2) for _ in range(3)]
    result = summarise(BRIEF, [*late, record(outcome=ClientOutcome.NOT_SENT)])
    assert result.warnings == (
        (
            "the load generator was overloaded: send lag p99 is 200 ms, and latencies include the lag; give it a "
            "dedicated core or lower the rate"
        ),
        "1 requests were not sent (see `error`): the server received less load than planned",
    )


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
    spec: slos.SloFile = SHIPPED,
) -> Record:
    """A stream due 10 s after the start whose first of 40 chunks came `first` seconds after that, its answer later."""
    request = planned(due=10.0, request_class=request_class, parts=(Part("p", 100),), max_tokens=40)
    response = CompletionResponse()
    if first is not None:
        response.first = 1010.0 + first
        response.gaps.extend([gap] * 39)
        response.last = response.first + 39 * gap
        response.answer = None if answer is None else 1010.0 + answer
    return make_record(
        request,
        response,
        spec,
        request_id="r",
        start=1000.0,
        sent=1010.5,
        closed=1000.0 + closed,
        outcome=outcome,
        error=None,
    )


@pytest.mark.parametrize(
    "graded, verdicts, good",
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
    graded: Record, verdicts: dict[str, Verdict], *, good: bool | None
) -> None:
    assert (graded.slo, graded.good) == (verdicts, good)


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
    slo = slos.Slo(name="answer", classes=("siso",), measure=slos.Measure.TTFT_ANSWER, threshold=20.0, objective=0.95)
    graded = graded_record(
        "siso", outcome, first=2.0, closed=closed, answer=answer, spec=replace(SHIPPED, slos=(*SHIPPED.slos, slo))
    )
    assert (graded.ttft_answer, graded.slo.get("answer")) == (answer, verdict)


def test_latencies_count_from_due_and_the_send_lag_is_separate() -> None:
    row = graded_record("siso", ClientOutcome.OK, first=2.0, gap=0.1)
    assert (row.due, row.sent, row.send_lag, row.ttft, row.e2e) == (10.0, 10.5, 0.5, 2.0, 20.0)
    assert (row.itl_p50, row.itl_p95, row.chunks) == (0.1, 0.1, 40)


def test_a_stream_without_its_end_has_a_token_for_each_chunk() -> None:
    assert graded_record("siso", ClientOutcome.TRUNCATED, first=2.0).completion_tokens == 40
    assert graded_record("siso", ClientOutcome.OK, first=2.0).completion_tokens is None
