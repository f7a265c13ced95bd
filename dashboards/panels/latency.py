"""Panels on latency: as clients see it, by stage, and as the engine reports it."""

from grafana_foundation_sdk.builders import dashboard, heatmap, timeseries
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from alerts.promql.build import call, not_equal, on, regex, select
from alerts.promql.expression import Expression, Variable
from dashboards.grafana import style
from dashboards.grafana.layout import Variable as BoardVariable
from dashboards.grafana.layout import hidden_variable
from dashboards.grafana.style import BAD, BLUE, GREY, PINK, SKY, VIOLET, query
from dashboards.queries.rates import PER_CLASS, increase_by, mean, rate_by, ratio_by
from exporters.vocabulary import signals
from exporters.vocabulary.signals import OTHER, Label, Signal
from exporters.vocabulary.slo_file import Latency, Measure, SloFile

_NO_ENGINE_TIMES = (
    "no request has finished, or the engine reports no times: vLLM does with --enable-per-request-metrics or with spans"
)
_NO_TIMES = "requests whose engine times are unknown, see Engine time coverage"
_NOT_IN = {
    signals.TTFT: "unary requests, and streams that still wait or ended without a token, see Oldest wait",
    signals.TTFT_ANSWER: "unary requests, open streams, and those that ended before the answer",
    signals.TPOT: "unary requests, open streams, and those with one token or without usage, as aborted ones",
    signals.INTER_CHUNK: "unary requests and open streams",
    signals.DURATION: "open, aborted and failed requests, see Completion rate",
    signals.FRONTEND: f"unary requests, and {_NO_TIMES}",
    signals.QUEUE: _NO_TIMES,
    signals.PREFILL: _NO_TIMES,
    signals.DECODE: _NO_TIMES,
}
_STAGES = (
    (
        "front end",
        signals.FRONTEND,
        None,
        "from the end of the upload to the first token, without queue and prefill; streams only",
    ),
    ("queue", signals.QUEUE, Measure.QUEUE, "from arrival at the engine until it is scheduled"),
    ("prefill", signals.PREFILL, Measure.PREFILL, "from scheduled to the first token"),
    ("decode", signals.DECODE, Measure.DECODE, "from the first token to the last"),
)
_STAGE_COLOURS = {"front end": PINK, "queue": VIOLET, "prefill": SKY, "decode": BLUE}


QUANTILE = "$quantile"
_ACTIVE_CLASS = "active_class"


def quantile_variable() -> dashboard.CustomVariable:
    """The quantile of all panels over latencies; one, so that each class has one line."""
    return (
        dashboard.CustomVariable(QUANTILE.removeprefix("$"))
        .label("Quantile")
        .values("p50 : 0.5,p90 : 0.9,p95 : 0.95,p99 : 0.99")
        .current(model.VariableOption(selected=True, text="p95", value="0.95"))
    )


def active_class_variable() -> BoardVariable:
    """The selected classes with engine times in the time range, for panels per class; all if none has any."""
    with_times = increase_by(signals.REQUESTS_WITH_ENGINE_TIMES, Label.CLASS)
    active = (with_times > 0).or_(with_times, on())
    return hidden_variable(_ACTIVE_CLASS, active, Label.CLASS).all_value(".*")


def thresholds_of(spec: SloFile, measure: Measure | None) -> tuple[float, ...]:
    """The thresholds of a measure in seconds, ascending."""
    return tuple(
        sorted({slo.sli.threshold for slo in spec.slos if isinstance(slo.sli, Latency) and slo.measure is measure})
    )


def _not_in(histogram: Signal) -> str:
    """The sentence of a description that names the requests without this latency."""
    return f"Not in it: {_NOT_IN[histogram]}."


def quantile_panel(
    title: str, text: str, histogram: Signal, measure: Measure | None, spec: SloFile, *, may_be_empty: str = ""
) -> timeseries.Panel:
    """One line per class, of the quantile that the variable *Quantile* selects; times have a logarithmic scale."""
    buckets = rate_by(select(histogram.bucket), Label.CLASS, "le")
    text = f"{text} {_not_in(histogram)}"
    panel = quantile_lines(title, text, buckets, spec, may_be_empty=may_be_empty, exemplars=_has_exemplars(histogram))
    return style.with_threshold_lines(panel, *((seconds, BAD) for seconds in thresholds_of(spec, measure)))


