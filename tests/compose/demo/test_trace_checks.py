"""The checks of the demo on traces: each passes on links that resolve, and fails on others."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from compose.demo import trace_checks
from compose.demo.checks import Check
from compose.demo.trace_checks import Exemplar, Page
from compose.lab.webhook import Notification
from exporters.analysis.traces.request_search import parse_search
from exporters.analysis.traces.server import FoundRequests
from exporters.analysis.traces.span_parser import Request
from exporters.requestlog.entry import LogEntry
from exporters.vocabulary.signals import Outcome, Verdict
from tests.compose.golden_texts import assert_golden


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


def golden(name: str, found: Mapping[str, Check]) -> None:
    assert_golden(__file__, name, {case: f"{each.passed}: {each.claim}: {each.result}" for case, each in found.items()})


def test_exemplars_must_lead_to_their_request() -> None:
    exemplar = Exemplar({"class": "siso", "model": "tiny", "le": "1"}, TEN[0].trace_id)
    cases = {
        "the page shows it": Page(200, [TEN[0]]),
        "no page": Page(404, []),
        "another model": Page(200, [request(0, model="other")]),
        "another class": Page(200, [request(0, request_class="liso")]),
    }
    found = {
        name: trace_checks.exemplars_resolve([exemplar], {exemplar.trace_id: page}) for name, page in cases.items()
    }
    golden("exemplars", found | {"no exemplar": trace_checks.exemplars_resolve([], {})})


def test_the_link_of_the_page_must_list_what_the_log_has() -> None:
    good = entry(13, slo={"ttft": Verdict.GOOD})
    log = [*LOG, good, entry(14, request_class="liso"), entry(15, model="other"), entry(200)]
    cases: dict[str, tuple[list[Request], int, dict[str, str]]] = {
        "as many as in the log": (TEN, 12, {}),
        "of one SLO": (TEN, 12, {"slo": "ttft"}),
        "too few": (TEN, 9, {}),
        "a link to good ones": (TEN, 12, {"verdict": "good"}),
        "a link to another class": (TEN, 12, {"class": "liso"}),
        "another class": ([*TEN, request(11, request_class="liso")], 12, {}),
        "another model": ([*TEN, request(11, model="other")], 12, {}),
        "none": ([], 0, {"since": "1012"}),
    }
    found = {}
    for name, (requests, count, query) in cases.items():
        given = {"class": "siso", "model": "tiny", "verdict": "bad", "since": "1000", "until": "1100", **query}
        search = parse_search(given.items(), 0.0)
        found[name] = trace_checks.alert_link_lists(search, FoundRequests(count, requests), log)
    golden("link of the page", found)


def test_the_link_of_the_page_is_its_annotation_or_has_the_documented_form() -> None:
    page = notification({"traces_url": "http://127.0.0.1:4318/?class=liso&verdict=bad&since=2h"})
    assert trace_checks.alert_link(page, 1100.0) == "/?class=liso&verdict=bad&since=2h&until=1100.000"
    without = "/?class=siso&model=a%2Fb&verdict=bad&since=1h&until=1100.000"
    assert trace_checks.alert_link(notification({}), 1100.0) == without
    assert trace_checks.alert_link(None, 1100.0) == "/?class=siso&verdict=bad&since=1h&until=1100.000"
    assert trace_checks.worst_link() == "/?verdict=bad&sort=slowest&limit=10"


def test_the_worst_ten_must_be_those_of_the_log() -> None:
    def beside(other: Request) -> tuple[list[Request], dict[str, Page]]:
        return [*TEN[:9], other], {**PAGES, other.trace_id: Page(200, [other])}

    cases: dict[str, tuple[list[Request], dict[str, Page]]] = {
        "all resolve": (TEN, PAGES),
        "no page": (TEN, {**PAGES, TEN[3].trace_id: Page(404, [])}),
        "not in the log": beside(request(50)),
        "nine": (TEN[:9], PAGES),
        "not the slowest": beside(request(11)),
        "none": ([], {}),
    }
    golden("worst ten", {name: trace_checks.worst_resolve(*each, LOG) for name, each in cases.items()})
