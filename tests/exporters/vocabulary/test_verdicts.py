"""The verdicts for all combinations of outcome, progress and signal."""

from dataclasses import dataclass, replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.vocabulary.signals import Outcome, Verdict
from exporters.vocabulary.slo_file import Measure, Rejected, Slo, Unary
from exporters.vocabulary.verdicts import (
    EndedRequest,
    Ending,
    Judge,
    applicable_slos,
    goodput,
    judge_request,
    nearest_rank,
    outcome_of_status,
)
from tests.support.slo_files import sli

FIRST_TOKEN_TIMEOUT = 60.0
MAX_TOKENS = 41  # 40 gaps, of which two may be late
THRESHOLDS = {
    Measure.TTFT: 5.0,
    Measure.TTFT_ANSWER: 8.0,
    Measure.TPOT: 0.1,
    Measure.ITL_P95: 0.25,
    Measure.E2E: 30.0,
    Measure.QUEUE: 1.0,
    Measure.PREFILL: 1.0,
    Measure.DECODE: 20.0,
}


def slo(measure: Measure, *, unary: Unary = Unary.SKIP, rejected: Rejected = Rejected.BAD) -> Slo:
    return Slo(
        name="it",
        classes=("any",),
        sli=sli(measure, THRESHOLDS.get(measure, 0.0), unary),
        objective=0.95,
        rejected=rejected,
    )


@dataclass(frozen=True)
class Moment:
    """The progress of a request at its end; seconds since time zero."""

    end: float
    first_token: float | None = None
    gaps: tuple[float, ...] = ()
    first_answer: float | None = None


MOMENTS = {
    "waiting": Moment(end=1),
    "past the ttft deadline": Moment(end=10),
    "past first_token_timeout": Moment(end=61),
    "streaming well": Moment(end=2, first_token=1, gaps=(0.05,) * 10),
    "streaming after a late first token": Moment(end=11, first_token=10, gaps=(0.05,) * 10),
    "too many late gaps": Moment(end=4, first_token=1, gaps=(0.3,) * 3 + (0.05,) * 20),
    "too slow for its tokens": Moment(end=6.5, first_token=1, gaps=(0.2,) * 25),
    "past the e2e deadline": Moment(end=31, first_token=1, gaps=(0.05,) * 10),
    "reasoning": Moment(end=2, first_token=1, gaps=(0.05,) * 10),
    "reasoning past the answer's deadline": Moment(end=9, first_token=1, gaps=(0.05,) * 10),
    "answering after reasoning": Moment(end=8.5, first_token=1, gaps=(0.05,) * 10, first_answer=7.5),
    "answering after long reasoning": Moment(end=9, first_token=1, gaps=(0.05,) * 10, first_answer=8.5),
}
REASONING = [name for name in MOMENTS if "reasoning" in name]
# One letter per outcome, in the order of `Outcome`: good, bad, abandoned, - for no event.
UNDECIDED_NO_SIGNAL = "-abbbbbbb-"
UNDECIDED_MET = "gabbbbbbb-"
BAD, GOOD = "b" * 10, "g" * 10
WITHOUT_REASONING = {
    "waiting": UNDECIDED_NO_SIGNAL,
    "past the ttft deadline": BAD,
    "past first_token_timeout": BAD,
    "streaming well": GOOD,
    "streaming after a late first token": BAD,
    "too many late gaps": GOOD,
    "too slow for its tokens": GOOD,
    "past the e2e deadline": GOOD,
}
"""Of the first token, which is also that of the answer."""

