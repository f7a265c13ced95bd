"""The checks of the demo on traces: each passes on links that resolve, and fails on others."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from compose.demo import trace_checks
from compose.demo.trace_checks import Exemplar, Page
from compose.lab.webhook import Notification
from exporters.analysis.traces.request_search import parse_search
from exporters.analysis.traces.server import FoundRequests
from exporters.analysis.traces.span_parser import Request
from exporters.requestlog.entry import LogEntry
from exporters.vocabulary.signals import Outcome, Verdict


def notification(annotations: dict[str, str]) -> Notification:
    return Notification(
        arrived_at=1050.0,
        receiver="page",
        status="firing",
        labels={"class": "siso", "model": "a/b", "slo": "ttft"},
        annotations=annotations,
        started="",
        fingerprint="",
    )


def request(number: int, **fields: Any) -> Request:
    plain: dict[str, Any] = {
        "trace_id": f"{number:032x}",
        "span_id": f"{number:016x}",
        "start": (1000 + number) * 1_000_000_000,
        "duration": (100 - number) * 1_000_000_000,
        "ttft": None,
        "request_id": f"r-{number}",
        "request_class": "siso",
        "tenant": "",
        "model": "tiny",
        "route": "/v1/completions",
        "outcome": "ok",
        "verdict": "bad",
        "slos": {"ttft": "bad"},
    }
    return Request(**{**plain, **fields})


def entry(number: int, **fields: Any) -> LogEntry:
    plain: dict[str, Any] = {
        "time": datetime.fromtimestamp(1000 + number, UTC),
        "request_id": f"r-{number}",
        "trace_id": f"{number:032x}",
        "request_class": "siso",
        "model": "tiny",
        "stream": True,
        "outcome": Outcome.OK,
        "e2e_ms": (100.0 - number) * 1000,
        "slo": {"ttft": Verdict.BAD},
    }
    return LogEntry(**{**plain, **fields})


TEN = [request(number) for number in range(10)]
LOG = [entry(number) for number in range(12)]
PAGES = {each.trace_id: Page(200, [each]) for each in TEN}


def test_the_last_exemplars_are_checked() -> None:
    data = [
        {
            "seriesLabels": {"class": name},
            "exemplars": [{"labels": {"trace_id": f"{name}{at}"}, "timestamp": at} for at in range(30)],
        }
        for name in ("a", "b")
    ]
    found = trace_checks.exemplars({"data": data})
    assert [each.trace_id for each in found[:3]] == ["a29", "b29", "a28"]
    assert len(found) == trace_checks.EXEMPLARS


@pytest.mark.parametrize(
    "found, page, passed, result",
    [
        pytest.param(1, Page(200, [TEN[0]]), True, "1 of the last 1", id="the page shows it"),
        pytest.param(1, Page(404, []), False, "0 of the last 1", id="no page"),
        pytest.param(1, Page(200, [request(0, model="other")]), False, "0 of the last 1", id="another model"),
        pytest.param(1, Page(200, [request(0, request_class="liso")]), False, "0 of the last 1", id="another class"),
        pytest.param(0, Page(200, []), False, "0 of the last 0", id="no exemplar"),
    ],
)
def test_exemplars_must_lead_to_their_request(found: int, page: Page, passed: bool, result: str) -> None:
    exemplars = [Exemplar({"class": "siso", "model": "tiny", "le": "1"}, TEN[0].trace_id)] * found
    check = trace_checks.exemplars_resolve(exemplars, {TEN[0].trace_id: page})
    assert (check.passed, check.result) == (passed, result)


@pytest.mark.parametrize(
    "requests, found, query, passed",
    [
        pytest.param(TEN, 12, {}, True, id="as many as in the log"),
        pytest.param(TEN, 12, {"slo": "ttft"}, True, id="of one SLO"),
        pytest.param(TEN, 9, {}, False, id="too few"),
        pytest.param(TEN, 12, {"verdict": "good"}, False, id="a link to good ones"),
        pytest.param(TEN, 12, {"class": "liso"}, False, id="a link to another class"),
        pytest.param([*TEN, request(11, request_class="liso")], 12, {}, False, id="another class"),
        pytest.param([*TEN, request(11, model="other")], 12, {}, False, id="another model"),
        pytest.param([], 0, {"since": "1012"}, False, id="none"),
    ],
)
def test_the_link_of_the_page_must_list_what_the_log_has(
    requests: list[Request], found: int, query: dict[str, str], passed: bool
) -> None:
    others = [
        entry(13, slo={"ttft": Verdict.GOOD}),
        entry(14, request_class="liso"),
        entry(15, model="other"),
        entry(200),
    ]
    given = {"class": "siso", "model": "tiny", "verdict": "bad", "since": "1000", "until": "1100", **query}
    search = parse_search(given.items(), 0.0)
    check = trace_checks.alert_link_lists(search, FoundRequests(found, requests), [*LOG, *others])
    assert check.passed is passed


def test_the_link_of_the_page_is_its_annotation_or_has_the_documented_form() -> None:
    page = notification({"traces_url": "http://127.0.0.1:4318/?class=liso&verdict=bad&since=2h"})
    assert trace_checks.alert_link(page, 1100.0) == "/?class=liso&verdict=bad&since=2h&until=1100.000"
    without = "/?class=siso&model=a%2Fb&verdict=bad&since=1h&until=1100.000"
    assert trace_checks.alert_link(notification({}), 1100.0) == without
    assert trace_checks.alert_link(None, 1100.0) == "/?class=siso&verdict=bad&since=1h&until=1100.000"
    assert trace_checks.worst_link() == "/?verdict=bad&sort=slowest&limit=10"


@pytest.mark.parametrize(
    "requests, pages, passed, result",
    [
        pytest.param(TEN, PAGES, True, "10 of 10, the slowest took 100.0 s", id="all resolve"),
        pytest.param(
            TEN, {**PAGES, TEN[3].trace_id: Page(404, [])}, False, "9 of 10, the slowest took 100.0 s", id="no page"
        ),
        pytest.param(
            [*TEN[:9], request(50)],
            {**PAGES, request(50).trace_id: Page(200, [request(50)])},
            False,
            "9 of 10, the slowest took 100.0 s",
            id="not in the log",
        ),
        pytest.param(TEN[:9], PAGES, False, "9 of 9, the slowest took 100.0 s", id="nine"),
        pytest.param(
            [*TEN[:9], request(11)],
            {**PAGES, request(11).trace_id: Page(200, [request(11)])},
            False,
            "10 of 10, the slowest took 100.0 s",
            id="not the slowest",
        ),
        pytest.param([], {}, False, "0 of 0", id="none"),
    ],
)
def test_the_worst_ten_must_be_those_of_the_log(
    requests: Sequence[Request], pages: Mapping[str, Page], passed: bool, result: str
) -> None:
    check = trace_checks.worst_resolve(requests, pages, LOG)
    assert (check.passed, check.result) == (passed, result)
