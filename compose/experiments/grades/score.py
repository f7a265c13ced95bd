"""The score of each cell, by the criteria of the experiment."""

from collections.abc import Sequence

from compose.experiments.report.estimates import value
from compose.experiments.report.groups import Experiment, Group, Repeat
from compose.experiments.report.metrics import METRICS
from compose.experiments.report.tables import Grid
from compose.experiments.setup.cell_store import Criterion, Scoring


def points(criterion: Criterion, measured: float | None) -> float:
    """The points of a measurement; none without one, or if it is infinite and must not exceed a limit."""
    if measured is None:
        return 0.0
    match criterion.by:
        case Scoring.PROPORTION:
            share = measured / criterion.value
        case Scoring.LIMIT:
            share = criterion.value / max(measured, criterion.value)
        case Scoring.LEAST:
            share = float(measured >= criterion.value)
    return criterion.points * share


def table(experiment: Experiment, criteria: Sequence[Criterion]) -> Grid:
    """The points of each cell, the best cell first; cells without a valid measurement have none."""
    rows: list[tuple[float, list[str]]] = []
    for group in experiment:
        name = f"{group.configuration}{group.level.text}, repeat"
        for repeat in group.repeats:
            found = [points(each, _measured(each, group, repeat)) for each in criteria]
            rows.append((sum(found), [f"{name} {repeat.number}", *(f"{each:.1f}" for each in (*found, sum(found)))]))
        blank = [""] * len(criteria)
        rows += [(-1.0, [f"{name} {each.repeat}", each.state, *blank]) for each in group.excluded]
    headings = ("cell", *(METRICS[each.metric].title for each in criteria), "total")
    return Grid("", headings, [row for _, row in sorted(rows, key=lambda pair: -pair[0])], labels=1)


def _measured(criterion: Criterion, group: Group, repeat: Repeat) -> float | None:
    found = value(METRICS[criterion.metric], group)
    return None if found is None else found.repeats[group.repeats.index(repeat)]


def legend(criteria: Sequence[Criterion]) -> str:
    """What has all points of each criterion."""
    return "; ".join(
        f"{METRICS[each.metric].title}: {each.points:g} points at {METRICS[each.metric].unit.text(each.value)} "
        f"({each.by.value})"
        for each in criteria
    )
