"""The dashboard "Engines without a sidecar": what vLLM alone counts, and a list of what it does not.

It reads what the rules with `source: engine` record, and the latency histograms of vLLM themselves.
"""

from collections.abc import Iterator

from grafana_foundation_sdk.builders import stat, text, timeseries
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.text import TextMode

from alerts.engine_only import ALL_REQUESTS, version
from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql.build import aggregate, call, equal, max_by, regex, select
from alerts.promql.expression import Variable
from dashboards.boards import gpu_row
from dashboards.boards.board import Board
from dashboards.grafana import style
from dashboards.grafana.layout import Row
from dashboards.grafana.style import BAD, NO_TRAFFIC
from dashboards.panels import slo_status
from dashboards.panels.engine_load import OfRanks, kv_cache_now, requests_now, restarts
from dashboards.panels.latency import QUANTILE, quantile_variable, thresholds_of
from dashboards.queries.rates import rate_by, ratio_by
from dashboards.windows.slo import burn_window_variable, in_shortest_window
from exporters.engines.vllm_buckets import family_of
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Signal
from exporters.vocabulary.slo_file import Measure, Source

_OF_RANKS = OfRanks(
    (Label.ENGINE, Label.RANK), "{{engine}}/{{rank}}", missing_queue="some releases of vLLM do not expose it"
)
_REQUESTS_NOW = "Requests that run and wait in all engines. Good: few wait. From the engines' metrics."
_COARSE = "The lowest bound of vLLM is 0.3 s: a value below it is interpolated, not measured."
_LATENCIES: tuple[tuple[str, str, Signal, Measure | None], ...] = (
    (
        "Time to first token",
        "Time from arrival at vLLM's API server to the first token. Not in it: requests without a first token",
        signals.ENGINE_TTFT,
        Measure.TTFT,
    ),
    (
        "E2E latency",
        f"Time from arrival at vLLM's API server to the end. {_COARSE} Not in it: open and aborted requests",
        signals.ENGINE_DURATION,
        Measure.E2E,
    ),
    (
        "Time per output token",
        (
            "Mean time per output token of each request, counted when it ends. Not in it: open and aborted requests. A "
            "completion of one token counts as 0"
        ),
        signals.ENGINE_TPOT,
        Measure.TPOT,
    ),
    (
        "Inter-token latency",
        (
            "Time between outputs of all requests together, each with one or more tokens. Not in it: waits for a first "
            "token"
        ),
        signals.ENGINE_INTER_TOKEN,
        None,
    ),
    (
        "Queue time",
        (
            f"Time from arrival in the queue until a request is scheduled. {_COARSE} Not in it: requests that still "
            "wait, and aborted ones"
        ),
        signals.ENGINE_QUEUE,
        Measure.QUEUE,
    ),
    (
        "Prefill time",
        f"Time from first scheduled to first token. {_COARSE} Not in it: open and aborted requests",
        signals.ENGINE_PREFILL,
        Measure.PREFILL,
    ),
    (
        "Decode time",
        f"Time from first to last token. {_COARSE} Not in it: open and aborted requests",
        signals.ENGINE_DECODE,
        Measure.DECODE,
    ),
)
_UNKNOWN = (
    (
        "Requests that were rejected, aborted, cut by a timeout or never answered",
        (
            "vLLM counts requests that finish. They burn no error budget, not even in an outage: `LLMEngineDown` and "
            "`LLMEngineWedged` page for it"
        ),
    ),
    (
        "Classes, tenants and routes",
        f"vLLM counts all requests of a model together; their class is `{ALL_REQUESTS}`",
    ),
    (
        "Requests that were good for all SLOs",
        "vLLM has no verdict per request, so *Good for all SLOs* is a range",
    ),
    (
        "What clients saw: network, front end, stalls of a stream, the oldest wait",
        "the times of vLLM begin at its API server and end at its output",
    ),
    (
        "Cached tokens and lengths of single requests",
        "vLLM counts their sums: *Prefix cache hits*, *Prompt tokens*, *Output tokens*",
    ),
    ("Config changes, settings and the version of the engine", "they are compared and stored by the sidecar"),
    ("The worst requests", "without a sidecar there is no request log and no trace with a verdict"),
)


def rows(plan: Plan) -> tuple[Row, ...]:
    return (
        Row(
            "Status",
            (
                slo_status.slo_status(plan),
                up(),
                requests_now(_REQUESTS_NOW),
                kv_cache_now("KV cache in use", 5, [Label.ENGINE]),
                restarts([Label.ENGINE], BAD),
                good_range(plan),
            ),
        ),
        Row("Burn rate and alerts", (slo_status.burn_rate(plan), slo_status.firing_alerts(plan))),
        Row("Latency", latencies(plan)),
        Row("Requests and tokens", (ended_requests(), output_tokens(), prompt_tokens())),
        Row(
            "Queue and cache",
            (
                bad_by_engine(),
                *(_OF_RANKS.running(), _OF_RANKS.waiting(), _OF_RANKS.kv_cache()),
                *(_OF_RANKS.prefix_cache(), _OF_RANKS.preemptions()),
            ),
        ),
        gpu_row.row(),
        Row("Not known without a sidecar", (unknown(plan),)),
    )


def up() -> stat.Panel:
    description = (
        "Number of engines whose last scrape by Prometheus succeeded (up), and of the others. Good: none is down. From "
        "the recording rules."
    )
    engines = max_by(signals.ENGINE_UP, [Label.ENGINE])
    return style.yes_and_no(PanelTitle.ENGINE, description, engines, ("up", "down"), 5, 5)


