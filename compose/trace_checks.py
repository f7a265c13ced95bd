"""The checks of the demo that links to traces resolve: of exemplars, of an alert, and of the worst ten bad requests."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from compose.demo_checks import PAGE, Check
from exporters.comparison.comparison_windows import Window
from exporters.requestlog.log_entry import LogEntry
from exporters.signals import Verdict
from exporters.traces.request_search import link
from exporters.traces.span_parser import Request

EXEMPLARS = 20
WORST = 10


class Page(NamedTuple):
    """The trace page that an id leads to: HTTP status, and the requests in its trace."""

    status: int
    requests: Sequence[Request]


class Exemplar(msgspec.Struct):
    """An exemplar of Prometheus with the labels of its series."""

    series: Mapping[str, str]
    trace_id: str


def exemplars(response: Any) -> list[Exemplar]:
    """Of a response of Prometheus' API, the last ones of each series first, at most EXEMPLARS."""
    found = [
        (each["timestamp"], Exemplar(series["seriesLabels"], each["labels"]["trace_id"]))
        for series in response["data"]
        for each in series["exemplars"]
    ]
    return [exemplar for _, exemplar in sorted(found, key=lambda pair: -pair[0])[:EXEMPLARS]]


def alert_link(labels: Mapping[str, str], window: Window) -> str:
    """The requests that burnt the budget of an alert with these labels, in a range of time."""
    parameters = {name: labels[name] for name in ("class", "model", "slo") if name in labels}
    times = {"since": f"{window.start:.3f}", "until": f"{window.end:.3f}"}
    return link(**parameters, verdict=Verdict.BAD.value, **times, limit="1000")


def worst_link() -> str:
    return link(verdict=Verdict.BAD.value, sort="slowest", limit=str(WORST))


def exemplars_resolve(found: Sequence[Exemplar], pages: Mapping[str, Page]) -> Check:
    claim = "exemplars in Prometheus lead to traces of their class and model"
    right = sum(_shows(pages[each.trace_id], each.series) for each in found)
    return Check(claim, f"{right} of the last {len(found)}", passed=0 < right == len(found))


def _shows(page: Page, series: Mapping[str, str]) -> bool:
    return page.status == 200 and any(
        (request.request_class, request.model) == (series["class"], series["model"]) for request in page.requests
    )


def alert_link_lists(requests: Sequence[Request], found: int, entries: Sequence[LogEntry], window: Window) -> Check:
    """The store has as many as the log, which has milliseconds: one request at each bound may differ."""
    claim = f"the link of the alert lists the {PAGE['class']} requests that missed {PAGE['slo']}"
    logged = sum(
        entry.request_class == PAGE["class"]
        and entry.slo.get(PAGE["slo"]) is Verdict.BAD
        and window.contains(entry.arrived)
        for entry in entries
    )
    only_these = all((each.request_class, each.slos.get(PAGE["slo"])) == (PAGE["class"], "bad") for each in requests)
    passed = only_these and bool(requests) and abs(found - logged) <= 2
    return Check(claim, f"{found} in the trace store, {logged} in the request log", passed)


def worst_resolve(requests: Sequence[Request], pages: Mapping[str, Page], entries: Sequence[LogEntry]) -> Check:
    claim = f"the worst {WORST} bad requests lead to their traces and lines of the request log"
    slowest = sorted((entry.e2e_ms for entry in entries if Verdict.BAD in entry.slo.values()), reverse=True)[:WORST]
    logged = {(entry.trace_id, entry.request_id) for entry in entries}
    right = sum(
        pages[each.trace_id].status == 200
        and each in pages[each.trace_id].requests
        and (each.trace_id, each.request_id) in logged
        for each in requests
    )
    same = len(slowest) == len(requests) and all(
        abs(each.duration / 1e6 - e2e) < 1 for each, e2e in zip(requests, slowest, strict=True)
    )
    longest = f", the slowest took {requests[0].duration / 1e9:.1f} s" if requests else ""
    return Check(claim, f"{right} of {len(requests)}{longest}", right == WORST and same)
