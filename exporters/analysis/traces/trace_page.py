"""The page of one trace: the requests in it, and all spans on one time axis."""

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from exporters.analysis.traces.page_frame import duration, moment, page, value, verdict_mark
from exporters.analysis.traces.request_search import link
from exporters.analysis.traces.span_parser import Event, Span, request_of
from exporters.analysis.traces.span_store import MAX_SPANS_OF_TRACE

_DEEPEST = 8
"""Deeper spans are not indented further, because phones have no space."""

_REQUESTS = "vllm-slo requests --request-log requests.jsonl"


@dataclass(frozen=True, slots=True)
class Axis:
    """The time from the first start to the last end, in unix nanoseconds."""

    start: int
    end: int

    def share(self, time: int) -> float:
        """The position of a time, from 0 to 1."""
        return min(max((time - self.start) / max(self.end - self.start, 1), 0.0), 1.0)


def axis(spans: Sequence[Span]) -> Axis:
    return Axis(min(span.start for span in spans), max(span.end for span in spans))


def tree(spans: Sequence[Span]) -> Iterator[tuple[Span, int]]:
    """Each span once, with its depth: parents before their children, siblings by start.

    A span without a stored parent is a root, and so is the first one of a cycle.
    """
    known = {span.span_id for span in spans}
    children: dict[str | None, list[Span]] = defaultdict(list)
    by_start = sorted(spans, key=lambda span: (span.start, -span.end))
    for span in by_start:
        children[span.parent_id if span.parent_id in known else None].append(span)
    seen: set[str] = set()
    for root in (*children[None], *by_start):
        waiting = [(root, 0)]
        while waiting:
            span, depth = waiting.pop()
            if span.span_id not in seen:
                seen.add(span.span_id)
                yield span, depth
                waiting += [(child, depth + 1) for child in reversed(children[span.span_id])]


def trace_page(trace_id: str, spans: Sequence[Span]) -> str:
    times = axis(spans)
    services = ", ".join(sorted({span.service for span in spans if span.service}))
    heading = (
        f'<h1>Trace <span class="id">{escape(trace_id)}</span></h1>'
        f"<p>{moment(times.start)}, {duration(times.end - times.start)}, {len(spans):,} spans of {escape(services)}</p>"
    )
    if len(spans) == MAX_SPANS_OF_TRACE:
        heading += f"<p>Only the first {MAX_SPANS_OF_TRACE:,} spans are shown.</p>"
    rows = "".join(_span(span, depth, times) for span, depth in tree(spans))
    return page(f"Trace {trace_id}", f"{heading}{''.join(map(_request, spans))}{_ticks(times)}<ol>{rows}</ol>")


def _request(span: Span) -> str:
    """Verdicts of a request, and the commands that find it in the request log."""
    request = request_of(span)
    if request is None:
        return ""
    facts: list[tuple[str, str]] = [
        ("Verdict", verdict_mark(request.verdict)),
        *((f"SLO {slo}", verdict_mark(verdict)) for slo, verdict in request.slos.items()),
        ("Outcome", escape(request.outcome)),
        ("Class", escape(request.request_class)),
        ("Tenant", escape(request.tenant)),
        ("Model", escape(request.model)),
        ("First token", duration(request.ttft)),
        ("Duration", duration(request.duration)),
    ]
    if request.request_id:
        quoted = shlex.quote(request.request_id)
        path = link(request_id=request.request_id)
        facts += [
            ("Request id", f'<a class="id" href="{escape(path)}">{escape(request.request_id)}</a>'),
            ("Log line", f"<code>{escape(f'{_REQUESTS} --request-id {quoted}')}</code>"),
            ("Requests at this time", f"<code>{escape(f'{_REQUESTS} --around {quoted}')}</code>"),
        ]
    return f'<section class="request">{_definitions(facts)}</section>'


def _ticks(times: Axis) -> str:
    length = times.end - times.start
    marks = "".join(f"<span>{duration(length * quarter // 4)}</span>" for quarter in range(5))
    return f'<div class="ticks" aria-hidden="true">{marks}</div>'


def _span(span: Span, depth: int, times: Axis) -> str:
    failed = " error" if span.error else ""
    facts = [
        ("Start", f"{moment(span.start)}, {duration(span.start - times.start)} after the first span"),
        ("Span id", f'<span class="id">{escape(span.span_id)}</span>'),
    ]
    if span.error:
        facts.append(("Status", f"error {escape(span.message)}"))
    return (
        f'<li id="span-{escape(span.span_id)}" class="depth{min(depth, _DEEPEST)}{failed}"><details><summary>'
        f'<span class="name">{escape(span.name)} <small>{escape(span.service)}</small></span>'
        f'<span class="length">{duration(span.duration)}</span>{_bar(span, times)}</summary>'
        f"{_definitions(facts)}{_events(span)}{_definitions(_attributes(span.attributes))}</details></li>"
    )


def _bar(span: Span, times: Axis) -> str:
    """An SVG, because its positions are attributes, which the policy allows unlike inline styles."""
    left, right = times.share(span.start) * 1000, times.share(span.end) * 1000
    marks = "".join(
        f'<line class="{"late" if event.name == "slo_bad" else "event"}" x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="16">'
        f"<title>{escape(_event_text(event, span))}</title></line>"
        for event in span.events
        for at in [times.share(event.time) * 1000]
    )
    return (
        '<svg viewBox="0 0 1000 16" preserveAspectRatio="none" role="img" aria-label="position in the trace">'
        f'<rect x="{left:.1f}" width="{max(right - left, 2):.1f}" y="3" height="10"></rect>{marks}</svg>'
    )


def _event_text(event: Event, span: Span) -> str:
    return f"{event.name} after {duration(max(0, event.time - span.start))}"


def _events(span: Span) -> str:
    if not span.events:
        return ""
    items = "".join(
        f"<li>{escape(_event_text(event, span))}"
        f"{escape(''.join(f', {name}={value(each)}' for name, each in event.attributes.items()))}</li>"
        for event in span.events
    )
    return f'<h2>Events</h2><ul class="events">{items}</ul><h2>Attributes</h2>'


def _attributes(attributes: dict[str, Any]) -> Iterable[tuple[str, str]]:
    return [(name, escape(value(each))) for name, each in sorted(attributes.items())]


def _definitions(facts: Iterable[tuple[str, str]]) -> str:
    """A list of names, which are escaped here, and values, which are HTML."""
    return "<dl>" + "".join(f"<div><dt>{escape(name)}</dt><dd>{html}</dd></div>" for name, html in facts) + "</dl>"