def quantile_lines(
    title: str, text: str, buckets: Expression, spec: SloFile, *, may_be_empty: str = "", exemplars: bool = False
) -> timeseries.Panel:
    """The quantile of `buckets`, which have the labels `class` and `le`."""
    text = (
        f"{text} The line of a class is the quantile of the variable Quantile. Good: below the dashed line, the "
        "threshold of the SLO file, if it has one. From the sidecars' histograms."
    )
    # a logarithmic scale has no 0, and Grafana prints a `noValue` at each of its hidden ticks
    panel = style.time_series_panel(title, text, style.SECONDS, 12, signed=True, may_be_empty=may_be_empty)
    # without observations it is NaN
    quantiles = call("histogram_quantile", Variable(QUANTILE), buckets) >= 0
    panel.with_target(query(quantiles, PER_CLASS).exemplar(exemplars))
    return style.colour_by_class(style.logarithmic(style.limit_points(panel)), spec)


def distribution_panel(title: str, text: str, histogram: Signal, unit: str, per_cell: str) -> heatmap.Panel:
    """The whole histogram over time, with exemplars."""
    buckets = rate_by(select(histogram.bucket), "le")
    target = query(buckets, "{{le}}").format(PromQueryFormat.HEATMAP).exemplar(_has_exemplars(histogram))
    return style.heatmap_panel(title, text, unit, per_cell, 12).with_target(target)


def first_token_heatmap() -> heatmap.Panel:
    text = (
        "First tokens per second by time to first token; two bands are two kinds of requests. A bucket ends at each "
        "threshold. A mark is one request; it links to its trace if the data source has a trace data source. "
        f"{_not_in(signals.TTFT)} Good: one band below the threshold. From the sidecars' histograms."
    )
    return distribution_panel("Time to first token: spread", text, signals.TTFT, style.SECONDS, units.RequestsPerSecond)


def time_to_first_answer_token(spec: SloFile) -> timeseries.Panel:
    text = (
        "Time to the first token of the answer, by class, of streams with an answer. Reasoning is not an answer, a "
        "tool call is; without reasoning it is the time to first token."
    )
    return quantile_panel("Time to first answer token", text, signals.TTFT_ANSWER, Measure.TTFT_ANSWER, spec)


def first_answer_token_heatmap() -> heatmap.Panel:
    text = (
        "First answer tokens per second by the time until them; streams with and without reasoning are often two "
        f"bands. A bucket ends at each threshold. {_not_in(signals.TTFT_ANSWER)} Good: all bands below the threshold. "
        "From the sidecars' histograms."
    )
    return distribution_panel(
        "Time to first answer token: spread", text, signals.TTFT_ANSWER, style.SECONDS, units.RequestsPerSecond
    )


def time_per_output_token(spec: SloFile) -> timeseries.Panel:
    text = "Time per output token of each stream, from its first token to its last, counted when it ends, by class."
    return quantile_panel("Time per output token", text, signals.TPOT, Measure.TPOT, spec)


def time_per_output_token_heatmap() -> heatmap.Panel:
    text = (
        f"Streams that end per second, by their time per output token. {_not_in(signals.TPOT)} Good: one band below "
        "the threshold. From the sidecars' histograms."
    )
    return distribution_panel(
        "Time per output token: spread", text, signals.TPOT, style.SECONDS, units.RequestsPerSecond
    )


def inter_chunk_time(spec: SloFile) -> timeseries.Panel:
    text = (
        "Time between output chunks of all streams, counted when a stream ends, by class; a chunk may carry several "
        "tokens. The threshold judges the 95th percentile of each request, not this quantile."
    )
    return quantile_panel("Inter-chunk time", text, signals.INTER_CHUNK, Measure.ITL_P95, spec)


def inter_chunk_heatmap() -> heatmap.Panel:
    text = (
        f"Times between output chunks; a band far above the rest is a stall. {_not_in(signals.INTER_CHUNK)} Good: one "
        "band. From the sidecars' histograms."
    )
    return distribution_panel("Inter-chunk time: spread", text, signals.INTER_CHUNK, style.SECONDS, "gaps/s")


