"""Panels on the cost of the GPUs, beside the price of an API for the same tokens."""

from grafana_foundation_sdk.builders import stat, timeseries
from grafana_foundation_sdk.models import common as common_model

from alerts.plan import STEP
from alerts.promql.build import aggregate, in_window, over
from dashboards.grafana import style
from dashboards.grafana.style import BLUE, GREY, PINK
from dashboards.queries.rates import RANGE
from exporters.vocabulary import signals

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
    # one below the other, as three values side by side have different sizes
    return panel.orientation(common_model.VizOrientation.HORIZONTAL)
