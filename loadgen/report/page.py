"""The page of a run: header, tables and plots."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path
from xml.etree.ElementTree import Element

from rich.table import Table

from loadgen.report.html_tables import of_terminal, table
from loadgen.report.latency_plots import ttft_curves, waterfall
from loadgen.report.length_plots import completed_and_failed, heatmap
from loadgen.report.markup import Part, element, html_text
from loadgen.report.tables import (
    INVALID,
    answer_checks,
    format_percent,
    format_seconds,
    labels,
    latencies,
    load_generator,
    other_outcomes,
    unjudged,
    verdicts,
)
from loadgen.report.time_plots import over_time
from loadgen.results.record import Record, Run
from loadgen.results.summary import ClassSummary, Summary
from loadgen.schedule.phases import timeline

_STYLE = Path(__file__).with_name("report.css")
_HEADINGS = (
    *("class", "offered", "ok", "other outcomes", "good/judged", "good/offered"),
    *(f"{signal} {percentile}" for signal in ("TTFT", "E2E", "TPOT") for percentile in ("p50", "p95", "p99")),
    *("output tokens", "output tokens/s", "prompt tokens", "cached"),
)
_CLASSES_NOTE = (
    "Percentiles from the due time. TTFT: of the streams; ∞ where the rank falls on a stream without a first token. "
    "E2E and TPOT: requests that did not end ok rank last, as ∞. Throughput is output tokens per second of the run; "
    "prompt tokens are not part of it."
)
PAGE = "report.html"
_MOST_ERRORS = 10
_LONGEST_ERROR = 300  # characters


def render_page(run: Run, result: Summary, records: Sequence[Record]) -> str:
    """The whole page; its size depends on the number of classes and phases, not on that of requests."""
    mark = f" ({INVALID})" if result.health.faults else ""
    style = _choices_style(len(result.classes) + 1)
    return html_page(f"{run.scenario}: load test{mark}", _content(run, result, records, mark), style)


def html_page(title: str, content: Iterable[Element], style: str = "") -> str:
    """A page in the style of the reports, and with more of it."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", _STYLE.read_text(encoding="utf-8") + style),
    )
    return html_text(element("html", head, element("body", element("main", *content)), lang="en"))


def _content(run: Run, result: Summary, records: Sequence[Record], mark: str) -> Iterator[Element]:
    yield element("h1", f"Load test: {run.scenario}{mark}")
    if result.health.faults:
        faults = (element("li", fault) for fault in result.health.faults)
        yield element("section", element("strong", INVALID), element("ul", *faults), class_="invalid", role="alert")
    yield fact_list(_facts(run))
    warnings = (*unjudged(run.slos), *result.warnings)
    if warnings:
        items = (element("li", warning) for warning in warnings)
        yield element("section", element("h2", "Warnings"), element("ul", *items), class_="warnings")
    yield element("h2", f"Results{mark}")
    yield _class_table(f"whole run{mark}", run.seconds, (*result.classes, result.total))
    yield element("p", _CLASSES_NOTE, class_="note")
    yield from _stable_windows(run, result, mark)
    yield from _of_terminal(verdicts(run, result, mark))
    yield element("h2", f"Plots{mark}")
    yield from _plots(run, result, records, mark)
    yield element("h2", f"Measurements{mark}")
    yield from _of_terminal((*latencies(result, mark), answer_checks(result, mark), *load_generator(run, result, mark)))
    yield from _errors(records, mark)


def _facts(run: Run) -> dict[str, str]:
    started = datetime.fromtimestamp(run.start, UTC)
    return {
        **labels(run),
        "target": run.target,
        "model": run.model,
        "started": f"{started:%Y-%m-%d %H:%M:%S} UTC",
        "ended": f"{run.ended} after {run.seconds:.0f} s",
        "phases": ", ".join(f"{phase.name} {phase.duration:g} s" for phase in run.phases),
        "rate scale": f"{run.rate_scale:g}",
        "client timeout": ", ".join(
            [f"{run.timeout:g} s", *(f"{name} {each:g} s" for name, each in run.timeouts.items())]
        ),
        "seed": str(run.seed),
        "schedule (SHA-256)": run.schedule,
        "versions": ", ".join(f"{name} {version}" for name, version in run.versions.items()),
    }


