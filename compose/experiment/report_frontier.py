"""Throughput against latency: a point for each configuration and level, and those that no other one exceeds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compose.experiment.report_estimates import value
from compose.experiment.report_groups import Experiment
from compose.experiment.report_metrics import E2E_P50, THROUGHPUT, TPOT_P50, TTFT_P50, TTFT_P99, ReportMetric

LATENCIES = (TTFT_P50, TTFT_P99, TPOT_P50, E2E_P50)
"""The latencies against which the throughput is shown."""


@dataclass(frozen=True, slots=True)
class Point:
    """A group in output tokens/s and seconds; the latency may be infinite. `at` is its level."""

    configuration: str
    at: str
    throughput: float
    latency: float

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
    """The points that no other one exceeds in throughput or latency without being worse in the other (Pareto)."""
    kept: list[Point] = []
    for point in sorted(every, key=lambda each: (-each.throughput, each.latency)):
        same = kept and (point.throughput, point.latency) == (kept[-1].throughput, kept[-1].latency)
        if not kept or same or point.latency < kept[-1].latency:
            kept.append(point)
    return kept


def frontier_rows(experiment: Experiment) -> list[Sequence[str]]:
    """The name, the throughput and each latency of each point; `*` where it is on the frontier."""
    throughputs: dict[str, str] = {}
    columns: list[dict[str, str]] = []
    for metric in LATENCIES:
        every = points(experiment, metric)
        best = frontier(every)
        throughputs |= {point.name: THROUGHPUT.unit.text(point.throughput) for point in every}
        columns.append({point.name: metric.unit.text(point.latency) + "*" * (point in best) for point in every})
    return [
        [name, throughput, *(column.get(name, "-") for column in columns)] for name, throughput in throughputs.items()
    ]
