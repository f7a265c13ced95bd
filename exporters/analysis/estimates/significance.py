"""The finding of every row; Holm's procedure limits the error rate of all rows together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from exporters.analysis.estimates.estimates import CONFIDENCE, Difference, Z
from exporters.analysis.estimates.figures import FROM_ZERO, Better, Figure, Measurement, Measurements
from exporters.analysis.estimates.paired_difference import PairedDifference

_NO_DATA = Measurement(0, None)


class Finding(StrEnum):
    """The result of one row; `HIGHER` and `LOWER` for figures where neither direction is an improvement."""

    BETTER = "better"
    WORSE = "worse"
    HIGHER = "higher"
    LOWER = "lower"
    NO_DIFFERENCE = "no difference shown"
    TOO_FEW = "not enough events"
    NOT_STATIONARY = "not tested"
    """The backlog grew or shrank in a window, so the figure depends on when in the window a request arrived."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one class; `p` is for this row alone, `corrected` for all rows together."""

    request_class: str
    figure: Figure
    before: Measurement
    after: Measurement
    finding: Finding
    difference: Difference | None = None
    p: float | None = None
    corrected: float | None = None

    @property
    def only_uncorrected(self) -> bool:
        """Whether the difference would be significant if this were the only row."""
        return self.finding is Finding.NO_DIFFERENCE and self.p is not None and self.p <= 1 - CONFIDENCE


PairedDifferences = Mapping[tuple[str, Figure], PairedDifference]
"""Differences by class and figure."""


def compare(
    before: Measurements,
    after: Measurements,
    min_events: int,
    paired: PairedDifferences | None = None,
    *,
    stationary: bool = True,
) -> tuple[Row, ...]:
    """A row for each figure that either side has; figures without a paired difference are independent.

    Figures per request are only tested if both sides are `stationary`.
    """
    paired = paired or {}
    uncorrected = []
    for name in {**before, **after}:
        first, second = before.get(name, {}), after.get(name, {})
        for figure in {**first, **second}:
            row = _row(
                name,
                figure,
                first.get(figure, _NO_DATA),
                second.get(figure, _NO_DATA),
                min_events,
                paired.get((name, figure)),
            )
            if row.before.events or row.after.events:
                tested = stationary or not figure.per_request
                uncorrected.append(
                    row if tested else replace(row, finding=Finding.NOT_STATIONARY, difference=None, p=None)
                )
    return tuple(_holm(uncorrected))


def _row(
    name: str,
    figure: Figure,
    before: Measurement,
    after: Measurement,
    min_events: int,
    paired: PairedDifference | None,
) -> Row:
    row = Row(name, figure, before, after, Finding.TOO_FEW)
    required = max(min_events, figure.min_events)
    available = (max if figure in FROM_ZERO else min)(before.events, after.events)
    if before.estimate is None or after.estimate is None or available < required:
        return row
    difference = paired or Difference(before.estimate, after.estimate)
    return replace(row, finding=Finding.NO_DIFFERENCE, difference=difference, p=difference.p)


def _holm(rows: Sequence[Row]) -> Iterable[Row]:
    """Holm's procedure: the smallest p is multiplied by the number of rows, the next by one less, and so on."""
    tested = sorted((row.p, index) for index, row in enumerate(rows) if row.p is not None)
    corrected: dict[int, float] = {}
    worst = 0.0
    for place, (p, index) in enumerate(tested):
        worst = corrected[index] = max(worst, min(1.0, p * (len(tested) - place)))
    for index, row in enumerate(rows):
        if index not in corrected:
            yield row
        else:
            significant = corrected[index] <= 1 - CONFIDENCE
            yield replace(row, corrected=corrected[index], finding=_direction(row) if significant else row.finding)


def _direction(row: Row) -> Finding:
    rose = row.difference is not None and row.difference.interval(Z)[0] > 0
    if row.figure.better is Better.NEITHER:
        return Finding.HIGHER if rose else Finding.LOWER
    return Finding.BETTER if rose == (row.figure.better is Better.HIGHER) else Finding.WORSE