EXPECTED: dict[Measure, dict[str, str]] = {
    Measure.TTFT: {**WITHOUT_REASONING, **dict.fromkeys(REASONING, GOOD)},
    Measure.TTFT_ANSWER: {
        **WITHOUT_REASONING,
        "reasoning": UNDECIDED_NO_SIGNAL,
        "reasoning past the answer's deadline": BAD,
        "answering after reasoning": GOOD,
        "answering after long reasoning": BAD,
    },
    **{
        measure: {
            **dict.fromkeys(MOMENTS, UNDECIDED_MET),
            "waiting": UNDECIDED_NO_SIGNAL,
            "past the ttft deadline": UNDECIDED_NO_SIGNAL,
            "past first_token_timeout": BAD,
            missed: BAD,
        }
        for measure, missed in ((Measure.TPOT, "too slow for its tokens"), (Measure.ITL_P95, "too many late gaps"))
    },
    Measure.E2E: {
        **dict.fromkeys(MOMENTS, UNDECIDED_MET),
        "past first_token_timeout": BAD,
        "past the e2e deadline": BAD,
    },
    # The engine reports its times only for finished requests, so waiting alone decides nothing.
    Measure.QUEUE: dict.fromkeys(MOMENTS, UNDECIDED_MET),
    Measure.PREFILL: dict.fromkeys(MOMENTS, UNDECIDED_MET),
    Measure.DECODE: {**dict.fromkeys(MOMENTS, UNDECIDED_MET), "past first_token_timeout": BAD},
    Measure.AVAILABILITY: {**dict.fromkeys(MOMENTS, UNDECIDED_MET), "past first_token_timeout": BAD},
    # These requests ask for no JSON.
    Measure.VALID_OUTPUT: dict.fromkeys(MOMENTS, "-" * 10),
}
LETTERS = {Verdict.GOOD: "g", Verdict.BAD: "b", Verdict.ABANDONED: "a", None: "-"}


def request(
    moment: Moment,
    outcome: Outcome,
    *,
    stream: bool = True,
    n: int = 1,
    max_tokens: int = MAX_TOKENS,
    reasons: bool = False,
) -> EndedRequest:
    """Without reasoning, the first token is an answer."""
    first = moment.first_token
    return EndedRequest(
        stream=stream,
        n=n,
        max_tokens=max_tokens,
        first_token=first,
        gaps=moment.gaps,
        first_answer=moment.first_answer if reasons else first,
        ending=Ending(
            at=moment.end,
            outcome=outcome,
            last_chunk=None if first is None else first + sum(moment.gaps),
            completion_tokens=None if first is None else 1 + len(moment.gaps),
            queue=0.5,
            prefill=0.5,
            decode=10.0,
        ),
    )


def verdict(slo: Slo, request: EndedRequest) -> Verdict | None:
    return judge_request([slo], FIRST_TOKEN_TIMEOUT, request).get(slo.name)


@pytest.mark.parametrize("measure", Measure)
def test_the_verdict_at_each_moment_and_outcome_is_as_documented(measure: Measure) -> None:
    found = {
        name: "".join(
            LETTERS[verdict(slo(measure), request(moment, outcome, reasons=name in REASONING))] for outcome in Outcome
        )
        for name, moment in MOMENTS.items()
    }
    assert found == EXPECTED[measure]


@pytest.mark.parametrize("measure", [Measure.TTFT, Measure.TTFT_ANSWER, Measure.TPOT, Measure.ITL_P95])
@pytest.mark.parametrize(
    "outcome,end,expected",
    [
        pytest.param(Outcome.OK, 0.09, Verdict.GOOD, id="in time"),
        pytest.param(Outcome.OK, 31.0, Verdict.BAD, id="late"),
        pytest.param(Outcome.UPSTREAM_ERROR, 0.05, Verdict.BAD, id="failed"),
        pytest.param(Outcome.CLIENT_ABORT, 0.05, Verdict.ABANDONED, id="aborted"),
    ],
)
def test_a_unary_request_is_judged_by_its_e2e_only_if_the_slo_sets_unary_e2e(
    measure: Measure, outcome: Outcome, end: float, expected: Verdict
) -> None:
    unary = request(Moment(end=end), outcome, stream=False)
    assert verdict(slo(measure), unary) is None
    assert verdict(slo(measure, unary=Unary.E2E), unary) is expected


