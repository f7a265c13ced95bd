"""The parts that all plots share: axes with round ticks, the frame, the legend and the caption."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from loadgen.report.markup import Part, element, tooltip

WIDTH, HEIGHT = 480, 280
LEFT, RIGHT, TOP, BOTTOM = 58, 452, 34, 236
_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_FACTORS = (((1, 2, 5), math.log10(2)), ((1, 3), math.log10(3)), ((1,), 1.0))
"""Ticks in each decade of a logarithmic axis, and the least distance between two of them in decades."""
_LEAST_GAP = 0.13
"""Share of an axis between two labels."""

Format = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from `low` to `high` with labelled ticks; the title has the unit."""

    title: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    log: bool = False

    def share(self, value: float) -> float:
        """The position of a value from 0 to 1; values outside are at the nearer end."""
        if self.log:
            place = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            place = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, place))


def linear(title: str, high: float, label: Format) -> Axis:
    """An axis from 0 to `high`, or to 1 if that is 0."""
    end = high or 1.0
    return Axis(title, 0.0, end, [(tick, label(tick)) for tick in _even(0.0, end, 5)])


def logarithmic(title: str, low: float, high: float, label: Format) -> Axis:
    return Axis(title, low, high, [(tick, label(tick)) for tick in _log_ticks(low, high)], log=True)


def _even(low: float, high: float, most: int) -> list[float]:
    """Multiples of a round step, about `most`."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in _ROUND if power * factor >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{number * step:.10g}") for number in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Ticks at 1, 2, 5 or 1, 3 or 1 of each decade, as many as leave space for their labels."""
    decades = math.log10(high / low)
    factors, _ = next((each for each in _FACTORS if each[1] >= _LEAST_GAP * decades), _FACTORS[-1])
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{factor}e{power}") for power in powers for factor in factors]
    inside = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
    if len(inside) < 3:
        inside = _even(low, high, 6)
    return _apart(inside, math.log(high / low) * _LEAST_GAP * 0.999)


def _apart(ticks: Iterable[float], gap: float) -> list[float]:
    """The ticks whose logarithms are at least `gap` above that of the one before."""
    kept: list[float] = []
    for tick in ticks:
        if not kept or math.log(tick / kept[-1]) >= gap:
            kept.append(tick)
    return kept


@dataclass(frozen=True, slots=True)
class Area:
    """The rectangle of a plot between its axes."""

    x: Axis
    y: Axis

    def left(self, value: float) -> float:
        return LEFT + self.x.share(value) * (RIGHT - LEFT)

    def top(self, value: float) -> float:
        return BOTTOM - self.y.share(value) * (BOTTOM - TOP)

    def draw(self, name: str, marks: Iterable[Element]) -> Element:
        """The plot with its axes; `name` is its accessible name."""
        return svg(name, HEIGHT, [*self._grid(), *marks, *self._titles()])

    def _grid(self) -> Iterable[Element]:
        for value, label in self.y.ticks:
            at = self.top(value)
            yield element("path", d=f"M{LEFT} {at:.1f}H{RIGHT}", class_="grid")
            yield element("text", label, x=LEFT - 6, y=at + 4, text_anchor="end")
        for value, label in self.x.ticks:
            at = self.left(value)
            yield element("path", d=f"M{at:.1f} {BOTTOM}v4", class_="axis")
            yield element("text", label, x=at, y=BOTTOM + 17, text_anchor="middle")
        yield element("path", d=f"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}", class_="axis")

    def _titles(self) -> Iterable[Element]:
        yield element("text", self.y.title, x=2, y=12, class_="title")
        yield element("text", self.x.title, x=(LEFT + RIGHT) / 2, y=HEIGHT - 6, class_="title", text_anchor="middle")


def svg(name: str, height: float, marks: Iterable[Element]) -> Element:
    return element("svg", *marks, viewBox=f"0 0 {WIDTH} {height:g}", role="img", aria_label=name)


def rectangle(left: float, top: float, right: float, bottom: float, kind: str, text: str) -> Element:
    """A rectangle with a tooltip."""
    box = element("rect", x=left, y=top, width=max(0.0, right - left), height=max(0.0, bottom - top), class_=kind)
    return tooltip(box, text)


def legend(entries: Iterable[tuple[str, str]]) -> Element:
    """The class of each colour and what it stands for."""
    return element("ul", *(element("li", element("i", class_=kind), text) for kind, text in entries), class_="legend")


def figure(title: str, sentence: str, *parts: Part) -> Element:
    """A plot with its title, and what it shows and leaves out."""
    return element("figure", element("h3", title), *parts, element("figcaption", sentence))


def shortened(text: str, most: int) -> str:
    """The text with at most `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def plain(value: float) -> str:
    """The label of a tick without a unit."""
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:g}"


def percent(value: float) -> str:
    return f"{value * 100:g} %"
