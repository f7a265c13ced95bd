"""The counters and histograms of requests as values that can be stored."""

import msgspec

from exporters.exposition.accumulators import Labels


class SavedHistogram(msgspec.Struct):
    """A histogram: its bounds, and labels, counts by bucket and sum of each series."""

    bounds: tuple[float, ...]
    rows: list[tuple[Labels, list[int], float]]


class SavedSeries(msgspec.Struct):
    """Values by name of the series; `models` are the label values."""

    models: list[str]
    counters: dict[str, list[tuple[Labels, float]]]
    histograms: dict[str, SavedHistogram]
