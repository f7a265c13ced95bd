"""Six figures over the time range shown, per class, that a load generator's own count can be held against."""

from grafana_foundation_sdk.builders import stat
from grafana_foundation_sdk.models import units

from alerts.promql import increase, select, sum_by
from dashboards import style
from dashboards.style import NO_TRAFFIC, SELECTED, describe, query
from exporters import signals
from exporters.signals import Label, Outcome, Signal

_RANGE = "$__range"


def truth_queries() -> dict[str, str]:
    """`offered, ok, goodput, ttft_p50, tokens_out, cached_tokens`: instant queries, one value a class.

    They hold `$__range`, `$model` and `$class`: fill these in with `dashboards.variables.expand`.
    """
    buckets = sum_by(_increase(signals.TTFT.bucket), [Label.CLASS, "le"])
    good, judged = _by_class(signals.GOODPUT_REQUESTS), _by_class(signals.GOODPUT_EVENTS)
    return {
        "offered": _offered(),
        "ok": _by_class(signals.REQUESTS, {Label.OUTCOME: Outcome.OK}),
        "goodput": f"{good} / ({judged} > 0)",
        "ttft_p50": f"histogram_quantile(0.5, {buckets})",
        "tokens_out": _by_class(signals.COMPLETION_TOKENS),
        "cached_tokens": _by_class(signals.CACHED_TOKENS),
    }


def truth_panels() -> tuple[stat.Panel, ...]:
    """One panel a figure, in the order of `truth_queries`."""
    shown = {
        "offered": (
            "Offered in range",
            "How many requests arrived?",
            "Ended ones and the growth of those open.",
            units.Short,
        ),
        "ok": ("OK in range", "How many ended well?", "Outcome ok; whether in time is goodput.", units.Short),
        "goodput": (
            "Goodput in range",
            "Which share was good for all its SLOs?",
            "Of judged requests.",
            units.PercentUnit,
        ),
        "ttft_p50": (
            "TTFT p50 in range",
            "How long until the first token?",
            "The median of those that got one.",
            units.Seconds,
        ),
        "tokens_out": (
            "Tokens out in range",
            "How much was written?",
            "Completion tokens of ended requests.",
            units.Short,
        ),
        "cached_tokens": (
            "Cached tokens in range",
            "How much came from the prefix cache?",
            "Prompt tokens.",
            units.Short,
        ),
    }
    panels = []
    for name, expression in truth_queries().items():
        title, question, reading, unit = shown[name]
        panel = style.figure(title, describe(question, reading), unit, 4)
        panels.append(panel.no_value(NO_TRAFFIC).with_target(query(expression, "{{class}}", instant=True)))
    return tuple(panels)


def _offered() -> str:
    now = sum_by(select(signals.IN_FLIGHT, SELECTED, regex=True), [Label.CLASS])
    before = sum_by(f"{select(signals.IN_FLIGHT, SELECTED, regex=True)} offset {_RANGE}", [Label.CLASS])
    # a sidecar younger than the range had nothing in flight before it
    return f"{_by_class(signals.REQUESTS)} + {now} - ({before} or 0 * {now})"


def _by_class(counter: Signal, where: dict[Label, str] | None = None) -> str:
    return sum_by(_increase(counter.name, where), [Label.CLASS])


def _increase(name: str, where: dict[Label, str] | None = None) -> str:
    return increase(select(name, {**SELECTED, **(where or {})}, regex=True), _RANGE)
