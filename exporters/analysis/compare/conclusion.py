"""The conclusion of a comparison: what changed, what is not known and why, what to do next."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from exporters.analysis.compare.backlog import Backlog, ChangeFailures, Trend
from exporters.analysis.compare.report import UNBOUNDED, Conclusion, format_value
from exporters.analysis.estimates.figures import ALL_CLASSES, BACKLOG_GROWTH, FROM_ZERO, OFFERED, Figure, Unit
from exporters.analysis.estimates.significance import Finding, Row
from exporters.analysis.estimates.windows import Plan
from exporters.text.units import spell_duration

CHANGED = (Finding.BETTER, Finding.WORSE, Finding.HIGHER, Finding.LOWER)

LISTED = 6
"""The most figures of classes in a sentence, for each direction; the table has all."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """What is not known of these rows: the reason as in JSON, and a clause."""

    reason: str
    text: str
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Next:
    """What to do as in JSON and as a sentence, and the value for it, such as `window_seconds`, by its name in JSON."""

    action: str
    text: str
    value: Mapping[str, float] = field(default_factory=dict)


def conclude(
    rows: Sequence[Row], plan: Plan, min_events: int, backlogs: tuple[Backlog, Backlog], failures: ChangeFailures
) -> Conclusion:
    """`backlogs` of the window before and of the one after."""
    changed = [row for row in rows if row.finding in CHANGED and row.figure != OFFERED]
    unknown = _unknown(rows, backlogs)
    step = _next(rows, plan, min_events, backlogs)
    clauses = "; ".join(each.text for each in unknown)
    return Conclusion(
        (
            _changed(changed, failures),
            f"Not known: {clauses}." if clauses else "All rows were tested, and all differ.",
            f"Next: {step.text}.",
        ),
        {
            "changed": [{**_place(row), "verdict": row.finding.value} for row in changed],
            "not_known": [
                {"reason": each.reason, "text": each.text, "rows": list(map(_place, each.rows))} for each in unknown
            ],
            "next": {"action": step.action, **step.value},
            "backlog": {name: each.as_json() for name, each in zip(("before", "after"), backlogs, strict=True)},
            "failed": asdict(failures),
        },
    )


def _place(row: Row) -> dict[str, str]:
    return {"class": row.request_class, "figure": row.figure.name}


def _changed(changed: Sequence[Row], failures: ChangeFailures) -> str:
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
    return f"{text}; {failures.text}." if failures.between_windows else f"{text}."


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


def _unknown(rows: Sequence[Row], backlogs: tuple[Backlog, Backlog]) -> list[Unknown]:
    unknown = []
    loads = [row for row in rows if row.figure == OFFERED and row.finding in CHANGED and row.difference]
    # The sum says enough, if it differs.
    loads = [row for row in loads if row.request_class == ALL_CLASSES] or loads
    if loads:
        named = ", ".join(f"{row.request_class} {_signed(row)}/s" for row in loads)
        text = f"whether the config change or the different load ({named}) caused these changes"
        unknown.append(Unknown("load_differs", text, loads))
    if untested := [row for row in rows if row.finding is Finding.NOT_STATIONARY]:
        names = _names(row.figure for row in untested)
        unknown.append(Unknown("backlog", f"by how much {names} changed, because {_trends(backlogs)}", untested))
    if few := [row for row in rows if row.finding is Finding.TOO_FEW]:
        unknown.append(Unknown("too_few_events", f"how {len(few)} rows changed (too few events)", few))
    if equal := [row for row in rows if row.finding is Finding.NO_DIFFERENCE]:
        text = f"whether {len(equal)} rows changed at all (their intervals include 0)"
        unknown.append(Unknown("no_difference_shown", text, equal))
    return unknown


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


def _next(rows: Sequence[Row], plan: Plan, min_events: int, backlogs: tuple[Backlog, Backlog]) -> Next:
    seconds = plan.before.seconds
    grew = [each for each in backlogs if each.trend is Trend.GREW]
    if grew:
        served = min(each.served_per_second for each in grew)
        return Next(
            "offer_less",
            f"to compare waits, offer the same schedule before and after at less than {served:.3g} requests/s, "
            "which is what the engine served while the backlog grew (`vllm-slo load run`, `vllm-slo load compare`)",
            {"requests_per_second": float(f"{served:.6g}")},
        )
    if any(each.trend is Trend.SHRANK for each in backlogs):
        text = "leave out the drain of the backlog with a longer --settle after the change or a shorter --window"
        return Next("longer_settle", text)
    if any(row.figure == OFFERED and row.finding in CHANGED for row in rows):
        return Next(
            "same_schedule",
            "offer the same schedule with both configurations (`vllm-slo load run`), and compare the two runs "
            "request by request (`vllm-slo load compare`)",
        )
    needed = max((_factor(row, min_events) for row in rows if row.finding is Finding.TOO_FEW), default=0.0)
    if needed:
        window = 60.0 * math.ceil(seconds * needed / 60)
        longer = spell_duration(window)
        text = f"compare windows of {longer} or more (--window {longer}), so that all rows have enough events"
        return Next("longer_window", text, {"window_seconds": window})
    if any(row.finding is Finding.NO_DIFFERENCE for row in rows):
        window = 60.0 * math.ceil(seconds * 4 / 60)
        text = (
            f"to find smaller differences, use longer windows; --window {spell_duration(window)} halves the intervals"
        )
        return Next("longer_window", text, {"window_seconds": window})
    return Next("none", "no further measurement is needed")


def _factor(row: Row, min_events: int) -> float:
    """How many times as long the windows have to be; 0 if events are missing altogether."""
    available = (max if row.figure in FROM_ZERO else min)(row.before.events, row.after.events)
    return max(min_events, row.figure.min_events) / available if available else 0.0
