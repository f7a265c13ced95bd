from dashboards.boards.slo_overview import BOARD
from dashboards.panels.range_totals import range_total_queries
from exporters.slos import loads
from tests.dashboards.dashboard_files import STRICT_SLOS, page_of
from tests.dashboards.promql_history import limits, panel


def test_thresholds_come_from_the_slo_file() -> None:
    spec = loads(STRICT_SLOS)
    assert limits(panel(BOARD, "Oldest wait", spec)) == [0.3, 20.0]
    assert limits(panel(BOARD, "Goodput now", spec)) == [0.6, 0.8]
    assert limits(panel(BOARD, "Burn rate", spec)) == [1, 6, 14.4]


def test_an_slo_file_without_a_ttft_slo_has_no_ttft_threshold() -> None:
    spec = loads(STRICT_SLOS.replace("signal: ttft_answer", "signal: e2e").replace("signal: ttft", "signal: e2e"))
    assert limits(panel(BOARD, "Time to first token", spec)) == []
    assert limits(panel(BOARD, "Oldest wait", spec)) == [20.0]


def test_each_range_total_is_the_query_of_one_panel() -> None:
    totals = [panel for panel in page_of(BOARD)["panels"] if panel["title"].endswith("in range")]
    queries = range_total_queries()
    assert len(queries) == 12
    assert [[target["expr"] for target in panel["targets"]] for panel in totals] == [
        [each] for each in queries.values()
    ]
