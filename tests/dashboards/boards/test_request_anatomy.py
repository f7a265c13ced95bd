"""Thresholds, exemplars and coverage of the latency panels."""

import pytest

from dashboards.boards.request_anatomy import BOARD
from exporters.vocabulary.slo_file import loads
from tests.dashboards.dashboard_files import STRICT_SLOS, page_of
from tests.dashboards.promql_history import assert_results, limits, panel
from tests.support.promtool import Promtool


@pytest.mark.parametrize(
    "title, seconds",
    [
        pytest.param("Time to first token", [0.3, 2], id="ttft"),
        pytest.param("Time to first answer token", [4], id="ttft_answer"),
        pytest.param("Time per output token", [0.05], id="tpot"),
        pytest.param("Inter-chunk time", [0.25], id="itl"),
        pytest.param("Front end time", [], id="front end"),
        pytest.param("Queue time", [1], id="queue"),
        pytest.param("Prefill time", [3], id="prefill"),
        pytest.param("Decode time", [9], id="decode"),
        pytest.param("E2E latency", [40], id="e2e"),
        pytest.param("Oldest wait over time", [0.3, 20], id="oldest wait"),
    ],
)
def test_the_thresholds_of_the_slo_file_are_drawn(title: str, seconds: list[float]) -> None:
    drawn_panel = panel(BOARD, title, loads(STRICT_SLOS))
    assert limits(drawn_panel) == seconds
    assert drawn_panel["fieldConfig"]["defaults"]["custom"]["thresholdsStyle"] == {"mode": "dashed"}


def test_stages_add_up_within_a_class(promtool: Promtool) -> None:
    drawn_panel = panel(BOARD, "Stages: $active_class")
    assert [target["legendFormat"] for target in drawn_panel["targets"]] == [
        "front end",
        "queue",
        "prefill",
        "decode",
    ]
    assert drawn_panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
    seconds = {"frontend": 0.8, "queue": 2.0, "prefill": 6.0, "decode": 40.0}
    growth = {f'llm_request_{stage}_seconds_sum{{class="siso"}}': total for stage, total in seconds.items()}
    growth |= {f'llm_request_{stage}_seconds_count{{class="siso"}}': 4 for stage in seconds}
    assert_results(promtool, drawn_panel, growth, {"{}": 0.2}, {"{}": 0.5}, {"{}": 1.5}, {"{}": 10})


@pytest.mark.parametrize(
    "growth, classes",
    [
        pytest.param({"siso": 6, "lilo": 1, "other": 0}, {"siso", "lilo"}, id="other is empty"),
        pytest.param({"siso": 0, "other": 0}, {"siso", "other"}, id="no request at all"),
    ],
)
def test_only_classes_with_requests_have_a_panel_of_stages(
    promtool: Promtool, growth: dict[str, float], classes: set[str]
) -> None:
    stages = panel(BOARD, "Stages: $active_class")
    (variable,) = [each for each in page_of(BOARD)["templating"]["list"] if each["name"] == stages["repeat"]]
    assert (variable["hide"], variable["multi"], variable["includeAll"]) == (2, True, True)
    assert all('class=~"$active_class"' in target["expr"] for target in stages["targets"])
    expression = variable["definition"].removeprefix("query_result(").removesuffix(")")
    query = {"targets": [{"expr": f"group by (class) ({expression})"}]}
    series = {f'llm_requests_with_engine_times_total{{class="{name}"}}': each for name, each in growth.items()}
    assert_results(promtool, query, series, {f'{{class="{name}"}}': 1 for name in classes})


def test_coverage_includes_failed_requests(promtool: Promtool) -> None:
    growth = {
        'llm_requests_with_engine_times_total{class="siso"}': 6,
        'llm_requests_total{class="siso",outcome="ok"}': 6,
        'llm_requests_total{class="siso",outcome="client_abort"}': 2,
        'llm_requests_with_engine_times_total{class="lilo"}': 0,
        'llm_requests_total{class="lilo",outcome="ok"}': 0,
    }
    assert_results(promtool, panel(BOARD, "Engine time coverage"), growth, {'{class="siso"}': 0.75})


def test_the_difference_between_user_and_engine_is_that_of_means_over_all_classes(promtool: Promtool) -> None:
    growth = {
        'llm_request_duration_seconds_sum{model="m",class="siso"}': 6,
        'llm_request_duration_seconds_count{model="m",class="siso"}': 3,
        'llm_request_duration_seconds_sum{model="m",class="lilo"}': 10,
        'llm_request_duration_seconds_count{model="m",class="lilo"}': 1,
        'llm_request_duration_seconds_sum{model="other",class="other"}': 1,
        'llm_request_duration_seconds_count{model="other",class="other"}': 50,
        'llm_engine_request_duration_seconds_sum{engine="e",rank="0",model="m"}': 14,
        'llm_engine_request_duration_seconds_count{engine="e",rank="0",model="m"}': 4,
    }
    assert_results(promtool, panel(BOARD, "E2E: client and engine"), growth, {"{}": 4}, {"{}": 3.5}, {"{}": 0.5})


def test_open_aborted_and_invalid_requests_are_not_completed(promtool: Promtool) -> None:
    of = 'model="m",class="siso"'
    growth = {
        f'llm_requests_total{{{of},outcome="ok"}}': 6.0,
        f"llm_request_duration_seconds_count{{{of}}}": 6,
        f'llm_requests_total{{{of},outcome="client_abort"}}': 1,
        f'llm_requests_total{{{of},outcome="client_error"}}': 1,
        f'llm_requests_in_flight{{{of},phase="waiting"}}': 2,
        'llm_requests_total{model="m",class="lilo",outcome="ok"}': 0,
        'llm_requests_in_flight{model="m",class="lilo",phase="streaming"}': 0,
    }
    assert_results(promtool, panel(BOARD, "Completion rate"), growth, {'{class="siso"}': 0.6})


def test_more_ends_than_arrivals_complete_all_requests(promtool: Promtool) -> None:
    growth = {
        'llm_requests_total{model="m",class="siso",outcome="ok"}': 6.0,
        'llm_request_duration_seconds_count{model="m",class="siso"}': 6,
        'llm_requests_in_flight{model="m",class="siso",phase="waiting"}': -2,
    }
    assert_results(promtool, panel(BOARD, "Completion rate"), growth, {'{class="siso"}': 1})
