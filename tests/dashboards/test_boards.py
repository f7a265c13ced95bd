"""Rules for every dashboard."""

import json
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.annotation_queries import config_change_query
from dashboards.board import TAG, Board
from dashboards.boards.registry import BOARDS
from dashboards.command import GENERATED
from dashboards.layout import to_json
from exporters.slos import SHIPPED, SloFile, load

LAB = Path(__file__).parents[2] / "compose" / "slos.yaml"

every = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)


@pytest.fixture(scope="module")
def spec() -> SloFile:
    return load(SHIPPED)


def committed(board: Board) -> str:
    return (GENERATED / board.file_name).read_text(encoding="utf-8")


@every
def test_the_committed_dashboard_is_what_the_slo_file_gives(board: Board, spec: SloFile) -> None:
    assert committed(board) == board.render(spec)


@every
def test_rendering_twice_gives_the_same_bytes(board: Board, spec: SloFile) -> None:
    assert board.render(spec) == board.render(spec)


@every
def test_the_sdk_reads_the_file_back_into_the_same_dashboard(board: Board) -> None:
    assert to_json(Dashboard.from_json(json.loads(committed(board)))) == committed(board)


@every
def test_the_queries_are_the_same_for_every_slo_file_so_a_shorter_period_needs_no_other_dashboard(
    board: Board, spec: SloFile
) -> None:
    shipped, lab = (json.loads(board.render(file)) for file in (spec, load(LAB)))
    assert [one.get("targets") for one in shipped["panels"]] == [one.get("targets") for one in lab["panels"]]


def test_no_file_is_left_of_a_dashboard_that_is_no_more() -> None:
    assert {path.name for path in GENERATED.glob("*.json")} == {board.file_name for board in BOARDS}


@every
def test_the_way_to_the_other_dashboards_keeps_time_and_choices(board: Board) -> None:
    page = json.loads(committed(board))
    assert page["tags"] == [TAG]
    (link,) = page["links"]
    assert (link["type"], link["tags"], link["keepTime"], link["includeVars"]) == ("dashboards", [TAG], True, True)
    assert "placement" not in link  # it would hide the link in a menu


@every
def test_every_dashboard_has_the_annotations(board: Board) -> None:
    events = json.loads(committed(board))["annotations"]["list"]
    assert [event["name"] for event in events] == [
        "Config changes",
        "Engine starts",
        "Pages",
        "Tickets",
        "Load tests",
    ]
    assert [event["name"] for event in events if not event["enable"]] == ["Tickets"]
    for event in events:
        assert event["expr"] == event["target"]["expr"]
        assert "placement" not in event  # it would hide the switch in a menu


def test_config_changes_are_drawn_at_the_time_in_the_value_of_the_series() -> None:
    changes, starts, *regions = events_of(BOARDS[0])
    assert config_change_query() == "llm_engine_config_change_timestamp_seconds * 1000"
    assert changes["expr"] == config_change_query()
    assert changes["titleFormat"] == "{{setting}}: {{old}} → {{new}}"
    assert [event.get("useValueForTime", False) for event in (changes, starts, *regions)] == [
        True,
        True,
        False,
        False,
        False,
    ]


def events_of(board: Board) -> list[dict[str, Any]]:
    return list(json.loads(committed(board))["annotations"]["list"])


def test_no_uid_ever_changes_because_alerts_and_bookmarks_link_to_it() -> None:
    uids = [board.uid for board in BOARDS]
    assert uids[0] == "vllm-slo-overview"
    assert len(set(uids)) == len(uids)
    assert all(uid.startswith("vllm-slo-") for uid in uids)
