"""The dashboard "SLO overview": attainment and error budget of every class, and the causes when they fall."""

from alerts.links import DashboardUid
from dashboards.board import Board
from dashboards.layout import Row
from dashboards.panels import engine_load, range_totals, slo_status, traffic
from exporters.signals import Label
from exporters.slos import SloFile


def rows(spec: SloFile) -> tuple[Row, ...]:
    return (
        Row(
            "Are users served as promised?",
            (
                slo_status.budget_left(),
                slo_status.goodput_now(spec),
                traffic.in_flight_now(),
                traffic.oldest_wait_now(spec),
            ),
        ),
        Row(
            "How fast is the budget spent, and which alerts fire?",
            (slo_status.burn_rate(spec), slo_status.firing_alerts()),
        ),
        Row(
            "How much of the traffic is good?",
            (slo_status.goodput(spec), traffic.tokens(spec), traffic.requests_offered(spec)),
        ),
        Row("How do requests end?", (traffic.outcomes(), traffic.in_flight(spec))),
        Row(
            "How long do users wait for the first token?",
            (traffic.time_to_first_token(spec), traffic.oldest_wait(spec)),
        ),
        Row("What does the engine do?", (engine_load.batch(), engine_load.kv_cache(), engine_load.prefix_cache())),
        Row("In figures, over the time range shown", range_totals.range_total_panels()),
    )


BOARD = Board(
    uid=DashboardUid.OVERVIEW,
    title="SLO overview",
    description="Error budgets, burn rates and goodput per class.",
    variables=(Label.MODEL, Label.CLASS, Label.WINDOW),
    rows=rows,
)