def fact_list(facts: Mapping[str, str]) -> Element:
    """Names and values; `-` for an empty value."""
    pairs = (element("div", element("dt", name), element("dd", value or "-")) for name, value in facts.items())
    return element("dl", *pairs)


def _class_table(title: str, seconds: float, rows: Iterable[ClassSummary]) -> Element:
    return table(title, _HEADINGS, [_class_row(row, seconds) for row in rows], left=(0, 3))


def _stable_windows(run: Run, result: Summary, mark: str) -> Iterator[Element]:
    """The steady state of each phase with a constant rate, and the figures of its stable window."""
    rows = []
    for phase, _, end in timeline(run.phases):
        if (window := result.stable.get(phase.name)) is None:
            continue
        start = window.steady.start
        rows.append([phase.name, window.steady.state, format_seconds(start), format_percent(window.left_out)])
        if start is not None:
            yield _class_table(f"{phase.name}, stable window{mark}", min(end, run.seconds) - start, window.rows)
    if rows:
        headings = ["phase", "state", "stable window from", "requests left out"]
        yield table(f"steady state{mark}", headings, rows, left=(0, 1))


def _class_row(row: ClassSummary, seconds: float) -> list[str]:
    return [
        row.name,
        str(row.offered),
        str(row.ok),
        other_outcomes(row),
        format_percent(row.goodput),
        format_percent(row.good / row.offered if row.offered else None),
        *(format_seconds(value) for values in (row.ttft, row.e2e, row.tpot) for value in astuple(values)),
        str(row.completion_tokens),
        f"{row.completion_tokens / seconds:.1f}" if seconds > 0 else "-",
        str(row.prompt_tokens),
        str(row.cached_tokens),
    ]


def _of_terminal(parts: Iterable[Table | str]) -> Iterator[Element]:
    for part in parts:
        yield element("p", part, class_="note") if isinstance(part, str) else of_terminal(part)


def _plots(run: Run, result: Summary, records: Sequence[Record], mark: str) -> Iterator[Element]:
    by_class = {name: [record for record in records if record.request_class == name] for name in run.classes}
    offered = {name: inside for name, inside in by_class.items() if inside}
    curves = [
        (row.name, ttft_curves(f"TTFT of {row.name}: from due and from sent{mark}", row, inside))
        for row, inside in zip((*result.classes, result.total), (*by_class.values(), records), strict=True)
    ]
    yield element(
        "div",
        *over_time(mark, run, result, records),
        _choice(curves),
        waterfall(f"Mean time by stage{mark}", [*offered.items(), (result.total.name, records)]),
        completed_and_failed(f"Completed and failed by prompt length{mark}", records),
        *(heatmap(f"Failures of {name} by length{mark}", inside) for name, inside in offered.items()),
        class_="plots",
    )


def _choice(figures: Sequence[tuple[str, Element]]) -> Element:
    """One of the figures at a time, chosen with radio buttons; the last one is shown first."""
    parts: list[Part] = []
    for index, (name, _) in enumerate(figures):
        button = element("input", type="radio", name="class", id=f"class-{index}")
        if index == len(figures) - 1:
            button.set("checked", "")
        parts += [button, element("label", name, for_=f"class-{index}")]
    return element("div", *parts, *(figure for _, figure in figures), class_="choice")


def _choices_style(count: int) -> str:
    return "".join(
        f"#class-{index}:checked ~ figure:nth-of-type({index + 1}) {{ display: block }}\n" for index in range(count)
    )


def _errors(records: Iterable[Record], mark: str) -> Iterator[Element]:
    errors = Counter((record.outcome.value, record.error[:_LONGEST_ERROR]) for record in records if record.error)
    if errors:
        rows = [[str(count), outcome, text] for (outcome, text), count in errors.most_common(_MOST_ERRORS)]
        title = f"errors, the {_MOST_ERRORS} most frequent{mark}"
        yield table(title, ["requests", "outcome", "error"], rows, left=(1, 2))
