"""Prints the results of a run as tables: requests, outcomes, latencies, goodput."""

from collections.abc import Callable, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from exporters.slos import Measure
from loadgen.request_record import ClientOutcome, Objective, Run
from loadgen.summary import ClassSummary, Summary

_LEGEND = (
    "TTFT: streams only, from the due time; ∞: the percentile falls on streams without a first token.\n"
    "*median over requests of their ITL p95. lag: time from due to sent, a delay of the load generator."
)
_ARRIVALS_LEGEND = (
    "CV: coefficient of variation of the gaps between arrivals; r1: their autocorrelation at lag 1;\n"
    "p: p-value of a Kolmogorov-Smirnov test against the law."
)
WIDE = 160  # columns when the output is not a terminal, to avoid wrapped tables
FOLDED = 140  # with fewer columns, the figures do not fit in one table


def _others(row: ClassSummary) -> str:
    return ", ".join(f"{name} {count}" for name, count in row.outcomes.items() if name != ClientOutcome.OK) or "-"


Columns = list[tuple[str, Callable[[ClassSummary], str]]]
_NOT_OK = "not ok"
_COUNTS: Columns = [
    ("offered", lambda row: str(row.offered)),
    ("ok", lambda row: str(row.ok)),
    (_NOT_OK, _others),
    ("goodput", lambda row: format_percent(row.goodput)),
]
_TIMES: Columns = [
    ("TTFT p50", lambda row: _first_token(row, row.ttft.p50)),
    ("p95", lambda row: _first_token(row, row.ttft.p95)),
    ("p99", lambda row: _first_token(row, row.ttft.p99)),
    ("no token", lambda row: str(row.without_first_token)),
    ("ITL p95*", lambda row: format_seconds(row.itl_p95.p50)),
    ("lag p99", lambda row: format_seconds(row.send_lag.p99)),
]
_TOKENS: Columns = [
    ("in", lambda row: str(row.prompt_tokens)),
    ("cached", lambda row: str(row.cached_tokens)),
    ("out", lambda row: str(row.completion_tokens)),
]


def show(run: Run, result: Summary, console: Console) -> None:
    """Print the whole report."""
    if not console.is_terminal:
        console.width = max(console.width, WIDE)
    console.print(render(run, result, narrow=console.width < FOLDED))


def render(run: Run, result: Summary, *, narrow: bool = False) -> RenderableType:
    """The whole report; `narrow` splits the figures into two tables, for 80 columns."""
    blocks = dict(result.phases) if len(result.phases) > 1 else {}
    blocks["whole run"] = (*result.classes, result.total)
    columns = [_COUNTS + _TOKENS, _TIMES] if narrow else [_COUNTS + _TIMES + _TOKENS]
    return Group(
        Text(f"{run.scenario}, seed {run.seed}, {run.target}, {run.model}: {run.ended} after {run.seconds:.0f} s"),
        *(_table(name, rows, which) for name, rows in blocks.items() for which in columns),
        Text(_LEGEND),
        _slos(run, result),
        *((_arrivals(result), Text(_ARRIVALS_LEGEND)) if result.arrivals else ()),
        *(Text(f"! {warning}", style="bold yellow") for warning in (*unjudged(run.slos), *result.warnings)),
    )


def _arrivals(result: Summary) -> Table:
    table = Table(title="arrivals, as sent", title_justify="left", box=box.SIMPLE, pad_edge=False)
    for heading in ("phase", "class", "law", "as planned"):
        table.add_column(heading, no_wrap=True)
    for heading in ("sent", "planned", "CV", "of law", "r1", "p"):
        table.add_column(heading, justify="right", no_wrap=True)
    for check in result.arrivals:
        table.add_row(
            check.phase,
            check.request_class,
            check.law,
            "no" if check.faults else "too few" if check.variation is None else "yes",
            str(check.count),
            f"{check.expected:.0f}",
            _two_digits(check.variation),
            _two_digits(check.planned_variation),
            _two_digits(check.correlation),
            _two_digits(check.p),
        )
    return table


def _two_digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def unjudged(slos: Sequence[Objective]) -> list[str]:
    """A warning for each SLO that judges no request of a scenario."""
    return [
        f"the SLO {slo.name!r} is not judged: its signal is valid_output, and the requests of a scenario neither ask "
        "for JSON nor offer tools"
        for slo in slos
        if slo.signal == Measure.VALID_OUTPUT
    ]


def _table(title: str, rows: Sequence[ClassSummary], columns: Columns) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    table.add_column("class", no_wrap=True)
    for heading, _ in columns:
        table.add_column(heading, justify="left" if heading == _NOT_OK else "right", no_wrap=heading != _NOT_OK)
    for row in rows:
        table.add_row(row.name, *(cell(row) for _, cell in columns))
    return table


def _first_token(row: ClassSummary, value: float | None) -> str:
    return "∞" if value is None and row.streams else format_seconds(value)


def _slos(run: Run, result: Summary) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for heading in ("class", "SLO", "condition"):
        table.add_column(heading, no_wrap=True)
    for heading in ("objective", "met", "bad", "judged"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in result.classes:
        for slo in run.slos:
            if (result_ := row.slos.get(slo.name)) is None:
                continue
            share = 1 - result_.bad / result_.events if result_.events else None
            condition = slo.signal if slo.threshold is None else f"{slo.signal} <= {slo.threshold:g} s"
            table.add_row(
                row.name,
                slo.name,
                condition,
                format_percent(slo.objective),
                Text(format_percent(share), style="red" if share is not None and share < slo.objective else "green"),
                str(result_.bad),
                str(result_.events),
            )
    return table


def format_seconds(seconds: float | None) -> str:
    """A duration with three significant digits, in ms below a second."""
    if seconds is None:
        return "-"
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms" if seconds >= 0.001 else f"{seconds * 1000:.2f} ms"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"


def format_percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.4g} %"