BETWEEN_TOKENS = pytest.mark.parametrize("measure", [Measure.TPOT, Measure.ITL_P95])


@BETWEEN_TOKENS
@pytest.mark.parametrize(
    "n,max_tokens", [pytest.param(2, MAX_TOKENS, id="two choices"), pytest.param(1, 1, id="one token")]
)
def test_a_signal_that_a_request_cannot_have_makes_no_event(measure: Measure, n: int, max_tokens: int) -> None:
    hung = MOMENTS["past first_token_timeout"]
    ended = [request(hung, outcome, n=n, max_tokens=max_tokens) for outcome in Outcome]
    assert {verdict(slo(measure), each) for each in ended} == {None}


@BETWEEN_TOKENS
def test_the_time_between_tokens_needs_two_of_them(measure: Measure) -> None:
    assert verdict(slo(measure), request(Moment(end=2, first_token=1), Outcome.OK)) is None
    two = request(Moment(end=2, first_token=1, gaps=(0.05,)), Outcome.OK, max_tokens=2)
    assert verdict(slo(measure), two) is Verdict.GOOD


@pytest.mark.parametrize("measure", [Measure.QUEUE, Measure.PREFILL, Measure.DECODE])
def test_an_unknown_engine_time_makes_no_event(measure: Measure) -> None:
    decided = request(MOMENTS["streaming well"], Outcome.OK)
    unknown = EndedRequest(stream=True, ending=Ending(at=2, outcome=Outcome.OK), first_token=1, gaps=decided.gaps)
    assert verdict(slo(measure), unknown) is None


@pytest.mark.parametrize("measure", Measure)
def test_a_rejection_makes_no_event_if_the_slo_excludes_it(measure: Measure) -> None:
    assert verdict(slo(measure, rejected=Rejected.EXCLUDE), request(MOMENTS["waiting"], Outcome.REJECTED)) is None


def test_an_slo_that_does_not_apply_leaves_the_others() -> None:
    slos = [replace(slo(measure), name=measure) for measure in (Measure.TTFT, Measure.VALID_OUTPUT, Measure.E2E)]
    unary = request(Moment(end=2), Outcome.OK, stream=False)
    assert judge_request(slos, FIRST_TOKEN_TIMEOUT, unary) == {"e2e": Verdict.GOOD}


def live_judge(*measures: Measure, max_tokens: int = MAX_TOKENS, structured: bool = False) -> Judge:
    """The judge of a stream that arrived at 100 s."""
    slos = [replace(slo(measure), name=measure) for measure in measures]
    return Judge(
        applicable_slos(slos, stream=True, several=True, structured=structured),
        zero=100.0,
        first_token_timeout=FIRST_TOKEN_TIMEOUT,
        max_tokens=max_tokens,
    )


def test_a_hung_engine_consumes_error_budget_while_it_hangs() -> None:
    judge = live_judge(Measure.TTFT, Measure.AVAILABILITY, Measure.ITL_P95)
    assert judge.deadline() == 105.0
    assert judge.check_deadlines(105.0) == []
    assert judge.check_deadlines(105.001) == [("ttft", Verdict.BAD)]
    assert judge.deadline() == 160.0
    assert sorted(judge.check_deadlines(160.001)) == [("availability", Verdict.BAD), ("itl_p95", Verdict.BAD)]
    assert judge.deadline() is None


@pytest.mark.parametrize("measure", Measure)
def test_without_a_first_token_timeout_only_a_threshold_has_a_deadline(measure: Measure) -> None:
    judge = Judge(applicable_slos([slo(measure)], stream=True, several=True), zero=100.0, first_token_timeout=inf)
    has_deadline = measure in {Measure.TTFT, Measure.TTFT_ANSWER, Measure.E2E}
    assert (judge.deadline() is not None) == has_deadline
    assert judge.check_deadlines(1e9) == ([("it", Verdict.BAD)] if has_deadline else [])
    assert judge.ended(Ending(at=1e9, outcome=Outcome.CLIENT_ABORT)) == (
        [] if has_deadline or measure is Measure.VALID_OUTPUT else [("it", Verdict.ABANDONED)]
    )


