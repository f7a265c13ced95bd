"""Queries of Prometheus over one window."""

from collections.abc import Mapping

from exporters.analysis.prometheus_api import FlagPrometheus, Sample
from exporters.text.units import spell_duration
from exporters.vocabulary.signals import Label, Signal

Values = Mapping[str, float]
"""Values by class."""


class SeriesWindow:
    """The series of one Prometheus from `start` to `end` (unix seconds); all queries raise UsageError if they fail."""

    def __init__(self, url: str, start: float, end: float) -> None:
        self.length = spell_duration(max(1, round(end - start)))
        """The duration as a range selector has it."""
        self._end = end
        self._prometheus = FlagPrometheus(url)

    def samples(self, query: str) -> list[Sample]:
        """The result of a query at the end of the window."""
        return self._prometheus.query(query, self._end)

    def query(self, query: str) -> dict[str, float]:
        """The result by class; an aggregate over all classes has the name ``."""
        return {each.labels.get(Label.CLASS, ""): each.value for each in self.samples(query)}

    def sums(self, signal: Signal, where: str = "", part: str = "") -> Values:
        """The increase of a counter, or with `part` of the sum of a histogram, by class."""
        name = signal.sum if part else signal.name
        return self.query(f"sum by (class) (increase({name}{where}[{self.length}]))")

    def quantiles(self, signal: Signal, share: float) -> Values:
        return self.query(f"histogram_quantile({share}, sum by (class, le) (increase({signal.bucket}[{self.length}])))")