def good_range(plan: Plan) -> stat.Panel:
    description = (
        "Share of the requests that met all SLOs, between two bounds, of the worst model in the shortest window of the "
        "rules. vLLM counts how many requests met each SLO, not how many met all. Good: both at or above the lowest "
        "objective. From the recording rules."
    )
    bounds = (
        (aggregate("min", in_shortest_window(series)), legend)
        for series, legend in ((signals.GOODPUT_AT_LEAST, "at least"), (signals.GOODPUT_AT_MOST, "at most"))
    )
    return style.stat_panel(
        *("Good for all SLOs", description, units.PercentUnit, 5, 5),
        *bounds,
        decimals=1,
        base=BAD,
        steps=slo_status.goodput_limits(plan.spec),
    )


def latencies(plan: Plan) -> tuple[timeseries.Panel, ...]:
    """One panel per histogram that this release has: the first four fill two lines, the others one."""
    release = version(plan.spec)
    *of_requests, queue, prefill, decode = (
        _latency(plan, title, meaning, family.name, measure)
        for title, meaning, signal, measure in _LATENCIES
        if (family := family_of(signal, release))
    )
    if len(of_requests) % 2:
        of_requests[-1].span(24)
    return (*of_requests, *(panel.span(8) for panel in (queue, prefill, decode)))


def _latency(plan: Plan, title: str, meaning: str, histogram: str, measure: Measure | None) -> timeseries.Panel:
    # Prometheus 2 receives `vllm_` from newer clients of Python
    buckets = select(
        "",
        regex("__name__", f"{histogram.replace(':', '[:_]')}_bucket"),
        equal(Label.JOB, plan.spec.engine.job),
        regex("model_name", f"${Label.MODEL}"),
        regex(Label.INSTANCE, f"${Label.INSTANCE}"),
    )
    # without observations it is NaN
    line = call("histogram_quantile", Variable(QUANTILE), rate_by(buckets, "model_name", "le")) >= 0
    description = (
        f"{meaning}. The line of a model is the quantile of the variable Quantile. Good: below the dashed line, the "
        f"bound at which the SLO is counted, if it has one. From the histograms of vLLM {version(plan.spec)}."
    )
    panel = style.time_series_panel(
        *(title, description, style.SECONDS, 12), (line, "{{model_name}}"), signed=True, may_be_empty="no request ended"
    )
    lines = ((seconds, BAD) for seconds in thresholds_of(plan.spec, measure))
    return style.with_threshold_lines(style.logarithmic(style.limit_points(panel)), *lines)


def ended_requests() -> timeseries.Panel:
    description = (
        "Requests that ended, per second, by outcome, as far as vLLM counts them: most releases count no aborted ones. "
        "Good: only ok. From the engines' metrics."
    )
    line = (rate_by(signals.REQUESTS, Label.OUTCOME), "{{outcome}}")
    panel = style.time_series_panel("Requests that ended", description, units.RequestsPerSecond, 8, line)
    return style.hide_zero_series(style.colour_by_name(panel, style.OUTCOME_COLOURS))


def output_tokens() -> timeseries.Panel:
    description = "Output tokens per second of each engine. Good: stable under load. From the engines' metrics."
    line = (rate_by(signals.ENGINE_GENERATION_TOKENS, Label.ENGINE), "{{engine}}")
    return style.time_series_panel(PanelTitle.ENGINE_OUTPUT_TOKENS, description, "tokens/s", 8, line)


def prompt_tokens() -> timeseries.Panel:
    description = (
        "Prompt tokens per second of each engine, cached ones included. Good: as usual for the time of day. From the "
        "engines' metrics."
    )
    line = (rate_by(signals.ENGINE_PROMPT_TOKENS, Label.ENGINE), "{{engine}}")
    return style.time_series_panel("Prompt tokens", description, "tokens/s", 8, line)


def bad_by_engine() -> timeseries.Panel:
    description = (
        "Share of bad SLO events of each engine and SLO. Good: the same for all engines, and below the error budget. "
        f"Gaps are {NO_TRAFFIC}. From the recording rules."
    )
    line = (ratio_by(signals.SLO_BAD, signals.SLO_EVENTS, Label.INSTANCE, Label.SLO), "{{instance}} {{slo}}")
    return style.ratio_panel(PanelTitle.BAD_BY_ENGINE, description, 8, line)


def unknown(plan: Plan) -> text.Panel:
    """A table of what is missing; after it, the SLOs of the file that vLLM does not count as written."""
    table = "\n".join(f"| {what} | {why} |" for what, why in _UNKNOWN)
    content = f"| Not shown here | Reason |\n|---|---|\n{table}\n\n{''.join(_slo_notes(plan))}"
    panel = text.Panel().title("Needs the sidecar").mode(TextMode.MARKDOWN).content(content)
    return panel.span(24).height(11)


def _slo_notes(plan: Plan) -> Iterator[str]:
    for left_out in plan.unsupported:
        yield f"- SLO *{left_out.slo.name}*: {left_out.note}.\n"
    for counted in plan.supported:
        if counted.is_adjusted:
            yield f"- SLO *{counted.slo.name}*: {counted.note}.\n"


BOARD = Board(
    uid=DashboardUid.ENGINE_ONLY,
    title="Engines without a sidecar",
    description="What vLLM alone counts: SLOs, latencies, queue, cache. The last row lists what only a sidecar knows.",
    own_variables=lambda _: (burn_window_variable(), quantile_variable()),
    source=Source.ENGINE,
    rows=rows,
)
