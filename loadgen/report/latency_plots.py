"""Plots of latencies: the distribution of TTFT from the due time and from sending, and where the time went."""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from xml.etree.ElementTree import Element

from loadgen.report.html_tables import table
from loadgen.report.markup import element, tooltip
from loadgen.report.plot_area import (
    BOTTOM,
    RIGHT,
    WIDTH,
    Area,
    figure,
    legend,
    linear,
    logarithmic,
    percent,
    rectangle,
    shortened,
    svg,
)
from loadgen.report.tables import format_seconds
from loadgen.results.record import ClientOutcome, Record
from loadgen.results.summary import ClassSummary, Quantiles, quantiles

POINTS = 200
"""Points of a curve at most."""
_SHORTEST = 0.0001  # seconds at which a logarithmic axis starts at the latest
_LONGEST_NAME = 40  # characters
_STAGES = (
    ("lag", "send lag"),
    ("slot", "wait for a slot"),
    ("queue", "engine queue"),
    ("first", "to first token"),
    ("decode", "decoding"),
)


def ttft_curves(title: str, row: ClassSummary, records: Sequence[Record]) -> Element:
    """The cumulative distribution of TTFT from due and from sent, of the streams of one class."""
    streams = [record for record in records if record.stream]
    due = sorted(record.ttft for record in streams if record.ttft is not None)
    sent = sorted(record.ttft_sent for record in streams if record.ttft_sent is not None)
    values = [max(_SHORTEST, value) for value in (*due, *sent)] or [_SHORTEST]
    low, high = min(values), max(values)
    area = Area(
        logarithmic("TTFT (log)", low / 1.1, max(high * 1.1, low * 2), format_seconds),
        linear("share of streams", 1.0, percent),
    )
    missing = len(streams) - len(sent)
    marks = [
        element("path", d=_curve(area, due, len(streams)), class_="line from-due"),
        element("path", d=_curve(area, sent, len(streams)), class_="line from-sent"),
        *_points(area, "from due", "from-due", row.ttft),
        *_points(area, "from sent", "from-sent", quantiles(sent, missing=missing)),
    ]
    return figure(
        title,
        f"Share of the streams ({len(streams)}) whose first token came within a time: from the due time, which "
        f"includes delays of the load generator, and from sending. Streams without a first token ({missing}) count as "
        "infinite. Requests without streaming are not included. Dots: p50, p95, p99.",
        legend([("from-due", "from the due time"), ("from-sent", "from sending")]),
        area.draw(title, marks),
    )


def _curve(area: Area, ordered: Sequence[float], count: int) -> str:
    """The steps of a distribution of which `ordered` are the known values, with a limited number of points."""
    if not ordered:
        return ""
    steps = min(POINTS, len(ordered))
    path = [f"M{area.left(ordered[0]):.1f} {BOTTOM}"]
    for step in range(1, steps + 1):
        rank = math.ceil(step * len(ordered) / steps)
        path.append(f"H{area.left(ordered[rank - 1]):.1f}V{area.top(rank / count):.1f}")
    return "".join(path)


def _points(area: Area, name: str, kind: str, values: Quantiles) -> Iterable[Element]:
    for percentile, value in ((50, values.p50), (95, values.p95), (99, values.p99)):
        if value is not None and math.isfinite(value):
            dot = element("circle", cx=area.left(value), cy=area.top(percentile / 100), r=3.5, class_=f"dot {kind}")
            yield tooltip(dot, f"TTFT {name} p{percentile}: {format_seconds(value)}")


def waterfall(title: str, classes: Iterable[tuple[str, Sequence[Record]]]) -> Element:
    """The mean time in each stage, one bar per class."""
    rows = [(name, *_mean_stages(records)) for name, records in classes]
    longest = max((sum(means) for _, _, means in rows), default=0.0)
    axis = linear("mean time since the due time", longest, lambda value: format_seconds(value) if value else "0")
    marks, top, left = [], 6.0, 8.0
    scale = (RIGHT - left) / axis.high
    for name, count, means in rows:
        marks.append(element("text", f"{shortened(name, _LONGEST_NAME)} ({count} streams)", x=left, y=top + 12))
        at = left
        for (kind, stage), mean in zip(_STAGES, means, strict=True):
            if mean:
                text = f"{name}, {stage}: {format_seconds(mean)}"
                marks.append(rectangle(at, top + 17, at + mean * scale, top + 33, kind, text))
            at += mean * scale
        top += 42
    for value, label in axis.ticks:
        at = left + value * scale
        marks.append(element("path", d=f"M{at:.1f} {top}v4", class_="axis"))
        marks.append(element("text", label, x=at, y=top + 17, text_anchor="middle" if value else "start"))
    marks.append(element("path", d=f"M{left} {top}H{RIGHT}", class_="axis"))
    marks.append(element("text", axis.title, x=WIDTH / 2, y=top + 38, class_="title", text_anchor="middle"))
    figures = [[name, *map(format_seconds, means)] for name, _, means in rows]
    return figure(
        title,
        "Means over the streams that ended ok; failed requests and those without streaming are not included. "
        "Engine queue: as the engine reports it in its response. If it reports it for some streams of a class, the "
        "others are not included; if for none, the queue is part of the time to the first token.",
        legend(_STAGES),
        svg(title, top + 44, marks),
        table("", ["class", *(stage for _, stage in _STAGES)], figures),
    )


def _mean_stages(records: Sequence[Record]) -> tuple[int, list[float]]:
    """The number of streams and the mean of each stage."""
    streams = [record for record in records if record.stream and record.outcome is ClientOutcome.OK]
    reported = [record for record in streams if record.queue is not None]
    parts = [part for record in (reported or streams) if (part := _stages(record))]
    return len(parts), [fmean(column) for column in zip(*parts, strict=True)] or [0.0] * len(_STAGES)


def _stages(record: Record) -> tuple[float, ...] | None:
    if record.sent is None or record.first is None or record.last is None:
        return None
    dispatched = record.sent if record.dispatched is None else record.dispatched
    queue = min(record.queue or 0.0, record.first - record.sent)
    return (
        dispatched - record.due,
        record.sent - dispatched,
        queue,
        record.first - record.sent - queue,
        record.last - record.first,
    )
