import json
from typing import Any

from dashboards.boards.slo_overview import BOARD
from dashboards.command import GENERATED
from dashboards.panels.range_totals import range_total_queries
from exporters.slos import loads
from tests.dashboards.dashboard_files import panel

COMMITTED = GENERATED / "slo-overview.json"

STRICTER = """
version: 1
period: 30d
first_token_timeout: 20s
classes: [{name: chat}]
slos:
  - {name: fast, classes: [chat], signal: ttft, threshold: 300ms, objective: 99%}
  - {name: slow, classes: [other], signal: ttft, threshold: 2s, objective: 80%}
"""


def steps(page: dict[str, Any], title: str) -> list[float | None]:
    return [step["value"] for step in panel(page, title)["fieldConfig"]["defaults"]["thresholds"]["steps"]]


def test_thresholds_come_from_the_slo_file() -> None:
    page = json.loads(BOARD.render(loads(STRICTER)))
    assert steps(page, "Time to first token") == [None, 0.3, 2.0]
    assert steps(page, "Oldest wait") == [None, 0.3, 20.0]
    assert steps(page, "Goodput now") == [None, 0.6, 0.8]
    assert steps(page, "Burn rate") == [None, 1, 6, 14.4]


def test_an_slo_file_without_a_ttft_threshold_draws_none() -> None:
    page = json.loads(BOARD.render(loads(STRICTER.replace("signal: ttft", "signal: e2e"))))
    assert steps(page, "Time to first token") == [None]
    assert steps(page, "Oldest wait") == [None, 20.0]


def test_each_range_total_is_the_query_of_one_panel() -> None:
    page = json.loads(COMMITTED.read_text(encoding="utf-8"))
    expressions = {panel["title"]: [target["expr"] for target in panel.get("targets", [])] for panel in page["panels"]}
    queries = range_total_queries()
    assert len(queries) == 12
    assert [exprs for title, exprs in expressions.items() if title.endswith("in range")] == [
        [each] for each in queries.values()
    ]
