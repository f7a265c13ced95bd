"""Plots over the time at which requests were due: goodput and throughput, with the phases of the run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from xml.etree.ElementTree import Element

from loadgen.report.bins import TimeBins, time_bins
from loadgen.report.markup import element, tooltip
from loadgen.report.plot_area import BOTTOM, TOP, Area, figure, legend, linear, plain, rectangle, shortened
from loadgen.report.tables import format_percent
from loadgen.results.record import ClientOutcome, Record, Run
from loadgen.results.summary import Summary
from loadgen.schedule.phases import timeline

_UNITS = ((36_000.0, 3600.0, "h"), (600.0, 60.0, "min"), (0.0, 1.0, "s"))
_CHARACTER = 7.0  # width in the SVG's unit


@dataclass(slots=True)
class _Bin:
    offered: int = 0
    ok: int = 0
    judged: int = 0
    good: int = 0
    tokens: int = 0


def over_time(mark: str, run: Run, result: Summary, records: Sequence[Record]) -> Iterable[Element]:
    """The plots of requests and of output tokens."""
    planned = sum(phase.duration for phase in run.phases)
    end = max([min(planned, run.seconds or planned), *(record.due for record in records)])
    bins = time_bins(end or 1.0)
    filled = [_Bin() for _ in range(bins.count)]
    for record in records:
        into = filled[bins.index(record.due)]
        into.offered += 1
        into.ok += record.outcome is ClientOutcome.OK
        into.judged += record.good is not None
        into.good += record.good is True
        into.tokens += record.completion_tokens or 0
    plot = partial(_plot, run=run, result=result, bins=bins, filled=filled)
    yield plot(
        f"Goodput and throughput over time{mark}",
        "requests/s",
        "Requests by their due time, not by their end: all that were due in a bin, those of them that ended ok, and "
        "those that are good, which means that they meet every SLO. Requests without a verdict are not good.",
        [
            ("offered", "offered", lambda each: each.offered),
            ("ok", "ok", lambda each: each.ok),
            ("good", "good", lambda each: each.good),
        ],
    )
    yield plot(
        f"Output throughput over time{mark}",
        "output tokens/s",
        "Output tokens of the requests that were due in a bin, whenever the tokens arrived; prompt tokens are not "
        "included. A failed request counts with the tokens that it received.",
        [("tokens", "output tokens", lambda each: each.tokens)],
    )


def _plot(
    title: str,
    unit: str,
    sentence: str,
    series: Sequence[tuple[str, str, Callable[[_Bin], int]]],
    *,
    run: Run,
    result: Summary,
    bins: TimeBins,
    filled: Sequence[_Bin],
) -> Element:
    scale, name = next((scale, name) for least, scale, name in _UNITS if bins.end >= least)
    widths = [end - start for start, end in map(bins.limits, range(bins.count))]
    rates = [[value(each) / width for each, width in zip(filled, widths, strict=True)] for _, _, value in series]
    area = Area(
        linear(f"due time since the start of the run, {name}", bins.end / scale, plain),
        linear(unit, max(map(max, rates)), plain),
    )

    def left(index: int) -> float:
        return area.left(bins.limits(index)[0] / scale) if index < bins.count else area.left(bins.end / scale)

    marks = []
    for (kind, _, _), heights in zip(series, rates, strict=True):
        steps = "".join(f"V{area.top(height):.1f}H{left(index + 1):.1f}" for index, height in enumerate(heights))
        if kind in {"offered", "tokens"}:
            marks.append(element("path", d=f"M{left(0):.1f} {BOTTOM}{steps}V{BOTTOM}Z", class_=f"area {kind}"))
        else:
            marks.append(element("path", d=f"M{left(0):.1f} {area.top(heights[0]):.1f}{steps}", class_=f"line {kind}"))
    windows = list(_stable_windows(area, run, result, scale))
    marks += [*_phases(area, run, scale), *windows]
    marks.extend(
        rectangle(left(index), TOP, left(index + 1), BOTTOM, "hit", _text(bins, index, each))
        for index, each in enumerate(filled)
        if each.offered
    )
    entries = [(kind, text) for kind, text, _ in series] + [("stable", "stable window")] * bool(windows)
    return figure(title, sentence, legend(entries), area.draw(title, marks))


def _text(bins: TimeBins, index: int, each: _Bin) -> str:
    start, end = bins.limits(index)
    goodput = format_percent(each.good / each.judged if each.judged else None)
    return (
        f"due {start:g} s to {end:g} s: {each.offered} offered ({each.offered / (end - start):.3g}/s), {each.ok} ok, "
        f"{each.good} good of {each.judged} judged ({goodput}), {each.tokens} output tokens "
        f"({each.tokens / (end - start):.3g}/s)"
    )


def _phases(area: Area, run: Run, scale: float) -> Iterable[Element]:
    """A line at the start of each phase, with its name where there is space for it."""
    for phase, start, end in timeline(run.phases):
        if start / scale >= area.x.high:
            return
        left, right = area.left(start / scale), area.left(end / scale)
        yield tooltip(element("path", d=f"M{left:.1f} {TOP - 16}V{BOTTOM}", class_="phase"), phase.name)
        fits = int((right - left - 4) / _CHARACTER)
        if fits > 2:
            name = shortened(phase.name, fits)
            yield tooltip(element("text", name, x=left + 3, y=TOP - 5, class_="phase-name"), phase.name)


def _stable_windows(area: Area, run: Run, result: Summary, scale: float) -> Iterable[Element]:
    for phase, _, end in timeline(run.phases):
        window = result.stable.get(phase.name)
        if window is None or (start := window.steady.start) is None:
            continue
        left_out = format_percent(window.left_out)
        text = f"stable window of {phase.name}: from {start:.0f} s, {left_out} of its requests left out"
        yield rectangle(area.left(start / scale), TOP - 2, area.left(end / scale), TOP + 2, "stable", text)
