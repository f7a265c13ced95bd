"""The page that lists requests, with the form of its filters."""

from collections.abc import Mapping, Sequence
from html import escape

from exporters.analysis.traces.page_frame import duration, moment, page, verdict_mark
from exporters.analysis.traces.request_search import ORDERS
from exporters.analysis.traces.span_parser import Request
from exporters.vocabulary.signals import Verdict

_TEXTS = (
    "class",
    "tenant",
    "model",
    "route",
    "outcome",
    "slo",
    "min_duration",
    "since",
    "until",
    "request_id",
    "limit",
)
_EXAMPLES = {"slo": "ttft", "min_duration": "5s", "since": "15m", "until": "5m", "limit": "100"}


def list_page(
    requests: Sequence[Request], found: int, given: Mapping[str, str], values: Mapping[str, Sequence[str]]
) -> str:
    """`given` are the parameters of the URL, `values` the known values of filters."""
    rows = "".join(map(_row, requests))
    shown = f"{len(requests):,} of {found:,} matching requests" if found else "No request matches."
    table = (
        '<table><thead><tr><th>Time (UTC)</th><th class="number">Duration</th><th class="number">First token</th>'
        "<th>Verdict</th><th>Class</th><th>Model</th><th>Route</th><th>Outcome</th><th>Request id</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )
    return page("Traces", f"<h1>Requests</h1>{_form(given, values)}<p>{shown}</p>{table if requests else ''}")


def _row(request: Request) -> str:
    path = f"/traces/{escape(request.trace_id)}#span-{escape(request.span_id)}"
    bad = ", ".join(slo for slo, verdict in request.slos.items() if verdict == Verdict.BAD)
    mark = verdict_mark(request.verdict, f"{request.verdict}: {bad}" if bad else None)
    cells = (
        ("Time", "", f'<a href="{path}">{moment(request.start).removesuffix(" UTC")}</a>'),
        ("Duration", "number", duration(request.duration)),
        ("First token", "number", duration(request.ttft)),
        ("Verdict", "", mark),
        ("Class", "", escape(request.request_class)),
        ("Model", "", escape(request.model)),
        ("Route", "", escape(request.route)),
        ("Outcome", "", escape(request.outcome)),
        ("Request id", "id", escape(request.request_id)),
    )
    return (
        "<tr>" + "".join(f'<td class="{kind}" data-label="{name}">{html}</td>' for name, kind, html in cells) + "</tr>"
    )


def _form(given: Mapping[str, str], values: Mapping[str, Sequence[str]]) -> str:
    fields = [
        _select("verdict", ("", *(each.value for each in Verdict)), given.get("verdict", "")),
        _select("sort", tuple(ORDERS), given.get("sort", "")),
        *(_input(name, given.get(name, ""), values.get(name, ())) for name in _TEXTS),
    ]
    return f'<form method="get" action="/">{"".join(fields)}<button>Show</button> <a href="/">Reset</a></form>'


def _label(name: str) -> str:
    return "SLO" if name == "slo" else name.replace("_", " ").capitalize()


def _select(name: str, options: Sequence[str], chosen: str) -> str:
    html = "".join(
        f'<option value="{option}"{" selected" if option == chosen else ""}>{option or "any"}</option>'
        for option in options
    )
    return f'<label>{_label(name)}<select name="{name}">{html}</select></label>'


def _input(name: str, text: str, options: Sequence[str]) -> str:
    known = "".join(f'<option value="{escape(option)}"></option>' for option in options)
    data = f'<datalist id="known-{name}">{known}</datalist>' if options else ""
    attributes = f' list="known-{name}"' if options else ""
    return (
        f'<label>{_label(name)}<input name="{name}" value="{escape(text)}"'
        f' placeholder="{_EXAMPLES.get(name, "")}"{attributes}></label>{data}'
    )
