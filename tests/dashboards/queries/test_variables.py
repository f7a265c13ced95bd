"""Queries follow the variables whose labels their series have."""

import pytest

from alerts.promql.build import aggregate, call, equal, rate, regex, select
from alerts.promql.expression import Expression, Variable
from dashboards.boards.board import Board
from dashboards.boards.registry import BOARDS
from dashboards.live.reader import QueryType, checks_of
from dashboards.queries.variables import VARIABLES, LabelValues, QueryResult, following, printed
from exporters.vocabulary import signals
from exporters.vocabulary.signals import LOAD_SIGNALS, SIGNALS, UP, Label
from tests.dashboards.dashboard_files import page_of
from tests.support.dashboard_queries import matchers_in

ALL = 'model=~"$model",class=~"$class"'
TARGETS = 'cluster=~"$cluster",namespace=~"$namespace"'


@pytest.mark.parametrize(
    "query, expected",
    [
        pytest.param(
            select(signals.OLDEST_WAIT), f'llm_oldest_wait_seconds{{{ALL},instance=~"$instance"}}', id="a sidecar's"
        ),
        pytest.param(
            aggregate("max", signals.ENGINE_UP),
            'max(llm_engine_up{instance=~"$instance",engine=~"$engine"})',
            id="an engine's",
        ),
        pytest.param(
            select(signals.SLO_BUDGET_LEFT),
            f"llm_slo:error_budget:remaining_ratio{{{ALL}}}",
            id="recorded over all sidecars",
        ),
        pytest.param(
            rate(select(signals.QUEUE.bucket, equal(Label.CLASS, "a}"), regex(Label.MODEL, "b")), "1m"),
            'rate(llm_request_queue_seconds_bucket{class="a}",model=~"b",instance=~"$instance"}[1m])',
            id="labels that are already matched",
        ),
        pytest.param(select(UP) > 0, 'up{instance=~"$instance"} > 0', id="of Prometheus"),
        pytest.param(
            call("label_replace", call("vector", Variable("$up")), "llm_engine_up", "up", "", ""),
            'label_replace(vector($up), "llm_engine_up", "up", "", "")',
            id="no series",
        ),
    ],
)
def test_a_selector_has_the_matchers_of_its_labels(query: Expression, expected: str) -> None:
    followed = following(query)
    assert (str(followed), following(followed)) == (expected, followed)
    assert printed(query, ()) == expected
    assert printed(QueryResult(query), ()) == f"query_result({expected})"


def test_a_query_reads_only_the_selected_targets() -> None:
    targets = ("cluster", "namespace")
    queries = select(signals.GOODPUT_AT), select(signals.SLO_OBJECTIVE), select(signals.LOAD_SENT)
    assert [printed(query, targets) for query in queries] == [
        f'llm_instance:good_requests:ratio{{{TARGETS},instance=~"$instance"}}',
        'llm_slo:objective:ratio{class=~"$class"}',
        'llm_load_sent_requests_total{class=~"$class"}',
    ]
    series = select(signals.SIDECAR_BUILD)
    assert printed(LabelValues(series, "namespace"), targets) == (
        'label_values(llm_sidecar_build_info{cluster=~"$cluster"}, namespace)'
    )


def test_what_is_no_query_has_no_text() -> None:
    assert printed("llm_engine_up", ()) is None


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
