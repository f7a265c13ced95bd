"""Estimates from timed events; their intervals account for the correlation of events that are close in time."""

import math
from collections.abc import Iterable, Mapping, Sequence

from exporters.comparison.comparison_windows import Window
from exporters.comparison.estimates import BLOCKS, Quantile, Rate, Share, design_effect
from exporters.comparison.figures import Figure, Measurement

Part = tuple[float, float, float]
"""When, how much, and of how much."""


def rate(window: Window, amounts: Sequence[tuple[float, float]]) -> Measurement:
    """What came per second; each amount with its time."""
    amounts = [each for each in amounts if each[1]]
    if not amounts:
        return Measurement(0, Rate(0.0, 0.0, 1 / window.seconds))
    sizes = [size for _, size in amounts]
    squares = sum(size * size for size in sizes)
    effect = design_effect([_block(window, at) for at, _ in amounts], sizes, squares)
    effective_size = sum(sizes) ** 2 / (squares * effect)
    per_second = sum(sizes) / window.seconds
    return Measurement(len(amounts), Rate(per_second, effective_size, per_second / effective_size))


def share(window: Window, parts: Sequence[Part]) -> Measurement:
    """The sum of what was met over the sum of all."""
    whole = sum(of for _, _, of in parts)
    if not whole:
        return Measurement(len(parts), None)
    value = sum(some for _, some, _ in parts) / whole
    return Measurement(len(parts), Share(value, _effective_size(window, parts, value)))


def quantiles(
    window: Window, figures: Iterable[Figure], values: Sequence[tuple[float, float]]
) -> Mapping[Figure, Measurement]:
    """Percentiles of values, each with its time."""
    ordered = sorted(value for _, value in values)
    return {
        figure: Measurement(len(values), _quantile(window, values, ordered, figure.percent or 0) if values else None)
        for figure in figures
    }


def _quantile(
    window: Window, values: Sequence[tuple[float, float]], ordered: Sequence[float], percent: int
) -> Quantile:
    """The correlation is that of "lies below the quantile"."""
    quantile = Quantile(ordered, percent, len(ordered)).value
    below = [(at, float(value <= quantile if quantile < math.inf else value < quantile), 1.0) for at, value in values]
    return Quantile(ordered, percent, _effective_size(window, below, sum(some for _, some, _ in below) / len(below)))


def _effective_size(window: Window, parts: Sequence[Part], value: float) -> float:
    """How many independent events of one size have the same variance as the parts (effective sample size)."""
    deviations = [some - value * of for _, some, of in parts]
    whole = sum(of for _, _, of in parts)
    variance = sum(each * each for each in deviations)
    if variance <= 1e-12 * whole:  # all alike: what is left is how even their sizes are
        return whole * whole / sum(of * of for _, _, of in parts)
    effect = design_effect([_block(window, at) for at, _, _ in parts], deviations, variance)
    return value * (1 - value) * whole * whole / (variance * effect)


def _block(window: Window, moment: float) -> int:
    return min(int((moment - window.start) / window.seconds * BLOCKS), BLOCKS - 1)
