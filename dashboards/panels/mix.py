"""Panels on the mix of requests: sizes, failures by size, classes, repeated prompts, tenants."""

from collections.abc import Iterable

from grafana_foundation_sdk.builders import bargauge, heatmap, stat, table, timeseries
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from alerts.links import PanelTitle
from alerts.plan import Plan
from alerts.promql.build import aggregate, on, ratio, regex, select, sum_by
from alerts.promql.expression import Expression
from dashboards.grafana import style
from dashboards.grafana.ranking import highest_first, lowest_first
from dashboards.grafana.style import BLUE, NO_TRAFFIC, query
from dashboards.grafana.tables import to_matrix, transform
from dashboards.panels.latency import distribution_panel
from dashboards.panels.slo_status import goodput_limits
from dashboards.queries.rates import NOT_OK, PER_CLASS, increase_by, rate_by, ratio_by
from exporters.text.units import spell_duration
from exporters.vocabulary import signals
from exporters.vocabulary.signals import NO_TOKENS, SIZE_BOUNDS, SIZES, Label, OutputResult
from exporters.vocabulary.slo_file import SloFile

_SIZES = {
    **{size: f"to {bound}" for size, bound in zip(SIZES, SIZE_BOUNDS, strict=False)},
    SIZES[-1]: f"over {SIZE_BOUNDS[-1]}",
    NO_TOKENS: "no token",
}
_PER_TENANT = "{{tenant}}"
_NONE = "·"
"""The text of a cell without requests."""

_NOT_CHECKED = "the sidecar runs without --check-structured-output, or no answer has to be JSON"
_NOTHING_CHECKED = "no answer was checked"
_REPEATED = ratio_by(signals.BODY_REPEATS, signals.REQUESTS, Label.CLASS)
"""The share of requests whose body repeats an earlier one."""

_SHARE_STEPS, _FAILURE_STEPS = (
    tuple(zip((1e-9, 0.01, 0.05, 0.2), ramp, strict=True)) for ramp in (style.BLUES, style.REDS)
)


def sizes() -> table.Panel:
    text = (
        "Share of requests that ended in the time range, by tokens of prompt (across) and of completion (down), of "
        "all classes, because the series has no class. Failed requests are included with the tokens they got, most "
        "with none. The prompt of a request without usage is estimated from its text. Good: as usual. From the "
        "sidecars' counters."
    )
    by_size = increase_by(signals.REQUESTS_BY_SIZE, Label.PROMPT_SIZE, Label.COMPLETION_SIZE)
    return _matrix(
        "Prompt and completion in range",
        text,
        by_size.binary("/", increase_by(signals.REQUESTS_BY_SIZE) > 0, on(left=())),
        (Label.COMPLETION_SIZE, "completion ↓", 110),
        _SHARE_STEPS,
    )


def failures_by_size() -> table.Panel:
    text = (
        "Share of the requests with prompts of that length (across) that ended with each outcome other than ok, of "
        "all classes, because the series has no class. A row that becomes stronger to the right is a limit of length. "
        "Good: no coloured cell. From the sidecars' counters."
    )
    requests = signals.REQUESTS_BY_SIZE
    failed = increase_by(select(requests, regex(Label.OUTCOME, NOT_OK)), Label.PROMPT_SIZE, Label.OUTCOME)
    return _matrix(
        "Failures by prompt length in range",
        text,
        failed.binary("/", increase_by(requests, Label.PROMPT_SIZE) > 0, on(Label.PROMPT_SIZE, left=())),
        (Label.OUTCOME, "outcome ↓", 175),
        _FAILURE_STEPS,
        may_be_empty="no request has failed",
    )


def prompt_heatmap() -> heatmap.Panel:
    text = (
        "Requests that end per second, by their prompt tokens as usage reports them. Good: as usual. From the "
        "sidecars' histograms."
    )
    return distribution_panel(
        "Prompt tokens", text, signals.REQUEST_PROMPT_TOKENS, units.NoUnit, units.RequestsPerSecond
    )


def completion_heatmap() -> heatmap.Panel:
    text = (
        "Requests that end per second, by their completion tokens, without those that have none. Good: as usual. From "
        "the sidecars' histograms."
    )
    return distribution_panel(
        "Completion tokens", text, signals.REQUEST_COMPLETION_TOKENS, units.NoUnit, units.RequestsPerSecond
    )


