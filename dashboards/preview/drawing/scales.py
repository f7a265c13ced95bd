"""The vertical axis of a graph: its range, its ticks, and the position of a value."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.preview.frames.field_config import FieldConfig
from dashboards.preview.frames.units import is_binary

_ZEROS = re.compile(r"(\.\d*?)0+(?=\D|$)")
# the increments of uPlot, with which Grafana draws; it has none for times of day
_DECIMAL = (1.0, 2.0, 2.5, 5.0, 10.0)
_OWN_DIGITS = ("currency", "bool", "dateTime", "time", "locale")
_BINARY = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """`linear`, `log` or `symlog`, which is linear around zero."""

    kind: str = "linear"
    base: float = 10.0
    linear_below: float = 1.0

    def place(self, value: float) -> float | None:
        """The position of a value; None if a logarithmic scale cannot show it."""
        if self.kind == "log":
            return math.log(value, self.base) if value > 0 else None
        return math.asinh(value / self.linear_below) if self.kind == "symlog" else value

    def ticks(self, low: float, high: float, most: int, unit: str) -> list[float]:
        """About `most` round values from low to high."""
        if self.kind == "linear":
            return _even(low, high, tick_increment(low, high, most, unit))
        first = self.linear_below if self.kind == "symlog" else low
        least = math.floor(math.log(first, self.base) + 1e-9)
        top = math.ceil(math.log(max(abs(low), abs(high), first), self.base))
        every = max(1, -(-(top - least) // most))
        powers = [self.base**power for power in range(least, top + 1, every)]
        ticks = powers if self.kind == "log" else [*(-each for each in reversed(powers)), 0.0, *powers]
        return [each for each in ticks if low <= each <= high]

    def hidden_ticks(self, low: float, high: float) -> list[float]:
        """The ticks between two powers of a logarithmic scale, whose labels Grafana hides."""
        if self.kind == "linear":
            return []
        first = self.linear_below if self.kind == "symlog" else low
        least, top = (math.floor(math.log(end, self.base) + 1e-9) for end in (first, max(high, first)))
        between = [self.base**power * times for power in range(least, top + 1) for times in range(2, int(self.base))]
        return [each for each in between if low <= each <= high]


def scale_of(config: FieldConfig) -> Scale:
    distribution: Mapping[str, Any] = config.custom("scaleDistribution") or {}
    return Scale(
        str(distribution.get("type", "linear")),
        float(distribution.get("log") or 10),
        float(distribution.get("linearThreshold") or 1),
    )


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from `low` to `high`, in the unit of the values."""

    scale: Scale
    low: float
    high: float

    @property
    def range(self) -> list[float]:
        return [self.scale.place(self.low) or 0.0, self.scale.place(self.high) or 0.0]


def axis_of(config: FieldConfig, values: Iterable[float]) -> Axis:
    """The range of the values, unless the settings set it."""
    scale = scale_of(config)
    finite = [value for value in values if math.isfinite(value) and scale.place(value) is not None]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    fixed_low, fixed_high = config.settings.get("min"), config.settings.get("max")
    if fixed_low is not None:
        low = float(fixed_low)
    if fixed_high is not None:
        high = float(fixed_high)
    if scale.kind == "log":
        # a logarithmic axis cannot start at zero
        low = low if low > 0 else min(finite, default=1.0)
        exponents = math.log(low, scale.base) + 1e-9, math.log(max(high, low), scale.base) - 1e-9
        bottom = math.floor(exponents[0])
        return Axis(scale, scale.base**bottom, scale.base ** max(math.ceil(exponents[1]), bottom + 1))
    soft_low, soft_high = (config.custom(name) for name in ("axisSoftMin", "axisSoftMax"))
    least, most = padded_range(low, high, soft_low, soft_high)
    least, most = (least if fixed_low is None else low), (most if fixed_high is None else high)
    return Axis(scale, least, most) if least < most else Axis(scale, 0.0, 100.0)


def padded_range(low: float, high: float, soft_low: float | None = None, soft_high: float | None = None) -> list[float]:
    """`rangeNum` of uPlot as Grafana calls it: a tenth of the range beyond its ends, but not beyond a soft one.

    The soft end is zero unless the panel sets it; without any data but zeros the range ends at 100.
    """
    delta = high - low
    largest = max(abs(low), abs(high))
    is_constant = delta < 1e-24 or abs(math.log10(largest) - math.log10(delta)) > 10
    size = largest or 1e3 if is_constant else delta
    step = 10.0 ** math.floor(math.log10(size)) / 10
    ends = []
    # each end as an upper one
    for end, soft, sign in ((-low, soft_low, -1), (high, soft_high, 1)):
        padding = size * (0.1 if end == 0 or not is_constant else 1)
        bound = math.ceil(round((end + padding) / step, 6)) * step
        limit = sign * float(soft or 0)
        ends.append(sign * (limit if end <= limit and (soft is not None or bound >= limit) else bound))
    return [*map(_rounded, ends)] if ends != [0, 0] else [0.0, 100.0]


def _rounded(value: float) -> float:
    """The value without the error of its binary representation."""
    return float(f"{value:.12g}") + 0.0


def labels(ticks: Iterable[float], config: FieldConfig, increment: float) -> list[str]:
    """The texts of the ticks, as Grafana's `UPlotAxisBuilder` formats them.

    With an increment below 1, values have its decimals, without trailing zeros; but not in units that have their own
    digits, or if the panel sets `decimals`.
    """
    own_digits = str(config.settings.get("unit", "")).startswith(_OWN_DIGITS)
    if config.settings.get("decimals") is not None or own_digits or not (decimals := _decimals(increment)):
        return [config.display(tick).text for tick in ticks]
    exact = FieldConfig({**config.settings, "decimals": decimals}, config.context)
    return [_ZEROS.sub(lambda match: match[1].rstrip("."), exact.display(tick).text, count=1) for tick in ticks]


def tick_increment(low: float, high: float, most: int, unit: str) -> float:
    """The smallest round step with about `most` ticks from low to high; Grafana uses it on a logarithmic axis too."""
    step = (high - low) / max(most, 1)
    base, rounds = (1024.0, _BINARY) if is_binary(unit) else (10.0, _DECIMAL)
    size = base ** math.floor(math.log(step, base) + 1e-9)
    return next(each * size for each in rounds if each * size >= step * 0.999)


def _decimals(increment: float) -> int:
    """The number of decimals of a step, at most six."""
    return len(f"{increment:.6f}".rstrip("0").partition(".")[2])


def _even(low: float, high: float, increment: float) -> list[float]:
    first, last = math.ceil(low / increment - 1e-9), math.floor(high / increment + 1e-9)
    return [float(f"{number * increment:.10g}") for number in range(first, last + 1)]
