"""The dashboard "Request anatomy": is a request answered in time, and where does its time go?"""

from alerts.links import DashboardUid
from dashboards.board import Board
from dashboards.layout import Row
from dashboards.panels import latency, traffic
from exporters.signals import Label
from exporters.slos import SloFile


def rows(spec: SloFile) -> tuple[Row, ...]:
    return (
        Row("Does the first token come in time?", (traffic.time_to_first_token(spec), latency.first_token_heat())),
        Row(
            "Where does the time go?",
            (
                latency.stages(),
                latency.coverage(spec),
                traffic.oldest_wait(spec).height(8),
                *latency.stage_quantiles(spec),
            ),
        ),
        Row(
            "How evenly does the answer flow?",
            (latency.gaps(spec), latency.gaps_heat(), latency.per_token(spec), latency.per_token_heat()),
        ),
        Row("What lies between user and engine?", latency.two_views()),
    )


BOARD = Board(
    uid=DashboardUid.REQUESTS,
    title="Request anatomy",
    description="Latencies per class against their thresholds, stage by stage, and with the engine's own view.",
    variables=(Label.MODEL, Label.CLASS),
    rows=rows,
)
