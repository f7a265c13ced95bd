"""The dashboard "Workload": request sizes, failures by size, classes, repeated prompts and tenants."""

from grafana_foundation_sdk.builders import heatmap, stat, table, timeseries
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import HeatmapCellLayout

from alerts.links import DashboardUid
from alerts.plan import STEP, Plan
from alerts.promql.build import aggregate, call, in_window, over
from dashboards.boards.board import Board
from dashboards.grafana import style, tables
from dashboards.grafana.layout import Row
from dashboards.grafana.style import BLUE, GREY, PINK, query
from dashboards.panels import mix, traffic
from dashboards.queries.rates import RANGE, increase_by, rate_by, ratio_by
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label


def rows(plan: Plan) -> tuple[Row, ...]:
    spec = plan.spec
    return (
        Row("Request sizes", (mix.sizes(), mix.failures_by_size())),
        Row("Failures by length", (failure_ratio_by_length().span(24),)),
        Row(
            "Lengths over time",
            (mix.prompt_heatmap().span(12), mix.completion_heatmap().span(12)),
            is_collapsed=True,
        ),
        Row("Load by class", (mix.class_mix(plan), mix.prompt_tokens(spec), traffic.tokens(spec))),
        Row("Routes", (requests_by_route(), outcomes_by_route())),
        Row("Cost", (cost_per_million(), cost_in_range())),
        Row("Reasoning", (mix.reasoning_share(spec), mix.reasoning_tokens(spec)), is_collapsed=True),
        Row(
            "Response cache",
            (
                mix.repeats_in_range(),
                mix.unique_prompts(),
                mix.repeats(spec),
                mix.tokens_saved(spec),
            ),
            is_collapsed=True,
        ),
        Row("Structured output checks", (mix.structured_output(), mix.valid_output()), is_collapsed=True),
        Row(
            "Tenants",
            (mix.requests_by_tenant(), mix.tokens_by_tenant(), mix.goodput_by_tenant(spec)),
        ),
    )


def failure_ratio_by_length() -> heatmap.Panel:
    """A series per row: a heatmap of Prometheus's cumulative buckets cannot show a ratio."""
    text = (
        "Share of the requests with prompts of that length that ended with another outcome than ok, of the selected "
        "classes. A row is the upper bound in tokens. A band that begins at a length is a limit of length, such as the "
        "context of the model. Open requests, and those whose length is unknown, are not in it. Good: no cell, as "
        "cells without failures are empty. From the sidecars' counters."
    )
    # failures and requests are extrapolated apart
    failed = call("clamp_max", ratio_by(signals.FAILED_BY_LENGTH, signals.REQUESTS_BY_LENGTH, Label.PROMPT_LENGTH), 1)
    panel = style.heatmap_panel(
        *("Failure ratio by prompt length", text, units.NoUnit, units.PercentUnit, 24),
        may_be_empty="no request has failed",
    ).with_target(query(failed, "{{prompt_length}}"))
    # the zeros before a number only sort the series
    panel.with_transformation(
        model.DataTransformerConfig("renameByRegex", options={"regex": "^0+(\\d)", "renamePattern": "$1"})
    )
    # the bound is at the upper edge of its cells
    return panel.rows_frame(heatmap.RowsHeatmapOptions().layout(HeatmapCellLayout.LE))


def requests_by_route() -> timeseries.Panel:
    text = (
        "Requests that end per second, by route. Routes that are not measured, such as models, have the class "
        "other. Open requests are not in it. Good: as usual. From the sidecars' counters."
    )
    line = (rate_by(signals.REQUESTS, Label.ROUTE), "{{route}}")
    panel = style.time_series_panel("Requests by route", text, units.RequestsPerSecond, 8, line)
    return style.hide_zero_series(style.stack(style.limit_points(panel)))


def outcomes_by_route() -> table.Panel:
    text = (
        "Requests that ended in the time range: a row per outcome, a column per route. Open requests are not in "
        "it. Good: nearly all are ok. From the sidecars' counters."
    )
    panel = style.table_panel("Outcomes by route in range", text, style.COUNT, 16).min_width(150).decimals(0)
    ended = call("round", increase_by(signals.REQUESTS, Label.ROUTE, Label.OUTCOME)) > 0
    return tables.pivot(panel, ended, Label.OUTCOME, Label.ROUTE)


_GPUS, _IDLE, _API = "GPUs", "of which idle", "API"
_WITH_FLAGS = "costs are recorded only with the flags --gpu-hour-price and --api-price of vllm-slo alerts render"


def cost_per_million() -> timeseries.Panel:
    text = (
        "Cost of the GPUs per million output tokens, idle time included, and what an API would charge for the same "
        "input, cached and output tokens (dotted), each over the two windows of the rules, in the currency of the "
        "prices, on a logarithmic scale. All models and classes; aborted requests without usage are not counted. Good: "
        "GPUs below API. From the recording rules."
    )
    lines = (
        (signals.COST_PER_MILLION, f"{_GPUS} {{{{window}}}}"),
        (signals.COST_API_PER_MILLION, f"{_API} {{{{window}}}}"),
    )
    title = "Cost per million output tokens"
    # a window without much load costs hundreds of times as much per token
    panel = style.time_series_panel(title, text, style.CURRENCY, 16, *lines, signed=True, may_be_empty=_WITH_FLAGS)
    return style.logarithmic(panel).decimals(2).override_by_regexp(f"/^{_API} /", style.DOTTED)


def cost_in_range() -> stat.Panel:
    text = (
        "Cost of the GPUs in the time range, the part in steps without output tokens, and what an API would charge for "
        "the same tokens, in the currency of the prices. Good: GPUs below API, and little idle. From the recording "
        "rules."
    )
    totals = (
        (aggregate("sum", over("sum_over_time", in_window(series, STEP), RANGE)), name, colour)
        for name, series, colour in (
            (_GPUS, signals.COST_IN, BLUE),
            (_IDLE, signals.COST_IDLE_IN, GREY),
            (_API, signals.COST_API_IN, PINK),
        )
    )
    panel = style.stat_panel(
        *("Cost in range", text, style.CURRENCY, 8, 9),
        *totals,
        may_be_empty=_WITH_FLAGS,
        decimals=2,
    )
    return style.below_each_other(panel)


BOARD = Board(
    uid=DashboardUid.WORKLOAD,
    title="Workload",
    description="Lengths and outcomes, class mix, repeats and tenants.",
    rows=rows,
)
