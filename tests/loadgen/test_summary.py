"""The report tells the truth of the records: nobody vanishes, and survivors do not flatter."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters import slos
from exporters.signals import Verdict
from loadgen.grading import recorded
from loadgen.request_plan import CHAT, Planned
from loadgen.request_record import Fate, Record
from loadgen.response import Answer
from loadgen.summary import Met, Quantiles, figures, quantiles, summary

SHIPPED = slos.load(slos.SHIPPED)


def record(**changes: Any) -> Record:
    usual: dict[str, Any] = {
        "request_class": "siso",
        "phase": "steady",
        "request_id": "r",
        "endpoint": CHAT,
        "stream": True,
        "outcome": Fate.OK,
        "due": 1.0,
        "closed": 2.0,
        "asked_prompt_tokens": 10,
        "max_tokens": 10,
    }
    return Record(**(usual | changes))


FATES = st.sampled_from(list(Fate))
RECORDS = st.lists(
    st.builds(
        record,
        request_class=st.sampled_from(["siso", "lilo"]),
        phase=st.sampled_from(["calm", "busy"]),
        outcome=FATES,
        stream=st.booleans(),
        ttft=st.none() | st.floats(0, 100),
    )
)


@given(RECORDS)
def test_every_request_is_counted_once_in_its_class_and_phase(records: list[Record]) -> None:
    result = summary(records, ["siso", "lilo"], ["calm", "busy"])
    assert result.total.offered == len(records)
    assert sum(row.offered for row in result.classes) == len(records)
    assert sum(rows[-1].offered for rows in result.phases.values()) == len(records)
    for row in result.classes:
        assert sum(row.outcomes.values()) == row.offered
        assert row.without_first_token <= row.streams <= row.offered


def test_a_stream_without_a_first_token_is_worse_than_any_with_one() -> None:
    found = figures(
        "siso", [*(record(ttft=value) for value in (0.1, 0.2, 0.3)), *(record(outcome=Fate.TIMEOUT) for _ in range(3))]
    )
    assert found.ttft == Quantiles(0.3, None, None)
    assert found.ttft_of_started == Quantiles(0.2, 0.3, 0.3)
    assert (found.streams, found.without_first_token) == (6, 3)


@given(st.lists(st.floats(0, 100), min_size=1), st.integers(0, 50))
def test_what_is_missing_never_lowers_a_percentile(values: list[float], missing: int) -> None:
    for with_missing, without in zip(
        vars_of(quantiles(values, missing=missing)), vars_of(quantiles(values)), strict=True
    ):
        assert without is not None
        assert with_missing is None or with_missing >= without


def vars_of(found: Quantiles) -> tuple[float | None, ...]:
    return found.p50, found.p95, found.p99


def test_goodput_is_good_over_judged_and_the_abandoned_are_named() -> None:
    good, bad, left = {"ttft": Verdict.GOOD}, {"ttft": Verdict.BAD}, {"ttft": Verdict.ABANDONED}
    result = summary(
        [
            record(slo=good, good=True),
            record(slo=bad, good=False),
            record(slo=bad, good=False),
            record(slo=left, outcome=Fate.CUT),
            record(outcome=Fate.CLIENT_ERROR),
        ],
        ["siso"],
        ["steady"],
    )
    row = result.classes[0]
    assert (row.judged, row.good, row.goodput, row.abandoned) == (3, 1, 1 / 3, 1)
    assert row.slos == {"ttft": Met(3, 2)}
    assert result.warnings == (
        (
            "1 requests were ended by the client (timeout, cut) before all their SLOs had judged them: "
            "what was still open made no event, good or bad"
        ),
    )


def test_a_generator_that_was_late_or_left_requests_out_says_so() -> None:
    late = [record(send_lag=0.2) for _ in range(3)]
    result = summary([*late, record(outcome=Fate.NOT_SENT)], ["siso"], ["steady"])
    assert result.warnings == (
        (
            "the generator itself was late: 1 % of the requests left 200 ms or more after they were due, "
            "which every latency contains; give it a core of its own, or lower the rate"
        ),
        "1 requests were due but not sent (see their `error`): the server saw less load than was offered",
    )


def test_no_request_makes_no_figure() -> None:
    found = figures("siso", [])
    assert (found.offered, found.goodput, found.ttft, found.outcomes) == (0, None, Quantiles(), {})


def judged(request_class: str, fate: Fate, *, first: float | None, gap: float = 0.0, closed: float = 30.0) -> Record:
    """A stream due 10 s after the start whose first of 40 chunks came `first` seconds after that."""
    planned = Planned(0, 10.0, "steady", request_class, True, CHAT, 100, 40, "")
    answer = Answer()
    if first is not None:
        answer.first = 1010.0 + first
        answer.gaps.extend([gap] * 39)
        answer.last = answer.first + 39 * gap
    return recorded(
        planned,
        answer,
        SHIPPED,
        request_id="r",
        start=1000.0,
        sent=1010.5,
        closed=1000.0 + closed,
        fate=fate,
        error=None,
    )


@pytest.mark.parametrize(
    "found, verdicts, good",
    [
        pytest.param(
            judged("siso", Fate.OK, first=4.9), {"ttft": Verdict.GOOD, "availability": Verdict.GOOD}, True, id="prompt"
        ),
        pytest.param(
            judged("siso", Fate.OK, first=5.1), {"ttft": Verdict.BAD, "availability": Verdict.GOOD}, False, id="late"
        ),
        pytest.param(
            judged("silo", Fate.OK, first=9, gap=0.3),
            {"itl": Verdict.BAD, "availability": Verdict.GOOD},
            False,
            id="slow",
        ),
        pytest.param(
            judged("siso", Fate.TIMEOUT, first=None, closed=190),
            {"ttft": Verdict.BAD, "availability": Verdict.BAD},
            False,
            id="a client that gave up after 180 s",
        ),
        pytest.param(
            judged("siso", Fate.CUT, first=None, closed=12),
            {"ttft": Verdict.ABANDONED, "availability": Verdict.ABANDONED},
            None,
            id="cut while nothing was decided",
        ),
        pytest.param(judged("siso", Fate.NOT_SENT, first=None), {}, None, id="never sent"),
        pytest.param(judged("siso", Fate.CLIENT_ERROR, first=None, closed=11), {}, None, id="client error"),
        pytest.param(
            judged("siso", Fate.REJECTED, first=None, closed=11),
            {"ttft": Verdict.BAD, "availability": Verdict.BAD},
            False,
            id="rejected",
        ),
    ],
)
def test_a_request_is_judged_from_the_time_it_was_due(
    found: Record, verdicts: dict[str, Verdict], *, good: bool | None
) -> None:
    assert (found.slo, found.good) == (verdicts, good)


def test_latencies_count_from_due_and_the_lag_is_told_apart() -> None:
    found = judged("siso", Fate.OK, first=2.0, gap=0.1)
    assert (found.due, found.sent, found.send_lag, found.ttft, found.e2e) == (10.0, 10.5, 0.5, 2.0, 20.0)
    assert (found.itl_p50, found.itl_p95, found.chunks) == (0.1, 0.1, 40)


def test_a_stream_without_its_end_has_a_token_for_each_chunk() -> None:
    assert judged("siso", Fate.TRUNCATED, first=2.0).completion_tokens == 40
    assert judged("siso", Fate.OK, first=2.0).completion_tokens is None
