"""Estimates from events with times; their intervals account for the correlation of events that are close in time."""

import math
from collections.abc import Iterable, Mapping, Sequence

from exporters.analysis.estimates.estimates import BLOCKS, Quantile, Rate, Share, design_effect
from exporters.analysis.estimates.figures import Figure, Measurement
from exporters.analysis.estimates.windows import Window

Part = tuple[float, float, float]
"""A time, a part, and the whole that it is a part of."""


def rate(window: Window, amounts: Sequence[tuple[float, float]]) -> Measurement:
    """The sum of the amounts per second; each amount has its time."""
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
    """The sum of the parts over the sum of the wholes."""
    total = sum(whole for _, _, whole in parts)
    if not total:
        return Measurement(len(parts), None)
    value = sum(part for _, part, _ in parts) / total
    return Measurement(len(parts), Share(value, _effective_size(window, parts, value)))


def quantiles(
    window: Window, figures: Iterable[Figure], values: Sequence[tuple[float, float]]
) -> Mapping[Figure, Measurement]:
    """Percentiles of values; each value has its time."""
    ordered = sorted(value for _, value in values)
    return {
        figure: Measurement(len(values), _quantile(window, values, ordered, figure.percent or 0) if values else None)
        for figure in figures
    }


def _quantile(
    window: Window, values: Sequence[tuple[float, float]], ordered: Sequence[float], percent: int
) -> Quantile:
    """The design effect is that of the events "the value is at or below the quantile"."""
    quantile = Quantile(ordered, percent, len(ordered)).value
    below = [(at, float(value <= quantile if quantile < math.inf else value < quantile), 1.0) for at, value in values]
    return Quantile(ordered, percent, _effective_size(window, below, sum(part for _, part, _ in below) / len(below)))


def _effective_size(window: Window, parts: Sequence[Part], value: float) -> float:
    """Effective sample size: the number of independent events of equal size whose share has the same variance."""
    deviations = [part - value * whole for _, part, whole in parts]
    total = sum(whole for _, _, whole in parts)
    variance = sum(each * each for each in deviations)
    # Without variance, only the sizes of the parts matter.
    if variance <= 1e-12 * total:
        return total * total / sum(whole * whole for _, _, whole in parts)
    effect = design_effect([_block(window, at) for at, _, _ in parts], deviations, variance)
    return value * (1 - value) * total * total / (variance * effect)


def _block(window: Window, moment: float) -> int:
    return min(int((moment - window.start) / window.seconds * BLOCKS), BLOCKS - 1)
