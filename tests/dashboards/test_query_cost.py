"""The first load and the refresh of a dashboard ask no more of Prometheus than a reader needs."""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from dashboards.command import GENERATED
from exporters.text.units import parse_duration
from exporters.vocabulary.signals import REQUESTS
from tests.support.dashboard_queries import series_in

RULES = GENERATED.parents[1] / "alerts/generated/rules.yaml"
BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(GENERATED.glob("*.json"))}
every = pytest.mark.parametrize("page", BOARDS.values(), ids=BOARDS.keys())


@every
def test_no_dashboard_queries_the_fleet_more_often_than_the_rules_are_evaluated(page: dict[str, Any]) -> None:
    assert parse_duration(page["refresh"]) >= 60


@every
def test_a_range_query_of_many_series_has_at_most_120_points(page: dict[str, Any]) -> None:
    """Histograms and the counter of ended requests have most series; the coverage of engine times changes slowly."""
    many = {
        panel["title"]: panel.get("maxDataPoints", 0)
        for element in page["panels"]
        for panel in (element, *element.get("panels", []))
        for target in panel.get("targets", ())
        if not target.get("instant")
        and any(name == REQUESTS.name or name.endswith("_bucket") for name in series_in(target["expr"]))
    }
    assert {title for title, points in many.items() if points != 120} <= {"Engine time coverage"}, many
    assert many.get("Engine time coverage", 60) == 60


@every
def test_a_subquery_of_a_fixed_length_has_at_most_1500_points(page: dict[str, Any]) -> None:
    ranges = [
        (parse_duration(length), parse_duration(step))
        for length, step in re.findall(r"\[(\d+\w+):(\d+\w+)\]", json.dumps(page))
    ]
    assert [each for each in ranges if each[0] / each[1] > 1500] == []


@every
def test_a_column_is_not_queried_if_it_is_a_function_of_two_others(page: dict[str, Any]) -> None:
    """Grafana computes it without a query; a change with an interval is queried."""
    for panel in (each for element in page["panels"] for each in (element, *element.get("panels", []))):
        queries = [target["expr"] for target in panel.get("targets", ()) if target.get("format") == "table"]
        repeated = {
            query
            for query in queries
            if "sqrt" not in query
            and any(one in query and other in query for one, other in combinations({*queries} - {query}, 2))
        }
        assert not repeated, panel["title"]


BY_ROUTE = re.compile(r"sumby\(route(,outcome)?\)\((rate|increase)\($")
AGGREGATED = re.compile(r"sum(by\([^)]*\))?\((rate|increase)\($")


@pytest.mark.parametrize("path", [*sorted(GENERATED.glob("*.json")), RULES], ids=lambda path: str(path.stem))
def test_each_count_of_requests_is_a_sum_without_the_route_except_on_its_own_panels(path: Path) -> None:
    # texts of empty panels name a series
    queries = re.sub(r"(?:no series|no result from|Series:) [\w:]+", "", path.read_text())
    text = re.sub(r"\s+", "", queries)
    for match in re.finditer(REQUESTS.name, text):
        before = AGGREGATED.search(text, max(0, match.start() - 100), match.start())
        assert before is not None, text[match.start() - 100 : match.end()]
        assert "route" not in before[0] or (path.stem == "slo-workload" and BY_ROUTE.search(before[0]))
