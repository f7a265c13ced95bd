"""A gain against its cost, such as throughput and latency: points, those that no other exceeds (Pareto), and plots."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.etree.ElementTree import Element

from compose.experiments.report.estimates import value
from compose.experiments.report.groups import Experiment
from compose.experiments.report.metrics import E2E_P50, THROUGHPUT, TPOT_P50, TTFT_P50, TTFT_P99, ReportMetric
from loadgen.report.markup import element, tooltip
from loadgen.report.plot_area import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    Area,
    figure,
    legend,
    linear,
    logarithmic,
    plain,
    shortened,
)
from loadgen.report.tables import format_seconds

LATENCIES = (TTFT_P50, TTFT_P99, TPOT_P50, E2E_P50)
"""The latencies against which the throughput is shown."""


@dataclass(frozen=True, slots=True)
class Point:
    """A configuration at a level, `at`: with latencies, output tokens/s and seconds, which may be infinite."""

    configuration: str
    at: str
    gain: float
    cost: float

    @property
    def name(self) -> str:
        return self.configuration + self.at


def points(experiment: Experiment, metric: ReportMetric) -> list[Point]:
    """The groups with figures, over all classes, each configuration from its first to its last level."""
    found = [
        Point(group.configuration, experiment.at(group.level), throughput.pooled, latency.pooled)
        for group in experiment
        if (throughput := value(THROUGHPUT, group)) is not None and (latency := value(metric, group)) is not None
    ]
    order = {each.name: index for index, each in enumerate(experiment.record.configurations)}
    return sorted(found, key=lambda point: order[point.configuration])  # stable: the levels keep their order


def frontier(every: Iterable[Point]) -> list[Point]:
    """The points of which no other one has more gain or less cost without being worse in the other (Pareto)."""
    kept: list[Point] = []
    for point in sorted(every, key=lambda each: (-each.gain, each.cost)):
        same = kept and (point.gain, point.cost) == (kept[-1].gain, kept[-1].cost)
        if not kept or same or point.cost < kept[-1].cost:
            kept.append(point)
    return kept


def frontier_rows(experiment: Experiment) -> list[Sequence[str]]:
    """The name, the throughput and each latency of each point; `*` where it is on the frontier."""
    throughputs: dict[str, str] = {}
    columns: list[dict[str, str]] = []
    for metric in LATENCIES:
        every = points(experiment, metric)
        best = frontier(every)
        throughputs |= {point.name: THROUGHPUT.unit.text(point.gain) for point in every}
        columns.append({point.name: metric.unit.text(point.cost) + "*" * (point in best) for point in every})
    return [
        [name, throughput, *(column.get(name, "-") for column in columns)] for name, throughput in throughputs.items()
    ]


STYLE = ".dot.best { fill: var(--good) } .dot.other { fill: var(--failed) } i.best { background: var(--good) } "
STYLE += "i.other { background: var(--failed) }\n"
STYLE += ".line.joined { stroke: var(--dim); stroke-width: 1; stroke-dasharray: 4 3 }\n"
_LETTER = 7.7  # units of the plot: the width of a letter of a label
_LINE = 14.0  # its height
_MOST = 24  # letters of a label
_RANGE = 2.0  # the least ratio of the ends of the axis


def pareto_plots(experiment: Experiment) -> Iterator[Element]:
    """One plot for each latency, over all classes."""
    for metric in LATENCIES:
        yield _plot(metric, experiment)


def _plot(metric: ReportMetric, experiment: Experiment) -> Element:
    every = points(experiment, metric)
    missing = [f"{group.name}, repeat {each.repeat} ({each.state})" for group in experiment for each in group.excluded]
    title = f"Output tokens/s against {metric.title}"
    best = frontier(every)
    finite = [point.cost for point in every if math.isfinite(point.cost) and point.cost > 0] or [1.0]
    area = Area(
        linear("output tokens/s", max((point.gain for point in every), default=0.0) * 1.15, plain),
        logarithmic(
            f"{metric.title} (log)", min(finite) / 1.3, max(max(finite) * 1.5, min(finite) * _RANGE), format_seconds
        ),
    )
    sentence = (
        f"All classes together. On the frontier: {', '.join(point.name for point in best) or 'none'}; every other "
        "point has neither more throughput nor a lower latency than one of these. A dashed line joins the points of a "
        "configuration. At the upper edge (∞): the percentile falls on a request without a value."
    )
    if missing:
        sentence += f" Not drawn: {', '.join(missing)}."
    return figure(
        title,
        sentence,
        legend([("best", "on the frontier"), ("other", "not on the frontier")]),
        area.draw(title, marks(area, every, best, _told)),
    )


def _told(point: Point) -> str:
    latency = "∞" if math.isinf(point.cost) else format_seconds(point.cost)
    return f"{point.name}: {point.gain:.0f} output tokens/s, {latency}"


def marks(area: Area, every: Sequence[Point], best: Sequence[Point], told: Callable[[Point], str]) -> Iterator[Element]:
    """Dots with names and tooltips, and the lines of the frontier and of each configuration."""
    taken: list[tuple[float, float, float, float]] = []
    for _, joined in groupby(every, key=lambda point: point.configuration):
        yield from _line(area, [*joined], "line joined")
    yield from _line(area, best, "line good")
    for point in sorted(every, key=lambda each: each in best):  # the frontier is drawn above the others
        x, y = area.left(point.gain), area.top(point.cost)
        kind = "best" if point in best else "other"
        yield tooltip(element("circle", cx=x, cy=y, r=4, class_=f"dot {kind}"), told(point))
        taken.append((x - 5, y - 5, x + 5, y + 5))
    for point in every:
        x, y = area.left(point.gain), area.top(point.cost)
        text = (
            shortened(point.configuration, _MOST - len(point.at)) + point.at + (" ∞" if math.isinf(point.cost) else "")
        )
        box = _place(x, y, len(text) * _LETTER, taken)
        if box is not None:
            taken.append(box)
            beside = box[0] > x
            if abs(box[1] + _LINE / 2 - y) > _LINE / 2:  # not beside its point
                end = box[0] if beside else box[2]
                yield element("path", d=f"M{x:.1f} {y:.1f}L{end:.1f} {box[1] + _LINE / 2:.1f}", class_="axis")
            yield element(
                "text", text, x=box[0] if beside else box[2], y=box[3] - 3, text_anchor="start" if beside else "end"
            )


def _line(area: Area, joined: Sequence[Point], kind: str) -> Iterator[Element]:
    if len(joined) > 1:
        corners = [(area.left(point.gain), area.top(point.cost)) for point in joined]
        yield element("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in corners), class_=kind)


def _place(
    x: float, y: float, width: float, taken: Sequence[tuple[float, float, float, float]]
) -> tuple[float, float, float, float] | None:
    """The first free rectangle beside a point; None if there is none, so that no label covers another."""
    for step in range(8):
        for left in (x + 7, x - 7 - width):
            for top in (y - _LINE / 2 + step * _LINE, y - _LINE / 2 - step * _LINE):
                box = left, top, left + width, top + _LINE
                inside = box[0] >= LEFT and box[2] <= RIGHT + 20 and top >= TOP - 8 and box[3] <= BOTTOM
                if inside and not any(_overlap(box, other) for other in taken):
                    return box
    return None


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