def stages() -> timeseries.Panel:
    """One panel per class with requests, because the stages add up to a request only within a class."""
    text = (
        "Mean times of a request in its stages: "
        f"{', '.join(f'{stage} ({meaning})' for stage, *_, meaning in _STAGES)}, by "
        "the engine's own clock, except for the front end. "
        f"Not in it: {_NO_TIMES}; they may have waited longer. Good: queue is a small part. From the sidecars' "
        "histograms."
    )
    of_class = [regex(Label.CLASS, f"${_ACTIVE_CLASS}")]
    lines = ((mean(signal, of_class), stage, _STAGE_COLOURS[stage]) for stage, signal, *_ in _STAGES)
    panel = style.time_series_panel(
        *(f"Stages: ${_ACTIVE_CLASS}", text, style.SECONDS, 24), *lines, height=8, may_be_empty=_NO_ENGINE_TIMES
    )
    return style.stack(panel).repeat(_ACTIVE_CLASS).repeat_direction("h").max_per_row(6)


def engine_time_coverage(spec: SloFile) -> timeseries.Panel:
    text = (
        "Share of ended requests whose engine times are known; aborted, truncated and rejected requests have none. "
        "Good: close to the share of requests that end with ok. From the sidecars' counters."
    )
    line = (known_engine_times(Label.CLASS), PER_CLASS)
    panel = style.ratio_panel("Engine time coverage", text, 12, line, height=8)
    return style.colour_by_class(style.limit_points(panel, 60), spec)


def known_engine_times(label: Label) -> Expression:
    """The share of ended requests whose engine times are known."""
    # the two rates cover slightly different requests
    return call("clamp_max", ratio_by(signals.REQUESTS_WITH_ENGINE_TIMES, signals.REQUESTS, label), 1)


def stage_quantiles(spec: SloFile) -> tuple[timeseries.Panel, ...]:
    """One panel per stage."""
    panels = []
    for stage, signal, measure, meaning in _STAGES:
        text = f"Time {meaning}, by class."
        panel = quantile_panel(f"{stage.capitalize()} time", text, signal, measure, spec, may_be_empty=_NO_ENGINE_TIMES)
        panels.append(panel.span(6))
    return tuple(panels)


def client_and_engine_means() -> tuple[timeseries.Panel, ...]:
    """The mean that clients see, the mean of the engine, and the difference."""
    return (
        _client_and_engine_panel(
            "TTFT: client and engine",
            "Mean time to first token of all classes, as the client and as the engine measure it, and the "
            "difference: network, sidecar and what the engine does not count. Below 0 the engine counted other "
            "requests: some that do not stream, or that bypassed the sidecar. vLLM counts from arrival, so its "
            "queue is included. Not in it: requests without a first token.",
            "time to first token",
            signals.TTFT,
            signals.ENGINE_TTFT,
        ),
        _client_and_engine_panel(
            "TPOT: client and engine",
            "Mean time per output token of all classes, as the client and as the engine measure it, and the "
            "difference: a slow network, or a client that reads slowly. Not in it: requests with one token or "
            "without usage.",
            "time per output token",
            signals.TPOT,
            signals.ENGINE_TPOT,
        ),
        _client_and_engine_panel(
            "E2E: client and engine",
            "Mean duration of requests that ended with ok, of all classes, as the client and as the engine measure "
            "it, and the difference. Not in it: open, aborted and failed requests. If few requests end, the two "
            "means are over different requests: select a longer time range.",
            "duration of requests",
            signals.DURATION,
            signals.ENGINE_DURATION,
        ),
    )


def _client_and_engine_panel(
    title: str, text: str, name: str, of_client: Signal, of_engine: Signal
) -> timeseries.Panel:
    # all classes, because the engine has none; without requests that only the sidecar sees, such as model lists
    known_models = [regex(Label.MODEL, "$model"), not_equal(Label.MODEL, OTHER)]
    client, engine = (mean(histogram, known_models) for histogram in (of_client, of_engine))
    text = f"{text} Good: a small difference. From the sidecars' histograms and the engines' metrics."
    return style.time_series_panel(
        *(title, text, style.SECONDS, 8),
        (client, "client", BLUE),
        (engine, "engine", PINK),
        (client - engine, "between", GREY),
        signed=True,
        may_be_empty=f"the engine exposes no {name}, or there is no traffic",
    )


def _has_exemplars(histogram: Signal) -> bool:
    """Whether the histogram has exemplars; not inter-chunk times, which are observed in bulk when a stream ends."""
    return histogram is not signals.INTER_CHUNK