def class_mix(plan: Plan) -> timeseries.Panel:
    text = (
        f"Share of ended requests by class, over {spell_duration(plan.lookback)}. Good: as usual. Gaps are "
        f"{NO_TRAFFIC}. From the recording rules."
    )
    # recorded in one window
    of_class, of_all = sum_by(signals.REQUESTS_IN, [Label.CLASS]), aggregate("sum", signals.REQUESTS_IN)
    line = (of_class.binary("/", of_all > 0, on(left=())), PER_CLASS)
    panel = style.ratio_panel("Class mix", text, 8, line)
    return style.colour_by_class(style.stack(panel), plan.spec)


def prompt_tokens(spec: SloFile) -> timeseries.Panel:
    text = (
        "Prompt tokens per second of requests that end, cached ones included, by class. Good: as usual. From the "
        "sidecars' counters."
    )
    line = (rate_by(signals.PROMPT_TOKENS, Label.CLASS), PER_CLASS)
    panel = style.time_series_panel("Throughput: prompt tokens", text, "tokens/s", 8, line)
    return style.colour_by_class(style.stack(panel), spec)


def reasoning_share(spec: SloFile) -> timeseries.Panel:
    text = (
        "Share of the completion tokens of requests that end that are reasoning, by class. An engine that reports no "
        "reasoning tokens counts as 0 %. Good: as usual. From the sidecars' counters."
    )
    share = ratio_by(signals.REASONING_TOKENS, signals.COMPLETION_TOKENS, Label.CLASS)
    panel = style.ratio_panel("Reasoning tokens: share", text, 12, (share, PER_CLASS))
    return style.colour_by_class(panel, spec)


def reasoning_tokens(spec: SloFile) -> timeseries.Panel:
    text = "Reasoning tokens per second of requests that end, by class. Good: as usual. From the sidecars' counters."
    line = (rate_by(signals.REASONING_TOKENS, Label.CLASS), PER_CLASS)
    panel = style.time_series_panel("Throughput: reasoning tokens", text, "tokens/s", 12, line)
    return style.colour_by_class(style.stack(panel), spec)


def repeats_in_range() -> stat.Panel:
    text = (
        "Share of requests in the time range whose body equals an earlier one, with its images and sampling "
        "parameters, apart from stream, stream_options, user and metadata: the upper limit of what a response cache "
        "answers. Good: low, otherwise a response cache may save work. From the sidecars' counters."
    )
    share = ratio(increase_by(signals.BODY_REPEATS), increase_by(signals.REQUESTS))
    value = (share, "of requests")
    return style.stat_panel("Repeats in range", text, units.PercentUnit, 5, 9, value, decimals=1)


def unique_prompts() -> stat.Panel:
    text = (
        "Different prompts since the start of the sidecar, of all classes, with an error of about 2 %: the size of a "
        "response cache. Several sidecars that saw the same prompt count it twice. Good: fewer than the cache holds. "
        "From the sidecars' metrics."
    )
    panel = style.stat_panel("Different prompts", text, style.COUNT, 5, 9, decimals=0)
    return highest_first(panel, (sum_by(signals.UNIQUE_PROMPTS, [Label.MODEL]), "{{model}}"))


def repeats(spec: SloFile) -> timeseries.Panel:
    text = (
        "Share of ended requests whose body repeats an earlier one, by class. Good: low, otherwise a response cache "
        f"may save work. Gaps are {NO_TRAFFIC}. From the sidecars' counters."
    )
    panel = style.ratio_panel("Repeated requests", text, 7, (_REPEATED, PER_CLASS))
    return style.colour_by_class(style.limit_points(panel), spec)


def tokens_saved(spec: SloFile) -> timeseries.Panel:
    text = (
        "Prompt and completion tokens per second of the class times its share of repeated requests: an estimate, "
        "because the tokens of repeats are not counted separately. A prefix cache saves the prompt tokens of repeats "
        "already. Good: low, otherwise a response cache may save work. From the sidecars' counters."
    )
    tokens = rate_by(signals.PROMPT_TOKENS, Label.CLASS) + rate_by(signals.COMPLETION_TOKENS, Label.CLASS)
    line = (_REPEATED * tokens, PER_CLASS)
    panel = style.time_series_panel("Possible response cache savings", text, "tokens/s", 7, line)
    return style.colour_by_class(style.stack(style.limit_points(panel)), spec)


def structured_output() -> timeseries.Panel:
    text = (
        "Responses per second that are to be JSON, by kind and result. json and json_schema: the request asks for "
        "JSON; tool_call: the response calls a tool. truncated: the response reached the limit of tokens. Good: all "
        "are valid. From the sidecars' counters."
    )
    panel = style.time_series_panel(
        *("Structured output", text, units.RequestsPerSecond, 12),
        (rate_by(signals.STRUCTURED_REQUESTS, Label.KIND, Label.RESULT), "{{kind}}: {{result}}"),
        may_be_empty=_NOT_CHECKED,
    )
    return style.stack(panel)