def test_a_good_ttft_is_reported_at_the_first_token() -> None:
    judge = live_judge(Measure.TTFT, Measure.AVAILABILITY)
    assert judge.first_token(101.0) == [("ttft", Verdict.GOOD)]
    assert judge.deadline() is None
    assert judge.ended(Ending(at=102.0, outcome=Outcome.OK)) == [("availability", Verdict.GOOD)]


def test_the_answer_has_its_deadline_while_the_model_reasons() -> None:
    judge = live_judge(Measure.TTFT, Measure.TTFT_ANSWER)
    assert judge.deadline() == 105.0
    assert judge.first_token(101.0) == [("ttft", Verdict.GOOD)]
    assert judge.deadline() == 108.0
    assert judge.check_deadlines(108.0) == []
    assert judge.check_deadlines(108.001) == [("ttft_answer", Verdict.BAD)]
    assert judge.first_answer(109.0) == []


def test_time_in_which_the_client_does_not_read_extends_the_deadline_of_the_answer() -> None:
    for answer_at, verdict in ((107.5, Verdict.GOOD), (108.5, Verdict.BAD)):
        judge = live_judge(Measure.TTFT_ANSWER, Measure.E2E)
        judge.first_token(101.0)
        assert judge.check_deadlines(110.0, paused=3.0) == []
        assert judge.deadline() == 111.0
        assert judge.first_answer(answer_at) == [("ttft_answer", verdict)]
    ended = live_judge(Measure.TTFT_ANSWER, Measure.E2E)
    ended.first_token(101.0)
    assert ended.ended(Ending(at=129.0, outcome=Outcome.OK, paused=21.5)) == [("e2e", Verdict.GOOD)]


def test_a_judge_without_an_slo_on_the_answer_awaits_none() -> None:
    assert not live_judge(Measure.TTFT).awaits_answer
    assert not applicable_slos([slo(Measure.VALID_OUTPUT)], stream=True, several=True, structured=True).answers
    assert live_judge(Measure.TTFT_ANSWER).awaits_answer


@pytest.mark.parametrize(
    "valid, verdicts",
    [(True, [("valid_output", Verdict.GOOD)]), (False, [("valid_output", Verdict.BAD)]), (None, [])],
)
def test_output_that_was_checked_has_its_verdict(valid: bool | None, verdicts: list[tuple[str, Verdict]]) -> None:
    judge = live_judge(Measure.TTFT_ANSWER, Measure.VALID_OUTPUT, structured=True)
    assert judge.first_answer(101.0) == [("ttft_answer", Verdict.GOOD)]
    assert judge.deadline() is None
    assert judge.output_checked(valid=valid) == verdicts
    assert judge.ended(Ending(at=161.0, outcome=Outcome.OK)) == []


def test_output_that_was_not_checked_has_the_verdict_of_the_outcome() -> None:
    found = ""
    for outcome in (each for each in Outcome if each is not Outcome.OK):
        judge = live_judge(Measure.VALID_OUTPUT, structured=True)
        judge.ended(Ending(at=161.0, outcome=outcome))
        found += LETTERS[judge.verdicts.get("valid_output")]
    assert found == UNDECIDED_MET[1:]


