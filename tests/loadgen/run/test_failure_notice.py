"""Requests that all fail in the same way give one notice with the reason."""

from loadgen.results.record import ClientOutcome, Record
from loadgen.run.monitor import FIRST, LATER, FailureNotice
from tests.loadgen.load_records import record

WRONG_MODEL = record(outcome=ClientOutcome.CLIENT_ERROR, status=404, error="The model `m` does not exist.")
WRONG = "client_error, status 404: The model `m` does not exist.; ctrl-c stops the run"
REFUSED = record(outcome=ClientOutcome.UPSTREAM_UNREACHABLE, error="connection refused")


def notices(records: list[Record]) -> list[tuple[int, str]]:
    """Each notice, with the number of records until then."""
    notice = FailureNotice()
    return [(number, text) for number, each in enumerate(records, start=1) if (text := notice.add(each)) is not None]


def test_the_first_requests_that_all_fail_give_one_notice() -> None:
    assert notices([WRONG_MODEL] * 100) == [
        (
            FIRST,
            f"the first 5 requests all failed: {WRONG}",
        )
    ]


def test_a_target_that_dies_during_the_run_gives_one_notice_and_another_failure_one_more() -> None:
    records = [record(), *[REFUSED] * 100, record(), *[REFUSED] * 100, *[WRONG_MODEL] * LATER]
    assert notices(records) == [
        (
            1 + LATER,
            "the last 20 requests all failed: upstream_unreachable: connection refused; ctrl-c stops the run",
        ),
        (
            len(records),
            f"the last 20 requests all failed: {WRONG}",
        ),
    ]


def test_failures_between_successes_give_none() -> None:
    assert notices([record(), *[REFUSED] * (LATER - 1)] * 10) == []


def test_requests_that_the_client_ends_or_does_not_send_give_none() -> None:
    own = [record(outcome=ClientOutcome.CUT), record(outcome=ClientOutcome.NOT_SENT)]
    assert notices(own * 100) == []
