"""The vertical axis of a graph: its range, its ticks, and the position of a value."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.preview.field_config import FieldConfig
from dashboards.preview.units import is_binary

_ZEROS = re.compile(r"(\.\d*?)0+(?=\D|$)")
_DECIMAL = (1.0, 2.0, 2.5, 5.0, 10.0)
_BINARY = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
_CLOCK = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0)


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
            return _even(low, high, most, unit)
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
    soft = [float(end) for name in ("axisSoftMin", "axisSoftMax") if (end := config.custom(name)) is not None]
    low, high = min([*finite, *soft], default=0.0), max([*finite, *soft], default=1.0)
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
    # a constant line is drawn in the middle, or at the bottom if it is 0
    if low >= high:
        high = low + (abs(low) or 1.0)
        if fixed_low is None and low:
            low -= abs(low)
    margin = 0.05 * (high - low)
    if fixed_high is None:
        high += margin
    if fixed_low is None:
        low = 0.0 if 0 <= low <= margin else low - margin
    return Axis(scale, low, high)


def labels(ticks: Iterable[float], config: FieldConfig) -> list[str]:
    """The values of the ticks without trailing zeros."""
    exact = FieldConfig({**config.settings, "decimals": 6, "mappings": []}, config.context)
    return [_ZEROS.sub(lambda match: match[1].rstrip("."), exact.display(tick).text, count=1) for tick in ticks]


def _even(low: float, high: float, most: int, unit: str) -> list[float]:
    """Multiples of a round step."""
    step = (high - low) / max(most, 1)
    base, rounds = (1024.0, _BINARY) if is_binary(unit) else (10.0, _DECIMAL)
    size = base ** math.floor(math.log(step, base) + 1e-9)
    round_step = next(each * size for each in rounds if each * size >= step * 0.999)
    if unit == "s" and step > 1:
        round_step = next((each for each in _CLOCK if each >= step * 0.999), round_step)
    first, last = math.ceil(low / round_step - 1e-9), math.floor(high / round_step + 1e-9)
    return [float(f"{number * round_step:.10g}") for number in range(first, last + 1)]
