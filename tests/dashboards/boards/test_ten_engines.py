"""The dashboards "Fleet" and "Config change" as drawn over ten engines: one is bad, and three are changed in turn."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from alerts.promql.build import call, regex, select
from dashboards.boards import fleet as fleet_board
from dashboards.boards.config_change import BOARD
from dashboards.live.audit import query_result_values
from dashboards.live.interpolation import expand
from dashboards.live.reader import TimeRange, checks_of
from dashboards.preview.document import document
from dashboards.preview.view import View
from dashboards.windows.change import AFTER, BEFORE
from exporters.analysis.prometheus_api import Prometheus
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label
from exporters.vocabulary.slo_file import SHIPPED, load
from tests.dashboards.dashboard_files import page_of
from tests.support import engine_fleet
from tests.support.engine_fleet import CHANGED_AT, CLASSES, LOST

SHOWN = TimeRange(engine_fleet.END - 2700, engine_fleet.END, engine_fleet.SCRAPE)
OLD, NEW = "a" * 12, "b" * 12
"""The config revisions of the changed engines."""

TITLES = load(SHIPPED).class_titles


@pytest.fixture(scope="module")
def drawn(fleet: Prometheus) -> Mapping[str, Any]:
    return document(page_of(BOARD), fleet, View(SHOWN, UTC, {}))


def rows(drawn: Mapping[str, Any], title: str) -> list[list[str]]:
    (table,) = [each for section in drawn["sections"] for each in section["panels"] if each["title"] == title]
    return [[cell["text"] for cell in row] for row in table["rows"]]


def test_a_rolling_change_is_one_change_with_a_time_for_each_engine(drawn: Mapping[str, Any]) -> None:
    (variable,) = [each for each in drawn["variables"] if each["name"] == "change"]
    assert [option[0] for option in variable["options"]] == ["enable_prefix_caching: False → True"]
    assert [row[:3] for row in rows(drawn, "Changed engines")] == [
        [engine_fleet.address(engine), engine_fleet.instance(engine), f"{datetime.fromtimestamp(at, UTC):%F %T}"]
        for engine, at in CHANGED_AT.items()
    ]


@pytest.mark.parametrize("span", ["600", "21600"])
def test_each_window_has_one_configuration_of_every_changed_engine(fleet: Prometheus, span: str) -> None:
    """The windows of all engines are the same, so none may begin before the last change or end after the first."""
    checks = list(checks_of(page_of(BOARD)))
    of_page = {**checks[0].values, "span": span}
    checks = [replace(check, values=of_page) for check in checks]
    values = {**of_page, **query_result_values(checks, fleet, SHOWN)}
    for window, revision in ((BEFORE, OLD), (AFTER, NEW)):
        info = window.whole(select(signals.ENGINE_CONFIG_INFO, regex(Label.INSTANCE, "$changed")))
        query = {"query": expand(str(call("count_over_time", info)), values), "time": f"{SHOWN.end:.3f}"}
        scrapes = {
            (each["metric"]["instance"], each["metric"]["revision"]): float(each["value"][1])
            for each in fleet.get("/api/v1/query", query)["result"]
        }
        whole = float(values["length"]) / engine_fleet.SCRAPE
        # no scrape is missing, so no restart is in the window either
        expected = {(engine_fleet.instance(engine), revision): whole for engine in CHANGED_AT}
        assert scrapes == pytest.approx(expected, abs=1)
    assert 300 < float(values["length"]) <= float(span)


def test_each_engine_is_compared_without_any_restart(drawn: Mapping[str, Any]) -> None:
    """A window that contained a restart, or the new setting of another engine, would have another share."""
    assert [row[3:6] for row in rows(drawn, "Changed engines")] == [["80%", "100%", "20.0 pp"]] * len(CHANGED_AT)


def test_requests_that_the_restarts_killed_are_shown(drawn: Mapping[str, Any]) -> None:
    assert [row[6] for row in rows(drawn, "Changed engines")] == [f"{LOST * len(CLASSES)}"] * len(CHANGED_AT)


def test_changed_engines_are_compared_with_the_others_at_the_same_time(drawn: Mapping[str, Any]) -> None:
    # six others with 2 % and one with 60 % of bad requests
    others = f"{100 * (1 - (6 * 0.02 + 0.6) / 7):.1f}%"
    assert [row[:5] for row in rows(drawn, "Goodput")] == [
        row
        for name in CLASSES
        for title in [f"{name}: {TITLES[name]}"]
        for row in (
            [title, "changed", "80%", "100%", "20.0 pp"],
            [title, "unchanged", others, others, "not significant"],
        )
    ]


def test_a_change_has_a_colour_only_if_it_is_significant(drawn: Mapping[str, Any]) -> None:
    (table,) = [each for section in drawn["sections"] for each in section["panels"] if each["title"] == "Goodput"]
    colours = {row[4]["text"]: row[4]["colour"] for row in table["rows"]}
    assert colours == {"20.0 pp": "#009E73", "not significant": "text"}


def test_the_other_panels_are_those_of_the_changed_engines(drawn: Mapping[str, Any]) -> None:
    assert rows(drawn, "SLO attainment") == [["ttft", name, "80%", "100%", "20.0 pp"] for name in CLASSES]
    assert rows(drawn, "Requests offered") == [[name, "6 req/s", "6 req/s", "0.0%"] for name in CLASSES]


@pytest.fixture(scope="module")
def panels(fleet: Prometheus) -> Mapping[str, Mapping[str, Any]]:
    """The drawn panels by title."""
    drawn = document(page_of(fleet_board.BOARD), fleet, View(SHOWN, UTC, {}))
    return {panel["title"]: panel for section in drawn["sections"] for panel in section["panels"]}


def first_cells(panel: Mapping[str, Any]) -> list[str]:
    """The first column of a table."""
    return [row[0]["text"] for row in panel["rows"]]


@pytest.mark.parametrize("title", ["Engines", "Settings that differ"])
def test_the_bad_engine_is_the_first_row_of_every_table(panels: Mapping[str, Any], title: str) -> None:
    cells = first_cells(panels[title])
    assert len(cells) == len(engine_fleet.ENGINES)
    assert cells[0].startswith(engine_fleet.address(engine_fleet.BAD))


@pytest.mark.parametrize("title", ["Goodput by sidecar", "Waiting by engine", "KV cache by engine"])
def test_the_bad_engine_is_the_first_row_of_a_legend(panels: Mapping[str, Any], title: str) -> None:
    first = panels[title]["legend"]["rows"][0]["series"]
    assert engine_fleet.address(engine_fleet.BAD).partition(":")[0] in panels[title]["series"][first]["name"]
