"""The parameters of the list: what they select, and every mistake in them."""

import pytest

from exporters.analysis.traces.request_search import Search, link, parse_search
from exporters.text.errors import InvalidValueError

NOW = 1_700_000_000.0


def test_the_link_of_an_alert_selects_by_class_model_slo_verdict_and_time() -> None:
    given = {"class": "siso", "model": "a b", "slo": "ttft", "verdict": "bad", "since": "10m", "until": "1699999990"}
    assert link(verdict="bad", model="a b") == "/?verdict=bad&model=a+b"
    assert parse_search(given.items(), NOW) == Search(
        equal={"class": "siso", "model": "a b"}, slo="ttft", verdict="bad", since=NOW - 600, until=NOW - 10
    )


def test_an_empty_form_selects_everything() -> None:
    assert parse_search([("class", ""), ("verdict", ""), ("since", ""), ("limit", "")], NOW) == Search()


@pytest.mark.parametrize("text", ["2023-11-14T22:13:00Z", "1699999980", "20s"])
def test_a_time_is_rfc_3339_unix_seconds_or_a_duration_before_now(text: str) -> None:
    assert parse_search([("since", text)], NOW).since == NOW - 20


def test_times_beyond_the_calendar_select_without_an_error() -> None:
    _, values = parse_search([("since", "1e300"), ("until", "nan"), ("min_duration", "9" * 400 + "w")], NOW).condition()
    assert all(-(2**63) <= value < 2**63 for value in values)


def test_every_mistake_is_reported_at_once() -> None:
    given = {
        "clas": "siso",
        "verdict": "awful",
        "sort": "slow",
        "since": "yesterday",
        "min_duration": "5",
        "limit": "0",
    }
    with pytest.raises(InvalidValueError) as caught:
        parse_search(given.items(), NOW)
    assert str(caught.value).splitlines() == [
        "clas: unknown parameter; did you mean 'class'?",
        "verdict: 'awful' is unknown; known: good, bad, abandoned",
        "min_duration: '5' is not a valid duration; write a number with a unit, such as 250ms, 30s or 10m",
        "since: 'yesterday' is not a valid time; write unix seconds or RFC 3339, such as 2026-01-31T12:00:00Z",
        "sort: 'slow' is unknown; did you mean 'slowest'?",
        "limit: '0' is not a number from 1 to 1000",
    ]
