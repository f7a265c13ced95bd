"""The conclusion of a comparison in three sentences: what changed, what is not known and why, what to do next."""

import math
from collections.abc import Iterable, Sequence

from exporters.comparison.backlog import Backlog, Trend
from exporters.comparison.change_failures import ChangeFailures
from exporters.comparison.comparison_windows import Plan
from exporters.comparison.figures import ALL_CLASSES, BACKLOG_GROWTH, FROM_ZERO, OFFERED, Figure, Unit
from exporters.comparison.rendering import UNBOUNDED, format_value
from exporters.comparison.significance import Finding, Row
from exporters.quantities import spell_duration

CHANGED = (Finding.BETTER, Finding.WORSE, Finding.HIGHER, Finding.LOWER)

LISTED = 6
"""The most figures of classes in a sentence, for each direction; the table has all."""

Sentences = tuple[str, str, str]


def conclude(
    rows: Sequence[Row], plan: Plan, min_events: int, backlogs: tuple[Backlog, Backlog], failures: ChangeFailures
) -> Sentences:
    """`backlogs` of the window before and of the one after."""
    return (
        _changed(rows, failures),
        _unknown(rows, backlogs),
        _next(rows, plan, min_events, backlogs),
    )


def _changed(rows: Sequence[Row], failures: ChangeFailures) -> str:
    changed = [row for row in rows if row.finding in CHANGED and row.figure != OFFERED]
    whole = [row for row in changed if row.request_class == ALL_CLASSES]
    stated = {row.figure for row in whole}
    clauses = [", ".join(map(_values, whole))] if whole else []
    for finding in CHANGED:
        figures: dict[str, list[str]] = {}
        for row in changed:
            if row.finding is finding and row.figure not in stated:
                figures.setdefault(row.figure.name, []).append(row.request_class)
        if figures:
            listed = [f"{name} ({', '.join(classes)})" for name, classes in figures.items()]
            more = [f"{len(listed) - LISTED} more figures"] if len(listed) > LISTED else []
            clauses.append(f"{finding}: {', '.join([*listed[:LISTED], *more])}")
    text = f"Changed: {'; '.join(clauses)}" if clauses else "No figure changed by more than chance explains"
    return f"{text}; {failures.text}." if failures.failed else f"{text}."


def _values(row: Row) -> str:
    """`output tokens 4243 to 6366 /s (+50%)`."""
    if row.before.estimate is None or row.after.estimate is None:
        return row.figure.name
    values = row.before.estimate.value, row.after.estimate.value
    unit, signed = row.figure.unit, row.figure == BACKLOG_GROWTH
    before, after = (format_value(each, UNBOUNDED, unit, signed=signed) for each in values)
    text = f"{row.figure.name} {before} to {after} {unit.value[0]}"
    relative = unit is not Unit.PERCENT and not signed and values[0] > 0
    return f"{text} ({values[1] / values[0] - 1:+.0%})" if relative else text


def _unknown(rows: Sequence[Row], backlogs: tuple[Backlog, Backlog]) -> str:
    clauses = []
    loads = [row for row in rows if row.figure == OFFERED and row.finding in CHANGED and row.difference]
    # The sum says enough, if it differs.
    loads = [row for row in loads if row.request_class == ALL_CLASSES] or loads
    if loads:
        named = ", ".join(f"{row.request_class} {_signed(row)}/s" for row in loads)
        clauses.append(f"whether the config change or the different load ({named}) caused these changes")
    untested = [row.figure for row in rows if row.finding is Finding.NOT_STATIONARY]
    if untested:
        clauses.append(f"by how much {_names(untested)} changed, because {_trends(backlogs)}")
    few = sum(row.finding is Finding.TOO_FEW for row in rows)
    if few:
        clauses.append(f"how {few} rows changed (too few events)")
    equal = sum(row.finding is Finding.NO_DIFFERENCE for row in rows)
    if equal:
        clauses.append(f"whether {equal} rows changed at all (their intervals include 0)")
    return f"Not known: {'; '.join(clauses)}." if clauses else "All rows were tested, and all differ."


def _signed(row: Row) -> str:
    value = row.difference.value if row.difference else 0.0
    return format_value(value, UNBOUNDED, row.figure.unit, signed=True)


def _names(figures: Iterable[Figure]) -> str:
    """Each signal once, without its percentile, and the SLOs together."""
    names = [figure.name.removesuffix(" p50").removesuffix(" p95") for figure in figures]
    names = [*dict.fromkeys("SLOs" if name.startswith("SLO ") else name for name in names)]
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def _trends(backlogs: tuple[Backlog, Backlog]) -> str:
    """Why figures per request are not tested."""
    spans = [f"{each.waiting[0]:.0f} to {each.waiting[-1]:.0f}" for each in backlogs]
    before, after = (each.trend for each in backlogs)
    if before is Trend.GREW and after is Trend.GREW:
        return (
            f"the backlog grew in both windows ({spans[0]} waiting requests before, {spans[1]} after): more was "
            "offered than the engine served, so a wait depends on how long that has lasted"
        )
    windows = [
        f"{trend} {when} the change ({span} waiting requests)"
        for trend, when, span in zip((before, after), ("before", "after"), spans, strict=True)
        if trend is not None
    ]
    return f"the backlog {' and '.join(windows)}, so a wait depends on when the request arrived"


def _next(rows: Sequence[Row], plan: Plan, min_events: int, backlogs: tuple[Backlog, Backlog]) -> str:
    seconds = plan.before.seconds
    grew = [each for each in backlogs if each.trend is Trend.GREW]
    if grew:
        served = min(each.served_per_second for each in grew)
        return (
            f"Next: to compare waits, offer the same schedule before and after at less than {served:.3g} requests/s, "
            "which is what the engine served while the backlog grew (`vllm-slo load run`, `vllm-slo load compare`)."
        )
    if any(each.trend is Trend.SHRANK for each in backlogs):
        return "Next: leave out the drain of the backlog with a longer --settle after the change or a shorter --window."
    if any(row.figure == OFFERED and row.finding in CHANGED for row in rows):
        return (
            "Next: offer the same schedule with both configurations (`vllm-slo load run`), and compare the two runs "
            "request by request (`vllm-slo load compare`)."
        )
    needed = max((_factor(row, min_events) for row in rows if row.finding is Finding.TOO_FEW), default=0.0)
    if needed:
        longer = spell_duration(60.0 * math.ceil(seconds * needed / 60))
        return f"Next: compare windows of {longer} or more (--window {longer}), so that all rows have enough events."
    if any(row.finding is Finding.NO_DIFFERENCE for row in rows):
        longer = spell_duration(60.0 * math.ceil(seconds * 4 / 60))
        return f"Next: to find smaller differences, use longer windows; --window {longer} halves the intervals."
    return "Next: no further measurement is needed."


def _factor(row: Row, min_events: int) -> float:
    """How many times as long the windows have to be; 0 if events are missing altogether."""
    available = (max if row.figure in FROM_ZERO else min)(row.before.events, row.after.events)
    return max(min_events, row.figure.min_events) / available if available else 0.0
