"""Rules for every dashboard."""

import json
from pathlib import Path

import pytest
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.annotation_queries import config_change_query
from dashboards.board import TAG, Board
from dashboards.boards.registry import BOARDS
from dashboards.command import GENERATED
from dashboards.layout import to_json
from dashboards.style import ANNOTATION_COLOURS
from exporters.slos import SHIPPED, SloFile, load

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
    assert [one.get("targets") for one in shipped["panels"]] == [one.get("targets") for one in lab["panels"]]


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
def test_every_dashboard_has_the_annotations(board: Board) -> None:
    events = json.loads(committed(board))["annotations"]["list"]
    assert [event["name"] for event in events] == list(ANNOTATION_COLOURS)
    assert [event["name"] for event in events if not event["enable"]] == ["Tickets"]
    for event in events:
        assert event["expr"] == event["target"]["expr"]
        # it would hide the switch in a menu
        assert "placement" not in event


def test_config_changes_are_drawn_at_the_time_in_the_value_of_the_series() -> None:
    changes, starts, *regions = json.loads(committed(BOARDS[0]))["annotations"]["list"]
    assert config_change_query() == "llm_engine_config_change_timestamp_seconds * 1000"
    assert changes["expr"] == config_change_query()
    assert changes["titleFormat"] == "{{setting}}: {{old}} → {{new}}"
    assert changes["useValueForTime"] is starts["useValueForTime"] is True
    assert not any("useValueForTime" in event for event in regions)


def test_no_uid_changes_because_alerts_and_bookmarks_link_to_it() -> None:
    names = ["overview", "requests", "workload", "engine", "fleet", "sidecar", "load", "flips"]
    assert [board.uid for board in BOARDS] == [f"vllm-slo-{name}" for name in names]
    assert [board.file_name for board in BOARDS] == [f"slo-{name}.json" for name in names]
