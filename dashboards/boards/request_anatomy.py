"""The dashboard "Request anatomy": latencies of requests, and the stages in which their time is spent."""

from alerts.links import DashboardUid
from alerts.plan import Plan
from dashboards.boards.board import Board
from dashboards.grafana.layout import Row
from dashboards.panels import completion, latency, traffic
from dashboards.panels.first_tokens import first_tokens_of_all_streams


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
        Row("End of requests", (completion.end_to_end(spec), completion.completion_rate(spec))),
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


BOARD = Board(
    uid=DashboardUid.REQUESTS,
    title="Request anatomy",
    description="Latencies per class against their thresholds, stage by stage, and with the engine's own view.",
    own_variables=lambda _: (latency.quantile_variable(), latency.active_class_variable()),
    rows=rows,
)