@pytest.mark.parametrize(
    "measures, gap, max_tokens, bad_at",
    [
        pytest.param([], 0.3, MAX_TOKENS, 3, id="once the remaining tokens cannot change the verdict"),
        pytest.param([], 1.0, 40, 2, id="once they are more than a twentieth of 39 gaps"),
        pytest.param([Measure.TPOT], 0.3, MAX_TOKENS, 3, id="not for TPOT"),
        pytest.param([Measure.QUEUE], 1.1, MAX_TOKENS, 3, id="not for the queue time"),
        pytest.param([Measure.DECODE], 21.0, MAX_TOKENS, 3, id="not for decode"),
    ],
)
def test_late_gaps_are_bad_for_the_itl(measures: list[Measure], gap: float, max_tokens: int, bad_at: int) -> None:
    judge = live_judge(Measure.ITL_P95, *measures, max_tokens=max_tokens)
    assert judge.late_gap == 0.25
    judge.first_token(101.0)
    found = [judge.chunk(101.0 + gap * n, gap, n) for n in range(1, bad_at + 1)]
    assert found == [*[[]] * (bad_at - 1), [("itl_p95", Verdict.BAD)]]
    assert "itl_p95" not in dict(judge.ended(Ending(at=102.0, outcome=Outcome.OK)))


def test_a_tpot_is_bad_once_the_remaining_tokens_would_be_too_late_even_without_gaps() -> None:
    judge = live_judge(Measure.TPOT, max_tokens=42)
    judge.first_token(101.0)
    assert judge.late_after == pytest.approx(105.1)  # 41 gaps of 0.1 s
    assert judge.chunk(105.09, 4.09, 1) == []
    assert judge.chunk(105.11, 0.02, 2) == [("tpot", Verdict.BAD)]


@pytest.mark.parametrize(
    "measure, moment, expected",
    [
        # 3.8 s, and max_tokens allow 4 s
        pytest.param(Measure.TPOT, Moment(5, 1, (0.19,) * 20), Verdict.BAD, id="an early end has the tokens that came"),
        pytest.param(Measure.TPOT, Moment(9, 1, (0.11,) * 3), Verdict.BAD, id="four tokens have three gaps"),
        pytest.param(
            Measure.ITL_P95, Moment(9, 1, (0.05,) * 57 + (0.3,) * 3), Verdict.GOOD, id="more tokens, more late gaps"
        ),
        pytest.param(
            Measure.ITL_P95, Moment(9, 1, (0.05,) * 38 + (0.3,) * 2), Verdict.GOOD, id="a twentieth may be late"
        ),
        pytest.param(Measure.TTFT, Moment(9, 5.0), Verdict.GOOD, id="TTFT at its threshold"),
        pytest.param(Measure.E2E, Moment(30.0), Verdict.GOOD, id="E2E at its threshold"),
        pytest.param(
            Measure.TTFT_ANSWER, Moment(9, 1.0, first_answer=8.0), Verdict.GOOD, id="the answer at its threshold"
        ),
    ],
)
def test_a_verdict_at_the_edge(measure: Measure, moment: Moment, expected: Verdict) -> None:
    assert verdict(slo(measure), request(moment, Outcome.OK, reasons=True)) is expected


def test_one_token_has_no_itl() -> None:
    judge = live_judge(Measure.ITL_P95)
    assert judge.first_token(101.0) + judge.ended(Ending(at=102.0, outcome=Outcome.OK)) == []


def test_the_first_token_may_arrive_at_its_timeout() -> None:
    assert live_judge(Measure.TTFT, Measure.AVAILABILITY).check_deadlines(160.0) == [("ttft", Verdict.BAD)]


def test_a_deadline_after_a_missed_one_is_where_it_was() -> None:
    judge = live_judge(Measure.TTFT, Measure.E2E)
    assert [judge.check_deadlines(at) for at in (106.0, 130.0)] == [[("ttft", Verdict.BAD)], []]


def test_gaps_that_are_late_for_one_itl_are_not_for_another_with_this_threshold() -> None:
    strict = replace(slo(Measure.ITL_P95), name="strict", sli=sli(Measure.ITL_P95, 0.2, Unary.SKIP))
    found = judge_request([strict, slo(Measure.ITL_P95)], inf, request(Moment(9, 1, (0.25,) * 3), Outcome.OK))
    assert found == {"strict": Verdict.BAD, "it": Verdict.GOOD}


