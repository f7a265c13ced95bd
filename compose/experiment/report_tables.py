"""The parts of a report: tables of text, lists of sentences, and the text of a figure in a table."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from compose.experiment.report_estimates import value
from compose.experiment.report_groups import Group
from compose.experiment.report_metrics import ReportMetric
from loadgen.summary import TOTAL


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; the first `labels` columns are repeated where the others do not fit, `left` are aligned to the left.

    With `labels` of 0, it is never split.
    """

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 0
    left: Sequence[int] = field(default_factory=lambda: (0,))


@dataclass(frozen=True, slots=True)
class Sentences:
    """A list of sentences under a title."""

    title: str
    lines: Sequence[str]


def cell(metric: ReportMetric, group: Group, request_class: str = TOTAL) -> str:
    """The value with the spread of the repeats, or the state of a group without figures."""
    if group.state:
        return group.state
    found = value(metric, group, request_class)
    if found is None:
        return "-"
    text = metric.unit.text(found.pooled)
    if found.spread is None or found.spread[0] == found.spread[1]:
        return text
    low, high = (metric.unit.text(end).removesuffix(" %") for end in found.spread)
    return f"{text} [{low}..{high}]"
