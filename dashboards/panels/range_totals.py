"""Twelve totals over the time range by class; the demo compares them with the request log."""

from grafana_foundation_sdk.builders import stat
from grafana_foundation_sdk.models import units

from alerts.promql import ratio, sum_by
from dashboards import style
from dashboards.label_selectors import NOT_OK, RANGE, increase_in_range, select_model_class
from dashboards.style import NO_TRAFFIC, query
from exporters import signals
from exporters.signals import Label, Outcome, Signal


def range_total_queries() -> dict[str, str]:
    """Instant queries with one value per class; a load generator can also count the first six.

    They contain `$__range`, `$model` and `$class`: expand these with `dashboards.interpolation.expand`.
    """
    buckets = increase_in_range(signals.TTFT.bucket, [Label.CLASS, "le"])
    good, judged = increase_in_range(signals.GOODPUT_REQUESTS), increase_in_range(signals.GOODPUT_EVENTS)
    return {
        "offered": _offered(),
        "ok": increase_in_range(signals.REQUESTS, where={Label.OUTCOME: Outcome.OK}),
        "goodput": ratio(good, judged),
        "ttft_p50": f"histogram_quantile(0.5, {buckets})",
        "tokens_out": increase_in_range(signals.COMPLETION_TOKENS),
        "cached_tokens": increase_in_range(signals.CACHED_TOKENS),
        "failed": increase_in_range(signals.REQUESTS, where={Label.OUTCOME: NOT_OK}),
        "bad_events": increase_in_range(signals.SLO_BAD),
        "prompt_tokens": increase_in_range(signals.PROMPT_TOKENS),
        "tpot_mean": _mean_query(signals.TPOT),
        "e2e_mean": _mean_query(signals.DURATION),
        "queue_mean": _mean_query(signals.QUEUE),
    }


def range_total_panels() -> tuple[stat.Panel, ...]:
    """One panel per total, in the order of `range_total_queries`."""
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
    in_flight = select_model_class(signals.IN_FLIGHT)
    now, before = sum_by(in_flight, [Label.CLASS]), sum_by(f"{in_flight} offset {RANGE}", [Label.CLASS])
    # a sidecar that started within the range had no requests in flight before
    return f"{increase_in_range(signals.REQUESTS)} + {now} - ({before} or 0 * {now})"


def _mean_query(histogram: Signal) -> str:
    return ratio(increase_in_range(histogram.sum), increase_in_range(histogram.count))
