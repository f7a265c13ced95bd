"""Figures of a report that must exist."""

from compose.experiments.report.estimates import value
from compose.experiments.report.groups import Group
from compose.experiments.report.metrics import ReportMetric
from loadgen.results.summary import TOTAL


def figure(metric: ReportMetric, group: Group, name: str = TOTAL) -> float:
    """The value of a class over all repeats."""
    found = value(metric, group, name)
    assert found is not None
    return found.pooled
