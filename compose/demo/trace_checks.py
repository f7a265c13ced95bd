"""The checks of the demo that links to traces resolve: of exemplars, of an alert, and of the worst ten bad requests."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from compose.demo.checks import PAGE, Check
from compose.lab.webhook import Notification
from exporters.analysis.traces.request_search import Search, link
from exporters.analysis.traces.server import FoundRequests
from exporters.analysis.traces.span_parser import Request
from exporters.requestlog.entry import LogEntry
from exporters.vocabulary.signals import Verdict

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
    """Exemplars in a response of Prometheus' API, the last ones of each series first, at most EXEMPLARS."""
    found = [
        (each["timestamp"], Exemplar(series["seriesLabels"], each["labels"]["trace_id"]))
        for series in response["data"]
        for each in series["exemplars"]
    ]
    return [exemplar for _, exemplar in sorted(found, key=lambda pair: -pair[0])[:EXEMPLARS]]


def alert_link(page: Notification | None, until: float) -> str:
    """The link of a page to the trace store, without its address, ending at a time in the past.

    A page without the annotation has the documented link of its class and model.
    """
    labels = page.labels if page else PAGE
    same = {name: labels[name] for name in ("class", "model") if name in labels}
    url = page.annotations.get("traces_url") if page else None
    return f"{'/?' + url.partition('/?')[2] if url else link(**same, verdict='bad', since='1h')}&until={until:.3f}"


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


def alert_link_lists(search: Search, found: FoundRequests, entries: Sequence[LogEntry]) -> Check:
    """The log has milliseconds, so one request at each bound of time may differ from the store."""
    claim = "the link of the page lists the bad requests of its class and model that the request log has"
    wanted = {"class": PAGE["class"], "model": search.equal.get("model")}
    shown = all({"class": each.request_class, "model": each.model} == wanted for each in found.requests)
    logged = sum(_matches(entry, search) for entry in entries)
    passed = search.verdict == Verdict.BAD and search.equal == wanted and shown and abs(found.found - logged) <= 2
    return Check(claim, f"{found.found} in the trace store, {logged} in the request log", passed and logged > 0)


def _matches(entry: LogEntry, search: Search) -> bool:
    bad = entry.slo.get(search.slo) is Verdict.BAD if search.slo else Verdict.BAD in entry.slo.values()
    same = (entry.request_class, entry.model) == (search.equal.get("class"), search.equal.get("model"))
    return same and bad and (search.since or 0.0) <= entry.arrived < (search.until or math.inf)


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
