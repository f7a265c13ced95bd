"""Twelve totals over the time range by class; the demo compares them with the request log."""

from collections.abc import Mapping

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.models import units

from alerts.promql.build import Series, call, increase, ratio, regex, select
from alerts.promql.expression import Expression
from dashboards.grafana import style, tables
from dashboards.grafana.tables import ValueColumn
from dashboards.panels.first_tokens import first_token_buckets
from dashboards.panels.traffic import arrivals_in_range
from dashboards.queries.rates import NOT_OK, RANGE, increase_by
from dashboards.windows.slo import class_order
from exporters.text.units import number
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Outcome, Signal

_SOURCE = "From the sidecars' counters; the request log has the same numbers."
_DECIMALS = {style.COUNT: 0, units.PercentUnit: 1}


def range_total_queries() -> dict[str, Expression]:
    """Instant queries with one value per class; a load generator can also count the first six.

    They contain `$__range`: expand it with `dashboards.live.interpolation.expand`.
    """
    ok, failed = (select(signals.REQUESTS, regex(Label.OUTCOME, outcomes)) for outcomes in (Outcome.OK, NOT_OK))
    return {
        "offered": arrivals_in_range(),
        "ok": _total(ok),
        "goodput": ratio(_total(signals.GOODPUT_REQUESTS), _total(signals.GOODPUT_EVENTS)),
        "ttft_p50": call("histogram_quantile", 0.5, first_token_buckets(increase, RANGE)),
        "tokens_out": _total(signals.COMPLETION_TOKENS),
        "cached_tokens": _total(signals.CACHED_TOKENS),
        "failed": _total(failed),
        "bad_events": _total(signals.SLO_BAD),
        "prompt_tokens": _total(signals.PROMPT_TOKENS),
        "tpot_mean": _mean_query(signals.TPOT),
        "e2e_mean": _mean_query(signals.DURATION),
        "queue_mean": _mean_query(signals.QUEUE),
    }


def range_totals() -> table.Panel:
    """Counts of `range_total_queries`, a row per class."""
    text = (
        "Requests, bad events and cached prompt tokens in the time range: a row per class with requests. Offered: "
        "requests that arrived. OK: ended with outcome ok; not OK: ended otherwise, also by clients. Goodput: share of "
        f"judged requests that were good for all their SLOs. Good: few requests are not OK. {_SOURCE}"
    )
    titles = {
        "offered": ("Offered", style.COUNT),
        "ok": ("OK", style.COUNT),
        "failed": ("Not OK", style.COUNT),
        "goodput": ("Goodput", units.PercentUnit),
        "bad_events": ("Bad events", style.COUNT),
        "cached_tokens": ("Cached tokens", style.COUNT),
    }
    # offered, OK and not OK
    return tables.hide_zero_rows(_totals("Totals in range", text, titles), 3)


def range_means() -> table.Panel:
    """Tokens and latencies of `range_total_queries`, a row per class."""
    text = (
        "Tokens and latencies in the time range. TTFT p50: median of streams; one that ended without a first token is "
        f"slower than any, and at {number(max(signals.TTFT.bounds))} s half had none. E2E: mean of OK requests. Queue: "
        "mean of requests whose engine times are known. A latency excludes all other requests. Good: as usual. "
        f"{_SOURCE}"
    )
    titles = {
        "prompt_tokens": ("Tokens in", style.COUNT),
        "tokens_out": ("Tokens out", style.COUNT),
        "ttft_p50": ("TTFT p50", style.SECONDS),
        "tpot_mean": ("TPOT mean", style.SECONDS),
        "e2e_mean": ("E2E mean", style.SECONDS),
        "queue_mean": ("Queue mean", style.SECONDS),
    }
    return tables.hide_zero_rows(_totals("Tokens and latencies in range", text, titles), 3)


def _totals(title: str, text: str, titles: Mapping[str, tuple[str, str]]) -> table.Panel:
    queries = range_total_queries()
    columns = [
        ValueColumn(title, queries[name], unit, decimals=_DECIMALS.get(unit)) for name, (title, unit) in titles.items()
    ]
    panel = style.table_panel(title, text, style.COUNT, 24, 7).min_width(90)
    return tables.join_queries(panel, {Label.CLASS: "Class"}, columns, order_by=class_order())


def _total(counter: Expression | Series) -> Expression:
    return increase_by(counter, Label.CLASS)


def _mean_query(histogram: Signal) -> Expression:
    return ratio(_total(select(histogram.sum)), _total(select(histogram.count)))
