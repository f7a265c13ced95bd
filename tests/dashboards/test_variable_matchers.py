"""Queries follow the variables whose labels their series have."""

import pytest

from dashboards.board import Board
from dashboards.boards.registry import BOARDS
from dashboards.dashboard_reader import QueryType, checks_of
from dashboards.variable_matchers import VARIABLES, selected
from exporters.signals import LOAD_SIGNALS, SIGNALS, Label
from tests.dashboards.dashboard_files import page_of
from tests.support.dashboard_queries import matchers_in

ALL = 'model=~"$model",class=~"$class"'


@pytest.mark.parametrize(
    "query, expected",
    [
        pytest.param(
            "llm_oldest_wait_seconds",
            f'llm_oldest_wait_seconds{{{ALL},instance=~"$instance"}}',
            id="a sidecar's series",
        ),
        pytest.param(
            "max(llm_engine_up)", 'max(llm_engine_up{instance=~"$instance",engine=~"$engine"})', id="an engine's series"
        ),
        pytest.param(
            "llm_slo:error_budget:remaining_ratio",
            f"llm_slo:error_budget:remaining_ratio{{{ALL}}}",
            id="recorded over all sidecars",
        ),
        pytest.param(
            'rate(llm_request_queue_seconds_bucket{class="a}",model=~"b"}[1m])',
            'rate(llm_request_queue_seconds_bucket{class="a}",model=~"b",instance=~"$instance"}[1m])',
            id="labels that are already matched",
        ),
        pytest.param("up == 0", 'up{instance=~"$instance"} == 0', id="of Prometheus"),
        pytest.param(
            'label_replace(vector($up), "llm_engine_up", "up", "", "")',
            'label_replace(vector($up), "llm_engine_up", "up", "", "")',
            id="no series",
        ),
    ],
)
def test_a_selector_has_the_matchers_of_its_labels(query: str, expected: str) -> None:
    assert selected({"expr": query}) == {"expr": expected}
    assert selected({"expr": expected}) == {"expr": expected}
    assert selected(f"query_result({query})") == f"query_result({expected})"
    assert selected({"title": query}) == {"title": query}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_every_scraped_series_of_every_panel_is_selected_by_its_labels(board: Board) -> None:
    labels = {
        name: {*signal.labels, Label.INSTANCE} & {*VARIABLES}
        for signal in SIGNALS
        if signal not in LOAD_SIGNALS
        for name in (signal.name, signal.bucket, signal.sum, signal.count)
    }
    for check in (each for each in checks_of(page_of(board)) if each.query_type is not QueryType.LABEL_VALUES):
        matched: dict[str, set[str]] = {}
        for name, label, _ in matchers_in(check.expression):
            matched.setdefault(name, set()).add(label)
        for name in matched.keys() & labels.keys():
            assert labels[name] <= matched[name], check.expression
