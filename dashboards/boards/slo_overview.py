"""The dashboard "SLO overview": attainment and error budget of every class, and the causes when they fall."""

from alerts.links import DashboardUid
from alerts.plan import Plan
from dashboards.boards.board import Board
from dashboards.grafana.layout import Row
from dashboards.panels import engine_load, first_tokens, range_totals, slo_status, traffic
from dashboards.windows.slo import burn_window_variable, class_order_variable


def rows(plan: Plan) -> tuple[Row, ...]:
    spec = plan.spec
    return (
        Row(
            "Status",
            (
                slo_status.verdict(plan),
                slo_status.slo_status(plan),
                slo_status.error_budget(plan),
                first_tokens.ttft_and_thresholds(spec),
                slo_status.goodput_now(spec),
                traffic.in_flight_now(),
                traffic.oldest_wait_now(spec),
            ),
        ),
        Row("Burn rate and alerts", (slo_status.burn_rate(plan), slo_status.firing_alerts(plan))),
        Row("Goodput and throughput", (slo_status.goodput(spec), traffic.tokens(spec), traffic.requests_offered(spec))),
        Row("Outcomes and open requests", (traffic.outcomes(), traffic.in_flight(spec))),
        Row("Waiting requests", (traffic.oldest_wait(spec).span(24).height(7),)),
        Row("Engine load", (engine_load.batch(), engine_load.kv_cache(), engine_load.prefix_cache())),
        Row("Totals", (range_totals.range_totals(), range_totals.range_means()), is_collapsed=True),
    )


BOARD = Board(
    uid=DashboardUid.OVERVIEW,
    title="SLO overview",
    description="A verdict, the error budget of each SLO and class, and the causes when they burn.",
    own_variables=lambda spec: (
        burn_window_variable(),
        class_order_variable(spec.class_names),
        first_tokens.ttft_slos_variable(spec),
    ),
    rows=rows,
)
