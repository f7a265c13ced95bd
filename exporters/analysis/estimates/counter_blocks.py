"""Counters and gauges in Prometheus, sampled at the edges of the blocks of a window."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from exporters.analysis.estimates.block_means import edges
from exporters.analysis.estimates.estimates import BLOCKS
from exporters.analysis.estimates.windows import Window
from exporters.analysis.prometheus_api import Prometheus
from exporters.vocabulary.signals import Label

ByClass = Mapping[str, Sequence[float]]
"""Values by class; those without a class are under the empty name."""


def increases(prometheus: Prometheus, counter: str, window: Window) -> ByClass:
    """The increase of a counter in each block.

    Series are not summed by Prometheus, because the sum of several would hide that one of them was reset.
    """
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * BLOCKS)
    for name, values in _sampled(prometheus, counter, window):
        for block, (early, late) in enumerate(pairwise(values)):
            if early is not None and late is not None:
                sums[name][block] += late - early if late >= early else late
    return sums


def levels(prometheus: Prometheus, gauge: str, window: Window) -> ByClass:
    """The value of a gauge at each edge; a missing one counts as 0."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * (BLOCKS + 1))
    for name, values in _sampled(prometheus, gauge, window):
        for edge, value in enumerate(values):
            sums[name][edge] += value or 0.0
    return sums


def total(by_class: ByClass, length: int = BLOCKS) -> list[float]:
    return [sum(values) for values in zip(*by_class.values(), strict=True)] or [0.0] * length


def _sampled(prometheus: Prometheus, selector: str, window: Window) -> list[tuple[str, list[float | None]]]:
    """The class and the values at the edges of each series."""
    moments, step = edges(window), window.seconds / BLOCKS
    sampled = []
    for series in prometheus.query_range(selector, moments[0], moments[-1] + step / 2, step):
        values: list[float | None] = [None] * len(moments)
        for at, value in series.points:
            values[min(round((at - moments[0]) / step), BLOCKS)] = value
        sampled.append((series.labels.get(Label.CLASS, ""), values))
    return sampled
