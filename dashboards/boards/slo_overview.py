"""The dashboard "SLO overview": is every class of request served as promised, and if not, since when and why."""

from dashboards.board import Board
from dashboards.page import Row
from dashboards.panels import engine, promises, traffic, truth
from exporters.signals import Label
from exporters.slos import SloFile


def rows(spec: SloFile) -> tuple[Row, ...]:
    return (
        Row(
            "Are users served as promised?",
            (
                promises.budget_left(),
                promises.goodput_now(spec),
                traffic.in_flight_now(),
                traffic.oldest_wait_now(spec),
            ),
        ),
        Row(
            "How fast is the budget spent, and who has been told?",
            (promises.burn_rate(spec), promises.firing_alerts()),
        ),
        Row("Useful, or only busy?", (promises.goodput(spec), traffic.tokens(spec), traffic.offered(spec))),
        Row("What becomes of requests?", (traffic.outcomes(), traffic.in_flight(spec))),
        Row(
            "How long do users wait for the first token?",
            (traffic.time_to_first_token(spec), traffic.oldest_wait(spec)),
        ),
        Row("What does the engine do?", (engine.batch(), engine.kv_cache(), engine.prefix_cache())),
        Row("In figures, over the time range shown", truth.truth_panels()),
    )


BOARD = Board(
    uid="vllm-slo-overview",
    title="SLO overview",
    description="Error budgets, burn rates and goodput per class.",
    variables=(Label.MODEL, Label.CLASS, Label.WINDOW),
    rows=rows,
)
