"""Figures of a report that must exist."""

from compose.experiment.report_estimates import value
from compose.experiment.report_groups import Group
from compose.experiment.report_metrics import ReportMetric
from loadgen.summary import TOTAL


def figure(metric: ReportMetric, group: Group, name: str = TOTAL) -> float:
    """The value of a class over all repeats."""
    found = value(metric, group, name)
    assert found is not None
    return found.pooled
