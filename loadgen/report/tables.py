"""Prints the results of a run as tables: requests, outcomes, latencies, goodput."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from exporters.vocabulary.slo_file import Measure
from loadgen.results.client_health import ClientHealth
from loadgen.results.record import ClientOutcome, Objective, Run
from loadgen.results.summary import ClassSummary, Quantiles, StableWindow, Summary

_LEGEND = (
    "TTFT: streams only, from the due time; ∞: the percentile falls on streams without a first token.\n"
    "*median over requests of their ITL p95. lag: time from due to sent, a delay of the load generator."
)
_LATENCY_LEGEND = (
    "p50 to p99: from the due time, of requests with a first token (TTFT) or that ended ok (E2E, TPOT); all: with\n"
    "the others as ∞. TPOT: (last - first token) / (tokens - 1); vLLM: by chunks with a choice, also empty ones;\n"
    "guidellm: with TTFT."
)
_ARRIVALS_LEGEND = (
    "CV: coefficient of variation of the gaps between arrivals; r1: their autocorrelation at lag 1;\n"
    "p: p-value of a Kolmogorov-Smirnov test against the law."
)
INVALID = "INVALID"
_NO_WAIT = 0.001  # seconds between dispatch and sending without a wait for a slot
WIDE = 160  # columns when the output is not a terminal, to avoid wrapped tables
FOLDED = 140  # with fewer columns, the figures do not fit in one table


def other_outcomes(row: ClassSummary) -> str:
    return ", ".join(f"{name} {count}" for name, count in row.outcomes.items() if name != ClientOutcome.OK) or "-"


Columns = list[tuple[str, Callable[[ClassSummary], str]]]
_NOT_OK = "not ok"
_COUNTS: Columns = [
    ("offered", lambda row: str(row.offered)),
    ("ok", lambda row: str(row.ok)),
    (_NOT_OK, other_outcomes),
    ("goodput", lambda row: format_percent(row.goodput)),
]
_TIMES: Columns = [
    ("TTFT p50", lambda row: format_seconds(row.ttft.p50)),
    ("p95", lambda row: format_seconds(row.ttft.p95)),
    ("p99", lambda row: format_seconds(row.ttft.p99)),
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
    for name, window in result.stable.items():
        if window.left_out is not None:
            blocks[f"{name}, stable window"] = window.rows
    blocks["whole run"] = (*result.classes, result.total)
    faults = result.health.faults
    mark = f" ({INVALID})" if faults else ""
    columns = [_COUNTS + _TOKENS, _TIMES] if narrow else [_COUNTS + _TIMES + _TOKENS]
    return Group(
        Text(f"{run.scenario}, seed {run.seed}, {run.target}, {run.model}: {run.ended} after {run.seconds:.0f} s"),
        *(Text(f"{name}: {value}") for name, value in labels(run).items()),
        *(Text(f"{INVALID}: {fault}", style="bold red") for fault in faults),
        *(_table(name + mark, rows, which) for name, rows in blocks.items() for which in columns),
        Text(_LEGEND),
        *(Text(_steady(name, window)) for name, window in result.stable.items()),
        *map(_shown, latencies(result, mark)),
        *verdicts(run, result, mark),
        Text(_throughput(run, result.total)),
        *map(_shown, load_generator(run, result, mark)),
        _shown(answer_checks(result, mark)),
        *(Text(f"! {warning}", style="bold yellow") for warning in (*unjudged(run.slos), *result.warnings)),
        *(Text(f"{INVALID}: {fault}", style="bold red") for fault in faults),
    )


def labels(run: Run) -> dict[str, str]:
    """The experiment, the configuration, the SLO rule and the titles of the classes, as far as they are known."""
    titles = "; ".join(f"{name}: {run.class_titles[name]}" for name in run.classes if name in run.class_titles)
    named = {"experiment": run.experiment, "configuration": run.configuration, "SLO rule": run.rule, "classes": titles}
    return {name: value for name, value in named.items() if value}


def _steady(name: str, window: StableWindow) -> str:
    steady = window.steady
    text = f"steady state of {name}: {steady.state}"
    if steady.latency_growth is not None and steady.open_growth is not None:
        text += f" (latency {steady.latency_growth:+.3f} s/s, open requests {steady.open_growth:+.3f} per request)"
    if steady.start is not None:
        text += f"; stable window from {steady.start:.1f} s, without {format_percent(window.left_out)} of its requests"
    return text


def verdicts(run: Run, result: Summary, mark: str) -> Iterator[Table]:
    """The tables of SLOs and goodput, with `mark` in their titles."""
    yield _slos(run, result, mark)
    yield _goodput(result, mark)


def latencies(result: Summary, mark: str) -> Iterator[Table | str]:
    """The table of latencies and its legend."""
    headings = ("p50", "p95", "p99", "all p50", "p95", "p99")
    table = new_table(f"latencies of the whole run{mark}", ("class", "signal"), headings)

    def add(row: ClassSummary, signal: str, *columns: Quantiles) -> None:
        table.add_row(row.name, signal, *(format_seconds(value) for each in columns for value in astuple(each)))

    for row in (*result.classes, result.total):
        if row.offered:
            add(row, "TTFT", row.ttft_of_started, row.ttft)
            add(row, "E2E", row.e2e_ok, row.e2e)
            add(row, "TPOT", row.tpot_ok, row.tpot)
    total = result.total
    add(total, "TTFT from sent", total.ttft_sent)
    add(total, "E2E from sent", total.e2e_sent)
    add(total, "TPOT (vLLM)", total.tpot_vllm)
    add(total, "TPOT (guidellm)", total.tpot_guidellm)
    yield table
    yield _LATENCY_LEGEND


def answer_checks(result: Summary, mark: str) -> Table:
    """What the run expected of the answers, and what it has seen."""
    table = new_table(f"answers, as received{mark}", ("check", "result"))
    for heading in ("expected", "seen"):
        table.add_column(heading, overflow="fold")
    for check in result.answers:
        state = "not judged" if not check.judged else "ok" if not check.found else INVALID if check.invalidates else "!"
        table.add_row(check.name, state, check.expected, check.seen or "-")
    return table


def load_generator(run: Run, result: Summary, mark: str) -> Iterator[Table | str]:
    """The arrivals with their legend, and the health of the load generator."""
    if result.arrivals:
        yield _arrivals(result, mark)
        yield _ARRIVALS_LEGEND
    yield _health(run, result.health)


def _shown(part: Table | str) -> RenderableType:
    return Text(part) if isinstance(part, str) else part


def _arrivals(result: Summary, mark: str) -> Table:
    headings = ("sent", "planned", "CV", "of law", "r1", "p")
    table = new_table(f"arrivals, as sent{mark}", ("phase", "class", "law", "as planned"), headings)
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
    table = new_table(title, ("class",))
    for heading, _ in columns:
        table.add_column(heading, justify="left" if heading == _NOT_OK else "right", no_wrap=heading != _NOT_OK)
    for row in rows:
        table.add_row(row.name, *(cell(row) for _, cell in columns))
    return table


def _goodput(result: Summary, mark: str) -> Table:
    table = new_table(f"goodput by definition{mark}", ("tool",), ("goodput", "good", "of", "per second"))
    table.add_column("definition")
    for row in result.goodput:
        rate = "" if row.per_second is None else f"{row.per_second:.2f}"
        table.add_row(row.tool, format_percent(row.share), str(row.good), str(row.of), rate, row.definition)
    return table


def _throughput(run: Run, total: ClassSummary) -> str:
    seconds = run.seconds or float("inf")
    output, prompt = (tokens / seconds for tokens in (total.completion_tokens, total.prompt_tokens))
    return (
        f"throughput: {output:.1f} output tokens/s and {total.ok / seconds:.2f} ok requests/s; prompt tokens, which "
        f"are not part of it: {prompt:.1f}/s."
    )


def _health(run: Run, health: ClientHealth) -> str:
    waited = health.slot_wait is not None and health.slot_wait > _NO_WAIT
    wait = f", wait for a slot p99 {format_seconds(health.slot_wait)}" if waited else ""
    text = (
        f"load generator: sent {health.sent} of {health.offered}, send lag p99 {format_seconds(health.send_lag)}"
        f"{wait}, {health.stalls} stalls of its event loop (worst {format_seconds(health.worst_stall)}), "
        f"{health.cpu * 100:.0f} % of a core, {health.coalesced * 100:.0f} % of the chunks read together"
    )
    if run.workers:
        text += "; by worker: " + "; ".join(
            f"{index} {worker.cpu_seconds / run.seconds * 100:.0f} % of a core, {worker.stalls} stalls"
            for index, worker in enumerate(run.workers)
            if worker.lost is None
        )
    if run.same_machine:
        text += ".\nThe target has an address of this machine: load generator and engine may compete for its cores"
    return f"{text}."


def new_table(title: str, left: Iterable[str] = (), right: Iterable[str] = ()) -> Table:
    """A table without rows; the columns of text come first, those of figures are aligned to the right."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    for heading in left:
        table.add_column(heading, no_wrap=True)
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _slos(run: Run, result: Summary, mark: str) -> Table:
    table = new_table(f"SLOs{mark}", ("class", "SLO", "condition"), ("objective", "met", "bad", "judged"))
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
    """A duration with three significant digits, in ms below a second; "-" without a value."""
    if seconds is None:
        return "-"
    if seconds == math.inf:
        return "∞"
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms" if seconds >= 0.001 else f"{seconds * 1000:.2f} ms"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"


def format_percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.4g} %"
