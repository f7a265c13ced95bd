"""Five definitions of goodput over the same requests."""

from typing import Any

import pytest

from exporters.vocabulary.signals import Verdict
from loadgen.results.goodput_definitions import Goodput, by_definition
from loadgen.results.record import ClientOutcome, Objective, Record
from tests.loadgen.load_records import record

SLOS = [
    Objective("ttft", "ttft", 1.0, 0.95),
    Objective("tpot", "tpot", 0.1, 0.95),
    Objective("availability", "availability", None, 0.99),
]
BOTH = {"ttft": Verdict.GOOD, "tpot": Verdict.GOOD, "availability": Verdict.GOOD}


def stream(*, good: bool | None, ttft: float, **changes: Any) -> Record:
    """A stream sent 0.5 s after its due time, whose TTFT counts from the due time; TPOT 50 ms."""
    times = {"due": 0.0, "sent": 0.5, "first_choice": ttft, "last_choice": ttft + 1, "tpot_vllm": 0.05, "tpot": 0.05}
    return record(**{**times, "ttft": ttft, "ttft_sent": ttft - 0.5, "good": good, "slo": BOTH} | changes)


QUICK = stream(good=True, ttft=0.9)
LATE = stream(good=False, ttft=1.4)  # within 1 s of sending, but not of the intended time
SLOW = stream(good=False, ttft=9.0)
ONE_TOKEN = stream(good=True, ttft=0.9, tpot=None, tpot_vllm=None)
FAILED = record(outcome=ClientOutcome.UPSTREAM_ERROR, sent=0.5, good=False, slo=BOTH)
NOT_SENT = record(outcome=ClientOutcome.NOT_SENT, sent=None)


def counts(*records: Record) -> dict[str, tuple[int, int]]:
    rows = by_definition(records, SLOS, 10.0)
    return {f"{row.tool}, {row.definition.partition(':')[0]}": (row.good, row.of) for row in rows}


def test_the_definitions_count_different_requests() -> None:
    assert counts(QUICK, LATE, SLOW, ONE_TOKEN, FAILED, NOT_SENT) == {
        "vllm-slo, good / judged": (2, 5),
        "vllm-slo, good / offered": (2, 6),
        "vllm bench serve, completed requests that meet the SLOs, per second": (3, 4),
        "guidellm, conforming / (measurable + errors)": (2, 5),
        "aiperf, good / (ok + errors)": (3, 6),
        "inference-perf, good / successful": (3, 4),
    }


def test_an_empty_choice_before_the_first_token_is_a_first_token_for_vllm() -> None:
    early_role = stream(good=False, ttft=9.0, first_choice=0.6)
    assert counts(early_role)["vllm bench serve, completed requests that meet the SLOs, per second"] == (1, 1)
    assert counts(early_role)["aiperf, good / (ok + errors)"] == (0, 1)


def test_only_vllm_states_a_rate() -> None:
    rows = by_definition([QUICK, QUICK], SLOS, 4.0)
    assert [row.per_second for row in rows if row.per_second is not None] == [0.5]
    assert [row.share for row in by_definition([], SLOS, 0.0)] == [None] * 6


@pytest.mark.parametrize("good, of, share", [(1, 4, 0.25), (0, 0, None)])
def test_a_share_of_no_requests_is_unknown(good: int, of: int, share: float | None) -> None:
    assert Goodput("t", "d", good, of).share == share