def test_a_request_that_ends_between_two_deadlines_misses_only_the_first() -> None:
    judge = live_judge(Measure.TTFT, Measure.TTFT_ANSWER)
    assert judge.ended(Ending(at=107.5, outcome=Outcome.OK)) == [("ttft", Verdict.BAD)]


GAPS = st.lists(st.sampled_from([0.01, 0.2, 0.26, 0.9]), max_size=MAX_TOKENS - 1)


@settings(max_examples=50)
@given(
    gaps=GAPS,
    first=st.floats(0, 70),
    answer=st.integers(0, MAX_TOKENS),
    outcome=st.sampled_from(Outcome),
    rest=st.floats(0, 10),
)
def test_each_verdict_is_reported_once_and_early_ones_are_final(
    gaps: list[float], first: float, answer: int, outcome: Outcome, rest: float
) -> None:
    judge = live_judge(*Measure)
    verdicts = judge.first_token(100 + first)
    at = 100 + first
    answer_at = at + sum(gaps[:answer]) if answer <= len(gaps) else None
    if answer == 0:
        verdicts += judge.first_answer(at)
    for number, gap in enumerate(gaps, 1):
        at += gap
        verdicts += judge.check_deadlines(at)
        if gap > judge.late_gap or at > judge.late_after:  # as the relay does; other chunks make no verdict certain
            verdicts += judge.chunk(at, gap, number)
        if number == answer:
            verdicts += judge.first_answer(at)
    tokens = 1 + len(gaps)
    verdicts += judge.ended(Ending(at + rest, outcome, last_chunk=at, gaps=len(gaps), completion_tokens=tokens))
    names = [name for name, _ in verdicts]
    assert len(names) == len(set(names))
    assert dict(verdicts) == judge.verdicts
    if outcome is Outcome.OK and answer_at is not None and abs(answer_at - 108.0) > 1e-9:
        assert judge.verdicts["ttft_answer"] is (Verdict.BAD if answer_at > 108.0 else Verdict.GOOD)
    if outcome is Outcome.OK and gaps:
        late = sorted(gaps)[-(-len(gaps) * 95 // 100) - 1] > 0.25
        hung = first > FIRST_TOKEN_TIMEOUT
        assert judge.verdicts["itl_p95"] is (Verdict.BAD if late or hung else Verdict.GOOD)
        mean = (at - (100 + first)) / (tokens - 1)
        if abs(mean - 0.1) > 1e-9:
            assert judge.verdicts["tpot"] is (Verdict.BAD if mean > 0.1 or hung else Verdict.GOOD)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from((50, 95, 100)))
def test_a_percentile_is_the_smallest_value_that_the_share_reaches(values: list[float], percent: int) -> None:
    found = nearest_rank(sorted(values), percent)
    assert sum(each <= found for each in values) >= percent / 100 * len(values)
    assert sum(each < found for each in values) < percent / 100 * len(values)


@pytest.mark.parametrize(
    "verdicts,good",
    [
        pytest.param([], None, id="no verdict, no event"),
        pytest.param([Verdict.ABANDONED], None, id="abandoned is not an event"),
        pytest.param([Verdict.GOOD, Verdict.ABANDONED], True, id="good for all that judged"),
        pytest.param([Verdict.GOOD, Verdict.BAD], False, id="one bad is enough"),
    ],
)
def test_goodput_counts_requests_good_for_all_their_slos(verdicts: list[Verdict], good: bool | None) -> None:
    assert goodput(verdicts) is good


@pytest.mark.parametrize(
    "status,outcome",
    [
        *((status, Outcome.OK) for status in (200, 307, 399)),  # redirects are relayed unchanged
        *((status, Outcome.CLIENT_ERROR) for status in (400, 499)),
        *((status, Outcome.REJECTED) for status in (429, 503)),
        *((status, Outcome.UPSTREAM_ERROR) for status in (500, 504)),
    ],
)
def test_a_status_has_one_outcome(status: int, outcome: Outcome) -> None:
    assert outcome_of_status(status) is outcome
