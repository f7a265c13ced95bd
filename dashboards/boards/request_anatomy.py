"""The dashboard "Request anatomy": latencies of requests, and the stages in which their time is spent."""

from grafana_foundation_sdk.builders import timeseries

from alerts.links import DashboardUid
from alerts.plan import Plan
from alerts.promql.build import call, ratio, select
from dashboards.boards.board import Board
from dashboards.grafana import style
from dashboards.grafana.layout import Row
from dashboards.grafana.style import NO_TRAFFIC
from dashboards.panels import latency, traffic
from dashboards.panels.first_tokens import first_tokens_of_all_streams
from dashboards.panels.latency import quantile_panel
from dashboards.panels.traffic import arrival_rate
from dashboards.queries.rates import PER_CLASS, rate_by
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label
from exporters.vocabulary.slo_file import Measure, SloFile


def rows(plan: Plan) -> tuple[Row, ...]:
    spec = plan.spec
    return (
        Row("TTFT", (traffic.time_to_first_token(spec), first_tokens_of_all_streams(spec).span(12))),
        Row(
            "Reasoning before the answer",
            (latency.time_to_first_answer_token(spec), latency.first_answer_token_heatmap()),
            is_collapsed=True,
        ),
        Row(
            "Stages",
            (
                latency.stages(),
                latency.engine_time_coverage(spec),
                traffic.oldest_wait(spec).height(8),
                *latency.stage_quantiles(spec),
            ),
        ),
        Row("ITL and TPOT", (latency.inter_chunk_time(spec), latency.time_per_output_token(spec))),
        Row("End of requests", (end_to_end(spec), completion_rate(spec))),
        Row("Client and engine view", latency.client_and_engine_means()),
        Row(
            "Distributions",
            tuple(
                heatmap.span(8)
                for heatmap in (
                    latency.first_token_heatmap(),
                    latency.inter_chunk_heatmap(),
                    latency.time_per_output_token_heatmap(),
                )
            ),
            is_collapsed=True,
        ),
    )


def end_to_end(spec: SloFile) -> timeseries.Panel:
    text = (
        "Time from the arrival of a request to the end of its response, by class, of streams and unary requests that "
        "ended with ok."
    )
    return quantile_panel("E2E latency", text, signals.DURATION, Measure.E2E, spec)


def completion_rate(spec: SloFile) -> timeseries.Panel:
    text = (
        "Requests that ended with ok over requests that arrived, by class, whatever their latency. Open, aborted, "
        "rejected and failed requests are excluded from the completed. It is below 100 % while the number of "
        f"open requests grows. Good: close to 100 %. Gaps are {NO_TRAFFIC}. From the sidecars' counters and histograms."
    )
    # has far fewer series than the counter of ended requests
    completed = rate_by(select(signals.DURATION.count), Label.CLASS)
    # when a queue drains, more requests end than arrive
    share = call("clamp_max", ratio(completed, arrival_rate()), 1)
    panel = style.limit_points(style.ratio_panel("Completion rate", text, 12, (share, PER_CLASS)))
    # over a minute: shares of few requests jump between 0 and 100 %
    return style.colour_by_class(panel.interval("1m"), spec)


BOARD = Board(
    uid=DashboardUid.REQUESTS,
    title="Request anatomy",
    description="Latencies per class against their thresholds, stage by stage, and with the engine's own view.",
    own_variables=lambda _: (latency.quantile_variable(), latency.active_class_variable()),
    rows=rows,
)