def valid_output() -> timeseries.Panel:
    text = (
        "Share of valid responses among the valid and the invalid ones, by kind. An SLO with the signal valid_output "
        f"counts the same responses, and those that failed. In a gap, {_NOTHING_CHECKED}. Good: close to 100 %. From "
        "the sidecars' counters."
    )
    valid, judged = (
        rate_by(select(signals.STRUCTURED_REQUESTS, regex(Label.RESULT, results)), Label.KIND)
        for results in (OutputResult.VALID, f"{OutputResult.VALID}|{OutputResult.INVALID}")
    )
    line = (ratio(valid, judged), "{{kind}}")
    return style.ratio_panel("Valid structured output", text, 12, line, may_be_empty=_NOT_CHECKED)


def requests_by_tenant() -> bargauge.Panel:
    text = (
        "Requests that ended in the time range, by tenant; tenants that the SLO file does not name are together in "
        "other. Good: as agreed with each tenant. From the sidecars' counters."
    )
    return _tenant_bars("Requests by tenant in range", text, increase_by(signals.REQUESTS, Label.TENANT))


def tokens_by_tenant() -> bargauge.Panel:
    text = (
        "Prompt and completion tokens of requests that ended in the time range, by tenant. Good: as agreed with each "
        "tenant. From the sidecars' counters."
    )
    prompt, completion = signals.PROMPT_TOKENS, signals.COMPLETION_TOKENS
    tokens = increase_by(prompt, Label.TENANT) + increase_by(completion, Label.TENANT)
    return _tenant_bars("Tokens by tenant in range", text, tokens)


def goodput_by_tenant(spec: SloFile) -> bargauge.Panel:
    text = (
        "Share of judged requests in the time range that were good for all their SLOs, by tenant. Good: at or above "
        "the lowest objective (green); vermilion is below the objective minus its budget. From the sidecars' "
        "counters."
    )
    good, judged = (
        increase_by(counter, Label.TENANT) for counter in (signals.GOODPUT_REQUESTS, signals.GOODPUT_EVENTS)
    )
    panel = style.ratio_bars_panel(PanelTitle.GOODPUT_BY_TENANT, text, 8, *goodput_limits(spec))
    return lowest_first(panel, (ratio(good, judged), _PER_TENANT))


def _tenant_bars(title: str, text: str, counts: Expression) -> bargauge.Panel:
    """Counts by tenant, all in one colour."""
    panel = style.bar_gauge_panel(title, text, style.COUNT, 8)
    return highest_first(panel.decimals(0).thresholds(style.thresholds(BLUE)), (counts, _PER_TENANT))


def _matrix(
    title: str,
    text: str,
    expression: Expression,
    rows: tuple[Label, str, int],
    steps: Iterable[tuple[float, str]],
    may_be_empty: str = "",
) -> table.Panel:
    """Shares in coloured cells: a column per prompt size, a row per value of a label.

    `rows` is this label, its heading, and its width. Grafana has no panel type for two axes other than time. Columns
    and rows have the order in which they first appear, so both are sorted first.
    """
    row, corner, width = rows
    column = Label.PROMPT_SIZE
    coloured_cells = common_model.TableColoredBackgroundCellOptions(common_model.TableCellBackgroundDisplayMode.BASIC)
    texts = {"0": _NONE, **_SIZES}
    row_titles = {"custom.cellOptions": {"type": "auto"}, "custom.align": "left", "custom.width": width}
    panel = (
        style.table_panel(title, text, units.PercentUnit, 12, 10, may_be_empty=may_be_empty)
        .min_width(75)
        .align(common_model.FieldTextAlignment.CENTER)
        .cell_options(coloured_cells)
        .thresholds(style.thresholds("transparent", *steps))
        .color_scheme(style.colour_mode(model.FieldColorModeId.THRESHOLDS))
        .mappings(
            [
                model.ValueMap({value: model.ValueMappingResult(text) for value, text in texts.items()}),
                # the colour is that of the cell, not of its text
                style.absence(_NONE, colour="transparent"),
            ]
        )
        .decimals(1)
        .override_by_name(corner, [model.DynamicConfigValue(name, value) for name, value in row_titles.items()])
        .with_target(query(expression, f"{{{{{column}}}}}", instant=True).format(PromQueryFormat.TABLE))
    )
    for label in (row, column):
        transform(panel, "sortBy", sort=[{"field": str(label)}])
    to_matrix(panel, row, column, "Value")
    names = {f"{row}\\{column}": corner, **{size: _SIZES[size] for size in SIZES}}
    return transform(panel, "organize", renameByName=names)
