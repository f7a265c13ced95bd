"""Twelve totals over the time range by class, which the demo compares with the request log."""

from grafana_foundation_sdk.builders import stat
from grafana_foundation_sdk.models import units

from alerts.promql import increase, ratio, select, sum_by
from dashboards import style
from dashboards.style import MODEL_AND_CLASS, NO_TRAFFIC, query
from exporters import signals
from exporters.signals import Label, Outcome, Signal

_RANGE = "$__range"
_NOT_OK = "|".join(outcome for outcome in Outcome if outcome is not Outcome.OK)


def range_total_queries() -> dict[str, str]:
    """Instant queries, one value a class; a load generator can also count the first six.

    They contain `$__range`, `$model` and `$class`: expand these with `dashboards.interpolation.expand`.
    """
    buckets = sum_by(_increase(signals.TTFT.bucket), [Label.CLASS, "le"])
    good, judged = _increase_by_class(signals.GOODPUT_REQUESTS), _increase_by_class(signals.GOODPUT_EVENTS)
    return {
        "offered": _offered(),
        "ok": _increase_by_class(signals.REQUESTS, {Label.OUTCOME: Outcome.OK}),
        "goodput": ratio(good, judged),
        "ttft_p50": f"histogram_quantile(0.5, {buckets})",
        "tokens_out": _increase_by_class(signals.COMPLETION_TOKENS),
        "cached_tokens": _increase_by_class(signals.CACHED_TOKENS),
        "failed": _increase_by_class(signals.REQUESTS, {Label.OUTCOME: _NOT_OK}),
        "bad_events": _increase_by_class(signals.SLO_BAD),
        "prompt_tokens": _increase_by_class(signals.PROMPT_TOKENS),
        "tpot_mean": _mean_query(signals.TPOT),
        "e2e_mean": _mean_query(signals.DURATION),
        "queue_mean": _mean_query(signals.QUEUE),
    }


def range_total_panels() -> tuple[stat.Panel, ...]:
    """One panel a total, in the order of `range_total_queries`."""
    texts = {
        "offered": (
            "Offered in range",
            units.Short,
            "How many requests arrived? Ended ones and the growth of those open.",
        ),
        "ok": ("OK in range", units.Short, "How many ended well? Outcome ok; whether in time is goodput."),
        "goodput": (
            "Goodput in range",
            units.PercentUnit,
            "Which share was good for all its SLOs? Of judged requests.",
        ),
        "ttft_p50": (
            "TTFT p50 in range",
            units.Seconds,
            "How long until the first token? The median of those that got one.",
        ),
        "tokens_out": (
            "Tokens out in range",
            units.Short,
            "How much was written? Completion tokens of ended requests.",
        ),
        "cached_tokens": ("Cached tokens in range", units.Short, "How much came from the prefix cache? Prompt tokens."),
        "failed": (
            "Not OK in range",
            units.Short,
            "How many ended in any other way? Clients that gave up are among them.",
        ),
        "bad_events": (
            "Bad events in range",
            units.Short,
            "What has burnt budget? A request that misses two SLOs is two.",
        ),
        "prompt_tokens": ("Tokens in, in range", units.Short, "How much was read? Prompt tokens of ended requests."),
        "tpot_mean": (
            "TPOT mean in range",
            units.Seconds,
            "How long does an output token take? The mean over streams, each of them once.",
        ),
        "e2e_mean": ("Duration mean in range", units.Seconds, "How long does a request take? However it ended."),
        "queue_mean": (
            "Queue mean in range",
            units.Seconds,
            "How long do requests wait in the engine's queue? Of those whose times in the engine are known.",
        ),
    }
    panels = []
    for name, expression in range_total_queries().items():
        title, unit, text = texts[name]
        panel = style.stat_panel(title, text, unit, 4)
        panels.append(panel.no_value(NO_TRAFFIC).with_target(query(expression, "{{class}}", instant=True)))
    return tuple(panels)


def _offered() -> str:
    now = sum_by(select(signals.IN_FLIGHT, MODEL_AND_CLASS, regex=True), [Label.CLASS])
    before = sum_by(f"{select(signals.IN_FLIGHT, MODEL_AND_CLASS, regex=True)} offset {_RANGE}", [Label.CLASS])
    # a sidecar younger than the range had nothing in flight before it
    return f"{_increase_by_class(signals.REQUESTS)} + {now} - ({before} or 0 * {now})"


def _mean_query(histogram: Signal) -> str:
    total, count = (sum_by(_increase(name), [Label.CLASS]) for name in (histogram.sum, histogram.count))
    return ratio(total, count)


def _increase_by_class(counter: Signal, where: dict[Label, str] | None = None) -> str:
    return sum_by(_increase(counter.name, where), [Label.CLASS])


def _increase(name: str, where: dict[Label, str] | None = None) -> str:
    return increase(select(name, {**MODEL_AND_CLASS, **(where or {})}, regex=True), _RANGE)
