"""Rules for every dashboard."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.boards.board import TAG, Board
from dashboards.boards.registry import BOARDS
from dashboards.command import GENERATED
from dashboards.grafana.layout import to_json
from dashboards.live.interpolation import expand
from dashboards.queries.variables import VARIABLES
from exporters.vocabulary.slo_file import SHIPPED, SloFile, load
from tests.support.promtool import Case, Promtool

EVERYTHING = dict.fromkeys(map(str, VARIABLES), ".*")
LAB = Path(__file__).parents[2] / "compose" / "slos.yaml"

every = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)


@pytest.fixture(scope="module")
def spec() -> SloFile:
    return load(SHIPPED)


def committed(board: Board) -> str:
    return (GENERATED / board.file_name).read_text(encoding="utf-8")


@every
def test_the_committed_dashboard_is_rendered_from_the_shipped_slo_file(board: Board, spec: SloFile) -> None:
    assert committed(board) == board.render(spec)


@every
def test_the_sdk_reads_the_file_back_into_the_same_dashboard(board: Board) -> None:
    assert to_json(Dashboard.from_json(json.loads(committed(board)))) == committed(board)


@every
def test_the_queries_are_the_same_for_every_slo_file(board: Board, spec: SloFile) -> None:
    shipped, lab = (json.loads(board.render(file)) for file in (spec, load(LAB)))
    # a heading may name a window, whose length depends on the period
    expressions = [
        [[each["expr"] for each in one.get("targets", ())] for one in page["panels"]] for page in (shipped, lab)
    ]
    assert expressions[0] == expressions[1]


def test_every_committed_file_belongs_to_a_dashboard() -> None:
    assert {path.name for path in GENERATED.glob("*.json")} == {board.file_name for board in BOARDS}


@every
def test_links_to_the_other_dashboards_keep_time_range_and_variables(board: Board) -> None:
    page = json.loads(committed(board))
    assert page["tags"] == [TAG]
    (link,) = page["links"]
    assert (link["type"], link["tags"], link["keepTime"], link["includeVars"]) == ("dashboards", [TAG], True, True)
    # it would hide the link in a menu
    assert "placement" not in link


@every
def test_every_dashboard_selects_by_target_model_class_sidecar_and_engine(board: Board, spec: SloFile) -> None:
    fleet = replace(spec, group_by=("cluster", "namespace"))
    names = [each["name"] for each in json.loads(board.render(fleet))["templating"]["list"]]
    assert names[:7] == ["datasource", "cluster", "namespace", "model", "class", "instance", "engine"]


def test_a_change_of_an_engine_s_state_is_a_mark_at_its_time(promtool: Promtool, spec: SloFile) -> None:
    query = expand(json.loads(committed(BOARDS[0]))["annotations"]["list"][2]["expr"], EVERYTHING)
    engine = 'engine="e:1",instance="s:1"'
    series = {
        f'llm_engine_state{{{engine},state="serving"}}': "1x2 0x2",
        f'llm_engine_state{{{engine},state="wedged"}}': "0x2 1x2",
        f"llm_engine_state_change_timestamp_seconds{{{engine}}}": "10x2 40x2",
    }
    case = Case(spec, series, 15.0).expect(30.0, query, {f'{{{engine},state="serving"}}': 10000.0})
    promtool.test([case.expect(60.0, query, {f'{{{engine},state="wedged"}}': 40000.0})])


@pytest.mark.parametrize(
    "step, marks",
    [
        pytest.param(
            "15s",
            {30.0: "", 45.0: "fires", 60.0: "", 90.0: "", 105.0: "ended", 120.0: ""},
            id="the scrape interval",
        ),
        # over a long time range Grafana increases the step
        pytest.param("1m", {0.0: "", 60.0: "fires", 120.0: "ended", 180.0: ""}, id="longer"),
    ],
)
def test_a_page_is_a_mark_at_its_start_and_one_at_its_end(
    promtool: Promtool, spec: SloFile, step: str, marks: dict[float, str]
) -> None:
    (pages,) = [each for each in json.loads(committed(BOARDS[0]))["annotations"]["list"] if each["name"] == "Pages"]
    alert = 'ALERTS{alertname="LLMErrorBudgetBurn",alertstate="firing",severity="page",slo="ttft"}'
    case = Case(spec, {alert: "_x3 1x3 stale", "other": "1x12"}, 15.0)
    for at, state in marks.items():
        mark = {f'{{alertname="LLMErrorBudgetBurn",alertstate="{state}"}}': 1.0} if state else {}
        case.expect(at, expand(pages["expr"], {**EVERYTHING, "__interval": step}), mark)
    promtool.test([case])


def test_an_engine_start_that_follows_a_config_change_has_no_mark_of_its_own(promtool: Promtool, spec: SloFile) -> None:
    starts = expand(json.loads(committed(BOARDS[0]))["annotations"]["list"][1]["expr"], EVERYTHING)
    changed, crashed = 'engine="e:1",instance="s:1"', 'engine="e:1",instance="s:2"'
    series = {
        f"llm_engine_start_time_seconds{{{changed}}}": "1000x4",
        f"llm_engine_start_time_seconds{{{crashed}}}": "1000x4",
        f'llm_engine_config_change_timestamp_seconds{{{changed},setting="a",old="1",new="2"}}': "1010x4",
        f'llm_engine_config_change_timestamp_seconds{{{crashed},setting="a",old="1",new="2"}}': "500x4",
    }
    promtool.test([Case(spec, series, 15.0).expect(30.0, starts, {f"{{{crashed}}}": 1000000.0})])


def test_no_uid_changes_because_alerts_and_bookmarks_link_to_it() -> None:
    names = ["overview", "objective", "requests", "workload", "engine", "fleet", "sidecar", "load", "flips"]
    assert [board.uid for board in BOARDS] == [f"vllm-slo-{name}" for name in names]
    assert [board.file_name for board in BOARDS] == [f"slo-{name}.json" for name in names]
